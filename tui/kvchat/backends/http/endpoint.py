"""A server's address: base URLs, the class of the host, the addresses it was resolved to, and how to get in.

The class is that of the resolved address, and the connection goes to that very address. A name that
resolves into several classes counts as the most remote of them. A key is bound to one origin, appears in no
representation, and does not cross an open network unencrypted unless the user allows it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import (
    PLAIN,
    SESSION_HEADERS,
    BackendError,
    HostClass,
    Locality,
    ServerOptions,
    Trouble,
    failure,
)
from kvchat.sanitize import one_line
from kvchat.text.faults import Fault

# -- where a server is ------------------------------------------------------------------------------------------------


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Looks up a host name; raises OSError."""

_REMOTENESS = (HostClass.LOOPBACK, HostClass.TAILNET, HostClass.LAN, HostClass.CLOUD)
LOOPBACK = ("127.0.0.1", "::1")
_METADATA = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_TAILNET = tuple(map(ipaddress.ip_network, ("100.64.0.0/10", "fd7a:115c:a1e0::/48")))
_LAN = tuple(
    map(
        ipaddress.ip_network,
        (
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "fc00::/7",
            "fe80::/10",
        ),
    )
)
_NOWHERE = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "240.0.0.0/4", "224.0.0.0/4", "::/128", "ff00::/8")))
_NUMERIC_END = re.compile(r"(?:^|\.)(?:0[xX][0-9a-fA-F]*|[0-9]+)$")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$")
_MOST_ADDRESSES = 8


VERSION, CHAT_END = "/v1", "/chat/completions"
"""What an address may end with and paths begin with; and the end of the path of chats."""


class BadAddressError(ValueError):
    """An address that kvchat never connects to."""

    def __init__(self, why: Fault, host: str, *, unspecified: bool = False) -> None:
        super().__init__(f"{why.name}: {host}")
        self.why = why
        self.host = host
        self.unspecified = unspecified

    def of(self, fault: Fault, url: str) -> BackendError:
        """That a server cannot be used because of it."""
        return failure(
            Trouble.BAD_ADDRESS,
            fault,
            url=url,
            why=self.why.name.lower(),
            host=self.host,
            unspecified=self.unspecified,
        )


class BaseUrl(Struct, frozen=True):
    """A server's base URL, normalised: no user, no query, no trailing slash, no `/v1`."""

    scheme: str
    host: str
    """A name in ASCII, or an address without brackets; lower case."""
    port: int
    path: str = ""
    """A prefix such as `/llm`, or empty."""

    @property
    def authority(self) -> str:
        """Host and port as the `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def at(self, address: str) -> str:
        """The same URL with the host replaced by a resolved address."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class ResolvedServer(Struct, frozen=True):
    """A resolved server: its class, and the addresses a connection may go to."""

    host_class: HostClass
    addresses: tuple[str, ...]


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def classify(address: Address) -> HostClass:
    """The class of an address. Raises BadAddressError for one that no server can have or that kvchat refuses."""
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or ipaddress.IPv6Address(int(address))  # without a zone
    if address in _METADATA or _beyond_a_gateway(address) in _METADATA:
        raise BadAddressError(Fault.METADATA_ADDRESS, str(address))
    if any(address in network for network in _NOWHERE):
        raise BadAddressError(Fault.NOWHERE_ADDRESS, str(address), unspecified=address.is_unspecified)
    if address.is_loopback:
        return HostClass.LOOPBACK
    if any(address in network for network in _TAILNET):
        return HostClass.TAILNET
    if any(address in network for network in _LAN):
        return HostClass.LAN
    return HostClass.CLOUD


def _beyond_a_gateway(address: Address) -> Address | None:
    """The IPv4 address that a gateway makes of an IPv6 address (NAT64, 6to4); None for any other. What such an
    address leads to is decided far away, so it counts as cloud even where a private address is inside."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def most_remote(classes: Iterable[HostClass]) -> HostClass:
    return max(classes, key=_REMOTENESS.index)


def is_loopback_name(host: str) -> bool:
    """`localhost` and `*.localhost`: this machine by definition, whatever a name server says."""
    return host == "localhost" or host.endswith(".localhost")


def literal(host: str) -> Address | None:
    """The address that `host` spells, or None for a name. Raises BadAddressError for spellings such as 127.1."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        if _NUMERIC_END.search(host):
            raise BadAddressError(Fault.SHORT_ADDRESS, one_line(host, 80)) from None
        return None


def parse_base_url(text: str) -> BaseUrl:
    """The base URL in `text`, with or without `/v1` and a final slash. Raises BackendError with a sentence."""
    shown = one_line(text, 120)
    if "@" in text:
        shown = shown.rpartition("@")[2]
        raise _bad(Fault.URL_WITH_USER, shown)
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        host = parts.hostname or ""
    except ValueError:
        raise _bad(Fault.URL_UNREADABLE, shown) from None
    _check_parts(parts, host, shown)
    if port == 0:
        raise _bad(Fault.URL_PORT, shown)
    path = parts.path.rstrip("/").removesuffix(CHAT_END).removesuffix(VERSION).rstrip("/")
    return BaseUrl(parts.scheme, _ascii_host(host, shown), port or _default_port(parts.scheme), path)


def _is_bare(base_url: str) -> bool | None:
    """Whether an address says that the interface is not under `/v1`; None: it does not say."""
    path = base_url.strip().rstrip("/")
    if path.removesuffix(CHAT_END).endswith(VERSION):
        return False
    return True if path.endswith(CHAT_END) else None


def _check_parts(parts: SplitResult, host: str, shown: str) -> None:
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise _bad(Fault.URL_SCHEME, shown)
    if not host:
        raise _bad(Fault.URL_HOST, shown)
    if parts.query or parts.fragment:
        raise _bad(Fault.URL_QUERY, shown)
    if not parts.path.isascii() or not parts.path.isprintable() or " " in parts.path or "\\" in parts.path:
        raise _bad(Fault.URL_PATH, shown)


def _ascii_host(host: str, shown: str) -> str:
    """`host` checked, lower case, in ASCII (punycode), without a final dot."""
    if "%" in host:
        raise _bad(Fault.URL_ZONE, shown)
    host = host.lower().removesuffix(".")
    try:
        address = literal(host)
        if address is not None:
            classify(address)
            return str(address)
    except BadAddressError as error:
        raise error.of(Fault.URL_ADDRESS, shown) from None
    try:
        host = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise _bad(Fault.URL_NAME, shown) from None
    if not all(_LABEL.match(label) for label in host.split(".")):
        raise _bad(Fault.URL_NAME, shown)
    return host


def _bad(fault: Fault, shown: str) -> BackendError:
    return failure(Trouble.BAD_ADDRESS, fault, url=shown)


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name, from the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


async def locate(url: BaseUrl, resolver: Resolver = lookup) -> ResolvedServer:
    """The class and the addresses of `url`'s host. Raises BackendError with a sentence."""
    if is_loopback_name(url.host):
        return ResolvedServer(HostClass.LOOPBACK, LOOPBACK)
    address = literal(url.host)
    if address is not None:
        return ResolvedServer(classify(address), (str(address),))
    try:
        found = await resolver(url.host, url.port)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise failure(Trouble.UNREACHABLE, Fault.UNKNOWN_NAME, host=url.host, url=str(url))
    try:
        classes = [classify(ipaddress.ip_address(text)) for text in found]
    except BadAddressError as error:
        raise error.of(Fault.SERVER_ADDRESS, str(url)) from None
    except ValueError:
        raise failure(Trouble.BAD_ADDRESS, Fault.NAME_LEADS_NOWHERE, host=url.host, url=str(url)) from None
    if url.host.endswith(".local"):
        classes.append(HostClass.LAN)
    reachable = [text for text in found if "%" not in text] or found
    return ResolvedServer(most_remote(classes), tuple(reachable[:_MOST_ADDRESSES]))


# -- the endpoint -----------------------------------------------------------------------------------------------------


_KEY_NAME = re.compile(r"key|token|secret|auth|cookie|credential|passw|^cf-access-", re.IGNORECASE)
_KNOWS_NO_SECRET = frozenset(name.lower() for name in SESSION_HEADERS)


def is_key_header(name: str) -> bool:
    """Whether what a header of this name holds is as good as a key."""
    return name.lower() not in _KNOWS_NO_SECRET and _KEY_NAME.search(name) is not None


class Endpoint(Struct, frozen=True):
    """A server to send requests to."""

    url: BaseUrl
    place: ResolvedServer
    api_key: str | None = None
    ca_file: str | None = None
    proxy: str | None = None
    allow_plain_http_key: bool = False
    resolver: Resolver = lookup
    options: ServerOptions = PLAIN
    is_bare: bool | None = None
    """Whether the paths of OpenAI's interface are at the base URL itself, without `/v1`; None: not known yet."""
    name: str = ""
    """What the server is called where its address says nothing to the user; empty: by its URL."""

    def __repr__(self) -> str:
        """Without the key, and the proxy, which may have one in it."""
        return f"Endpoint({self.shown!r})"

    @property
    def shown(self) -> str:
        """The server in an error."""
        return self.name or str(self.url)

    def at(self, path: str) -> str:
        """A path under the base URL, as this server has it."""
        return path.removeprefix(VERSION) if self.is_bare and path.startswith(f"{VERSION}/") else path

    @property
    def is_cloud(self) -> bool:
        return self.place.host_class is HostClass.CLOUD

    @property
    def _holds_a_key(self) -> bool:
        return bool(self.api_key) or any(map(is_key_header, self.options.headers))

    async def located(self) -> Endpoint:
        """The endpoint with its host resolved again, and the rule for keys applied. Raises BackendError.

        Behind a proxy the host counts as cloud: the proxy resolves it, and reads what passes.
        """
        place = ResolvedServer(HostClass.CLOUD, ()) if self.proxy else await locate(self.url, self.resolver)
        place = _as_told(place, self.options.locality)
        if (
            self._holds_a_key
            and self.url.scheme == "http"
            and not self.allow_plain_http_key
            and place.host_class not in (HostClass.LOOPBACK, HostClass.TAILNET)
        ):
            raise failure(Trouble.REFUSED, Fault.PLAIN_KEY, url=str(self.url))
        return replace(self, place=place)


async def open_endpoint(
    base_url: str,
    *,
    api_key: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
    allow_plain_http_key: bool = False,
    resolver: Resolver = lookup,
    options: ServerOptions = PLAIN,
) -> Endpoint:
    """The endpoint at `base_url`, resolved. Raises BackendError with a sentence for what cannot be used."""
    unresolved = ResolvedServer(HostClass.CLOUD, ())
    return await Endpoint(
        parse_base_url(base_url),
        unresolved,
        _usable_key(api_key),
        ca_file,
        _usable_proxy(proxy),
        allow_plain_http_key,
        resolver,
        options,
        _is_bare(base_url),
    ).located()


def _as_told(place: ResolvedServer, locality: Locality) -> ResolvedServer:
    """The place with the user's own word on whether it is local: a public address of their own is as a machine of
    their network; nothing nearer is taken for further away than it is, unless they say so."""
    if locality == "cloud":
        return replace(place, host_class=HostClass.CLOUD)
    if locality == "local" and place.host_class is HostClass.CLOUD and place.addresses:
        return replace(place, host_class=HostClass.LAN)
    return place


def _usable_key(api_key: str | None) -> str | None:
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise failure(Trouble.UNAUTHORIZED, Fault.BAD_KEY)
    return key or None


def _usable_proxy(proxy: str | None) -> str | None:
    if not proxy:
        return None
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise failure(Trouble.BAD_ADDRESS, Fault.BAD_PROXY)
    return proxy

"""Where a server stands: base URLs, addresses and their classes.

The rule: the class is that of the resolved address, and the connection goes to that very address. A name that
resolves into several classes counts as the most remote of them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from kvchat.backends.dialect import BackendError, HostClass, Trouble
from kvchat.sanitize import one_line

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Looks up a host name; raises OSError."""

_REMOTENESS = (HostClass.LOOPBACK, HostClass.TAILNET, HostClass.LAN, HostClass.CLOUD)
LOOPBACK = ("127.0.0.1", "::1")
_METADATA = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_TAILNET = tuple(map(ipaddress.ip_network, ("100.64.0.0/10", "fd7a:115c:a1e0::/48")))
_LAN = tuple(map(ipaddress.ip_network, (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10",
)))
_NOWHERE = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "240.0.0.0/4", "224.0.0.0/4", "::/128", "ff00::/8")))
_NUMERIC_END = re.compile(r"(?:^|\.)(?:0[xX][0-9a-fA-F]*|[0-9]+)$")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$")
_MOST_ADDRESSES = 8


class BadAddressError(ValueError):
    """An address that kvchat never connects to. The message is a sentence without its final stop."""


@dataclass(frozen=True, slots=True)
class BaseUrl:
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


@dataclass(frozen=True, slots=True)
class Place:
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
        raise BadAddressError(f"{address} is the metadata service of a cloud machine, not a model server")
    if any(address in network for network in _NOWHERE):
        hint = "; use 127.0.0.1 for this machine" if address.is_unspecified else ""
        raise BadAddressError(f"{address} is not an address that a server can be reached at{hint}")
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
            shown = one_line(host, 80)
            raise BadAddressError(f'"{shown}" is not a complete IPv4 address; write it as 127.0.0.1') from None
        return None


def parse_base_url(text: str) -> BaseUrl:
    """The base URL in `text`, with or without `/v1` and a final slash. Raises BackendError with a sentence."""
    shown = one_line(text, 120)
    if "@" in text:
        shown = shown.rpartition("@")[2]
        raise _bad(f'The server URL for "{shown}" holds a user or password. Leave them out; '
                   "a key is named by --api-key-env, or api_key_env in the settings.")
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        host = parts.hostname or ""
    except ValueError:
        raise _bad(f'The server URL "{shown}" cannot be read. Write it like http://127.0.0.1:8080.') from None
    _check_parts(parts, host, shown)
    if port == 0:
        raise _bad(f'The server URL "{shown}" has port 0. Give the port the server listens on.')
    path = parts.path.rstrip("/")
    path = path.removesuffix("/chat/completions").removesuffix("/v1").rstrip("/")
    return BaseUrl(parts.scheme, _ascii_host(host, shown), port or _default_port(parts.scheme), path)


def _check_parts(parts: SplitResult, host: str, shown: str) -> None:
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise _bad(f'The server URL "{shown}" must begin with http:// or https://, like http://127.0.0.1:8080.')
    if not host:
        raise _bad(f'The server URL "{shown}" names no host. Write it like http://127.0.0.1:8080.')
    if parts.query or parts.fragment:
        raise _bad(f'The server URL "{shown}" holds a query (?) or fragment (#). Leave it out.')
    if not parts.path.isascii() or not parts.path.isprintable() or " " in parts.path or "\\" in parts.path:
        raise _bad(f'The server URL "{shown}" has characters in its path that a URL cannot hold.')


def _ascii_host(host: str, shown: str) -> str:
    """`host` checked, lower case, in ASCII (punycode), without a final dot."""
    if "%" in host:
        raise _bad(f'The server URL "{shown}" has a zone or an escape in its host. Use a plain name or address.')
    host = host.lower().removesuffix(".")
    try:
        address = literal(host)
        if address is not None:
            classify(address)
            return str(address)
    except BadAddressError as error:
        raise _bad(f'The server URL "{shown}" cannot be used: {error}.') from None
    try:
        host = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise _bad(f'The server URL "{shown}" has a host name that is not valid.') from None
    if not all(_LABEL.match(label) for label in host.split(".")):
        raise _bad(f'The server URL "{shown}" has a host name that is not valid.')
    return host


def _bad(sentence: str) -> BackendError:
    return BackendError(Trouble.BAD_ADDRESS, sentence)


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name, from the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


async def locate(url: BaseUrl, resolver: Resolver = lookup) -> Place:
    """The class and the addresses of `url`'s host. Raises BackendError with a sentence."""
    if is_loopback_name(url.host):
        return Place(HostClass.LOOPBACK, LOOPBACK)
    address = literal(url.host)
    if address is not None:
        return Place(classify(address), (str(address),))
    try:
        found = await resolver(url.host, url.port)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise BackendError(Trouble.UNREACHABLE,
                           f'No address is known for "{url.host}" (from {url}). Check the name and the network.')
    try:
        classes = [classify(ipaddress.ip_address(text)) for text in found]
    except BadAddressError as error:
        raise BackendError(Trouble.BAD_ADDRESS, f"The server {url} cannot be used: {error}.") from None
    except ValueError:
        raise BackendError(Trouble.BAD_ADDRESS, f'The name "{url.host}" (from {url}) leads to something that is not '
                                                "an address. Check the name and the network.") from None
    if url.host.endswith(".local"):
        classes.append(HostClass.LAN)
    reachable = [text for text in found if "%" not in text] or found
    return Place(most_remote(classes), tuple(reachable[:_MOST_ADDRESSES]))

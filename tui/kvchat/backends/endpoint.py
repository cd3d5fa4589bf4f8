"""An endpoint: a server's URL, the addresses it was resolved to, and how to get in.

The rule: a key is bound to one origin, appears in no representation, and does not cross an open network
unencrypted unless the person allows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from kvchat.backends.dialect import BackendError, HostClass, Trouble
from kvchat.backends.hosts import BaseUrl, Place, Resolver, locate, lookup, parse_base_url
from kvchat.backends.options import PLAIN, SESSION_HEADERS, Locality, ServerOptions

_KEY_NAME = re.compile(r"key|token|secret|auth|cookie|credential|passw|^cf-access-", re.IGNORECASE)
_KNOWS_NO_SECRET = frozenset(name.lower() for name in SESSION_HEADERS)


def is_key_header(name: str) -> bool:
    """Whether what a header of this name holds is as good as a key."""
    return name.lower() not in _KNOWS_NO_SECRET and _KEY_NAME.search(name) is not None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server to send requests to."""

    url: BaseUrl
    place: Place
    api_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    proxy: str | None = field(default=None, repr=False)
    allow_plain_http_key: bool = False
    resolver: Resolver = field(default=lookup, repr=False)
    options: ServerOptions = PLAIN

    @property
    def is_cloud(self) -> bool:
        return self.place.host_class is HostClass.CLOUD

    @property
    def _holds_a_key(self) -> bool:
        return bool(self.api_key) or any(map(is_key_header, self.options.headers))

    async def located(self) -> Endpoint:
        """The endpoint with its host resolved anew, and the rule for keys applied. Raises BackendError.

        Behind a proxy the host counts as cloud: the proxy resolves it, and reads what passes.
        """
        place = Place(HostClass.CLOUD, ()) if self.proxy else await locate(self.url, self.resolver)
        place = _as_told(place, self.options.locality)
        if self._holds_a_key and self.url.scheme == "http" and not self.allow_plain_http_key \
                and place.host_class not in (HostClass.LOOPBACK, HostClass.TAILNET):
            raise BackendError(Trouble.REFUSED, f"The API key would go to {self.url} unencrypted, readable on the way. "
                                                "Use https, or allow it by the setting "
                                                "allow_plain_http_key of this server.")
        return replace(self, place=place)


async def open_endpoint(
    base_url: str, *, api_key: str | None = None, ca_file: str | None = None, proxy: str | None = None,
    allow_plain_http_key: bool = False, resolver: Resolver = lookup, options: ServerOptions = PLAIN,
) -> Endpoint:
    """The endpoint at `base_url`, resolved. Raises BackendError with a sentence for what cannot be used."""
    unresolved = Place(HostClass.CLOUD, ())
    return await Endpoint(parse_base_url(base_url), unresolved, _usable_key(api_key), ca_file, _usable_proxy(proxy),
                          allow_plain_http_key, resolver, options).located()


def _as_told(place: Place, locality: Locality) -> Place:
    """The place with the person's own word on whether it is local: a public address of their own is as a machine of
    their network; nothing nearer is taken for further away than it is, unless they say so."""
    if locality == "cloud":
        return replace(place, host_class=HostClass.CLOUD)
    if locality == "local" and place.host_class is HostClass.CLOUD and place.addresses:
        return replace(place, host_class=HostClass.LAN)
    return place


def _usable_key(api_key: str | None) -> str | None:
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BackendError(Trouble.UNAUTHORIZED, "The API key holds spaces or characters that a key cannot have. "
                                                 "Check the variable that holds it (--api-key-env, or api_key_env "
                                                 "in the settings).")
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
        raise BackendError(Trouble.BAD_ADDRESS, "The proxy's URL must be like http://proxy.example:3128.")
    return proxy

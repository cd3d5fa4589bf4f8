"""Discovery: which model servers run on this machine, known by what they answer on their usual ports.

The rule: only this machine is asked, by GET alone, without a key; it takes no longer than it may, whatever answers;
and a server is what its answers say, never what its port suggests: a port only says which questions come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from kvchat.backends import kinds
from kvchat.backends.dialect import BackendError, HostClass
from kvchat.backends.discovery_visit import Found, Phase, Visit, questions
from kvchat.backends.hosts import (
    LOOPBACK,
    BadAddressError,
    BaseUrl,
    classify,
    is_loopback_name,
    literal,
    parse_base_url,
)

__all__ = ["Found", "Phase", "discover", "is_asked", "questions"]

ASKING = 0.85
"""The share of the time in which questions are asked; the rest is for what a busy machine makes late."""


async def discover(ports: Iterable[int] | None = None, *, also: Sequence[str] = (),
                   within: float = 0.3) -> list[Found]:
    """Every server that answers on `ports` of this machine (None: the usual ones), or at the base URLs `also`, after
    at most `within` seconds.

    All are asked at once; what is known of a server at the end of the time is told. Base URLs that do not lead to
    this machine in so many words (another address, another name, https) are not asked.
    """
    asked = kinds.ports() if ports is None else ports
    visits = [Visit(url, addresses, within) for url, addresses in _places(asked, also)]
    looks = [asyncio.create_task(visit.look()) for visit in visits]
    try:
        if looks:
            await asyncio.wait(looks, timeout=within * ASKING)
    finally:
        for look in looks:
            look.cancel()
        for visit in visits:
            visit.close()
    await asyncio.gather(*looks, return_exceptions=True)
    found = await asyncio.gather(*(visit.found() for visit in visits))
    return [server for server in found if server is not None]


def _places(ports: Iterable[int], also: Sequence[str]) -> Iterator[tuple[BaseUrl, tuple[str, ...]]]:
    """What to ask, each server once: its URL, and the addresses that it may listen on."""
    seen = set()
    for port in dict.fromkeys(ports):
        seen.add((port, ""))
        yield BaseUrl("http", LOOPBACK[0], port), LOOPBACK
    for url in filter(None, map(_of_this_machine, also)):
        if (url.port, url.path) not in seen:
            seen.add((url.port, url.path))
            yield url, LOOPBACK if is_loopback_name(url.host) else (url.host,)


def is_asked(base_url: str) -> bool:
    """Whether `discover` asks a server at this address: it leads to this machine in so many words, without TLS."""
    return _of_this_machine(base_url) is not None


def _of_this_machine(text: str) -> BaseUrl | None:
    try:
        url = parse_base_url(text)
        address = literal(url.host)
    except (BackendError, BadAddressError):
        return None
    here = is_loopback_name(url.host) if address is None else classify(address) is HostClass.LOOPBACK
    return url if here and url.scheme == "http" else None

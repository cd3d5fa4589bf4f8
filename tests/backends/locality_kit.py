"""What the tests of locality share: names that move, and dialects whose servers take everything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ServerInfo
from kvchat.backends.http.endpoint import Endpoint


def resolving(*rounds: list[str]) -> Callable[[str, int], Awaitable[list[str]]]:
    """A resolver that gives the next list at each look, and the last one for ever."""
    left = list(rounds)

    async def resolver(host: str, port: int) -> list[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolver


def greedy(dialect: type[HttpBackend], endpoint: Endpoint, **given: Any) -> HttpBackend:
    """A backend of `dialect` whose server says that it takes every local extra."""

    async def describe(self: HttpBackend) -> ServerInfo:
        return replace(self.info, model="m", takes_local_extras=True, context_size=4096)

    async def alone(_: HttpBackend) -> bool:
        return False

    own = {"describe": describe, "_has_replicas": alone}
    backend: HttpBackend = type("Greedy", (dialect,), own)(endpoint, **given)
    return backend

"""A short probe of an unused server: six tiny prompts that tell its cache's rules apart.

It is played on the guesses as every request is, so that wrong predictions speak against them. It prefills less than 150
tokens in all, and a cancel leaves nothing half known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from kvchat.backends.dialect import BackendError
from kvchat.cache import Tokens
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.figures.speed import SpeedSample

PART = 20
"""Tokens of one prompt: enough for a checkpoint to lie within it."""
ALPHABET = "a b c d e f g h"


def prompts(ids: Sequence[int], slots: int) -> Iterator[tuple[Tokens, int]]:
    """What is sent, made of 4 different ids, and the slot it is pinned to.

    A longer prompt tells a sliding window from the rest, another end a model that cannot rewind, another slot whether
    that empties the first one, and a prompt that was pushed out whether it was parked."""
    first, second, third, fourth = ([id] * PART for id in ids)
    half, last = PART // 2, slots - 1
    yield Tokens(first), 0
    yield Tokens(first + third[:half]), 0
    yield Tokens(first[:half] + fourth[:half]), 0
    yield Tokens(second), last
    yield Tokens(third), last
    yield Tokens(second), last


async def unused(cache: ServerCache) -> bool:
    """Whether no slot of the server was ever used."""
    counts = (await cache.look()).counts
    return bool(counts) and all(count.task is None and not count.tokens and not count.busy for count in counts)


async def probe(cache: ServerCache, spent: Callable[[SpeedSample], None]) -> None:
    """Send the prompts; `spent` gets what each of them prefilled. Raises BackendError."""
    ids = list(dict.fromkeys(await cache.access.tokens_of(ALPHABET)))[-4:]
    for prompt, slot in prompts(ids, cache.server.slots or 1) if len(ids) == 4 else ():
        cache.side_request("side", "", prompt, slot)
        try:
            done = await cache.access.prefill(prompt, lambda _: None, slot)
        except (asyncio.CancelledError, BackendError):
            cache.side_request_cut(None)
            raise
        if done.cached_tokens is not None:
            cache.simulated.heard(done.cached_tokens, counts=False)
        cache.simulated.ended(Tokens.unknown(1))
        spent(SpeedSample(done.cached_tokens or 0, len(prompt), (done.prompt_ms or 0.0) / 1000))
        await cache.look()

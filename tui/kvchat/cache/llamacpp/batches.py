"""What the ends of a prompt's batches tell of a server's options.

A server that saves checkpoints ends a batch where it saves one (`checkpoints`), and says after each batch how far the
prompt is read. So one request shows whether it makes any, and its micro-batch (`--ubatch-size`), which `/props` leaves
out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.checkpoints import TAIL

CHECKPOINTS = Shape().checkpoints
STEP = 64
"""Batches are a multiple of this many tokens; other ends are those of messages whose place is not known."""
LARGER = (1024, 2048, 4096, 8192)
"""Sizes of batches and micro-batches that are in use, beyond the usual micro-batch."""


def shape_from_batches(shape: Shape, start: int, ends: Sequence[int], users: Collection[int]) -> Shape | None:
    """`shape` with what the ends of a prompt's batches tell, in tokens of the prompt from `start`, which were cached;
    the last one is the prompt's. None: a server of this shape ends no batch there. `users`: where user messages begin,
    as far as that is known."""
    prompt = ends[-1]
    tail = prompt - TAIL
    if start >= tail:
        return shape
    saves = tail in ends
    if shape.rewind is Rewind.ANYWHERE:
        return None if saves else shape
    if not saves:
        return replace(shape, checkpoints=0, whole_window=shape.rewind is Rewind.WINDOW)
    shape = replace(shape, checkpoints=shape.checkpoints or CHECKPOINTS, whole_window=False)
    others = [end for end in ends if end < tail and end not in users]
    longest = max(end - before for before, end in zip((start, *ends), ends, strict=False))
    full = {end - before for before, end in zip((start, *ends), ends, strict=False) if end in others[:-1]}
    if longest > shape.batch:
        shape = replace(shape, batch=next((size for size in LARGER if size >= longest), longest))
    elif full and max(full) == longest < shape.batch and longest % STEP == 0:
        shape = replace(shape, batch=longest)
    if not others:
        least = tail - start
        larger = [size for size in LARGER if least <= size <= shape.batch]
        return shape if shape.micro_batch >= least or not larger else replace(shape, micro_batch=larger[0])
    before = prompt - others[-1]
    size = before if before == shape.batch else before - TAIL
    return replace(shape, micro_batch=size) if size > 0 and size % STEP == 0 else shape

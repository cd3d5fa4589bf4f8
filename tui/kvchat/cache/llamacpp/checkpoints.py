"""How far back a model's cache can go: the checkpoints of sliding-window and hybrid models.

A dense model drops its last tokens at will. A sliding-window model keeps only the last few hundred positions of
most layers, a recurrent one only its last state: both go back to where they were saved while reading, or read all
again. The server saves before a batch of the prompt is computed: at the start of user messages (chat requests
only), and where the last batches of the prompt begin. It ends a batch at those places on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kvchat.cache.llamacpp.cache_config import Rewind, Shape

TAIL = 4
"""The last batch of a prompt, in tokens; there is a checkpoint before it."""


class Checkpoint(Struct, frozen=True):
    """A saved place in a state."""

    tokens: int
    """How many tokens had been read."""
    first: int
    """The first position that the state still had."""
    request: int = 0
    """Which request made it."""


class Memory(Struct, frozen=True):
    """What a slot's cache can do with its tokens: where it begins, and where it can go back to."""

    first: int = 0
    """The first position of which the sliding window is still there; 0 for a dense model."""
    checkpoints: tuple[Checkpoint, ...] = ()


def resume(memory: Memory, held: int, common: int, prompt: int, shape: Shape) -> tuple[int, Memory]:
    """Where reading starts, and the memory that is left, when a state of `held` tokens meets a prompt of `prompt`
    tokens of which it has `common`. The last token of a prompt is always read, for its logits."""
    if shape.rewind is Rewind.ANYWHERE:
        return min(common, prompt - 1), memory
    start, first, known = common, memory.first, memory.checkpoints
    window = shape.window if shape.rewind is Rewind.WINDOW and not shape.whole_window else 0
    needed = max(0, common - window - (0 if common < prompt else 1))
    if common and _first(memory, held, shape) >= needed:
        useful = [c for c in known if c.tokens - 1 <= common and (c.first < needed or c.first == 0)]
        if useful:
            start = min(common, max(useful[-1].first + 1, useful[-1].tokens - 1))
            first = _saved_first(useful[-1].first, useful[-1].tokens, shape)
        else:
            start, first = 0, 0
    left = tuple(c for c in known if c.tokens - 1 <= start)
    return min(start, prompt - 1), Memory(min(first, start), left)


def read(
    memory: Memory,
    start: int,
    prompt: int,
    stop: int,
    users: Sequence[int],
    request: int,
    shape: Shape,
) -> Memory:
    """The memory after the prompt's tokens from `start` to `stop` were read by `request`."""
    if shape.rewind is Rewind.ANYWHERE:
        return memory
    last_user = users[-1] if users else -1
    at, first, known = start, memory.first, list(memory.checkpoints)
    while at < stop:
        end = _batch_end(at, prompt, users, known, shape)
        near = prompt < end + shape.micro_batch
        wanted = (end == prompt or near or at in users) and (
            not known or near or at == last_user or at > known[-1].tokens + shape.checkpoint_step
        )
        if wanted and at > 0 and shape.checkpoints > 0:
            known = _with(Checkpoint(at, first if shape.rewind is Rewind.WINDOW else at - 1, request), known, shape)
        at = end
        first = overwritten(first, at, shape)
    return Memory(first, tuple(known))


def _batch_end(at: int, prompt: int, users: Sequence[int], known: Sequence[Checkpoint], shape: Shape) -> int:
    """Where the batch ends that begins at `at`."""
    ends = [min(at + shape.batch, prompt)]
    ends += [
        user
        for user in users
        if user > at and (user == users[-1] or not known or user > known[-1].tokens + shape.checkpoint_step)
    ]
    ends += [prompt - min(shape.batch, TAIL + before) for before in (shape.micro_batch, 0)]
    return min(end for end in ends if end > at)


def _with(new: Checkpoint, known: list[Checkpoint], shape: Shape) -> list[Checkpoint]:
    """The checkpoints with a new one. When there is no room, those close behind another go, then the oldest."""
    if len(known) + 1 >= shape.checkpoints:
        known = list(_spread(known, new.request, shape))
    while len(known) >= shape.checkpoints:
        known = known[1:]
    return [*(c for c in known if c.tokens != new.tokens), new]


def at_most(memory: Memory, shape: Shape) -> Memory:
    """The memory with as many of its checkpoints as a server keeps."""
    known = list[Checkpoint]()
    for one in memory.checkpoints if shape.checkpoints else ():
        known = _with(one, known, shape)
    return Memory(memory.first, tuple(known))


def _spread(known: Sequence[Checkpoint], request: int, shape: Shape) -> Iterator[Checkpoint]:
    last, left = -1, len(known)
    for c in known:
        full = left + 1 >= shape.checkpoints
        if full and c.request != request and last >= 0 and c.tokens <= last + shape.checkpoint_step:
            left -= 1
            continue
        last = c.tokens
        yield c


def overwritten(first: int, tokens: int, shape: Shape) -> int:
    """The first position that is still there when `tokens` have been read."""
    return max(first, tokens - shape.window_room) if shape.rewind is Rewind.WINDOW else 0


def saved(memory: Memory, tokens: int, shape: Shape) -> Memory:
    """The memory of a state of `tokens` that was parked, or saved to a file, and taken back."""
    return Memory(_saved_first(memory.first, tokens, shape), memory.checkpoints)


def _saved_first(first: int, tokens: int, shape: Shape) -> int:
    """What is saved of a sliding window is the window itself."""
    return max(first, tokens - shape.window) if shape.rewind is Rewind.WINDOW else 0


def _first(memory: Memory, held: int, shape: Shape) -> int:
    return held - 1 if shape.rewind is Rewind.NOWHERE else memory.first

"""Where each message of a branch begins and ends, in tokens of the prompt, as the servers' figures tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kvchat.prompt.message import Node, Role

BYTES_PER_TOKEN = 4
"""For messages that no server has counted."""


def extents(path: Sequence[Node]) -> list[tuple[int | None, int | None]]:
    """Where each message begins and ends, in tokens of the prompt. The first question's tokens go with the system
    message's where they were not counted apart."""
    ends: list[int | None] = []
    for node, following in zip(path, [*path[1:], None], strict=True):
        if node.role in (Role.USER, Role.TOOL):
            figures = (following or node).figures
            ends.append(figures.asked_tokens if figures else None)
        else:
            ends.append(node.figures.context_used if node.figures else None)
    if len(ends) > 1 and ends[0] is None and ends[1] is not None:
        sizes = [len(node.wire) for node in path[:2]]
        ends[0] = ends[1] * sizes[0] // max(1, sum(sizes))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def ends_of(path: Sequence[Node], prompt: int | None = None, *, begun: bool = False) -> list[int]:
    """Where each message ends, in tokens; estimated from its bytes where it was not counted. `prompt`: the tokens of
    the prompt that ends before the last message, where they are known by now; `begun`: it ends with what there is of
    that."""
    known = [end for _, end in extents(path)]
    if prompt is not None:
        for at in (-1,) if begun else (-2, -1):
            known[at:] = [prompt] * len(known[at:])
    ends, reached = list[int](), 0
    for node, end in zip(path, known, strict=True):
        reached = end if end is not None else reached + len(node.wire) // BYTES_PER_TOKEN + 1
        ends.append(reached)
    # What a template drops of an answer, its reasoning, is in no later prompt.
    return list(accumulate(reversed(ends), min))[::-1]

"""What a server has prefilled of a branch before: on the branch itself, or on another one of the same tree. The rest is
new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kvchat.prompt.message import Node, Role


class PrefilledBefore(Struct, frozen=True):
    """How much of a branch was in an earlier prompt of its tree, or is a reply to one."""

    messages: int = 0
    tokens: int | None = 0
    """By the figures of the answer; None: it has none."""


NOTHING_PREFILLED = PrefilledBefore()


def prefilled_before(tree: Iterable[Node], path: Sequence[Node], model: str = "") -> PrefilledBefore:
    """What was prefilled before of the branch `path`, by the answers in `tree`: messages with the same digest begin the
    same prompts. `model`: who is asked now; a question that another one answered is new to it."""
    found: dict[bytes, int | None] = {}
    nodes = list(tree)
    asked = {node.id: node.digest for node in nodes if node.role in (Role.USER, Role.TOOL)}
    for node in nodes:
        figures = node.figures
        if node.role is not Role.ASSISTANT or (figures is None and not node.text and not node.message.calls):
            continue
        counted = figures is not None and figures.predicted_tokens is not None
        found[node.digest] = figures.context_used if figures is not None and counted else found.get(node.digest)
        began = bool(not node.is_wordless or (figures and figures.predicted_tokens))
        began = began and (not model or node.model in ("", model))
        if began and figures is not None and figures.asked_tokens is not None and node.parent in asked:
            found[asked[node.parent]] = figures.asked_tokens
    for messages in range(len(path), 0, -1):
        if (digest := path[messages - 1].digest) in found:
            return PrefilledBefore(messages, found[digest])
    return NOTHING_PREFILLED

"""What `kvchat ask --json` prints of an answer, and the sources that its turn was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvchat.chat.conversations.live import OpenConversation
from kvchat.prompt.citations import name_of, sources
from kvchat.prompt.compaction import turns_of
from kvchat.prompt.message import Node, Role, State
from kvchat.text.notes import note_sentence

FINISH = {State.DONE: "stop", State.LENGTH: "length", State.CONTEXT_FULL: "length"}


def sources_given(conversation: OpenConversation, answer: Node) -> dict[int, str]:
    """What its turn has from documents: where each is from, by the number that the answer cites."""
    return {number: name_of(block) for number, block in sources(_turn(conversation, answer)).items()}


def _turn(conversation: OpenConversation, answer: Node) -> list[Node]:
    """The question of an answer, with what came of it, to that answer."""
    return turns_of(conversation.tree.path(answer.id))[-1]


def report(conversation: OpenConversation, answer: Node) -> Mapping[str, object]:
    """The object of `--json`: what was said and what it cost. Figures that are not known are null."""
    figures = answer.figures
    return {
        "conversation": conversation.id,
        "message_ids": {"user": _turn(conversation, answer)[0].id, "assistant": answer.id},
        "model": answer.model,
        "text": answer.text,
        "reasoning": answer.message.reasoning or None,
        "sources": [
            {"number": number, "title": title} for number, title in sources_given(conversation, answer).items()
        ],
        "calls": [
            {"tool": call.name, "arguments": call.arguments}
            for node in _turn(conversation, answer)
            if node.role is Role.TOOL
            for call in node.message.calls
        ],
        "finish_reason": FINISH.get(answer.state, str(answer.state)),
        "note": note_sentence(answer.note) or None,
        "note_kind": answer.note.kind if answer.note else None,
        "prompt_tokens": figures and figures.prompt_tokens,
        "cached_tokens": figures and figures.cached_tokens,
        "estimated": bool(figures and figures.estimated),
        "evaluated_tokens": figures and figures.evaluated_tokens,
        "new_tokens": figures and figures.new_tokens,
        "wasted_tokens": figures and figures.wasted_tokens,
        "reuse": figures and figures.reuse,
        "hit_ratio": figures and figures.hit_ratio,
        "ttft_ms": figures and figures.ttft_ms,
        "prompt_ms": figures and figures.prompt_ms,
        "predicted_tokens": figures and figures.predicted_tokens,
        "predicted_ms": figures and figures.predicted_ms,
        "context_size": figures and figures.context_size,
        "cause": figures and figures.cause,
        "turn": _sums(_turn(conversation, answer)),
    }


SUMMED = ("prompt_tokens", "cached_tokens", "evaluated_tokens", "new_tokens", "wasted_tokens", "predicted_tokens")


def _sums(turn: Sequence[Node]) -> Mapping[str, int | None]:
    """How many requests a turn took, and the sums of their figures; one that is not known of each is null."""
    steps = [node.figures for node in turn if node.role is Role.ASSISTANT and node.figures is not None]
    sums: dict[str, int | None] = {"requests": len(steps)}
    for name in SUMMED:
        known = [value for step in steps if (value := getattr(step, name)) is not None]
        sums[name] = sum(known) if len(known) == len(steps) else None
    return sums

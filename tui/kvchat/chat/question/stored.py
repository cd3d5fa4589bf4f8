"""A question as it waits in the queue: what the user wrote, attached and chose, and nothing that is looked up when it
is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING, MentionScope
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import span_rows, spans_of
from kvchat.prompt.wire import whole_characters


def waiting(question: Question) -> Question:
    """The question without what was found for it so far: that is searched again when it is sent, with the user's
    picks. Where the user picked nothing, nothing is searched."""
    return replace(question, passages=() if question.passages == () else None, files=None)


def folder_of(question: Question) -> str:
    """The working folder, where a question may mention something by a path in it; else empty."""
    if "@" not in question.text:
        return ""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def encoded(question: Question, folder: str = "") -> str:
    """All of a waiting question but its text, and the folder in which it was asked, as JSON."""
    meant = question.meant
    return whole_characters(
        json.dumps(
            {
                "blocks": [[block.kind, block.source, block.text, block.ref] for block in question.blocks],
                "spans": span_rows(meant.spans, question.blocks),
                "agreed": sorted(meant.agreed),
                "without": sorted(question.without),
                "taken": sorted(question.taken),
                "recalls": question.recalls,
                "searches": question.passages is None,
                "folder": folder,
            },
            ensure_ascii=False,
        )
    )


def decoded(text: str, more: str) -> tuple[Question, str]:
    """The question that was `encoded`, and its folder. Of damaged JSON the text stays, which mentions nothing then."""
    try:
        found = json.loads(more)
        blocks = tuple(ContextBlock(*map(str, block)) for block in found["blocks"])
        question = Question(
            text,
            blocks,
            MentionScope(spans_of(found["spans"], blocks, text), _texts(found["agreed"])),
            None if found["searches"] else (),
            without=_texts(found["without"]),
            taken=_texts(found["taken"]),
            recalls=bool(found["recalls"]),
        )
        return question, str(found["folder"])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return Question(text, meant=NOTHING), ""


def _texts(found: Iterable[Any]) -> frozenset[str]:
    return frozenset(map(str, found))

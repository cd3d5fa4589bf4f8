"""`kvchat list`: the conversations, newest first, as text or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kvchat.cli.session import Session, tag
from kvchat.commands.command import CommandResult, TextTable
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.tags import ARCHIVE, FAVOURITE, having, in_words
from kvchat.sanitize import one_line
from kvchat.text.format import FAVOURITE_MARK, KEPT_MARK, counted, day_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tag",
        metavar="NAME",
        action="append",
        type=tag,
        default=[],
        help="only those with this tag, the archived too; several: with all of them",
    )
    parser.add_argument("--trash", action="store_true", help="the deleted ones")
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(session: Session) -> int:
    """Print them. Raises CommandError."""
    session.print_problems()
    tags, trash = session.args.tag, session.args.trash
    found, kept, turns = session.look(
        lambda store: (
            [c for c in store.conversations(trashed=trash) if c.turns],
            {kept.id for kept in store.kept.all()},
            store.fewer_turns(),
        )
    )
    shown = having(found, tags) if tags or trash else [c for c in found if ARCHIVE not in c.tags]
    rows = [
        {
            "id": c.id,
            "title": c.title,
            "created": c.created,
            "updated": c.updated,
            "turns": turns.get(c.id, c.turns),
            "context_used": c.context_used,
            "tags": c.tags,
            "kept": c.id in kept,
        }
        for c in shown
    ]

    cells = [
        (c.id[:8], day_time(c.updated), counted(turns.get(c.id, c.turns), "turn"), _title(c, c.id in kept))
        for c in shown
    ]
    return session.give(CommandResult(rows, (TextTable(cells) if shown else _none(tags, trash, len(found)),)))


def _title(conversation: Conversation, kept: bool) -> str:
    mark = FAVOURITE_MARK if FAVOURITE in conversation.tags else ""
    marks = (mark, KEPT_MARK if kept else "")
    return " ".join(filter(None, (*marks, one_line(conversation.title), in_words(conversation.tags))))


def _none(tags: Sequence[str], trash: bool, archived: int) -> str:
    if tags:
        return none_with(tags)
    if trash:
        return "The trash is empty."
    if archived:
        return "All conversations are archived. They are in: kvchat list --tag archive"
    return "There are no conversations yet."


def none_with(tags: Sequence[str]) -> str:
    """That no conversation has these tags."""
    return f"No conversation has the tag{'s' if len(tags) > 1 else ''} {' and '.join(tags)}. kvchat tag lists the tags."

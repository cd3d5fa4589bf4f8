"""`kvchat list`: the conversations, newest first, as text or as JSON."""

from __future__ import annotations

import argparse

from kvchat.cli.plain_output import print_table
from kvchat.cli.session import Session
from kvchat.sanitize import one_line
from kvchat.text.format import day_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(session: Session) -> int:
    """Print them. Raises CommandError."""
    session.print_problems()
    conversations = session.look(lambda store: [c for c in store.conversations() if c.turns])
    rows = [{"id": c.id, "title": c.title, "created": c.created, "updated": c.updated, "turns": c.turns,
             "context_used": c.context_used} for c in conversations]

    def words() -> None:
        if not conversations:
            print("There are no conversations yet.")
        else:
            print_table([(c.id[:8], day_time(c.updated), f"{c.turns} turns" if c.turns != 1 else "1 turn",
                          one_line(c.title)) for c in conversations])

    session.tell(rows, words)
    return 0

"""`kvchat search`: messages by their words, in all conversations."""

from __future__ import annotations

import argparse
import sys

from kvchat.cli.session import Session
from kvchat.sanitize import one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="+")


def run(session: Session) -> int:
    """Print the best hits; the exit status is 1 where there are none. Raises CommandError."""
    session.print_problems()
    hits = session.look(lambda store: store.search(" ".join(session.args.query), 50, ranked=True))
    for hit in hits:
        print(f"{hit.conversation[:8]}  {one_line(hit.title, 40)}  {hit.role}: {one_line(hit.unmarked)}")
    if not hits:
        print("Nothing found.", file=sys.stderr)
    return 0 if hits else 1

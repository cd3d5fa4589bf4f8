"""`kvchat show`: a conversation, as Markdown."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvchat.cli.session import Session
from kvchat.sanitize import clean

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")


def run(session: Session) -> int:
    """Print it. Raises CommandError."""

    async def show(service: ChatService) -> int:
        record = service.conversations.find(session.args.id)
        print(clean("".join(service.exports.text([record.id], "md"))), end="")
        return 0

    session.print_problems()
    return session.with_service(show)

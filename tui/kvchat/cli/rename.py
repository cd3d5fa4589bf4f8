"""`kvchat rename`: another title for a conversation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvchat.cli.session import Session, UsageError
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("title", metavar="TITLE", nargs="+")


def run(session: Session) -> int:
    """Rename it and print its title. Raises CommandError."""
    title = " ".join(" ".join(session.args.title).split())
    if not title:
        raise UsageError("The title is empty. Write one: kvchat rename ID TITLE")

    async def rename(service: ChatService) -> int:
        id = service.conversations.find(session.args.id).id
        await service.conversations.rename(id, title)
        print(one_line(service.conversations.find(id).title))
        return 0

    session.print_problems()
    return session.with_service(rename)

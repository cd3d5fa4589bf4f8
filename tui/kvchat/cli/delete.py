"""`kvchat delete`: conversations go to the trash, from which `kvchat restore` brings them back."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvchat.cli.session import CommandError, Session
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="+")


def run(session: Session) -> int:
    """Delete them, all or none of those that are named. Raises CommandError."""

    async def delete(service: ChatService) -> int:
        found = {record.id: record for record in map(service.conversations.find, session.args.id)}
        for record in found.values():
            if record.trashed is not None:
                raise CommandError(f"“{record.title}” is in the trash already.")
        for record in found.values():
            await service.conversations.delete(record.id)
            print(f"Deleted “{one_line(record.title)}”. To bring it back: kvchat restore {record.id[:8]}")
        return 0

    session.print_problems()
    return session.with_service(delete)

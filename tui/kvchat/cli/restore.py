"""`kvchat restore`: conversations come back from the trash."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvchat.cli.session import CommandError, Session
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="+", help="of a deleted conversation; kvchat list --trash has them")


def run(session: Session) -> int:
    """Restore them, all or none of those that are named. Raises CommandError."""

    async def restore(service: ChatService) -> int:
        found = {record.id: record for record in map(service.conversations.find, session.args.id)}
        for record in found.values():
            if record.trashed is None:
                raise CommandError(f"“{record.title}” is not in the trash.")
        for record in found.values():
            await service.conversations.restore(record.id)
            print(f"Restored “{one_line(record.title)}”.")
        return 0

    session.print_problems()
    return session.with_service(restore)

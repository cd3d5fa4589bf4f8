"""`kvchat tag`: the tags there are, those of a conversation, and which it gets and loses."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvchat.cli.session import Session, UsageError, tag
from kvchat.commands.command import CommandResult, TextTable
from kvchat.text.format import counted

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="the conversation; without it all tags are listed")
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        type=tag,
        help="a tag that it gets; favourite puts it first in the list, archive takes it out of the list",
    )
    parser.add_argument(
        "-r",
        "--remove",
        metavar="NAME",
        action="append",
        type=tag,
        default=[],
        help="a tag that it loses; can be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: the tags, or all tags with their numbers")


def run(session: Session) -> int:
    """Change the tags of a conversation and print those that it has then; without one print all. Raises
    CommandError."""
    args = session.args
    session.print_problems()
    if not args.id:
        if args.remove:
            raise UsageError("Say which conversation loses the tag: kvchat tag ID --remove NAME")
        return _all(session)
    if not (args.names or args.remove):
        return _give(session, session.look(lambda store: store.conversation(args.id)).tags)

    async def change(service: ChatService) -> int:
        id = service.conversations.find(args.id).id
        await service.conversations.tag(id, args.names, args.remove)
        return _give(session, service.conversations.find(id).tags)

    return session.with_service(change)


def _all(session: Session) -> int:
    found = session.look(lambda store: store.tags())
    table = TextTable([(name, counted(number, "conversation")) for name, number in found])
    none = "There are no tags yet. kvchat tag ID NAME puts one on a conversation."
    return session.give(CommandResult(dict(found), (table if found else none,)))


def _give(session: Session, tags: tuple[str, ...]) -> int:
    return session.give(CommandResult(tags, tags or ("No tags.",)))

"""`kvchat keep`: the conversations whose state stays, and the room that it takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvchat.cli.session import Session, UsageError
from kvchat.commands.command import CommandResult, TextTable
from kvchat.reports.cache_report import KeptRoom, KeptState
from kvchat.sanitize import one_line
from kvchat.text.format import day_time
from kvchat.text.snapshots import kept_words, room_words

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="the conversation; without it all kept ones are listed")
    parser.add_argument("--list", action="store_true", help="list the kept ones, with tokens and bytes")
    parser.add_argument("--remove", action="store_true", help="keep it no longer")
    parser.add_argument("--json", action="store_true", help="print JSON: the kept ones, and the room they take")


def run(session: Session) -> int:
    """Keep a conversation, or no longer; print what is kept. Raises CommandError."""
    args = session.args
    session.print_problems()
    if args.remove and not args.id:
        raise UsageError("Say which conversation is no longer kept: kvchat keep --remove ID")

    async def keep(service: ChatService) -> int:
        id = service.conversations.find(args.id).id if args.id else ""
        if id and args.remove:
            await service.kept.release(id)
        elif id:
            await service.kept.keep(id)
        room = await service.kept.room()
        found = [state for state in room.states if args.list or id in ("", state.kept.id)]
        return session.give(CommandResult(_plain(room), _words(room, found, bool(id) and not args.list)))

    return session.with_service(keep)


def _plain(room: KeptRoom) -> dict[str, object]:
    return {
        "bytes": room.size,
        "most_bytes": room.most,
        "kept": [
            {
                "id": state.kept.id,
                "title": state.title,
                "node": state.kept.node or None,
                "since": state.kept.since,
                "trashed": state.trashed,
                "tokens": state.tokens,
                "bytes": state.size,
                "fits": state.fits,
                "complete": state.complete,
            }
            for state in room.states
        ],
    }


def _words(room: KeptRoom, found: list[KeptState], one: bool) -> Iterator[str | TextTable]:
    """`one`: it was about one conversation."""
    if not found:
        yield "No longer kept." if one else "Nothing is kept. kvchat keep ID keeps a conversation's state."
        return
    yield TextTable(
        [(state.kept.id[:8], day_time(state.kept.since), kept_words(state), _title(state)) for state in found]
    )
    if one and found[0].tokens is None:
        yield "It is saved when the app has it open and its server is idle."
    elif not one:
        yield room_words(room)


def _title(state: KeptState) -> str:
    return " ".join(
        filter(
            None,
            (
                one_line(state.title),
                "(in the trash)" if state.trashed else "",
                "up to one answer" if state.kept.node else "",
            ),
        )
    )

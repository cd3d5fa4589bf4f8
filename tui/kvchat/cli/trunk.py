"""`kvchat trunk`: files that are prefilled once and begin many conversations; to make, list, prefill and remove.

What is stopped keeps what is done, and says how to go on.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING

from kvchat.chat.events import ServiceEvent, WarmthChanged
from kvchat.cli import common_options
from kvchat.cli.progress import INTERRUPTED, ProgressLine
from kvchat.cli.session import Session, UsageError, print_notices
from kvchat.commands.command import CommandResult, TableColumn, TextTable
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line
from kvchat.text.format import count, counted, day_time, duration

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.chat.trunks import Prefilled, Trunks
    from kvchat.documents.trunks import Trunk

COLUMNS = (
    TableColumn("name"),
    TableColumn("files", right=True),
    TableColumn("made"),
    TableColumn("changed since", shrinks=True),
)
SKIPPED_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kvchat trunk`."""
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, parents=[common_options(of_command=True)], help=help)
        if name != "list":
            parser.add_argument("name", metavar="NAME")
        return parser

    add = command("add", "make a trunk of files and folders and prefill it; one of this name is replaced")
    add.add_argument("paths", metavar="PATH", nargs="+")
    command("list", "list the trunks").add_argument("--json", action="store_true", help="print JSON")
    command("warm", "prefill a trunk, or go on with that")
    command("remove", "forget a trunk; conversations that began with it stay")


def run(session: Session) -> int:
    """Carry out a trunk command and return the exit status. Raises CommandError."""
    session.print_problems(sends=session.args.what in ("add", "warm"))
    args = session.args
    if args.incognito:
        raise UsageError("An incognito run has no trunks; leave out --incognito.")

    async def work(service: ChatService) -> int:
        trunks = service.trunks
        assert trunks is not None
        if args.what == "list":
            return await _list(session, trunks)
        if args.what == "remove":
            await trunks.find(args.name)
            await trunks.remove(args.name)
            return 0
        if args.what == "warm":
            return await _prefill(service, trunks, await trunks.find(args.name))
        return await _add(service, trunks, args.name, [whole_characters(path) for path in args.paths])

    return session.with_service(work)


async def _add(service: ChatService, trunks: Trunks, name: str, paths: list[str]) -> int:
    line = ProgressLine(sys.stderr)
    try:
        trunk, found = await trunks.add(name, paths, lambda path: line.show(f"reading {path}"))
    finally:
        line.end()
    print_notices([f"{one_line(one.path)} {one.reason}" for one in found.skipped[:SKIPPED_NAMED]])
    if (more := len(found.skipped) - SKIPPED_NAMED) > 0:
        print_notices([f"{counted(more, 'further file')} skipped."])
    return await _prefill(service, trunks, trunk)


async def _prefill(service: ChatService, trunks: Trunks, trunk: Trunk) -> int:
    """Prefill, with how far it is on a terminal's line. Ctrl+C ends it; what is done stays."""
    line, began = ProgressLine(sys.stderr), time.monotonic()

    def show(event: ServiceEvent) -> None:
        progress = service.tracker.warmup_progress
        if isinstance(event, WarmthChanged) and progress is not None:
            line.show(f"{trunk.name}: {count(progress.processed)} of {count(progress.total)} tokens prefilled")

    service.events.subscribe(show)
    task = asyncio.create_task(trunks.prefill(trunk))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        found = await task
    except asyncio.CancelledError:
        line.end()
        print(f"{trunk.name}: stopped. To go on: kvchat trunk warm {trunk.name}", file=sys.stderr)
        return INTERRUPTED
    finally:
        line.end()
    print(_words(trunk, found, time.monotonic() - began))
    return 0 if found.done >= found.tokens else 1


def _words(trunk: Trunk, found: Prefilled, seconds: float) -> str:
    """`handbook: 14 files, 6,012 tokens, prefilled and saved in 9 s. To begin with it: kvchat --trunk handbook`."""
    amount = f"{trunk.name}: {counted(len(trunk.files), 'file')}, {count(found.tokens)} tokens"
    if found.done < found.tokens:
        return (
            f"{amount}, {count(found.done)} of them prefilled; something else uses the server. To go on: "
            f"kvchat trunk warm {trunk.name}"
        )
    how = "prefilled and saved" if found.saved else "prefilled; this server saves no states, so a restart loses that"
    return f"{amount}, {how} ({duration(seconds)}). To begin with it: kvchat --trunk {trunk.name}"


async def _list(session: Session, trunks: Trunks) -> int:
    found = await trunks.all()
    changed = {trunk.name: await asyncio.to_thread(trunk.changed) for trunk in found}

    table = TextTable(
        [
            (trunk.name, count(len(trunk.files)), day_time(trunk.root.created), ", ".join(changed[trunk.name]))
            for trunk in found
        ],
        COLUMNS,
    )
    none = "There are no trunks yet. To make one of files: kvchat trunk add NAME PATH"
    rows = [
        {
            "name": trunk.name,
            "files": [block.ref.rpartition("#")[0] for block in trunk.files],
            "created": trunk.root.created,
            "changed": changed[trunk.name],
        }
        for trunk in found
    ]
    return session.give(CommandResult(rows, (table if found else none,)))

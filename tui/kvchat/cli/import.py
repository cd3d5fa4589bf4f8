# ruff: noqa: N999 - a command's module has its name
"""`kvchat import`: conversations of other programs, and of other kvchats, out of files and folders; and back again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.cli.progress import INTERRUPTED, ProgressLine, stopping
from kvchat.cli.session import CommandError, Session, UsageError, print_notices
from kvchat.commands.command import CommandResult
from kvchat.paths import PathError, read_once
from kvchat.text import imports as words

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


LARGEST = 1 << 30
"""Bytes that are read from a pipe at most."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="exports of ChatGPT, Claude, Open WebUI, llama.cpp, LM Studio, aichat or kvchat (JSON), "
        "zips and folders of them, databases of oterm and llm",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be imported")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="have the conversations gone through for memories, as if they were held here",
    )
    parser.add_argument(
        "--undo",
        metavar="ID",
        nargs="?",
        const="",
        help="take an import back, the last one without an ID: what it made goes to the trash",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(session: Session) -> int:
    """Import, or undo, and print what came of it. Raises CommandError."""
    args = session.args
    if (args.undo is not None) == bool(args.files):
        raise UsageError("Give the files to import, or --undo to take the last import back.")
    session.print_problems()
    try:
        args.files = [read_once(path, LARGEST) for path in args.files]
    except PathError as error:
        raise CommandError(str(error)) from None
    return session.with_service(
        lambda service: _undo(session, service) if args.undo is not None else _import(session, service)
    )


async def _undo(session: Session, service: ChatService) -> int:
    undone = await service.imports.undo(session.args.undo)
    found = {"import": undone.batch.id, "trashed": undone.trashed, "back": undone.back, "kept": undone.kept}
    return session.give(CommandResult(found, [words.undone(undone.trashed, undone.kept, undone.back)]))


async def _import(session: Session, service: ChatService) -> int:
    args, line = session.args, ProgressLine(sys.stderr)
    with stopping() as stop:
        try:
            report = await service.imports.run(
                args.files,
                dry_run=args.dry_run,
                memory=args.memory,
                on_progress=lambda progress, report: line.show(
                    words.progress(
                        progress.done, progress.total, report.taken + report.unchanged, Path(progress.path).name
                    )
                ),
                stopped=stop.is_set,
            )
        finally:
            line.end()

    if report.stopped:
        print_notices(["Stopped. What was imported until then is kept."])
    if report.failed and not args.json:
        print_notices(report.lines())
    else:
        undo = [f"To undo it: kvchat import --undo {report.batch}"] if report.batch else []
        session.give(CommandResult(report.json(), [*report.lines(), *undo]))
    return INTERRUPTED if report.stopped else 1 if report.failed else 0

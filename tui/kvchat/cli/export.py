"""`kvchat export`: conversations written to a file or to standard output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.cli.list import none_with
from kvchat.cli.session import CommandError, Session, UsageError, tag
from kvchat.prompt.tags import having

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from kvchat.transfer import FORMATS

    parser.add_argument("id", metavar="ID", nargs="?")
    parser.add_argument("--all", action="store_true", help="all conversations")
    parser.add_argument(
        "--tag",
        metavar="NAME",
        action="append",
        type=tag,
        default=[],
        help="the conversations with this tag; several: with all of them",
    )
    parser.add_argument(
        "-f",
        "--format",
        choices=tuple(FORMATS),
        help=f"{', '.join(FORMATS)} (default: by the suffix of PATH, else md); json can be imported again as it was, "
        "jsonl without times, md and html cannot",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="the file, or a folder that gets a file for each conversation (FOLDER/ is made if it is not there); -, or "
        "without it: standard output",
    )
    parser.add_argument("--all-branches", action="store_true", help="every branch (JSON always has every branch)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(session: Session) -> int:
    """Write them, and print the path of the file if there is one. Raises CommandError."""
    args = session.args

    from kvchat.transfer import format_by_suffix
    from kvchat.transfer.write import make_folder

    async def export(service: ChatService) -> int:
        if bool(args.id) + bool(args.all) + bool(args.tag) != 1:
            raise UsageError("Give the id of one conversation, --tag NAME, or --all.")
        every = service.conversations
        ids = [every.find(args.id).id] if args.id else [c.id for c in having(every.all(), args.tag) if c.turns]
        if args.tag and not ids:
            raise CommandError(none_with(args.tag))
        output = Path(args.output or "-")
        format, branches = args.format or format_by_suffix(output), args.all_branches
        if args.output in (None, "-"):
            sys.stdout.writelines(service.exports.text(ids, format, all_branches=branches))
        else:
            if args.output.endswith("/"):
                make_folder(output)
            print(await service.exports.write(ids, format, output, all_branches=branches, overwrite=args.force))
        return 0

    session.print_problems()
    return session.with_service(export)

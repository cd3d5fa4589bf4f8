"""`kvchat pull`: a model from Hugging Face, into the cache that llama-server and others use too."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import time

from kvchat.backends.engine.hub import Fetching, HubError, HubModel, HubName, fetch, find, hub_name, suggested
from kvchat.cli.progress import INTERRUPTED, ProgressLine
from kvchat.cli.session import CommandError, Session, UsageError
from kvchat.sanitize import one_line
from kvchat.text.engine import HubProblem, fetch_words
from kvchat.text.format import counted, duration, size

BAR = 20
"""Cells."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wanted",
        nargs="?",
        metavar="OWNER/REPO[:QUANT]",
        help="a repository with GGUF files, and which quantisation (Q4_K_M, else the nearest); an address of one "
        "of its files does, too; without it, models to begin with are listed",
    )


def run(session: Session) -> int:
    """Fetch a model and print the path of its file, or list models to begin with. Raises CommandError."""
    if session.args.wanted is None:
        offers = suggested()
        width = max(len(name) for name, _ in offers)
        print("\n".join(f"{name:{width}}  {about}" for name, about in offers))
        print(f"To fetch the first: kvchat pull {offers[0][0]}", file=sys.stderr)
        return 0
    name = hub_name(session.args.wanted)
    if name is None:
        raise UsageError(HubProblem.NO_NAME.format(name=one_line(session.args.wanted, 80)))
    try:
        return asyncio.run(_pull(name))
    except HubError as error:
        raise CommandError(error.sentence) from None


async def _pull(name: HubName) -> int:
    """Raises HubError."""
    model = await find(name)
    parts = f" in {counted(len(model.files), 'part')}" if len(model.files) > 1 else ""
    print(f"{model.file}: {size(model.size)}{parts} from {model.address}/{name.repo}", file=sys.stderr)
    line, began = ProgressLine(sys.stderr), time.monotonic()
    task = asyncio.create_task(fetch(model, lambda progress: line.show(_words(model, progress))))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        path = await task
    except asyncio.CancelledError:
        line.end()
        print(f"Stopped, what came is kept. To go on: kvchat pull {name}", file=sys.stderr)
        return INTERRUPTED
    finally:
        line.end()
    print(f"Fetched and checked in {duration(time.monotonic() - began)}. To chat with it:", file=sys.stderr)
    print(f"kvchat -m {shlex.quote(str(path))}" if sys.stdout.isatty() else path)
    return 0


def _words(model: HubModel, progress: Fetching) -> str:
    done = round(BAR * progress.done / max(1, progress.total))
    words = fetch_words(progress.done, progress.total, progress.speed, checking=progress.checking)
    return f"▕{'█' * done}{' ' * (BAR - done)}▏ {words} · {model.file}"

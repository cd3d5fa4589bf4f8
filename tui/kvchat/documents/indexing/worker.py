"""The indexing process: it indexes one collection at low priority, for as long as whoever started it listens.

Run as `python -m kvchat.documents.indexing.worker`. It reads one line of JSON from stdin, the job; writes a line of
JSON to stdout for every step and at last the report; and ends when stdin does, or at SIGTERM: after the file it is at,
but within `STOP_S` seconds. It may be killed at any moment, and loses no more than its last step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from kvchat.apart.child import first_line, private_stdout, when_stdin_ends
from kvchat.documents.collection import Collection, IndexingOptions, IndexingProgress, IndexingReport
from kvchat.documents.indexing.index_run import UNWRITABLE, index_collection
from kvchat.index.index import Index
from kvchat.values import decode, encode

STOP_S = 1.5
_NICE = 10


class IndexingJob(Struct, frozen=True):
    """What the process is to do."""

    index: str
    collection: Collection
    options: IndexingOptions
    rebuild: bool

    @property
    def line(self) -> bytes:
        """As the process reads it."""
        return encode(self).encode()


class _Line(Struct, frozen=True):
    """A line of the process: one of the two."""

    progress: IndexingProgress | None = None
    report: IndexingReport | None = None


def parsed_line(line: bytes) -> IndexingProgress | IndexingReport | None:
    """What a line of the process says; None for any other line."""
    try:
        message = decode(line, _Line)
    except (ValueError, RecursionError):
        return None
    return message.report or message.progress


class _WorkerEnding:
    """Whether to end, and seeing to it that it happens."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def ask(self, *_: object) -> None:
        if not self.asked.is_set():
            self.asked.set()
            timer = threading.Timer(STOP_S, _die)
            timer.daemon = True
            timer.start()


def main() -> None:
    """Do the job that stdin names."""
    logging.getLogger("kvchat").addHandler(logging.NullHandler())  # else warnings go to standard error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl+c in the terminal belongs to the app
    answer = private_stdout()
    line = first_line()
    ending = _WorkerEnding()
    signal.signal(signal.SIGTERM, ending.ask)
    when_stdin_ends(ending.ask)
    os.nice(_NICE)
    if line:
        _work(decode(line, IndexingJob), answer, ending)


def _work(job: IndexingJob, answer: BinaryIO, ending: _WorkerEnding) -> None:
    def say(message: _Line) -> None:
        try:
            answer.write(encode(message).encode() + b"\n")
            answer.flush()
        except OSError:
            ending.ask()

    index = Index.open(Path(job.index))
    try:
        if index.path is None:
            report = IndexingReport(job.collection.name, trouble=UNWRITABLE)
        else:
            report = index_collection(
                index,
                job.collection,
                job.options,
                rebuild=job.rebuild,
                stopped=ending.asked.is_set,
                on_progress=lambda progress: say(_Line(progress=progress)),
            )
    finally:
        index.close()
    say(_Line(report=report))


def _die() -> None:
    """End at once, and with it what this process started, where it leads a group of its own."""
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()

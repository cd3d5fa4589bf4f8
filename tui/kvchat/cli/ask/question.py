"""Reading what `kvchat ask` is asked: the words of the command line, standard input, the files to attach.

Standard input is read before anything else begins, so that Ctrl+C ends it at once. A terminal, a device and a closed
input give nothing. A silent one is waited for, with a notice after SILENT_S; one from which nothing comes at all is
left after IDLE_S, unless TEXT is `-`.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING
from kvchat.cli import say
from kvchat.cli.session import CommandError
from kvchat.documents.errors import DocumentError, FileUnreadableError
from kvchat.documents.reading.decoding import read_as
from kvchat.paths import PathError, read_once
from kvchat.prompt.citations import with_guess
from kvchat.prompt.context import STDIN, ContextBlock

MOST = 16 << 20
"""Bytes that are read at most."""
SILENT_S = 2.0
"""Seconds without a byte after which a notice says what is waited for."""
IDLE_S = 6.0
"""Seconds after which an empty standard input is left: a service or an editor has started kvchat."""

_AT_ONCE = 1 << 18


def files_to_attach(paths: Sequence[str]) -> list[str]:
    """The files that are to be attached; pipes among them are read here, before standard input is. Raises CommandError
    where one is missing: before a server is waited for."""
    from kvchat.documents.attachments import must_be_there
    from kvchat.documents.loading import path_meant

    try:
        found = [read_once(path_meant(path.strip()), MOST) for path in paths]
        for path in found:
            must_be_there(path)
    except (DocumentError, PathError, OSError, RuntimeError) as error:
        raise CommandError(str(error)) from None
    return [*map(str, found)]


def read_question(given: str, stdin: bool = True) -> Question:
    """The question of a command line whose words are `given`; `-`: it comes from standard input itself. `stdin` False:
    nothing is read from there to go with it. Raises CommandError."""
    if given == "-":
        text = _piped_text("Waiting for the question on standard input …", gives_up=False)[0].rstrip("\n")
        question = Question(text, meant=NOTHING)
    else:
        question = Question(given)
    if not question.text.strip():
        raise CommandError("The question is empty. Give it as an argument, or pipe it in with: kvchat ask -")
    if given == "-" or not stdin or not _is_piped():
        return question
    piped, encoding = _piped_text("Waiting for standard input … (--no-stdin to skip it)", gives_up=True)
    block = ContextBlock(STDIN, with_guess("stdin", encoding), piped)
    return replace(question, blocks=(block,)) if piped.strip() else question


def _is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file: what somebody put there to be read."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def _piped_text(waiting: str, *, gives_up: bool) -> tuple[str, str]:
    """All of standard input, to its end, in lines that end with a newline character, and its encoding where that is a
    guess. `waiting`: the notice on standard error while nothing comes, except from a terminal, where the user types.
    `gives_up`: leave it after IDLE_S where nothing comes at all. Raises CommandError."""
    data = _data(waiting, gives_up=gives_up)
    try:
        return read_as(data)
    except FileUnreadableError as error:
        raise CommandError(f"Standard input {error}. Pipe in text, or skip it with --no-stdin.") from None


def _data(waiting: str, *, gives_up: bool) -> bytes:
    descriptor = sys.stdin.fileno()
    parts: list[bytes] = []
    size, waits = 0, _is_piped()
    while size <= MOST:
        if waits and not _comes(descriptor, SILENT_S):
            waits = False
            say(waiting)
            if gives_up and not parts and not _comes(descriptor, IDLE_S - SILENT_S):
                say("Nothing came from standard input. Asking without it.")
                return b""
        try:
            part = os.read(descriptor, _AT_ONCE)
        except BlockingIOError:  # whoever has the other end set it so
            select.select([descriptor], [], [])
            continue
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise CommandError(
        f"More than {MOST >> 20} MiB came from standard input. Pipe in less, for instance with "
        f"head -c {MOST >> 20}M, or index the files with kvchat documents add."
    )


def _comes(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the end, within this time."""
    return bool(select.select([descriptor], [], [], seconds)[0])

"""The command line beside a toy server: in this process, and where it must be as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from kvchat.cli import main, parser

COMMAND = (sys.executable, "-m", "kvchat.cli")
WHOLE = cache(parser)


@dataclass
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Awaitable[Done]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are put together once."""
    monkeypatch.setattr("kvchat.cli.parser", lambda arguments=None: WHOLE())


@pytest.fixture
def environment(own_folders: Path) -> dict[str, str]:
    """What a process of kvchat is started with. Whatever uses it is of the tier `process`."""
    return dict(os.environ)


@pytest.fixture
def spawn(environment: dict[str, str]) -> Run:
    """Runs `kvchat ARGUMENTS` as a process and gives back status, standard output and standard error."""

    async def spawn(*arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *map(str, arguments),
            env={**environment, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin)
        return Done(process.returncode or 0, out.decode(), err.decode())

    return spawn


@pytest.fixture
def run(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `kvchat ARGUMENTS` in a thread of this process, its standard streams led to pipes, and gives back status,
    standard output and standard error.

    With `out` standard output goes to that file; with `terminal` all three are one terminal of 80 columns. Signals and
    closed streams need a process: `spawn`.
    """
    # Only the main thread can listen to signals.
    monkeypatch.setattr("asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler", lambda *_: None)

    async def run(
        *arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None, out: str = "", terminal: bool = False
    ) -> Done:
        line = list(map(str, arguments))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**({"COLUMNS": "80", "LINES": "24"} if terminal else {}), **(env or {})}.items():
                patch.setenv(name, value)
            return await asyncio.to_thread(_at_a_terminal if terminal else _on_pipes, line, stdin, out)

    return run


def _on_pipes(line: list[str], stdin: bytes, file: str) -> Done:
    with ThreadPoolExecutor(3) as others:
        (given, feed), (out, out_end), (err, err_end) = os.pipe(), os.pipe(), os.pipe()
        others.submit(_feed, feed, stdin)
        said, failed = others.submit(_drain, out), others.submit(_drain, err)
        if file:
            os.close(out_end)
            out_end = os.open(file, os.O_WRONLY)
        status = _carried_out(line, given, out_end, err_end)
        return Done(status, said.result(), failed.result())


def _at_a_terminal(line: list[str], stdin: bytes, file: str) -> Done:
    with ThreadPoolExecutor(1) as others:
        terminal, inner = os.openpty()
        shown = others.submit(_drain, terminal)
        os.write(terminal, stdin)
        status = _carried_out(line, inner, os.dup(inner), os.dup(inner))
        return Done(status, shown.result(), "")


def _carried_out(line: list[str], stdin: int, stdout: int, stderr: int) -> int:
    """The status of `kvchat LINE` on these streams, which it closes."""
    mask = os.umask(0o077)
    before = sys.stdin, sys.stdout, sys.stderr
    with ExitStack() as stack:
        stack.callback(os.umask, mask)
        given, out, err = (
            stack.enter_context(os.fdopen(stream, mode, encoding="utf-8", newline=newline))
            for stream, mode, newline in ((stdin, "r", None), (stdout, "w", "\n"), (stderr, "w", "\n"))
        )
        sys.stdin, sys.stdout, sys.stderr = given, out, err
        try:
            return main(line)
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


def _feed(pipe: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as stream:
        stream.write(data)


def _drain(source: int) -> str:
    """What comes until the other end is closed."""
    said = b""
    try:
        while data := os.read(source, 1 << 16):
            said += data
    except OSError:  # so a terminal ends
        pass
    os.close(source)
    return said.decode()

"""An import of a file that never comes to an end, ended: kvchat goes, what reads for it goes, nothing is half stored."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from import_samples import SAMPLES, endless_view
from kvchat.store import Store
from terminal_output import Terminal
from toyserver import ToyServer, tokens

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

LIMIT_S = 5.0 if os.environ.get("KVCHAT_FULL") else 25.0
"""By itself it would end after 30 s; a machine that does much else may need more than five."""
CTRL_C, CTRL_Q, ESCAPE = "\x03", "\x11", "\x1b"
READER = b"kvchat.transfer.importing.import_child"


def environment() -> dict[str, str]:
    return os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def readers() -> Iterator[int]:
    """The processes of this machine that read for an import of this test."""
    home = f"HOME={os.environ['HOME']}".encode()
    for entry in Path("/proc").iterdir():
        try:
            is_one = entry.name.isdigit() and READER in (entry / "cmdline").read_bytes()
            if is_one and home in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:  # it has gone
            pass


async def begun() -> None:
    """Wait for the process that reads."""
    async with asyncio.timeout(120):
        await asyncio.to_thread(_until_there)


def _until_there() -> None:
    while not list(readers()):
        time.sleep(0.02)


def check(since: float) -> None:
    """Nothing reads for an import any more within the limit of `since`, by the monotonic clock; what is stored is whole."""
    while list(readers()):
        assert time.monotonic() - since < LIMIT_S
        time.sleep(0.02)
    assert time.monotonic() - since < LIMIT_S
    store = Store.open(Path(os.environ["KVCHAT_DATA_DIR"]))
    try:
        for row in store.conversations():
            assert row.head is None or row.head in store.tree(row.id)
        assert sum(row.turns > 0 for row in store.conversations()) in (0, 1, 2)
    finally:
        store.close()


@pytest.mark.parametrize("ending", ["ctrl+q", "SIGTERM", "SIGHUP", "closed terminal", "esc"])
async def test_the_app_ends_and_what_reads_for_it(ending: str, tmp_path: Path, own_folders: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    SAMPLES["claude"](folder, 2)
    endless_view(folder)
    async with ToyServer() as server:
        server.on_chat(tokens("All well."))
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment()) as terminal:
            await terminal.shows("this machine")
            await terminal.shows("· 2 conversations", f"/import {folder}", "\r")
            await begun()
            at = time.monotonic()
            if ending == "closed terminal":
                await terminal.closed()
            elif ending == "esc":
                await terminal.shows("What was imported until then is kept.", ESCAPE)
                check(at)
                await terminal.press(CTRL_Q)
                assert await terminal.ended() == 0
            else:
                if ending == "ctrl+q":
                    await terminal.press(CTRL_Q)
                else:
                    terminal.process.send_signal(getattr(signal, ending))
                assert await terminal.ended() == 0
                assert terminal.left_on == []
            check(at)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_the_command_ends_and_what_reads_for_it(
    ending: signal.Signals, tmp_path: Path, own_folders: Path
) -> None:
    path = endless_view(tmp_path)
    with Terminal(["-m", "kvchat.cli", "import", str(path)], environment()) as terminal:
        await terminal.shows("endless.db")
        await begun()
        at = time.monotonic()
        if ending is signal.SIGINT:
            await terminal.press(CTRL_C)
        terminal.process.send_signal(ending)
        await terminal.ended()
        assert b"Traceback" not in terminal.output
        check(at)

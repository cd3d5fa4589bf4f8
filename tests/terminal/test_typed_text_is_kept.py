"""What is typed is kept: wherever it is typed, and however kvchat ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kvchat.prompt.drafts import Unsent, unsent_in
from kvchat.store import Store
from terminal_output import Terminal
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.process

WORDS = "what nobody has sent"
CTRL_G, CTRL_N, CTRL_Q, UP = "\x07", "\x0e", "\x11", "\x1b[A"


def unsent(folder: Path) -> list[Unsent]:
    """What is stored as written and not sent."""
    if not (folder / "data" / "kvchat.db").exists():
        return []
    store = Store.open(folder / "data")
    try:
        return [unsent_in(stored) for stored in store.drafts().values()]
    finally:
        store.close()


def texts(folder: Path) -> list[str]:
    found = unsent(folder)
    return [one.draft.text for one in found] + [edit.draft.text for one in found for edit in one.edits]


def at(server: ToyServer, *more: str, **variables: str) -> Terminal:
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **variables}
    return Terminal(["-m", "kvchat.cli", "--base-url", server.url, *more], environment, columns=200)


async def message(terminal: Terminal, server: ToyServer) -> str:
    await terminal.shows(WORDS, WORDS)
    return WORDS


async def edit(terminal: Terminal, server: ToyServer) -> str:
    server.on_chat(tokens("All well."))
    await terminal.shows("All well.", "first", "\r")
    await terminal.shows("editing", "/edit", "\r")
    await terminal.shows(f"first {WORDS}", f" {WORDS}")
    return f"first {WORDS}"


async def queued(terminal: Terminal, server: ToyServer) -> str:
    server.on_chat(tokens("It", " goes on", hang_after=1))
    await terminal.shows("It", "first", "\r")
    await terminal.shows("queued 1", "second", "\r")
    await terminal.shows("› second", UP)
    await terminal.shows(f"second {WORDS}", f" {WORDS}")
    return f"second {WORDS}"


DOORS = {door.__name__: door for door in (message, edit, queued)}


async def ends(terminal: Terminal, end: str, is_stored: Callable[[], bool]) -> None:
    match end:
        case "quit":
            await terminal.press(CTRL_Q)
            assert await terminal.ended() == 0, terminal.last_words
        case "new":
            await terminal.press(CTRL_N)
            await terminal.shows("ready")
            terminal.process.kill()
            await terminal.ended()
        case "closed":
            assert await terminal.closed() == 0
        case "killed":
            async with asyncio.timeout(120):
                while not is_stored():
                    await terminal.press("x")  # never 0.4 s of rest
            terminal.process.kill()
            await terminal.ended()
        case name:
            terminal.process.send_signal(signal.Signals[name])
            assert await terminal.ended() == 0, terminal.last_words


@pytest.mark.parametrize("end", ["quit", "new", "closed", "SIGTERM", "SIGHUP", "SIGINT", "killed"])
@pytest.mark.parametrize("door", DOORS)
async def test_in_the_app(own_folders: Path, door: str, end: str) -> None:
    async with ToyServer() as server:
        with at(server) as terminal:
            await terminal.shows("this machine")
            wanted = await DOORS[door](terminal, server)
            await ends(terminal, end, lambda: any(wanted in text for text in texts(own_folders)))
    assert any(text.startswith(wanted) for text in texts(own_folders))

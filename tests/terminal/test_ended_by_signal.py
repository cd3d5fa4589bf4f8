"""A signal ends kvchat: what the disk refused is in a private file, its name on stderr, the terminal as it was."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kvchat.store import Store
from lossless_reading import read_lossless
from terminal_output import Terminal
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.process

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def environment() -> dict[str, str]:
    return os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


async def begin(terminal: Terminal, server: ToyServer) -> None:
    server.on_chat(tokens("All well."))
    await terminal.shows("this machine")
    await terminal.shows("All well.", "first", "\r")
    await terminal.shows("tokens cached")  # while it is settled a question would be queued


async def refuse(terminal: Terminal, server: ToyServer, data: Path) -> None:
    """Something is said after the folder of the conversations has gone."""
    data.rename(data.with_name("elsewhere"))
    server.on_chat(tokens("Only in memory."))
    await terminal.shows("Only in memory.", "second", "\r")
    await terminal.shows("retries every 10 s")
    await terminal.shows("and a draft", "and a draft")


def check(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    (source,) = read_lossless(path.read_text())
    said = [node.text for node in source.tree.path(source.conversation.head)][1:]
    assert said == ["first", "All well.", "second", "Only in memory."]
    assert source.draft == "and a draft"


@pytest.mark.parametrize("number", SIGNALS)
async def test_what_was_not_saved_is_in_a_private_file(own_folders: Path, number: signal.Signals) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(), columns=200) as terminal:
            await begin(terminal, server)
            await refuse(terminal, server, own_folders / "data")
            terminal.process.send_signal(number)
            assert await terminal.ended() == 1, terminal.last_words
            assert terminal.left_on == []
    (path,) = own_folders.glob("kvchat-unsaved-*.json")
    assert terminal.last_words == f"kvchat: 1 conversation could not be saved; it is in {path}."
    check(path)


NO_TEMPORARY_FOLDER = """
import sys, tempfile
def none():
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile.gettempdir = none
from kvchat.cli import main
sys.exit(main(sys.argv[1:]))
"""


async def test_the_way_out_needs_no_temporary_folder(own_folders: Path) -> None:
    async with ToyServer() as server:
        code = ["-c", NO_TEMPORARY_FOLDER, "--base-url", server.url]
        with Terminal(code, environment(), columns=200) as terminal:
            await begin(terminal, server)
            await refuse(terminal, server, own_folders / "data")
            terminal.process.send_signal(signal.SIGTERM)
            assert await terminal.ended() == 1, terminal.last_words
            assert terminal.left_on == []
    (path,) = own_folders.glob("kvchat-unsaved-*.json")
    check(path)


@pytest.mark.parametrize("number", SIGNALS)
async def test_what_was_saved_needs_no_file(own_folders: Path, number: signal.Signals) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(), columns=200) as terminal:
            await begin(terminal, server)
            await terminal.shows("and a draft", "and a draft")
            terminal.process.send_signal(number)
            assert await terminal.ended() == 0
            assert terminal.left_on == []
            assert terminal.last_words == ""
    assert not list(own_folders.rglob("kvchat-unsaved-*"))
    store = Store.open(own_folders / "data")
    assert list(store.drafts().values()) == ["and a draft"]
    store.close()


async def test_a_window_that_is_closed_saves_them_too(own_folders: Path) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(), columns=200) as terminal:
            await begin(terminal, server)
            await refuse(terminal, server, own_folders / "data")
            assert await terminal.closed() == 1
    (path,) = own_folders.glob("kvchat-unsaved-*.json")
    check(path)


async def test_a_person_who_wrote_them_elsewhere_is_told_where(own_folders: Path) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(), columns=200) as terminal:
            await begin(terminal, server)
            await refuse(terminal, server, own_folders / "data")
            await terminal.shows("Quit with unsaved messages?", "\x11")
            await terminal.shows("Write unsaved messages", "w")
            await terminal.press("\r")
            assert await terminal.ended() == 0
            assert terminal.left_on == []
    (path,) = own_folders.glob("kvchat-unsaved-*.json")
    assert terminal.last_words == f"kvchat: The unsaved messages are in {path}."
    check(path)

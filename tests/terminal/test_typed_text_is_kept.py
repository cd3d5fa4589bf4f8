"""What is typed is kept: wherever it is typed, and however kvchat ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import pyte
import pytest
from aiohttp import ClientSession

from kvchat.prompt.drafts import Unsent, unsent_in
from kvchat.store import Store
from terminal_output import Terminal, lines_of
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.process

WORDS = "what nobody has sent"
CTRL_G, CTRL_N, CTRL_Q, UP, ESCAPE = "\x07", "\x0e", "\x11", "\x1b[A", "\x1b"


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


def unsaved(folder: Path) -> list[str]:
    """What is stored as written in dialogs and not saved."""
    if not (folder / "data" / "kvchat.db").exists():
        return []
    store = Store.open(folder / "data")
    try:
        return [text for (text,) in store.database.rows("SELECT value FROM setting WHERE key GLOB 'typed.*'")]
    finally:
        store.close()


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
            await until(is_stored)
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


async def system_prompt(terminal: Terminal) -> None:
    await terminal.shows("save as", "/system", "\r")


async def new_memory(terminal: Terminal) -> None:
    await terminal.shows("Something to remember", "/remember", "\r")


async def setting(terminal: Terminal) -> None:
    await terminal.shows("default:", "/settings system_prompt", "\r")
    await terminal.shows("new line", "\r")


DIALOGS = {dialog.__name__: dialog for dialog in (system_prompt, new_memory, setting)}


@pytest.mark.parametrize("end", ["escape", "quit", "closed", "SIGTERM", "SIGHUP", "SIGINT", "killed"])
@pytest.mark.parametrize("dialog", DIALOGS)
async def test_in_a_dialog(own_folders: Path, dialog: str, end: str) -> None:
    async with ToyServer() as server:
        with at(server) as terminal:
            await terminal.shows("this machine")
            await DIALOGS[dialog](terminal)
            await terminal.shows(WORDS, f" {WORDS}")
            if end == "escape":
                await terminal.press(ESCAPE)
                # A command that was stored half typed is no draft any more.
                await until(lambda: unsaved(own_folders) and not any(texts(own_folders)))
                terminal.process.kill()
                await terminal.ended()
            else:
                await ends(terminal, end, lambda: any(WORDS in text for text in unsaved(own_folders)))
        assert any(WORDS in text for text in unsaved(own_folders))
        if end in ("escape", "quit"):
            with at(server) as terminal:
                await terminal.shows("this machine")
                await DIALOGS[dialog](terminal)
                await terminal.shows("Not saved")
                await terminal.shows(WORDS)


def editor(folder: Path, then: str) -> str:
    """A program that saves words in the file that it is given, says who it is, and goes on."""
    script = folder / "editor"
    script.write_text(f'#!/bin/sh\nprintf "{WORDS}" > "$1"\necho $$ > {folder}/pid\n{then}\n')
    script.chmod(0o700)
    return str(script)


@pytest.mark.parametrize("mode", ["app", "plain"])
@pytest.mark.parametrize("end", ["editor killed", "editor fails", "SIGTERM", "SIGHUP", "killed"])
async def test_in_the_editor(own_folders: Path, tmp_path: Path, mode: str, end: str) -> None:
    fails = end == "editor fails"
    program = editor(tmp_path, "exit 3" if fails else "exec sleep 1000")
    async with ToyServer() as server:
        with at(server, *(["--plain"] if mode == "plain" else []), EDITOR=program) as terminal:
            if mode == "plain":
                await terminal.writes(b"You: ")
                await terminal.send(b"/editor\r")
            else:
                await terminal.shows("this machine")
                await terminal.press(CTRL_G)
            await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            if end == "editor killed":
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            if end.startswith("editor"):
                await terminal.shows(WORDS)
            if end.startswith("editor") or end == "killed":
                await until(lambda: WORDS in texts(own_folders))
                terminal.process.kill()
                if end == "killed":
                    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it has the terminal still
                await terminal.ended()
            else:
                terminal.process.send_signal(signal.Signals[end])
                assert await terminal.ended() == 0, terminal.last_words
    assert WORDS in texts(own_folders)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGHUP", "killed"])
@pytest.mark.parametrize("door", ["message", "edit"])
async def test_in_plain_mode(own_folders: Path, door: str, end: str) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("All well."))
        with at(server, "--plain") as terminal:
            await terminal.writes(b"You: ")
            wanted = WORDS
            if door == "edit":
                await terminal.send(b"first\r")
                await terminal.writes(b"You: ", times=2)
                await terminal.send(b"/edit\r")
                await terminal.writes(b"Edit: first")
                wanted = f"first {WORDS}"
            await terminal.shows(WORDS, f" {WORDS}" if door == "edit" else WORDS)
            await ends(terminal, end, lambda: any(wanted in text for text in texts(own_folders)))
    assert any(text.startswith(wanted) for text in texts(own_folders))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("end", ["page closed", "SIGTERM", "SIGHUP", "SIGKILL"])
async def test_in_a_page(own_folders: Path, end: str) -> None:
    async with ToyServer() as server:
        command = [sys.executable, "-m", "kvchat.cli", "--base-url", server.url, "serve"]
        serving = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        assert serving.stdout is not None
        url = (await serving.stdout.readline()).decode().strip()
        screen = pyte.Screen(120, 40)
        shown = pyte.ByteStream(screen)
        try:
            async with ClientSession() as client:
                address = f"{url.replace('http', 'ws', 1)}ws?width=120&height=40"
                page = await client.ws_connect(address, origin=url.rsplit("/", 2)[0])

                async def shows(words: str) -> None:
                    async with asyncio.timeout(120):
                        while not any(words in line for line in lines_of(screen)):
                            shown.feed(await page.receive_bytes())

                await shows("this machine")
                await page.send_json(["stdin", WORDS])
                await shows(WORDS)
                if end == "page closed":
                    await page.close()
                    await until(lambda: WORDS in texts(own_folders))  # while it waits for its page
                else:
                    serving.send_signal(signal.Signals[end])
                    await asyncio.wait_for(serving.wait(), 120)
                    await until(lambda: WORDS in texts(own_folders))
        finally:
            if serving.returncode is None:
                serving.terminate()
            await serving.wait()

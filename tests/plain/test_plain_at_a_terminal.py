"""Plain mode as a process at a real terminal: no escape sequence, Ctrl+C, Ctrl+D, pastes, signals."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from kvchat.store import Store
from terminal_output import Terminal
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.process
CTRL_D = "\x04"


def at(server: ToyServer, *more: str, **variables: str) -> Terminal:
    return Terminal(
        ["-m", "kvchat.cli", "--base-url", server.url, *more],
        {**os.environ, "TERM": "xterm-256color", **variables},
        columns=60,
        rows=30,
    )


async def types(terminal: Terminal, text: str, until: str, *, times: int = 1) -> None:
    await terminal.send(text.encode())
    await terminal.writes(until.encode(), times=times)


async def interrupts(terminal: Terminal, until: str) -> None:
    """Ctrl+C, as its signal: this terminal controls no process."""
    terminal.process.send_signal(signal.SIGINT)
    await terminal.writes(until.encode())


def last_text(folder: Path) -> str:
    """The last message of the only conversation."""
    store = Store.open(folder / "data")
    (record,) = [one for one in store.conversations() if one.turns]
    text = store.tree(record.id).path(record.head)[-1].text
    store.close()
    return text


async def test_a_conversation_writes_no_escape_byte(own_folders: Path) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Hello", " there."))
        with at(server, "--plain") as terminal:
            await terminal.writes(b"You: ")
            await types(
                terminal,
                "a question that is longer than a line of this terminal has columns, by far\r",
                "to the first token.",
            )
            await terminal.writes(b"You: ", times=2)
            await types(terminal, "\x1b[A\x1b[D\x1b[D!\x05\x15", "!")  # the history, the arrows, and the line emptied
            await types(terminal, "/list\r", "/open NUMBER opens one.")
            await terminal.writes(b"You: ", times=3)
            await types(terminal, "/edit\r", "press Enter:")
            await terminal.writes(b"< of this terminal", times=4)  # what was typed before it was asked is no answer
            await types(terminal, "\r", "Message unchanged.")
            await terminal.writes(b"Message unchanged.\r\nYou: ")
            await terminal.send(CTRL_D.encode())
            assert await terminal.ended() == 0
            assert terminal.left_on == []
    assert b"\x1b" not in terminal.output
    assert b"Hello there.\r\n" in terminal.output
    assert not {byte for byte in terminal.output.decode() if "\u2500" <= byte <= "\u28ff"}


async def test_ctrl_c_stops_then_drops_then_leaves(own_folders: Path) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Half", " of it", hang_after=1))
        with at(server, "--plain") as terminal:
            await terminal.writes(b"You: ")
            await types(terminal, "go on\r", "Half")
            await interrupts(terminal, "Stopping.")
            await terminal.writes(b"You: ", times=2)
            await types(terminal, "half typed", "half typed")
            await interrupts(terminal, "Dropped.\r\nYou: ")
            await interrupts(terminal, "and so do Ctrl+D and /exit.\r\nYou: ")
            terminal.process.send_signal(signal.SIGINT)
            assert await terminal.ended() == 0
    assert server.posts == 1
    assert last_text(own_folders) == "Half"


async def test_no_ctrl_c_is_lost_whenever_it_comes(own_folders: Path) -> None:
    """While it is looked whether more is pasted, around the answer, or while a prompt is drawn."""
    async with ToyServer() as server:
        server.on_chat(tokens("One", " two", " three"))
        with at(server, "--plain") as terminal:
            await terminal.writes(b"You: ")
            await types(terminal, "hi\r", "to the first token.")
            at_prompt = await terminal.writes_after(terminal.output.index(b"first token."), b"You: ")
            for moment in range(30):
                await terminal.send(b"hi\r")
                read = await terminal.writes_after(at_prompt, b"hi\r\n")
                await asyncio.sleep(moment * 0.004)
                terminal.process.send_signal(signal.SIGINT)
                heard = await terminal.writes_after(read, b"Dropped.", b"Stopping.", b"Ctrl+C again leaves")
                at_prompt = await terminal.writes_after(heard, b"You: ")
            await terminal.send(b"/exit\r")
            assert await terminal.ended() == 0
    assert b"Traceback" not in terminal.output


async def test_a_paste_of_several_lines_is_one_message_and_does_not_send_itself(own_folders: Path) -> None:
    async with ToyServer() as server:
        with at(server, "--plain") as terminal:
            await terminal.writes(b"You: ")
            await types(terminal, "first\r/exit\rthird\r", "Pasted 3 lines.")
            await terminal.writes(b"More: ")
            assert server.posts == 0
            await types(terminal, "\r", "to the first token.")
            await terminal.writes(b"You: ", times=2)
            await terminal.send(b"/exit\r")
            assert await terminal.ended() == 0
        (asked,) = [visit.json["messages"][-1]["content"] for visit in server.chats]
    assert asked.endswith("first\n/exit\nthird")


async def test_a_dumb_terminal_gets_plain_mode(own_folders: Path) -> None:
    async with ToyServer() as server:
        with at(server, TERM="dumb") as terminal:
            await terminal.writes(b"plain mode")
            await terminal.writes(b"You: ")
            await types(terminal, "/exit\r", "/exit")
            assert await terminal.ended() == 0
    assert b"\x1b" not in terminal.output


async def test_the_setting_brings_it_too_and_a_signal_keeps_what_came(own_folders: Path) -> None:
    config = own_folders / "config" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("plain = true\n")
    async with ToyServer() as server:
        server.on_chat(tokens("Kept", " text", hang_after=1))
        with at(server) as terminal:
            await terminal.writes(b"You: ")
            await types(terminal, "go on\r", "Kept")
            terminal.process.send_signal(signal.SIGTERM)
            assert await terminal.ended() == 0
    assert last_text(own_folders) == "Kept"


async def test_it_works_on_pipes(own_folders: Path) -> None:
    async with ToyServer() as server:
        process = await asyncio.create_subprocess_exec(
            "python",
            "-m",
            "kvchat.cli",
            "--plain",
            "--base-url",
            server.url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate(b"Hello?\n/list\n")
    assert process.returncode == 0
    assert b"Answer:\nHello\n" in out and b"1. Hello?, 1 turn" in out

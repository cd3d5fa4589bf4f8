"""Progress in the terminal's tab, and notifications: written where they are understood, and never left standing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from corpus import corpus
from kvchat.backends.dialect import Waiting
from kvchat.chat.conversations.live import LiveAnswer
from kvchat.figures.accounting import PromptProgress
from kvchat.ui.terminal.desktop import AGAIN_S, Desktop, Prefilled, Progress, is_reached, notification, shows_progress
from kvchat.ui.view_models import prefilled
from terminal_output import SHELL, Terminal
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event

XTERM = {"TERM": "xterm-256color"}
ITERM = {**XTERM, "TERM_PROGRAM": "iTerm.app"}
GONE = b"\x1b]9;4;0;0\x1b\\"
UNKNOWN = b"\x1b]9;4;3;0\x1b\\"


def at(percent: int) -> bytes:
    return b"\x1b]9;4;1;%d\x1b\\" % percent


@corpus(
    ("environ", "reached", "progress"),
    [
        (XTERM, True, True),
        ({"TERM": "xterm-kitty"}, True, True),
        ({"TERM": "rxvt-unicode-256color"}, True, True),
        ({**XTERM, "TMUX": "/tmp/tmux-0/default,1,0"}, False, False),
        ({**XTERM, "STY": "1.pts-0.box"}, False, False),
        ({"TERM": "screen"}, False, False),
        ({"TERM": "screen-256color"}, False, False),
        ({"TERM": "tmux-256color"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "linux"}, False, False),
        ({"TERM": "linux-16color"}, False, False),
        ({"TERM": ""}, False, False),
        ({}, False, False),
        (ITERM, True, False),
        ({**ITERM, "TERM_FEATURES": "T3LrMSc7UUw9Ts3BFGsSyHNoSxF"}, True, False),
        ({**ITERM, "TERM_FEATURES": "T3LrMSc7UUw9Ts3BFGsSyHNoSxFP"}, True, True),
        ({**XTERM, "LC_TERMINAL": "iTerm2"}, True, False),
    ],
)
def test_they_go_to_terminals_that_understand_them(environ: dict[str, str], reached: bool, progress: bool) -> None:
    assert is_reached(environ) is reached
    assert shows_progress(environ) is progress
    assert bool(notification("x", environ)) is reached


@corpus(
    ("environ", "text", "written"),
    [
        (XTERM, "Answer ready: tax", "\x1b]777;notify;kvchat;Answer ready: tax\x1b\\"),
        (ITERM, "Answer ready: tax", "\x1b]9;kvchat: Answer ready: tax\x1b\\"),
        (XTERM, "a;b;c", "\x1b]777;notify;kvchat;a,b,c\x1b\\"),
        (XTERM, "a\x1b\\\x07b\x9c\nc\u202e", "\x1b]777;notify;kvchat;a␛\\␇b\ufffd c\ufffd\x1b\\"),
        (ITERM, "4;1;50", "\x1b]9;kvchat: 4,1,50\x1b\\"),
        (XTERM, "x" * 500, f"\x1b]777;notify;kvchat;{'x' * 59}…\x1b\\"),
    ],
)
def test_a_notification_is_one_sequence_whatever_its_text(environ: dict[str, str], text: str, written: str) -> None:
    assert notification(text, environ) == written


def test_progress_is_written_when_it_changes_and_not_too_often() -> None:
    now, written = 0.0, list[str]()
    progress = Progress(written.append, lambda: now)
    steps: list[Prefilled] = [None, 0, 0, 7, 7, "unknown", "unknown", 100, None, None]
    for step in steps:
        now += 1
        progress.show(step)
    assert written == [f"\x1b]9;4;{state}\x1b\\" for state in ("1;0", "1;7", "3;0", "1;100", "0;0")]
    written.clear()
    for percent in range(101):  # one every 10 ms
        now += 0.01
        progress.show(percent)
    assert 9 <= len(written) <= 11
    written.clear()
    now += AGAIN_S  # what stands is told again, for the terminal that forgets it
    progress.show(100)
    progress.show(100)
    assert written == ["\x1b]9;4;1;100\x1b\\"]
    progress.remove()
    progress.remove()
    assert written[1:] == ["\x1b]9;4;0;0\x1b\\"]


def test_a_desktop_that_is_not_reached_gets_nothing() -> None:
    written: list[str] = []
    desktop = Desktop(written.append, {"TERM": "screen"})
    desktop.progress.show(3)
    desktop.notify("x")
    desktop.progress.remove()
    assert written == []


@corpus(
    ("live", "expected"),
    [
        (LiveAnswer("n", 0), "unknown"),
        (LiveAnswer("n", 9.9), None),
        (LiveAnswer("n", 0, stopping=True), None),
        (LiveAnswer("n", 0, first_token_at=3.0), None),
        (LiveAnswer("n", 0, waiting=Waiting("queued", 3.0)), "unknown"),
        (LiveAnswer("n", 0, waiting=Waiting("gone", 3.0)), None),
        (LiveAnswer("n", 0, progress=PromptProgress(1000, 600, 600)), 0),
        (LiveAnswer("n", 0, progress=PromptProgress(1000, 600, 799)), 49),
        (LiveAnswer("n", 0, progress=PromptProgress(1000, 600, 1000)), 100),
        (LiveAnswer("n", 0, progress=PromptProgress(1000, 1000, 1000)), 100),
        (LiveAnswer("n", 0, progress=PromptProgress(10, 0, 90)), 100),
        (LiveAnswer("n", 0, progress=PromptProgress(10, 5, 0)), 0),
    ],
)
def test_the_percentage_is_that_of_what_the_server_has_to_prefill(live: LiveAnswer, expected: Prefilled) -> None:
    assert prefilled(live, 10.0) == expected


# On a pseudo-terminal.


def environment(**more: str) -> dict[str, str]:
    between = ("TMUX", "STY", "TERM_PROGRAM", "LC_TERMINAL", "TERM_FEATURES")
    return {name: value for name, value in os.environ.items() if name not in between} | XTERM | more


class Script:
    """An answer whose prefill goes on as the test says."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def __call__(self, visit: Visit) -> None:
        await visit.send(SSE_HEAD)
        while (step := await self.steps.get()) is not None:
            await visit.send(chunked(step))
        await visit.send(chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def prefill(self, processed: int) -> None:
        self.steps.put_nowait(
            event(
                {
                    "choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}],
                    "prompt_progress": {"total": 1000, "cache": 200, "processed": processed, "time_ms": processed},
                }
            )
        )

    def say(self, text: str) -> None:
        self.steps.put_nowait(event({"choices": [{"index": 0, "delta": {"content": text}}]}))

    def end(self) -> None:
        self.steps.put_nowait(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        self.steps.put_nowait(None)


def reports(output: bytes) -> list[str]:
    return [found.decode() for found in re.findall(rb"\x1b\]9;4;([\d;]*)\x1b\\", output)]


async def asked(terminal: Terminal, server: ToyServer) -> Script:
    """A question is sent, whose prefill stands at a quarter."""
    script = Script()
    server.on_chat(script)
    await terminal.shows("this machine")
    await terminal.press("go on", "\r")
    await terminal.writes(UNKNOWN)
    script.prefill(400)
    await terminal.writes(at(25))
    return script


@pytest.mark.process
async def test_the_prefill_is_in_the_tab_until_the_first_word(own_folders: Path) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment()) as terminal:
            script = await asked(terminal, server)
            script.prefill(600)
            await terminal.writes(at(50))
            script.say("Here it is.")
            await terminal.writes(GONE)
            await terminal.shows("Here it is.")
            script.end()
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert reports(terminal.output) == ["3;0", "1;25", "1;50", "0;0"]


WAYS: dict[str, tuple[Callable[[Terminal, Script], Awaitable[None]], int | None]] = {}


def way(name: str, status: int | None) -> Callable[[Callable[[Terminal, Script], Awaitable[None]]], None]:
    def keep(function: Callable[[Terminal, Script], Awaitable[None]]) -> None:
        WAYS[name] = function, status

    return keep


@way("stop", None)
async def _(terminal: Terminal, _script: Script) -> None:
    await terminal.press("\x1b[27u")


@way("quit", 0)
async def _(terminal: Terminal, _script: Script) -> None:
    await terminal.press("\x11")


@way("signal", 0)
async def _(terminal: Terminal, _script: Script) -> None:
    terminal.process.send_signal(signal.SIGTERM)


@way("crash", 1)
async def _(terminal: Terminal, _script: Script) -> None:
    await terminal.press("\x1bOQ")


@way("end of the stream", None)
async def _(_terminal: Terminal, script: Script) -> None:
    script.steps.put_nowait(None)


BROKEN = """
import sys
from kvchat.ui.chat_screen import ChatScreen

def broken(*_):
    raise ZeroDivisionError("lighthouse")

ChatScreen.inspect = broken
from kvchat.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.process
@pytest.mark.parametrize("name", WAYS)
async def test_no_progress_is_left_standing(own_folders: Path, name: str) -> None:
    act, status = WAYS[name]
    async with ToyServer() as server:
        with Terminal(["-c", BROKEN, "--base-url", server.url], environment()) as terminal:
            await act(terminal, await asked(terminal, server))
            await terminal.writes(GONE)
            if status is not None:
                assert await terminal.ended() == status
                assert reports(terminal.output)[-1] == "0;0"
                assert terminal.left_on == []


@pytest.mark.process
async def test_a_kvchat_that_is_put_aside_takes_its_progress_along(own_folders: Path) -> None:
    async with ToyServer() as server:
        with Terminal(["-c", SHELL], environment(PS1="$ ")) as terminal:
            await terminal.shows("$ ")
            await terminal.press(f"{sys.executable} -m kvchat.cli --base-url {server.url}\r")
            script = await asked(terminal, server)
            await terminal.press("\x1a")
            await terminal.writes_after(await terminal.writes_after(0, GONE), b"Stopped")
            before = len(terminal.output)
            await terminal.press("fg\r")
            await terminal.writes_after(before, b"palette")  # the keys in the last line, which had not changed
            script.prefill(840)
            await terminal.writes(at(80))
            await terminal.press("\x11")
            await terminal.writes(b"\x1b[?1049l", times=2)
            await terminal.writes_after(terminal.output.rindex(b"\x1b[?1049l"), b"$ ")
            await terminal.press("exit\r")
            assert await terminal.ended() == 0
    assert reports(terminal.output)[-1] == "0;0"


@pytest.mark.process
async def test_another_program_has_the_tab_while_it_has_the_terminal(own_folders: Path) -> None:
    """An editor runs while the prefill goes on."""
    (own_folders / "edit").write_text("#!/bin/sh\necho EDITING\nread line\n")
    (own_folders / "edit").chmod(0o700)
    async with ToyServer() as server:
        env = environment(EDITOR=str(own_folders / "edit"))
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], env) as terminal:
            script = await asked(terminal, server)
            await terminal.press("\x07")
            await terminal.writes(b"EDITING")
            before = terminal.output
            assert reports(before) == ["3;0", "1;25", "0;0"]
            assert before.rindex(GONE) < before.rindex(b"\x1b[?1049l") < before.rindex(b"EDITING")
            script.prefill(840)
            await asyncio.sleep(1)
            assert reports(terminal.output) == reports(before)
            await terminal.press("\n")
            await terminal.writes(at(80))
            await terminal.press("\x11")
            assert await terminal.ended() == 0
            assert reports(terminal.output)[-1] == "0;0"


@pytest.mark.process
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ({"TMUX": "/tmp/tmux-0/default,1,0"}, ""),
        ({"TERM": "screen-256color"}, ""),
        ({"STY": "1.pts-0.box"}, ""),
        ({}, "progress = false\nnotify = false\n"),
    ],
)
async def test_neither_is_written_where_it_is_not_wanted(own_folders: Path, env: dict[str, str], settings: str) -> None:
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config" / "config.toml").write_text(settings)
    async with ToyServer() as server:
        script = Script()
        server.on_chat(script)
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(**env)) as terminal:
            await terminal.shows("this machine")
            await terminal.press("go on", "\r", "\x1b[O")
            script.prefill(400)
            await terminal.shows("/800 new")
            script.say("Done.")
            script.end()
            await terminal.shows("Done.")
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert b"\x1b]9" not in terminal.output
    assert b"\x1b]777" not in terminal.output

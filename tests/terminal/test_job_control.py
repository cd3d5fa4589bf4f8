"""Stopped by the shell and continued; what the terminal shows and keeps of kvchat."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from kvchat.ui.terminal.driver import POP_TITLE, PUSH_TITLE
from terminal_output import SHELL, Terminal
from toyserver import ToyServer

pytestmark = pytest.mark.process

KVCHAT = ["-m", "kvchat.cli", "--base-url"]
CTRL_Q, CTRL_Z = "\x11", "\x1a"


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TMUX", "STY")}
    return {**plain, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PS1": "$ ", **more}


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="job control is tried with bash")  # noqa: PTH110
async def test_ctrl_z_gives_the_shell_back_and_fg_the_draft() -> None:
    async with ToyServer() as server:
        with Terminal(["-c", SHELL], environment()) as terminal:
            await terminal.shows("$ ")
            await terminal.shows("newline", f"{sys.executable} {' '.join(KVCHAT)} {server.url}\r")
            await terminal.shows("› half a draft", "half a draft")
            for times in (1, 2):
                await terminal.press(CTRL_Z)
                await terminal.writes(b"Stopped", times=times)
                assert terminal.output.count(b"\x1b[?1049l") == times
                await terminal.press("fg\r")
                await terminal.writes(b"\x1b[?1049h", times=times + 1)
                await terminal.shows(f"› half a draft{'!' * times}", "!")
            await terminal.press(CTRL_Q)
            await terminal.writes(b"\x1b[?1049l", times=3)
            await terminal.writes_after(terminal.output.rindex(b"\x1b[?1049l"), b"$ ")
            await terminal.press("exit\r")
            assert await terminal.ended() == 0


async def test_without_a_shell_ctrl_z_does_not_stop() -> None:
    async with ToyServer() as server:
        with Terminal([*KVCHAT, server.url], environment()) as terminal:
            await terminal.shows("newline")
            await terminal.shows("There is no shell", CTRL_Z)
            await terminal.shows("› still here", "still here")
            await terminal.press(CTRL_Q)
            assert await terminal.ended() == 0
            assert terminal.left_on == []


async def test_a_sigcont_paints_and_starts_nothing() -> None:
    async with ToyServer() as server:
        with Terminal([*KVCHAT, server.url], environment()) as terminal:
            await terminal.shows("this machine")
            await terminal.shows("› a", "a")
            threads = Path(f"/proc/{terminal.process.pid}/task")
            before = sorted(one.joinpath("comm").read_text() for one in threads.iterdir())
            for times in range(3):
                terminal.process.send_signal(signal.SIGSTOP)
                terminal.process.send_signal(signal.SIGCONT)
                await terminal.writes(b"\x1b[?1049h", times=times + 2)
            sent = asyncio.ensure_future(terminal.send(b"\x1b[200~" + b"line\r" * 3000 + b"\x1b[201~"))
            for _ in range(50):  # as cpulimit does
                terminal.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.005)
                terminal.process.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.01)
            await sent
            await terminal.shows("3,000 lines")
            await terminal.shows("and on", "and on")
            after = sorted(one.joinpath("comm").read_text() for one in threads.iterdir())
            assert [name for name in after if "textual" in name] == [name for name in before if "textual" in name]
            assert len(server.chats) == 0
            terminal.process.send_signal(signal.SIGTERM)
            terminal.process.send_signal(signal.SIGCONT)  # as systemd does
            assert await terminal.ended() == 0
            assert terminal.left_on == []


KEYBOARD = re.compile(rb"\x1b\[[>=](\d+)(?:;1)?u")
"""Asks for modes of the keyboard."""


@pytest.mark.parametrize(
    ("variables", "settings", "asked"),
    [
        ({}, "", [b"29", b"29", b"29"]),
        ({"TEXTUAL_DISABLE_KITTY_KEY": "1"}, "", [b"0"]),
        ({}, "keyboard_protocol = false\n", [b"0"]),
    ],
)
@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="job control is tried with bash")  # noqa: PTH110
async def test_the_keyboard_is_asked_for_again_after_a_suspend_only_where_it_was(
    own_folders: Path, variables: dict[str, str], settings: str, asked: list[bytes]
) -> None:
    (own_folders / "config" / "config.toml").write_text(settings)
    async with ToyServer() as server:
        with Terminal(["-c", SHELL], environment(**variables)) as terminal:
            await terminal.shows("$ ")
            await terminal.shows("newline", f"{sys.executable} {' '.join(KVCHAT)} {server.url}\r")
            await terminal.shows("› a", "a")
            await terminal.press(CTRL_Z)
            await terminal.writes(b"Stopped")
            await terminal.press("fg\r")
            await terminal.writes(b"\x1b[?1049h", times=2)
            await terminal.shows("› ab", "b")
            (app,) = (
                int(one)
                for one in Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children")
                .read_text()
                .split()
            )
            os.kill(app, signal.SIGCONT)
            await terminal.writes(b"\x1b[?1049h", times=3)
            await terminal.shows("› abc", "c")
            assert KEYBOARD.findall(terminal.output) == asked
            await terminal.press(CTRL_Q)
            await terminal.writes(b"\x1b[?1049l", times=2)


async def test_the_keyboards_setting_acts_at_once() -> None:
    async with ToyServer() as server:
        with Terminal([*KVCHAT, server.url], environment()) as terminal:
            await terminal.shows("newline")
            await terminal.shows("AltGr", "/settings keyboard_protocol", "\r")
            for modes in (b"0", b"29"):
                await terminal.press("\r")
                await terminal.writes(b"\x1b[=" + modes + b";1u")


@pytest.mark.parametrize("incognito", [False, True])
async def test_the_title_is_given_back_and_says_nothing_of_an_incognito_conversation(incognito: bool) -> None:
    async with ToyServer() as server:
        way = ["--incognito"] if incognito else []
        with Terminal([*KVCHAT, server.url, *way], environment()) as terminal:
            await terminal.shows("newline")
            await terminal.shows("Hello", "the secret plan", "\r")
            if not incognito:
                await terminal.writes("\x1b]2;the secret plan · kvchat\x07".encode())
            await terminal.press(CTRL_Q)
            assert await terminal.ended() == 0
    first, _, rest = terminal.output.partition(PUSH_TITLE.encode())
    assert b"\x1b]2;" not in first
    assert b"\x1b]2;" not in rest.rpartition(POP_TITLE.encode())[2]
    assert (b"\x1b]2;the secret" in rest) is not incognito


async def test_the_size_is_the_terminals_whatever_the_environment_says() -> None:
    start = (
        "import os, sys; os.environ.update(COLUMNS='200', LINES='60'); from kvchat.cli import main; sys.exit(main())"
    )
    async with ToyServer() as server:
        with Terminal(["-c", start, "--base-url", server.url], environment(), columns=90, rows=24) as terminal:
            await terminal.shows("newline")
            await terminal.shows("F1 help")
            assert "F1 help" in terminal._lines()[-1]
            await terminal.press(CTRL_Q)
            assert await terminal.ended() == 0


@pytest.mark.parametrize("to", ["os.dup2(os.open('{}', os.O_WRONLY | os.O_CREAT), 2)", "os.close(2)"])
async def test_it_draws_where_stderr_goes_to_a_file_or_nowhere(tmp_path: Path, to: str) -> None:
    (tmp_path / "err").touch()
    start = f"import os, sys; {to.format(tmp_path / 'err')}; os.execv(sys.executable, [sys.executable, '-m', 'kvchat.cli', *sys.argv[1:]])"
    async with ToyServer() as server:
        with Terminal(["-c", start, "--base-url", server.url], environment()) as terminal:
            await terminal.shows("newline")
            await terminal.shows("Hello", "a question", "\r")
            await terminal.press(CTRL_Q)
            assert await terminal.ended() == 0
            assert terminal.left_on == []
    assert (tmp_path / "err").read_text() == ""

"""What is copied arrives, or it is said that it may not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.app import App

from kvchat.ui.terminal.clipboard import LARGE, copy


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def tmux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The socket of a tmux that this process believes to be in."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    socket = tmp_path / "tmux"
    subprocess.run(["tmux", "-S", str(socket), "-f", "/dev/null", "new-session", "-d", "cat"], check=True)
    monkeypatch.setenv("TMUX", f"{socket},1,0")
    yield socket
    subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=True)


def buffer(socket: Path) -> str:
    return subprocess.run(["tmux", "-S", str(socket), "show-buffer"], check=True, capture_output=True, text=True).stdout


@pytest.mark.process
@pytest.mark.parametrize("text", ["one\ntwo", "long " * 400_000], ids=["short", "2 MB"])
def test_a_copy_reaches_tmux_whatever_its_settings(tmux: Path, text: str) -> None:
    app: App[None] = App()
    assert copy(app, text) == "tmux's buffer"  # no terminal is attached
    assert (buffer(tmux), app.clipboard) == (text, text)


def test_a_tmux_that_is_not_there_is_not_said_to_have_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMUX", f"{tmp_path}/none,1,0")
    monkeypatch.setenv("TERM", "tmux-256color")
    assert copy(App(), "text") == "the terminal's clipboard"


@pytest.mark.parametrize(
    ("env", "size", "words"),
    [
        ({}, 10, "the terminal's clipboard"),
        ({}, LARGE + 1, "the terminal's clipboard, if that takes 74 kB"),
        ({"TERM": "tmux-256color"}, 10, "the terminal's clipboard, if tmux passes it on (set-clipboard on)"),
        ({"STY": "1.pts", "TERM": "screen"}, 10, "kvchat's clipboard only: screen passes no copies on"),
    ],
)
def test_where_a_copy_may_not_arrive_that_is_said(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], size: int, words: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert copy(App(), "x" * size) == words

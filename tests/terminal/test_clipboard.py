"""What is copied arrives, or it is said that it may not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.app import App

from kvchat.ui.terminal.clipboard import LARGE, ClipboardError, copy, image


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


@pytest.mark.parametrize(
    "environ", [{}, {"TERM": "tmux-256color"}, {"STY": "1.pts", "TERM": "screen"}, {"SSH_CONNECTION": "a"}]
)
def test_a_copy_too_large_for_a_terminal_is_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = "é" * LARGE
    where, _, why = copy(App(), text).partition(": ")
    assert (Path(where).read_text(), why) == (text, "too large for many terminals")
    assert Path(where).stat().st_mode & 0o077 == 0


def test_what_a_paste_would_run_unseen_is_not_copied() -> None:
    app: App[None] = App()
    copy(app, "ls\x1b[201~\x07\x1b]0;gone\x07 -l")
    assert app.clipboard.startswith("ls") and app.clipboard.endswith("-l")
    assert not {"\x1b", "\x07"} & set(app.clipboard)


# -- an image that is in it


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


LISTS = 'case "$*" in *TARGETS*|*list-types*) printf "TARGETS\\nimage/bmp\\nimage/png\\n";; *image/png*) printf PIXELS;; esac'
"""A clipboard with an image, and what it may be asked for as."""
DESKTOPS = {
    "Wayland": ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "wl-paste", LISTS),
    "X11": ({"DISPLAY": ":0"}, "xclip", LISTS),
    "macOS": ({}, "pngpaste", "printf PIXELS"),
    "WSL": ({"WAYLAND_DISPLAY": "wayland-0"}, "powershell.exe", "printf UElYRUxT"),
}


@pytest.fixture(params=DESKTOPS)
def desktop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The program that has the clipboard of a desktop, and one that has an image in it."""
    environ, name, script = DESKTOPS[request.param]
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("sys.platform", "darwin" if request.param == "macOS" else "linux")
    release = "5.15.153.1-microsoft-standard-WSL2" if request.param == "WSL" else "6.1.0"
    monkeypatch.setattr("platform.release", lambda: release)
    return name, script


def test_an_image_comes_from_the_clipboard(
    desktop: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, script = desktop
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path, name, script)
    assert image() == b"PIXELS"


def test_a_clipboard_with_text_has_no_image(
    desktop: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path, desktop[0], "exit 0" if desktop[0] == "powershell.exe" else "echo No image >&2; exit 1")
    assert image() == b""


def test_what_is_missing_to_have_it_is_named(
    desktop: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClipboardError, match=f"{desktop[0]} is needed, which is not installed"):
        image()


def test_over_ssh_and_without_a_desktop_the_file_is_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClipboardError, match="attach the image's file"):
        image()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    with pytest.raises(ClipboardError, match="on the other machine"):
        image()

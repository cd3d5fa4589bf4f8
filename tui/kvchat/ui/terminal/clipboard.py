"""Copying: to the system's own clipboard and tmux's buffer by their programs, else to the terminal's (OSC 52), which
works over ssh.

The rule: what is copied holds no control characters (a paste into a shell must not run anything hidden), and what may
not have arrived is not said to have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from textual.app import App

from kvchat.sanitize import clean

SECONDS = 2.0
LARGE = 74_994
"""Octets that every terminal takes: 100,000 in base64."""


def copy(app: App[Any], text: str) -> str:
    """Copy `text`; where it is now, in words. Over ssh the terminal's clipboard is the user's."""
    text = clean(text)
    data = text.encode()
    has_native = not os.environ.get("SSH_CONNECTION") and any(_put(command, data) for command in _commands())
    if os.environ.get("TMUX") and (words := _to_tmux(data)):
        app._clipboard = text  # tmux passes it on
        return "the clipboard" if has_native else words
    App.copy_to_clipboard(app, text)
    return "the clipboard" if has_native else _terminals(len(data))


def _commands() -> list[list[str]]:
    """The clipboard programs of this system that can work in this session."""
    if sys.platform == "darwin":
        return [["pbcopy"]]
    if sys.platform == "win32":
        return [["clip.exe"]]
    found = []
    if os.environ.get("WAYLAND_DISPLAY"):
        found.append(["wl-copy"])
    if os.environ.get("DISPLAY"):
        found += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return found


def _put(command: list[str], data: bytes) -> bool:
    """Whether a program is there and took it."""
    if shutil.which(command[0]) is None:
        return False
    try:
        subprocess.run(
            command, input=data, timeout=SECONDS, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _to_tmux(data: bytes) -> str:
    """Where tmux put it: its buffer, and the clipboard of a terminal that has one for it (3.2 and later); empty: it
    did not."""
    if not _put(["tmux", "load-buffer", "-w", "-"], data) and not _put(["tmux", "load-buffer", "-"], data):
        return ""
    asked = ["tmux", "display-message", "-p", "#{client_termfeatures}"]
    try:
        features = subprocess.run(asked, timeout=SECONDS, check=True, capture_output=True).stdout
    except (OSError, subprocess.SubprocessError):
        features = b""
    return f"tmux's buffer and {_terminals(len(data))}" if b"clipboard" in features else "tmux's buffer"


def _terminals(octets: int) -> str:
    """The clipboard of the terminal, and what may keep a copy from it."""
    term = os.environ.get("TERM", "")
    if os.environ.get("STY"):
        return "kvchat's clipboard only: screen passes no copies on"
    if term.startswith(("tmux", "screen")) and not os.environ.get("TMUX"):
        return "the terminal's clipboard, if tmux passes it on (set-clipboard on)"
    if octets > LARGE:
        return f"the terminal's clipboard, if that takes {octets // 1000} kB"
    return "the terminal's clipboard"

"""Copying: the system's own clipboard first, then the terminal's (OSC 52), so that it works here and over ssh.

The rule: what is copied holds no control characters; a paste into a shell must not run anything hidden.
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


def copy(app: App[Any], text: str) -> str:
    """Copy `text` and say in words where it went. Over ssh the terminal's clipboard is the person's."""
    text = clean(text)
    app.copy_to_clipboard(text)
    if os.environ.get("SSH_CONNECTION"):
        return "the terminal's clipboard"
    for command in _commands():
        if shutil.which(command[0]) is None:
            continue
        try:
            subprocess.run(
                command,
                input=text.encode(),
                timeout=SECONDS,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return "the clipboard"
    return "the terminal's clipboard"

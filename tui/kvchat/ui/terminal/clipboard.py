"""The clipboard: texts are copied to the system's own and tmux's buffer by their programs, else to the terminal's
(OSC 52), which works over ssh; an image comes from the system's own.

What is copied holds no control characters (a paste into a shell must not run anything hidden). A copy that may not have
arrived is not reported as done.
"""

from __future__ import annotations

import base64
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App

from kvchat.sanitize import clean

SECONDS = 2.0
LARGE = 74_994
"""Octets that every terminal takes: 100,000 in base64."""
_POWERSHELL_S = 10.0
"""How long PowerShell may take, which is slow to start."""
_POWERSHELL = (
    "Add-Type -AssemblyName System.Windows.Forms, System.Drawing;"
    "$image = [Windows.Forms.Clipboard]::GetImage();"
    "if ($image) { $png = New-Object IO.MemoryStream; $image.Save($png, [Drawing.Imaging.ImageFormat]::Png);"
    "[Convert]::ToBase64String($png.ToArray()) }"
)


class ClipboardError(Exception):
    """Why the clipboard cannot be looked at, in one sentence."""


def copy(app: App[Any], text: str) -> str:
    """Copy `text`; where it is now, in words. Over ssh the terminal's clipboard is the user's."""
    text = clean(text)
    data = text.encode()
    has_native = not os.environ.get("SSH_CONNECTION") and any(_put(command, data) for command in _commands())
    if os.environ.get("TMUX") and (words := _to_tmux(data)):
        app._clipboard = text  # tmux passes it on
        return "the clipboard" if has_native else words
    App.copy_to_clipboard(app, text)
    if has_native:
        return "the clipboard"
    return f"{_to_file(data)}: too large for many terminals" if len(data) > LARGE else _terminals()


def _to_file(data: bytes) -> str:
    """Keep a copy in a file that only the user can read; its path."""
    descriptor, path = tempfile.mkstemp(prefix="kvchat-copy-", suffix=".md")
    os.close(descriptor)
    Path(path).write_bytes(data)
    return path


def _commands() -> list[list[str]]:
    """The clipboard programs of this system that can work in this session."""
    if sys.platform == "darwin":
        return [["pbcopy"]]
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
    return f"tmux's buffer and {_terminals()}" if b"clipboard" in features else "tmux's buffer"


def _terminals() -> str:
    """The clipboard of the terminal, and what may keep a copy from it."""
    term = os.environ.get("TERM", "")
    if os.environ.get("STY"):
        return "kvchat's clipboard only: screen passes no copies on"
    if term.startswith(("tmux", "screen")) and not os.environ.get("TMUX"):
        return "the terminal's clipboard, if tmux passes it on (set-clipboard on)"
    return "the terminal's clipboard"


def image() -> bytes:
    """The file of the image in the system's clipboard; empty: none is there. Raises ClipboardError."""
    if os.environ.get("SSH_CONNECTION"):
        raise ClipboardError("Over ssh the clipboard is on the other machine: save the image and attach its file.")
    if sys.platform == "darwin":
        return _got(["pngpaste", "-"])
    if "microsoft" in platform.release().lower():  # WSL
        command = ["powershell.exe", "-NoProfile", "-NonInteractive", "-STA", "-Command", _POWERSHELL]
        return base64.b64decode(_got(command, _POWERSHELL_S))
    if os.environ.get("WAYLAND_DISPLAY"):
        kinds, one = ["wl-paste", "--list-types"], ["wl-paste", "--no-newline", "--type"]
    elif os.environ.get("DISPLAY"):
        kinds, one = ["xclip", "-selection", "clipboard", "-o", "-t", "TARGETS"], ["xclip", "-selection", "clipboard"]
        one += ["-o", "-t"]
    else:
        raise ClipboardError("There is no clipboard without a desktop: attach the image's file.")
    images = [kind for kind in _got(kinds).decode(errors="replace").split() if kind.startswith("image/")]
    return _got([*one, "image/png" if "image/png" in images else images[0]]) if images else b""


def _got(command: list[str], seconds: float = SECONDS) -> bytes:
    """What a program gives; nothing where it has nothing. Raises ClipboardError where it is not there."""
    if shutil.which(command[0]) is None:
        raise ClipboardError(f"To attach an image of the clipboard, {command[0]} is needed, which is not installed.")
    try:
        return subprocess.run(
            command, timeout=seconds, check=True, stdin=subprocess.DEVNULL, capture_output=True
        ).stdout
    except subprocess.CalledProcessError:
        return b""
    except (OSError, subprocess.SubprocessError):
        raise ClipboardError(f"The clipboard gave no answer ({command[0]}).") from None

"""What the desktop around the terminal shows of kvchat: the title of the window, progress in the tab or the taskbar,
and notifications.

A terminal that is known to misread a sequence does not get it. Multiplexers keep it from the terminal around them or
print it, and the Linux console prints it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from kvchat.sanitize import one_line

Prefilled: TypeAlias = "int | Literal['unknown'] | None"
"""Whole percent of a prefill; 'unknown' where the server does not say how far it is; None: nothing is prefilled."""

LEAST_S = 0.1
"""Seconds between two percentages."""
AGAIN_S = 5.0
"""Seconds after which a state is written again: Ghostty drops one that is 15 seconds old."""
TITLE = 60
"""Characters of a window's title and of a notification."""

_MULTIPLEXED = ("tmux", "screen")
_BARE = ("", "dumb", "linux")


def is_reached(environ: Mapping[str, str]) -> bool:
    """Whether the terminal belongs to a desktop, with nothing in between."""
    between = environ.get("TMUX") or environ.get("STY") or environ.get("TERM", "").startswith(_MULTIPLEXED)
    return not between and not is_bare(environ)


def is_bare(environ: Mapping[str, str]) -> bool:
    """Whether the terminal prints sequences it does not know: the Linux console, and what has no name."""
    return environ.get("TERM", "").partition("-")[0] in _BARE


def shows_progress(environ: Mapping[str, str]) -> bool:
    """Whether OSC 9;4 may be written. An iTerm2 that does not list it among its features takes it for a notification
    (https://iterm2.com/feature-reporting)."""
    if not is_reached(environ):
        return False
    return not _is_iterm(environ) or re.search("P(?![a-z])", environ.get("TERM_FEATURES", "")) is not None


def notification(text: str, environ: Mapping[str, str]) -> str:
    """What shows `text` as a desktop notification; empty where there is none. iTerm2 has only OSC 9, others have OSC
    777; those that have both would show it twice."""
    if not is_reached(environ):
        return ""
    text = one_line(text, TITLE).replace(";", ",")  # it parts the fields
    return f"\x1b]9;kvchat: {text}\x1b\\" if _is_iterm(environ) else f"\x1b]777;notify;kvchat;{text}\x1b\\"


def _is_iterm(environ: Mapping[str, str]) -> bool:
    return environ.get("TERM_PROGRAM") == "iTerm.app" or environ.get("LC_TERMINAL") == "iTerm2"


class Desktop:
    """The desktop around a terminal. `write` gets the sequences for it."""

    def __init__(self, write: Callable[[str], None], environ: Mapping[str, str]) -> None:
        self._write = write
        self._environ = environ
        self._title = ""
        self.progress = Progress(write if shows_progress(environ) else _nowhere)

    def show_title(self, title: str) -> None:
        """Have the window's title name this; empty: kvchat alone. It is cleaned: a title is a way into the terminal."""
        self._title = one_line(title, TITLE)
        self.repaint()

    def repaint(self) -> None:
        """Write the title again: another program had the terminal."""
        self._write(f"\x1b]2;{f'{self._title} · ' if self._title else ''}kvchat\x07")

    def notify(self, text: str) -> None:
        """Show `text` as a notification."""
        if sequence := notification(text, self._environ):
            self._write(sequence)


def _nowhere(_: str) -> None:
    pass


class Progress:
    """The progress that the terminal shows (OSC 9;4, as ConEmu has it). `write` gets the sequences."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._shown: Prefilled = None
        self._written_at = 0.0

    def show(self, prefilled: Prefilled) -> None:
        """Have the terminal show this; what changes too soon is left out."""
        if prefilled is None:
            self.remove()
            return
        age = self._clock() - self._written_at
        if self._shown is not None and age < (AGAIN_S if prefilled == self._shown else LEAST_S):
            return
        self._shown, self._written_at = prefilled, self._clock()
        self._write("\x1b]9;4;3;0\x1b\\" if prefilled == "unknown" else f"\x1b]9;4;1;{prefilled}\x1b\\")

    def remove(self) -> None:
        """Have the terminal show none, if it shows one."""
        if self._shown is not None:
            self._shown = None
            self._write("\x1b]9;4;0;0\x1b\\")

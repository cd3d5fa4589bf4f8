"""Keyboard input made safe before Textual parses it: a paste can never act as keys, and nothing ends the parser.

The rule: between the terminal's paste markers nothing is a key. Textual 8 leaves the paste at the first ESC inside
it and executes the rest as keys, Enter included; terminals and tmux do pass ESC through. `PasteGuard` drops
ESC inside a paste; an end marker that the pasted text itself carries does not end it when both arrive in one read.
It also rewrites the legacy forms of a modified Enter, which Textual takes for a plain Enter, to the form it
understands.

Textual's parser raises for key and mouse reports with figures it does not expect (a kitty terminal's key release,
`ESC[97;1:3u`, among them), and that ended the app: they are nothing.

`install` puts a guard in front of Textual's one input parser, for every parser made afterwards. It is the only place
that touches it; `check` says what is wrong when Textual no longer fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.keys import Keys
from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"

_MODIFIED_ENTER = re.compile("\x1b\\[27;([2-8]);13~")
"""xterm's and tmux's form of a modified Enter (modifyOtherKeys)."""
_ALT_ENTER = re.compile("(?<!\x1b)\x1b[\r\n]")
"""Alt+Enter of a terminal without an extended keyboard protocol: ESC and the Enter in one read."""


class PasteGuard:
    """Rewrites the input of one terminal, read by read. State: whether a paste is open, and a split marker's head."""

    def __init__(self) -> None:
        self._pasting = False
        self._held = ""
        """An unfinished end marker at the end of the last read of a paste."""
        self._seen = ""
        """An unfinished start marker at the end of the last read, already passed on."""

    def feed(self, data: str) -> str:
        """`data` as the parser may see it. Empty only if all of it is held back until the next read."""
        out: list[str] = []
        data = self._held + data
        self._held = ""
        while data:
            step = self._inside if self._pasting else self._outside
            passed, data = step(data)
            out.append(passed)
        return "".join(out)

    def _outside(self, data: str) -> tuple[str, str]:
        before = self._seen
        at = (before + data).find(START)
        self._seen = ""
        if at < 0:
            self._seen = _unfinished(before + data, START)
            return _legible_enter(data), ""
        self._pasting = True
        cut = at + len(START) - len(before)
        head = data[: max(0, cut - len(START))]
        return _legible_enter(head) + data[len(head) : cut], data[cut:]

    def _inside(self, data: str) -> tuple[str, str]:
        """Up to the last end marker before the next start marker: the earlier ones were pasted."""
        following = data.find(START)
        end = data.rfind(END, 0, following if following >= 0 else len(data))
        if end < 0:
            end = data.find(END)
        if end >= 0:
            self._pasting = False
            return _no_escapes(data[:end]) + END, data[end + len(END) :]
        self._held = _unfinished(data, END)
        return _no_escapes(data[: len(data) - len(self._held)]), ""


def _unfinished(data: str, marker: str) -> str:
    """The longest end of `data` that is a beginning of `marker`."""
    return next((marker[:n] for n in range(len(marker) - 1, 0, -1) if data.endswith(marker[:n])), "")


def _no_escapes(text: str) -> str:
    return text.replace(END, "").replace("\x1b", "")


def _legible_enter(data: str) -> str:
    """`data` with a modified Enter in the CSI u form that Textual understands."""
    if "\x1b" not in data:
        return data
    data = _MODIFIED_ENTER.sub("\x1b[13;\\1u", data)
    return _ALT_ENTER.sub("\x1b[13;3u", data)


def check() -> str:
    """Why the guard does not fit this Textual, in one sentence; empty when it does."""
    if (BRACKETED_PASTE_START, BRACKETED_PASTE_END) != (START, END):
        return "Textual uses other paste markers than the paste guard."
    for name in ("feed", "_parse_extended_key", "parse_mouse_code"):
        if not callable(getattr(XTermParser, name, None)):
            return f"Textual's XTermParser has no method {name} for the paste guard to stand in front of."
    return ""


def install() -> None:
    """Stand in front of Textual's input parser; a second call changes nothing. Raises RuntimeError when Textual
    changed so that it cannot: running without the guard would let a paste press keys."""
    if trouble := check():
        raise RuntimeError(trouble)
    plain: Any = XTermParser.feed
    if hasattr(plain, "plain"):
        return

    def feed(self: XTermParser, data: str) -> Iterable[Message]:
        if not data:  # the end of the input
            return plain(self, data)  # type: ignore[no-any-return]
        guard: PasteGuard | None = getattr(self, "_kvchat_guard", None)
        if guard is None:
            guard = PasteGuard()
            self._kvchat_guard = guard  # type: ignore[attr-defined]
        data = guard.feed(data)
        return plain(self, data) if data else ()

    feed.plain = plain  # type: ignore[attr-defined]
    XTermParser.feed = feed  # type: ignore[method-assign]
    key, mouse = XTermParser._parse_extended_key, XTermParser.parse_mouse_code

    def parse_extended_key(self: XTermParser, sequence: str) -> list[events.Key] | None:
        try:
            return key(self, sequence)
        except (ValueError, OverflowError):  # no number, or no character's number
            return [events.Key(Keys.Ignore, sequence)]

    def parse_mouse_code(self: XTermParser, code: str) -> Message | None:
        try:
            return mouse(self, code)
        except ZeroDivisionError:  # in pixels, after a report of a size of nothing
            return None

    XTermParser._parse_extended_key = parse_extended_key  # type: ignore[assignment,method-assign]
    XTermParser.parse_mouse_code = parse_mouse_code  # type: ignore[method-assign]

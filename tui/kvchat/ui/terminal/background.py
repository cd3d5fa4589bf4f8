"""The colour behind a terminal's text, as the terminal says itself (OSC 11).

The rule: the answer is never typed text. It may come late, in pieces, without its end, or never; what begins like it
and is something else is passed on as it came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

QUERY = "\x1b]11;?\x1b\\"

ESCAPE_S = 0.1
"""How long a lone ESC may be the beginning of an answer: as long as Textual takes it for that of a key."""
BEGINNING_S = 1.0
"""How long the first characters of an answer, which Alt+] sends too, wait for the next."""
REST_S = 3.0
"""How long the rest of an answer may take."""

_BEGIN = "\x1b]11;"
_ANSWER = re.compile(r"\x1b\]11;([ -~]{0,64})(?:\x07|\x1b\\|\x9c)")
_UNFINISHED = re.compile(r"\x1b\]11;[ -~]{0,64}\x1b?")
_UNENDED = re.compile(r"\x1b\]11;([#rgb:a/0-9A-Fa-f]*)\x1b?")
_RGB = re.compile(r"rgba?:([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})(?:/[0-9A-Fa-f]{1,4})?")


class BackgroundAnswer:
    """Takes the answer out of the input of a terminal that was asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_light: bool | None = None
        """What the terminal answered; None: nothing that can be understood."""
        self.has_come = False
        self._clock = clock
        self._held = ""
        """A beginning of what may be the answer."""
        self._held_at = 0.0

    def feed(self, data: str) -> str:
        """What of the input is not the answer. A beginning of it is held back until more comes or `tick` lets it go."""
        data, self._held = self._held + data, ""
        passed = ""
        while data:
            before, escape, after = data.partition("\x1b")
            passed += before
            data = escape + after
            if self.has_come or not data:
                return passed + data
            if answer := _ANSWER.match(data):
                self._take(answer[1])
                data = data[answer.end() :]
            elif _BEGIN.startswith(data) or _UNFINISHED.fullmatch(data):
                self._held, self._held_at = data, self._clock()
                return passed
            else:
                passed, data = passed + escape, after
        return passed

    def tick(self) -> str:
        """What was held back, once it has waited long enough; of an answer without an end what follows it."""
        held = self._held
        patience = ESCAPE_S if held == "\x1b" else BEGINNING_S if len(held) < len(_BEGIN) else REST_S
        if not held or self._clock() - self._held_at < patience:
            return ""
        self._held = ""
        if (unended := _UNENDED.match(held)) is None:
            return held
        self._take(unended[1])
        return held[unended.end() :]

    def _take(self, colour: str) -> None:
        self.has_come = True
        self.is_light = is_light(colour)


def is_light(colour: str) -> bool | None:
    """Whether a colour as X11 writes it, `rgb:ffff/ffff/dddd`, is a light one; None for what is no such colour."""
    found = _RGB.fullmatch(colour)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    brightness: float = 0.299 * red + 0.587 * green + 0.114 * blue
    return brightness > 0.5

"""Lines that the user types: readline with a history in memory, texts of several lines, what was pasted.

It belongs to the main thread, and no escape sequence is written: readline takes the terminal for a dumb
one. What was pasted does not send itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, TextIO, cast

from kvchat.plain.chat import Typed
from kvchat.plain.signals import SIGNALS
from kvchat.text.format import counted

PROMPT, MORE = "You: ", "More: "
QUOTES = '"""'
PASTE_S = 0.05
"""A line that follows another one sooner was not typed but pasted: a terminal hands over a paste at once."""


class Dropped(Exception):  # noqa: N818
    """Ctrl+C, with something typed: that is not sent."""


class Lines:
    """Reads what the user types. A stream that is no terminal gives its lines as they are."""

    def __init__(self, say: Callable[[str], None], stdin: TextIO | None = None) -> None:
        self._say = say
        self._stdin = cast(Any, stdin or sys.stdin)
        self._is_terminal = self._stdin.isatty() and sys.stdout.isatty()
        self._readline = _readline() if self._is_terminal else None
        self._entered: list[str] = []
        """The lines that were entered since `begin`."""
        self._drawn: list[bool] = []
        """Not empty: what readline has in its line belongs to this prompt. An interrupted one leaves its text there."""
        with suppress(AttributeError, ValueError):
            self._stdin.reconfigure(errors="replace")

    def message(self, text: str = "") -> Typed:
        """A message or command, with `text` in it to begin with. Raises EOFError, and what a signal raises."""
        line = self._line(PROMPT, text)
        if line.lstrip().startswith(QUOTES):
            return self._quoted(line.lstrip()[len(QUOTES) :])
        lines = [line]
        while True:
            if self._more_has_come():
                return self._pasted(lines)
            if not _goes_on(lines[-1]):
                return self._kept(Typed("\n".join(lines)))
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(MORE))

    def begin(self) -> None:
        """Nothing is typed of what is read next."""
        self._entered = []

    @property
    def is_written_in(self) -> bool:
        """Whether something is typed; for a signal's handler."""
        return any(self._entered) or (
            self._readline is not None and bool(self._drawn) and bool(self._readline.get_line_buffer())
        )

    @property
    def written(self) -> Typed:
        """What is typed so far; for a signal's handler."""
        now = self._readline.get_line_buffer() if self._readline is not None and self._drawn else ""
        lines = [*(line[:-1] if _goes_on(line) else line for line in self._entered), *([now] if now else [])]
        text = "\n".join(lines)
        if text.lstrip().startswith(QUOTES):
            return Typed(text.lstrip()[len(QUOTES) :], is_pasted=True)
        return Typed(text, is_pasted=not all(map(_goes_on, self._entered)))

    def answer(self, prompt: str, text: str = "") -> str:
        """A line that answers a question; what was typed before it was asked does not. Raises as
        `message` does."""
        if self._is_terminal:
            with suppress(ImportError, OSError):
                import termios

                termios.tcflush(self._stdin.fileno(), termios.TCIFLUSH)
        return self._line(prompt, text)

    def _quoted(self, first: str) -> Typed:
        """The text up to the closing quotes, on however many lines."""
        if (end := first.find(QUOTES)) >= 0:
            return Typed(first[:end], is_pasted=True)
        lines = [first] if first else []
        while True:
            line = self._line(MORE)
            if line.rstrip().endswith(QUOTES):
                last = line.rstrip()[: -len(QUOTES)]
                return Typed("\n".join([*lines, *([last] if last else [])]), is_pasted=True)
            lines.append(line)

    def _pasted(self, lines: list[str]) -> Typed:
        """Lines that came too quickly to be typed: read on until one is ended by hand."""
        is_ended = False
        while not is_ended:
            while self._more_has_come():
                began = time.monotonic()
                lines.append(self._line(""))
                is_ended = time.monotonic() - began > PASTE_S
            if not is_ended:
                self._say(
                    f"Pasted {counted(len(lines), 'line')}. Enter sends them; what you type first goes with "
                    "them. Ctrl+C drops them."
                )
                last = self._line(MORE)
                lines += [last] if last else []
                is_ended = not self._more_has_come()
        return Typed("\n".join(lines), is_pasted=True)

    def _more_has_come(self) -> bool:
        """Whether there is more to read already."""
        if not self._is_terminal:
            return False
        ready, _, _ = select.select([self._stdin.fileno()], [], [], PASTE_S)
        return bool(ready)

    def _line(self, prompt: str, text: str = "") -> str:
        if self._stdin is not sys.stdin or self._readline is None:
            print(prompt, end="", flush=True)
            line: str = self._stdin.readline()
            if not line:
                raise EOFError
            return line.removesuffix("\n").removesuffix("\r")
        self._drawn = [True] if text else []
        # Functions of C. In one of Python's a signal would be handled, and readline drops what its handler raises; and
        # one that comes with Enter must find the line.
        self._readline.set_startup_hook(
            partial(self._readline.insert_text, text) if text else partial(self._drawn.append, True)
        )
        # A write that a signal interrupts would not be made again, and what is typed not seen. Waits end all the same.
        for number in SIGNALS:
            signal.siginterrupt(number, False)
        try:
            self._entered.extend(map(input, (prompt,)))
            return self._entered[-1]
        except SystemError:  # it ran the handler of a further signal while the interrupt of the first one was set
            raise KeyboardInterrupt from None
        finally:
            for number in SIGNALS:
                signal.siginterrupt(number, True)
            self._drawn = []
            self._readline.set_startup_hook(None)

    def _kept(self, typed: Typed) -> Typed:
        """The message, kept in the history of this run."""
        if self._readline is not None and typed.text.strip() and "\n" not in typed.text:
            self._readline.add_history(typed.text)
        return typed


def _goes_on(line: str) -> bool:
    """Whether a backslash ends a line. Two of them are just two."""
    return line.endswith("\\") and not line.endswith("\\\\")


def _readline() -> ModuleType | None:
    """The line editor, set so that it writes no escape sequence; None where there is none."""
    terminal = os.environ.get("TERM")
    os.environ["TERM"] = "dumb"  # it looks once, when it is loaded
    try:
        import readline
    except ImportError:
        return None
    finally:
        if terminal is None:
            del os.environ["TERM"]
        else:
            os.environ["TERM"] = terminal
    readline.set_auto_history(False)
    for setting in ("enable-bracketed-paste off", "enable-meta-key off", "bell-style none"):
        readline.parse_and_bind(f"set {setting}")
    return readline

"""The terminal behind the app: what it sends is read whatever the bytes are, it is raw before anything is drawn, an
Enter from before that is one too, and it may go away.

Textual's driver decodes strictly, so that one byte that is not UTF-8 ends the app; it takes the terminal over after it
has begun to draw, so that an Enter pressed at the first sign of life arrives as a line feed; and it waits for ever for
a terminal that is gone.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import sys
import termios
import tty
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

if TYPE_CHECKING:
    from kvchat.ui.app import KvchatApp
    from kvchat.ui.terminal.background import BackgroundAnswer

READ_SIZE = 4096
WAKE_S = 0.1
"""How often the reader looks whether it is to end, and whether an escape sequence stays unfinished."""
LARGEST = 4096
"""Columns or rows of a terminal that a report of its size is believed to have."""


class _Outlet:
    """Where frames are written. When the terminal is gone nobody takes them; an error would end the thread that
    writes, and the app would wait for it for ever."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def _octets_waiting(terminal: int) -> int:
    """How much was typed that nobody has read."""
    return int.from_bytes(fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)), sys.byteorder)


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux and macOS, made to live with any input and without a terminal."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = cast("Any", _Outlet(cast("TextIO", self._file)))
        self.has_terminal = False
        """Whether the terminal is the app's just now: not another program's, as an editor's."""
        self._background: BackgroundAnswer | None = None
        """The answer that is awaited."""
        self._typed_before = 0
        """Octets that were typed before the terminal was raw and are not read yet: an Enter is a line feed in them."""

    def start_application_mode(self) -> None:
        before = None
        with suppress(termios.error):
            before = termios.tcgetattr(self.fileno)
            raw = termios.tcgetattr(self.fileno)
            raw[tty.LFLAG] = self._patch_lflag(raw[tty.LFLAG])
            raw[tty.IFLAG] = self._patch_iflag(raw[tty.IFLAG])
            termios.tcsetattr(self.fileno, termios.TCSANOW, raw)
            self._typed_before = _octets_waiting(self.fileno)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = before
        self.has_terminal = True

    def stop_application_mode(self) -> None:
        """Give the terminal back. It echoes again only when all is written: what somebody types on would stand in the
        middle of the sequences that restore it."""
        if (desktop := cast("KvchatApp", self._app).desktop) is not None:
            desktop.progress.remove()
        self.has_terminal = False
        before, self.attrs_before = self.attrs_before, None
        super().stop_application_mode()
        self.close()
        if before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, before)

    def _sigtstp_application(self, *_: object) -> None:
        """Give the terminal back and stop, between two steps of the loop: a signal comes in the middle of anything, as
        of a frame that is being handed to the writer, whose lock is needed here too."""
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read until the app ends or the terminal is gone. Bytes that are not UTF-8 become U+FFFD."""
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        parser = XTermParser(self._debug)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(WAKE_S):
                    try:
                        data = os.read(self.fileno, READ_SIZE)
                    except OSError:
                        data = b""
                    if not data:
                        self._app.call_later(cast("KvchatApp", self._app).ending.hang_up)
                        return
                    text = self._without_answer(decode(self._with_enters(data)))
                    for message in parser.feed(text) if text else ():
                        self.process_message(message)
                if self._background is not None and (late := self._background.tick()):
                    for message in parser.feed(late):
                        self.process_message(message)
                    if parser._timeout_time is not None:
                        parser._timeout_time = 0.0  # an ESC has waited already for what may follow it
                for message in parser.tick():
                    self.process_message(message)

    def ask_background(self) -> None:
        """Ask the terminal for the colour of its background. `KvchatApp.take_background` gets the answer, if any."""
        from kvchat.ui.terminal.background import QUERY, BackgroundAnswer

        self._background = BackgroundAnswer()
        self.write(QUERY)

    def _without_answer(self, text: str) -> str:
        answer = self._background
        if answer is None or answer.has_come:
            return text
        text = answer.feed(text)
        if answer.has_come and answer.is_light is not None:
            self._app.call_later(cast("KvchatApp", self._app).take_background, answer.is_light)
        return text

    def _with_enters(self, data: bytes) -> bytes:
        cooked, raw = data[: self._typed_before], data[self._typed_before :]
        self._typed_before -= len(cooked)
        return cooked.replace(b"\n", b"\r") + raw

    def process_message(self, message: Message) -> None:
        if not isinstance(message, events.Resize) or all(0 < side <= LARGEST for side in message.size):
            super().process_message(message)

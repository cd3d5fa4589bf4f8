"""The terminal behind the app: what it sends is read whatever the bytes are, it is raw before anything is drawn, an
Enter from before that is one too, and it may go away, stop the app and go on with it.

Textual's driver decodes strictly, so that one byte that is not UTF-8 ends the app; it takes the terminal over after it
has begun to draw, so that an Enter pressed at the first sign of life arrives as a line feed; it waits for ever for a
terminal that is gone; each SIGCONT starts one more thread that reads; it takes $COLUMNS for the terminal's width, and
draws on stderr wherever that goes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import signal
import sys
import termios
import time
import tty
from codecs import getincrementaldecoder
from contextlib import suppress
from socket import socketpair
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from textual import constants, events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from kvchat.ui.terminal.input import TerminalInput

if TYPE_CHECKING:
    from kvchat.ui.terminal.desktop import Desktop

READ_SIZE = 4096
LARGEST = 4096
"""Columns or rows of a terminal that a report of its size is believed to have."""
PUSH_TITLE, POP_TITLE = "\x1b[22;0t", "\x1b]2;\x07\x1b[23;0t"
"""Keep the title of the window, and give it back; a terminal that keeps none has an empty one."""
MODES = 0b11101
"""The modes of kitty's protocol that are asked for: those of Textual, and which key of the base layout one is, for Ctrl
and letters of other scripts (https://sw.kovidgoyal.net/kitty/keyboard-protocol/)."""
IS_REFUSED = constants.DISABLE_KITTY_KEY
"""Whether the user keeps all of Textual's programs from asking for them."""
constants.DISABLE_KITTY_KEY = True  # type: ignore[misc]  # asked for here


def keyboard(is_wanted: bool) -> str:
    """Sets the modes of the keyboard in place of those that were asked for."""
    return f"\x1b[={MODES if is_wanted and not IS_REFUSED else 0};1u"


class _InTerminal(Protocol):
    """What the driver asks of the app that it draws."""

    desktop: Desktop
    typed_ahead_until: float
    """Until then, by the monotonic clock, a read may hold what was typed over seconds."""

    @property
    def wants_keyboard(self) -> bool:
        """Whether the user has kitty's protocol used where the terminal knows it."""

    def hang_up(self) -> None:
        """The terminal is gone."""


class _Outlet:
    """Where frames are written. When the terminal is gone, frames are dropped; an error would end the thread that
    writes, and the app would wait for it for ever."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


class _Ending(Event):
    """Says that the reader is to end, and wakes it: `fileno` can be read then."""

    def __init__(self) -> None:
        super().__init__()
        self._end, self._start = socketpair()

    def fileno(self) -> int:
        return self._end.fileno()

    def set(self) -> None:
        super().set()
        self._start.send(b"x")

    def clear(self) -> None:
        super().clear()
        self._end.recv(READ_SIZE)


def _drawn_on() -> TextIO:
    """Where frames go: stderr as Textual has it, or stdout where that goes elsewhere."""
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        return sys.__stderr__
    return open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _octets_waiting(terminal: int) -> int:
    """How many typed bytes are still unread."""
    return int.from_bytes(fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)), sys.byteorder)


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux and macOS, made to live with any input and without a terminal."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = cast("Any", _Outlet(_drawn_on()))
        self._size = size or self._get_terminal_size()
        self.exit_event = self._ending = _Ending()
        self.has_terminal = False
        """Whether the terminal is the app's just now: not another program's, as an editor's."""
        self._is_stopping = False
        """Whether the app is about to stop, until it goes on."""
        self._typed_before = 0
        """Octets that were typed before the terminal was raw and are not read yet: an Enter is a line feed in them."""

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and rows as the terminal has them; what the environment says where it does not know."""
        for number in (self.fileno, 1, 2):
            with suppress(OSError):
                size = os.get_terminal_size(number)
                if all(0 < side <= LARGEST for side in size):
                    return size
        return super()._get_terminal_size()

    @property
    def _ours(self) -> _InTerminal:
        return cast("_InTerminal", self._app)

    def _make_raw(self) -> list[Any] | None:
        """Have the terminal pass on each key; how it was. In the background this stops the app until it is in front."""
        while True:
            try:
                before, raw = termios.tcgetattr(self.fileno), termios.tcgetattr(self.fileno)
                raw[tty.LFLAG] = self._patch_lflag(raw[tty.LFLAG])
                raw[tty.IFLAG] = self._patch_iflag(raw[tty.IFLAG])
                termios.tcsetattr(self.fileno, termios.TCSANOW, raw)
                return before
            except termios.error as error:
                if error.args[0] != errno.EINTR:
                    return None

    def start_application_mode(self) -> None:
        before = self._make_raw()
        if before is not None:
            self._typed_before = _octets_waiting(self.fileno)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(PUSH_TITLE)
        if self._ours.wants_keyboard and not IS_REFUSED:
            self.write(f"\x1b[>{MODES}u")
        self.attrs_before = before
        self.has_terminal = True

    def stop_application_mode(self) -> None:
        """Give the terminal back. It echoes again only when all is written: what somebody types on would stand in the
        middle of the sequences that restore it."""
        self._ours.desktop.progress.remove()
        if self.has_terminal:
            self.write(POP_TITLE)
        self.has_terminal = False
        before, self.attrs_before = self.attrs_before, None
        super().stop_application_mode()
        self.close()
        if before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, before)

    # -- stopped by the shell's job control, and continued

    def _sigtstp_application(self, *_: object) -> None:
        """Stop between two steps of the loop: a signal comes in the middle of anything, as of a frame that is being
        handed to the writer, whose lock is needed here too."""
        self._loop.call_soon_threadsafe(self.suspend)

    def suspend(self) -> bool:
        """Give the terminal back and stop, until the shell has the app go on; whether it stopped: the system sees to
        it that it does not where no shell is there to have it go on."""
        had_terminal = self.has_terminal
        if had_terminal:
            self.stop_application_mode()
        self._is_stopping = True
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # As the terminal's Ctrl+Z: whatever started the app stops with it. An editor stops its own group itself.
        os.kill(0 if had_terminal else os.getpid(), signal.SIGTSTP)
        for _ in range(10):  # any thread may be handed the signal: this one may come so far before it stops
            if self._is_stopping:
                time.sleep(0.01)
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        stopped, self._is_stopping = not self._is_stopping, False
        if had_terminal:
            self.start_application_mode()
            self.send_message(self.SignalResume())
        return stopped

    def _sigcont_application(self, *_: object) -> None:
        if self._is_stopping:
            self._is_stopping = False
        else:
            self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        """Set the modes and repaint, when something else than `suspend` had stopped the app, or nothing had. The
        threads that read and write are there."""
        if not self.has_terminal:
            return
        self._make_raw()
        self.write("\x1b[?1049h\x1b[?25l\x1b[?1004h" + keyboard(self._ours.wants_keyboard))
        self._enable_mouse_support()
        self._enable_bracketed_paste()
        self._disable_line_wrap()
        if self._in_band_window_resize:
            self._enable_in_band_window_resize()
        self.send_message(self.SignalResume())

    # -- input

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read until the app ends or the terminal is gone. Bytes that are not UTF-8 become U+FFFD."""
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        parser = TerminalInput(self._debug)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._ending, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                ready = selector.select(parser.wait)  # an escape sequence may stay unfinished
                if any(key.fileobj == self.fileno for key, _ in ready):
                    try:
                        data = os.read(self.fileno, READ_SIZE)
                    except OSError:
                        data = b""
                    if not data:
                        self._app.call_later(self._ours.hang_up)
                        return
                    parser.typed_ahead = time.monotonic() < self._ours.typed_ahead_until
                    for message in parser.feed(decode(self._with_enters(data))):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def _with_enters(self, data: bytes) -> bytes:
        cooked, raw = data[: self._typed_before], data[self._typed_before :]
        self._typed_before -= len(cooked)
        return cooked.replace(b"\n", b"\r") + raw

    def process_message(self, message: Message) -> None:
        if not isinstance(message, events.Resize) or all(0 < side <= LARGEST for side in message.size):
            super().process_message(message)

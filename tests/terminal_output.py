"""What a program wrote to its terminal, taken apart; and a pseudo-terminal to run kvchat in."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

import pyte


class Piece(NamedTuple):
    """A run of text, or one control."""

    kind: str
    """`text`, `c0`, `csi`, `osc`, `esc`, `string` (DCS, APC, PM, SOS)."""
    body: str


_CONTROLS = re.compile(
    r"\x1b\[(?P<csi>[0-?]*[ -/]*[@-~])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b(?P<string>[PX^_][^\x1b]*)\x1b\\"
    r"|\x1b(?P<esc>[ -/]*[0-~]|)"
    r"|(?P<c0>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)


def pieces(data: bytes) -> Iterator[Piece]:
    """The output in order. Raises UnicodeDecodeError when it is not UTF-8."""
    output = data.decode()
    at = 0
    for found in _CONTROLS.finditer(output):
        if found.start() > at:
            yield Piece("text", output[at : found.start()])
        kind = found.lastgroup or "esc"
        yield Piece(kind, found[kind])
        at = found.end()
    if output[at:]:
        yield Piece("text", output[at:])


SHELL = "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp('bash', ['bash', '--norc', '-i'])"
"""What a `Terminal` runs to have a shell with job control in it."""
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
"""Around each frame, once the terminal has said that it can hold a frame back until it is complete."""
CAN_HOLD_FRAMES = b"\x1b[?2026;2$y"
GAP = 0.03
"""Seconds between two keys of a quick typist."""


def lines_of(screen: pyte.Screen) -> list[str]:
    """The lines of a screen. Its own `display` fails where the first half of a wide character was written over."""
    return ["".join(screen.buffer[y][x].data for x in range(screen.columns)) for y in range(screen.lines)]


class Terminal:
    """A program on a pseudo-terminal; everything it writes is in `output`."""

    def __init__(self, arguments: list[str], env: Mapping[str, str], columns: int = 120, rows: int = 40) -> None:
        self.output = b""
        self._screen = pyte.Screen(columns, rows)
        self._emulator, self._shown = pyte.ByteStream(self._screen), 0
        self._is_closed = False
        self._heard, self._over = asyncio.Event(), asyncio.Event()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._before = termios.tcgetattr(slave)
        own_size = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}  # a worker's
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdin=slave, stdout=slave, stderr=slave, env=own_size, start_new_session=True
        )
        os.close(slave)

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if not self._is_closed:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the program has ended
            data = b""
        if b"?2026$p" in data:
            os.write(self._master, CAN_HOLD_FRAMES)
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
            self._over.set()
        self.output += data
        self._heard.set()

    async def press(self, *keys: str) -> None:
        """Send keys as a person's terminal does, one after the other."""
        for key in keys:
            os.write(self._master, key.encode())
            await asyncio.sleep(GAP)

    async def send(self, data: bytes) -> None:
        """Send bytes as fast as the program reads them. Fails when it ends before it has read all."""
        os.set_blocking(self._master, False)
        while data:
            try:
                data = data[os.write(self._master, data[:4096]) :]
            except BlockingIOError:
                await asyncio.sleep(GAP)
            except OSError:
                raise AssertionError(f"it ended with {self.process.wait()}: {self.output[-2000:]!r}") from None
            else:
                await asyncio.sleep(0)

    async def begins(self) -> None:
        """Wait for the first byte that the program writes."""
        async with asyncio.timeout(120):
            while not self.output:
                self._heard.clear()
                await self._heard.wait()

    async def writes(self, sequence: bytes, *, times: int = 1) -> None:
        """Wait until the program has written this, so many times in all."""
        try:
            async with asyncio.timeout(120):
                while self.output.count(sequence) < times:
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"{sequence!r} was not written {times} times: {self.output[-2000:]!r}") from None

    async def writes_after(self, start: int, *sequences: bytes) -> int:
        """Wait until the program has written one of these behind the first `start` bytes; how many bytes there are up
        to the end of the first one."""
        try:
            async with asyncio.timeout(120):
                while not (ends := [at + len(one) for one in sequences if (at := self.output.find(one, start)) >= 0]):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"none of {sequences!r} was written: {self.output[-2000:]!r}") from None
        return min(ends)

    async def frames(self) -> None:
        """Wait for the first frame."""
        async with asyncio.timeout(120):
            while BEGIN not in self.output:
                self._heard.clear()
                await self._heard.wait()

    @property
    def left_on(self) -> list[str]:
        """What of the terminal is not as it was: modes still on or off, the keyboard protocol, the line settings."""
        modes: dict[str, str] = {"25": "h", "7": "h"}
        keyboard = 0
        # While an editor has the terminal, that echoes whatever was typed.
        for piece in pieces(self.output.decode(errors="replace").encode()):
            if piece.kind == "csi" and (found := re.fullmatch(r"\?(\d+)([hl])", piece.body)):
                modes[found[1]] = found[2]
            keyboard += piece.kind == "csi" and piece.body.startswith(">") and piece.body.endswith("u")
            keyboard -= piece.kind == "csi" and piece.body == "<u"
        left = [f"mode {mode}" for mode, state in modes.items() if (state == "h") is not (mode in ("25", "7"))]
        left += ["keyboard protocol"] if keyboard > 0 else []
        return left + (["line settings"] if termios.tcgetattr(self._master) != self._before else [])

    @property
    def last_words(self) -> str:
        """What the program wrote after it gave the terminal back."""
        after = self.output.rpartition(b"\x1b[?1049l")[2]
        return "".join(piece.body for piece in pieces(after) if piece.kind in ("text", "c0")).strip()

    async def shows(self, words: str, *keys: str) -> None:
        """Press keys and wait until these words stand in a line of the screen."""
        await self.press(*keys)
        try:
            async with asyncio.timeout(120):
                while not any(words in line for line in self._lines()):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError("\n".join([f"{words!r} is not on the screen:", *self._lines()])) from None

    async def reverses(self, words: str) -> None:
        """Wait until these words stand in reverse in a line of the screen."""

        def marked() -> list[str]:
            rows = self._screen.buffer
            return [
                "".join(rows[y][x].data if rows[y][x].reverse else " " for x in range(self._screen.columns))
                for y in range(len(self._lines()))
            ]

        try:
            async with asyncio.timeout(120):
                while not any(words in line for line in marked()):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError("\n".join([f"{words!r} is not marked:", *marked()])) from None

    def _lines(self) -> list[str]:
        """What the screen shows, as a terminal has it after all that was written."""
        self._emulator.feed(self.output[self._shown :])
        self._shown = len(self.output)
        return lines_of(self._screen)

    @property
    def drawn(self) -> str:
        """The text of all complete frames."""
        begin, end = self.output.find(BEGIN), self.output.rfind(END)
        frames = self.output[begin:end] if 0 <= begin < end else b""
        return "".join(piece.body for piece in pieces(frames) if piece.kind == "text")

    async def closed(self) -> int:
        """Close the window; the program's exit status."""
        self._is_closed = True
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        async with asyncio.timeout(120):
            return await asyncio.to_thread(self.process.wait)

    async def ended(self) -> int:
        """Wait for the end of the program; its exit status."""
        async with asyncio.timeout(120):
            await self._over.wait()
            return await asyncio.to_thread(self.process.wait)

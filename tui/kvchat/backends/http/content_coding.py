"""Content codings of HTTP: undo gzip and deflate, a bounded piece at a time.

Some sites compress whatever is asked for. A piece of what comes out has at most `PIECE` bytes, so that a reader who
stops at its limit has no more than that in memory, whatever goes in.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import Enum, auto

PIECE = 64 * 1024
_GZIP = b"\x1f\x8b"


class CodingError(Exception):
    """Bytes that are not in the coding that they are said to be in."""


def coding_of(header: str) -> str:
    """What a content-encoding header names: `gzip`, `deflate`, empty for none, else as it is written."""
    names = (name.strip().lower().removeprefix("x-") for name in header.split(","))
    return ", ".join(name for name in names if name not in ("", "identity"))


class _State(Enum):
    """BEGIN > INFLATING > BEHIND, and from there to INFLATING for a further member of a gzip file; or BEGIN > PLAIN."""

    BEGIN = auto()
    INFLATING = auto()
    BEHIND = auto()
    """Behind the end: what else comes is padding."""
    PLAIN = auto()


class Inflater:
    """Undoes `gzip` or `deflate`. What is labelled gzip and is none passes as it is: some proxies unpack, and keep the
    label."""

    CODINGS = ("gzip", "deflate")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._state = _State.BEGIN
        self._waiting = b""
        """Less than is needed to tell what begins."""
        self._inflating = zlib.decompressobj()

    def take(self, data: bytes) -> Iterator[bytes]:
        """The pieces that these bytes become. Raises CodingError."""
        data, self._waiting = self._waiting + data, b""
        while True:
            if self._state in (_State.BEGIN, _State.BEHIND):
                if len(data) < len(_GZIP):
                    self._waiting = data
                    return
                self._begin(data)
            if self._state is _State.PLAIN:
                yield data
            if self._state is not _State.INFLATING:
                return
            try:
                piece = self._inflating.decompress(data, PIECE)
            except zlib.error as error:
                raise CodingError(str(error)) from None
            if piece:
                yield piece
            data = self._inflating.unconsumed_tail
            if self._inflating.eof:
                data, self._state = self._inflating.unused_data, _State.BEHIND
            elif not data and len(piece) < PIECE:
                return

    def _begin(self, data: bytes) -> None:
        """Look at the first bytes of the body, or of what comes behind its end."""
        bits = 16 + zlib.MAX_WBITS
        if self._coding == "gzip" and not data.startswith(_GZIP):
            self._state = _State.PLAIN if self._state is _State.BEGIN else self._state
            return
        if self._coding == "deflate":
            if self._state is _State.BEHIND:
                return
            # With zlib's header, as the standard says, or without one, as some servers do.
            bits = zlib.MAX_WBITS
            bits = bits if data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0 else -bits
        self._inflating, self._state = zlib.decompressobj(bits), _State.INFLATING

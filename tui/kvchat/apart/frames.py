"""Framing: how data travels between a process and the one that reads for it.

A frame is a length and that many bytes. It holds data alone, never instructions.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

LARGEST = 256 << 20
"""Bytes of a frame."""

_LENGTH = struct.Struct(">Q")


def put(stream: BinaryIO, frame: bytes) -> None:
    """Write a frame. Raises OSError."""
    stream.write(_LENGTH.pack(len(frame)))
    stream.write(frame)
    stream.flush()


def take(stream: BinaryIO) -> bytes | None:
    """The next frame; None where the stream ends, or does not hold one. Raises OSError."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > LARGEST:
        return None
    frame = stream.read(length)
    return frame if len(frame) == length else None

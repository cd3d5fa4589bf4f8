"""The write-ahead log as it lies on the disk, read without SQLite.

SQLite takes a log up to its first damaged frame and drops the rest silently; this module finds how much there was.
Formats: https://sqlite.org/fileformat2.html#walformat and https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from msgspec import Struct

_LITTLE, _BIG = b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"
_HEADER, _FRAME = 32, 24
_INDEX_VERSION = 3007000
_MASK = 0xFFFFFFFF

Checksum = tuple[int, int]


class Log(Struct, frozen=True):
    """The log of a database. A frame is one page as a transaction has left it."""

    committed: int
    """Frames that were committed, as far as that is known."""
    taken: int
    """Those that SQLite takes: the committed ones in front of the first damage."""
    written_back: int
    """The number of frames, from the first, that are in the database itself."""

    @property
    def lost(self) -> int:
        """Frames that SQLite leaves out."""
        return self.committed - self.taken

    @property
    def is_stale(self) -> bool:
        """Whether SQLite would put pages over the database's own that are older than those."""
        return self.lost > 0 and self.written_back > self.taken


class _Index(Struct, frozen=True):
    """What the index of a log (-shm) says of it. It outlives a process that was killed."""

    salts: bytes
    committed: int
    order: str
    page_size: int
    written_back: int


def read(database: Path, page_size: int) -> Log | None:
    """The log of a database that no process has open; None when there is none. `page_size`: used where the log does not
    say it. Raises OSError."""
    try:
        data = database.with_name(database.name + "-wal").read_bytes()
    except FileNotFoundError:
        return None
    if len(data) <= _HEADER or not any(data[:_HEADER]):
        return None
    index = _index(database.with_name(database.name + "-shm"))
    order = {_LITTLE: "<", _BIG: ">"}.get(data[:4], "")
    if order and _checksum(order, (0, 0), data[:24]) == struct.unpack(">II", data[24:32]):
        page_size, salts = int.from_bytes(data[8:12], "big"), data[16:24]
        first: Checksum | None = struct.unpack(">II", data[24:32])
        if index is not None and index.salts != salts:
            index = None  # of an older log
    elif index is not None:
        order, page_size, salts, first = index.order, index.page_size, index.salts, None
    else:
        return Log((len(data) - _HEADER) // (_FRAME + page_size), 0, 0)
    return _walked(data, order, page_size, salts, first, index)


def _walked(data: bytes, order: str, page_size: int, salts: bytes, first: Checksum | None, index: _Index | None) -> Log:
    """The log from its frames. `first`: the checksum that they go on from, None when it is lost."""
    committed, written_back = (index.committed, index.written_back) if index is not None else (0, 0)
    before, is_whole = first, first is not None
    taken = 0
    for number, at in enumerate(range(_HEADER, len(data) - _FRAME - page_size + 1, _FRAME + page_size), 1):
        pages_then, *own = struct.unpack(">4xI8xII", data[at : at + _FRAME])
        content = data[at + _FRAME : at + _FRAME + page_size]
        belongs = data[at + 8 : at + 16] == salts
        # After a frame whose checksum is lost, it is not known whether the next one is whole.
        is_sound = belongs and (before is None or _checksum(order, before, data[at : at + 8] + content) == tuple(own))
        before = (own[0], own[1]) if belongs else None
        is_whole = is_whole and is_sound
        if is_sound and pages_then:  # the last of a transaction
            committed = max(committed, number)
            taken = number if is_whole else taken
    return Log(committed, taken, written_back)


def _index(path: Path) -> _Index | None:
    """None when there is none, or it is not whole."""
    try:
        with path.open("rb") as file:
            data = file.read(100)
    except OSError:
        return None
    if len(data) < 100 or data[:48] != data[48:96]:
        return None
    version, _, _, is_set, is_big, size, committed = struct.unpack("=IIIBBHI", data[:20])
    native = "<" if sys.byteorder == "little" else ">"
    if version != _INDEX_VERSION or not is_set:
        return None
    if _checksum(native, (0, 0), data[:40]) != struct.unpack("=II", data[40:48]):
        return None
    return _Index(
        data[32:40],
        committed,
        ">" if is_big else "<",
        65536 if size == 1 else size,
        min(committed, struct.unpack("=I", data[96:100])[0]),
    )


def _checksum(order: str, seed: Checksum, data: bytes) -> Checksum:
    one, two = seed
    for first, second in struct.iter_unpack(order + "II", data):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two

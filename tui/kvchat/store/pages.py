"""Rows read from the pages of a SQLite file without SQLite: it finds them where the schema or a tree above is lost.

The rule: read only, and nothing in the file is believed: every length and page number is checked before it is used.
The format is the documented one: b-tree pages of cells, cells of records, a write-ahead log of newer pages.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvchat.store import wal
from kvchat.store.schema import MAGIC

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 13, 10, 2
_INT_SIZES = (0, 1, 2, 3, 4, 6, 8)

Value = None | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class RawRow:
    rowid: int | None
    """None for a row of an index or of a WITHOUT ROWID table."""
    values: tuple[Value, ...]


class Pages:
    """The pages of a database, the log's newer ones in front."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            empty = not file.seek(0, os.SEEK_END)
            self._data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = 4096
        self.usable = self.size
        if self._data[:16] == MAGIC:
            size = int.from_bytes(self._data[16:18], "big")
            size = 65536 if size == 1 else size
            if 512 <= size <= 65536 and size & (size - 1) == 0:
                self.size = size
                self.usable = max(480, size - self._data[20])
        self.unreadable = 0
        """Cells whose row could not be decoded."""
        log = wal.read(path, self.size)
        self._newer = {} if log is None else log.pages
        self.count = max([len(self._data) // self.size, *self._newer])

    def close(self) -> None:
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def page(self, number: int) -> bytes:
        """The page with this number, from 1. Raises ValueError if there is none."""
        if not 1 <= number <= self.count:
            raise ValueError("no such page")
        return self._newer.get(number) or self._data[(number - 1) * self.size : number * self.size]

    def rows(self) -> Iterator[RawRow]:
        """Every row that can be decoded, in no order; one may come twice."""
        for number in range(1, self.count + 1):
            page = self.page(number)
            start = 100 if number == 1 else 0
            if len(page) == self.size and page[start] in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
                yield from self._cells(page, start)

    def _cells(self, page: bytes, start: int) -> Iterator[RawRow]:
        kind = page[start]
        first = start + (12 if kind == _INDEX_INTERIOR else 8)
        count = min(int.from_bytes(page[start + 3 : start + 5], "big"), (self.size - first) // 2)
        for i in range(count):
            at = int.from_bytes(page[first + 2 * i : first + 2 * i + 2], "big")
            try:
                yield self._cell(page, kind, at + (4 if kind == _INDEX_INTERIOR else 0))
            except (ValueError, IndexError, struct.error):
                self.unreadable += kind == _TABLE_LEAF

    def _cell(self, page: bytes, kind: int, at: int) -> RawRow:
        length, at = _varint(page, at)
        rowid: int | None = None
        most = (self.usable - 12) * 64 // 255 - 23
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
            most = self.usable - 35
        if length > len(self._data) + len(self._newer) * self.size:
            raise ValueError("a row longer than the file")
        local = length
        if length > most:
            least = (self.usable - 12) * 32 // 255 - 23
            local = least + (length - least) % (self.usable - 4)
            local = local if local <= most else least
        payload = page[at : at + local]
        if length > local:
            payload += self._overflow(int.from_bytes(page[at + local : at + local + 4], "big"), length - local)
        return RawRow(rowid, tuple(_record(payload)))

    def _overflow(self, number: int, length: int) -> bytes:
        parts = []
        while length > 0:
            page = self.page(number)
            part = page[4 : min(self.usable, 4 + length)]
            if not part:
                raise ValueError("a row that goes on nowhere")
            parts.append(part)
            length -= len(part)
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9


def _record(data: bytes) -> Iterator[Value]:
    end, at = _varint(data, 0)
    body = end
    while at < end:
        kind, at = _varint(data, at)
        size = _INT_SIZES[kind] if kind <= 6 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
        raw = data[body : body + size]
        if len(raw) != size or kind in (10, 11):
            raise ValueError("a row that is cut")
        body += size
        if kind == 0:
            yield None
        elif kind <= 6:
            yield int.from_bytes(raw, "big", signed=True)
        elif kind == 7:
            yield struct.unpack(">d", raw)[0]
        elif kind < 12:
            yield kind - 8
        else:
            yield raw.decode("utf-8", "replace") if kind % 2 else raw
    if body != len(data):
        raise ValueError("a row that is longer than it says")

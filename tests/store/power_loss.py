# ruff: noqa: N802  SQLite names the methods
"""A disk in a test's hand: the power fails at any moment, any call fails.

The SQLite of Python lets nobody between itself and the disk, that of apsw does; `on_disk` has a Store use it.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from kvchat.store.file import opening

SECTOR = 512
_INDEX = opening.NAME + "-shm"
_INDEX_HEAD = 136
"""As much of the log's index as is read after a crash; it is made anew."""


@contextmanager
def on_disk(tell: Callable[..., int | None]) -> Iterator[None]:
    """Stores that are opened meanwhile call `tell(what, path, ...)` first for each of their calls to the disk. It may
    raise what the disk would; a write for which it returns a number stops short after so many bytes."""
    disk = _Disk(tell)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "connect", _connect)
        yield
    disk.unregister()


class _Disk(apsw.VFS):
    def __init__(self, tell: Callable[..., int | None]) -> None:
        self.tell = tell
        super().__init__("told", "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self.tell, name.filename() if isinstance(name, apsw.URIFilename) else name, name, flags)

    def xDelete(self, path: str, synced: bool) -> None:
        self.tell("delete", path, synced)
        super().xDelete(path, synced)


class _File(apsw.VFSFile):
    def __init__(self, tell: Callable[..., int | None], path: str, name: Any, flags: list[int]) -> None:
        self._tell, self._path = tell, path
        tell("open", path)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._tell("read", self._path)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        short = self._tell("write", self._path, offset, bytes(data))
        super().xWrite(data[:short], offset)
        if short is not None:
            raise fault(apsw.FullError, apsw.SQLITE_FULL)

    def xTruncate(self, size: int) -> None:
        self._tell("truncate", self._path, size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._tell("sync", self._path)


def fault(kind: type[apsw.Error], code: int) -> apsw.Error:
    error = kind("made by a test")
    error.extendedresult = code
    return error


@contextmanager
def _as_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        told = sqlite3.OperationalError(str(error))
        told.sqlite_errorcode = error.extendedresult
        raise told from error


class _Cursor(apsw.Cursor):
    """What a store uses of a cursor of sqlite3."""

    @property
    def rowcount(self) -> int:
        return self.connection.changes()


class _Connection(apsw.Connection):
    """What a store uses of a connection of sqlite3."""

    def __init__(self, *how: Any, **options: Any) -> None:
        super().__init__(*how, **options)
        self.cursor_factory = _Cursor

    def close(self, *force: bool) -> None:
        with suppress(apsw.Error):  # sqlite3 tells nothing here
            super().close(*force)

    def backup(self, target: _Connection) -> None:  # type: ignore[override]
        with _as_sqlite3(), super(_Connection, target).backup("main", self, "main") as copy:
            copy.step()


def _translated(kind: type, name: str) -> None:
    plain = getattr(kind, name)

    def method(*values: Any) -> Any:
        with _as_sqlite3():
            return plain(*values)

    setattr(kind, name, method)


for _name in ("execute", "executemany", "fetchone", "fetchall", "__next__"):
    _translated(_Cursor, _name)


def _connect(path: Path | str, *, read_only: bool = False, uri_options: str = "") -> _Connection:
    if path == ":memory:":
        return _Connection(path)
    options = "mode=ro" + uri_options if read_only else "mode=rwc"
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    with _as_sqlite3():
        return _Connection(f"{Path(path).absolute().as_uri()}?{options}", flags=flags, vfs="told")


@dataclass(eq=False)
class _Kept:
    """A file: what is on the disk for certain, and the writes (None: a truncation) that may be."""

    certain: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for offset, data in self.unsynced:
            self._put(offset, data)
        self.unsynced.clear()

    def lose_power(self, chance: random.Random) -> None:
        """Of what is not synced some sectors reach the disk, and some as neither the old nor the new."""
        lasting = chance.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in self.unsynced:
            for start in range(offset - offset % SECTOR, offset + len(data or b"."), SECTOR):
                first, end = max(start, offset), start + SECTOR
                part = data and data[first - offset : end - offset]
                if (fate := chance.random()) < lasting:
                    self._put(first, part)
                elif part and fate > 0.98:
                    self._put(first, chance.randbytes(len(part)))

    def _put(self, offset: int, data: bytes | None) -> None:
        if data is None:
            del self.certain[offset:]
        else:
            self.certain.extend(bytes(max(0, offset - len(self.certain))))
            self.certain[offset : offset + len(data)] = data


class Recording:
    """What a store does to its files, from the first on."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self._indexes: list[bytes] = []
        """The log's index as it was at each call; the system writes it whenever it likes."""

    def tell(self, what: str, path: str, *more: Any) -> None:
        if what != "read":
            self.calls.append((what, Path(path).name, more))
            index = Path(path).with_name(_INDEX)
            self._indexes.append(index.open("rb").read(_INDEX_HEAD) if index.exists() else b"")

    def cut(self, at: int, folder: Path, chance: random.Random) -> None:
        """Write to `folder` what a power cut just before the call `at` may leave."""
        names: dict[str, _Kept] = {}  # as processes see them
        entries: list[tuple[str, _Kept | None]] = []  # made and deleted, without a sync of the folder since
        lasting: dict[str, _Kept | None] = {}
        for what, name, more in self.calls[:at]:
            if what == "open" and name not in names:
                names[name] = _Kept()
                entries.append((name, names[name]))
            elif what == "delete":
                del names[name]
                entries.append((name, None))
            elif what == "write":
                names[name].unsynced.append(more)
            elif what == "truncate":
                names[name].unsynced.append((*more, None))
            elif what == "sync":
                names[name].sync()
            # SQLite syncs the folder with the first sync of a file that it has made.
            if (what == "delete" and more[0]) or (what == "sync" and (name, names[name]) in entries):
                lasting.update(entries)
                entries.clear()
        lasting.update(entries[: chance.randint(0, len(entries))])
        for name, file in lasting.items():
            if file is not None:
                file.lose_power(chance)
                (folder / name).write_bytes(file.certain)
        if index := self._indexes[chance.randint(max(0, at - 50), at - 1)] if chance.random() < 0.5 else b"":
            (folder / _INDEX).write_bytes(index)

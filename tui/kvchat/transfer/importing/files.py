"""Files, folders and archives to import, read one conversation at a time.

Whatever is wrong with a file or a conversation is a value in its place, and the next one follows. An archive is read
in place, a database is opened for reading only, and nothing is unpacked to the disk.
"""

from __future__ import annotations

import glob
import io
import json
import logging
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cache, partial
from importlib import import_module
from pathlib import Path, PurePath
from typing import IO, ParamSpec, TypeVar, cast

from msgspec import Struct

from kvchat.paths import reason
from kvchat.transfer.formats import Source
from kvchat.transfer.importing import FORMATS
from kvchat.transfer.importing.json_values import JsonValues
from kvchat.transfer.importing.thread import (
    LONGEST,
    MOST_MESSAGES,
    DatabaseFormat,
    ImportFormat,
    ImportRefusal,
    JsonFormat,
    NotTaken,
    TextFormat,
    Thread,
)
from kvchat.values import Statement, said

log = logging.getLogger(__name__)

Item = TypeVar("Item", Thread, Thread | Source)
P = ParamSpec("P")

SNIFFED = 4096
"""Octets at the beginning of a file that tell what it is."""
BOMB_TIMES, BOMB_OCTETS = 250, 100 * 2**20
"""What is packed as tightly and as large as this is no export: text is packed some 10 times."""
LARGEST_ASSET = 64 * 2**20
"""Octets of an image that is a file of its own."""
UNKNOWN = 100
"""The number of values without a conversation after which a file counts as foreign."""
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
SQLITE = b"SQLite format 3\x00"
OWN = b"kvch"
"""How the database of a kvchat is marked, at OWN_AT."""
OWN_AT = 68


class FoundConversation(Struct, frozen=True):
    """A conversation in a file."""

    item: Thread | Source
    program: str
    """Whose format it is in."""
    at: float
    """When the file was written, in seconds since the epoch."""
    file: str
    asset: Callable[[str], bytes] = lambda beginning: b""
    """The octets of the file next to it whose name begins so; empty: there is none. To be called before the next
    conversation is read."""


class Missed(Struct, frozen=True):
    """What was not read, and why."""

    file: str
    why: Statement
    whole: bool = False
    """Whether it is the file; else one conversation in it."""


class ImportProgress(Struct):
    """How far it has come."""

    path: str = ""
    """The file that it is at."""
    number: int = 0
    """Of that file among all, from 1."""
    done: int = 0
    """Octets read so far, of all files."""
    total: int = 0


@cache
def formats() -> tuple[ImportFormat, ...]:
    return tuple(import_module(f"kvchat.transfer.importing.{name}").FORMAT for name in FORMATS)


class Files:
    """The conversations of files, folders and archives. It can be iterated once, on any thread."""

    def __init__(self, paths: Sequence[Path], passed: int = 0, on_progress: Callable[[], None] = lambda: None) -> None:
        """`passed`: how many files, from the first, are not opened again. `on_progress` is called at every progress."""
        self._passed = passed
        self._on_progress = on_progress
        self.progress = ImportProgress()
        self.passed_over = 0
        """Files of folders and archives in which there is no conversation."""
        self._paths = [_expanded(path) for path in paths]

    def __iter__(self) -> Iterator[FoundConversation | Missed]:
        listed = [(path, list(self._files_of(path))) for path in self._paths]
        self.progress.total = sum(_size(file) for _, files in listed for file in files)
        for path, files in listed:
            if not files and not self._passed:
                yield Missed(str(path), said(ImportRefusal.NO_FILES), whole=True)
            for file in files:
                before = self.progress.done
                self.progress.path = str(file)
                self.progress.number += 1
                if self.progress.number > self._passed:
                    yield from self._file(file, given=file == path)
                self.progress.done = before + _size(file)

    def _files_of(self, path: Path) -> Iterator[Path]:
        """The file, or the files of the folder."""
        if not path.is_dir():
            yield path
            return
        found = []
        for file in path.rglob("*"):
            self._on_progress()
            if file.is_file():
                found.append(file)
        yield from sorted(found)

    def _file(self, path: Path, *, given: bool) -> Iterator[FoundConversation | Missed]:
        """`given`: the user named it, so that a file without conversations is reported."""
        found = False
        try:
            with path.open("rb") as opened:
                file = cast(IO[bytes], _Counted(opened, self._on_progress))
                head = file.read(SNIFFED)
                file.seek(0)
                at = path.stat().st_mtime
                if head.startswith(ZIP):
                    items = self._archive(file, path.name, given=given)
                elif head.startswith(SQLITE):
                    items = self._database(path, at, head)
                else:
                    base = self.progress.done
                    items = self._text(file, head, str(path), at, lambda octets: base + octets, partial(_sibling, path))
                for item in items:
                    found = found or isinstance(item, FoundConversation)
                    yield item
        except NotTaken as error:
            if given or found or error.why.kind != ImportRefusal.FOREIGN:
                yield Missed(str(path), error.why, whole=True)
            else:
                self.passed_over += 1
        except FileNotFoundError:
            yield Missed(str(path), said(ImportRefusal.MISSING), whole=True)
        except OSError as error:
            yield Missed(str(path), said(ImportRefusal.UNREADABLE, why=reason(error)), whole=True)
        except MemoryError:
            raise
        except Exception:  # of a format, on input that it does not foresee
            log.exception("a file could not be read to its end")
            yield Missed(str(path), said(ImportRefusal.FAULTY), whole=True)

    # -- archives -----------------------------------------------------------------------------------------------------

    def _archive(self, file: IO[bytes], name: str, *, given: bool) -> Iterator[FoundConversation | Missed]:
        """Raises NotTaken."""
        base, size, any_found, passed_over = self.progress.done, _length(file), False, self.passed_over
        try:
            with zipfile.ZipFile(file) as archive:
                members = [one for one in archive.infolist() if not one.is_dir()]
                share = size / max(1, sum(one.file_size for one in members))
                before = 0
                for member in members:
                    so_far = partial(_scaled, before, share, base)
                    for item in self._member(archive, member, name, so_far):
                        any_found = True
                        yield item
                    before += member.file_size
                    self.progress.done = _scaled(before, share, base, 0)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise NotTaken(ImportRefusal.BROKEN_ZIP) from error
        if not any_found and given:
            self.passed_over = passed_over
            raise NotTaken(ImportRefusal.FOREIGN)

    def _member(
        self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, so_far: Callable[[int], int]
    ) -> Iterator[FoundConversation | Missed]:
        where = f"{name}, {member.filename}"
        if member.flag_bits & 1:
            yield Missed(where, said(ImportRefusal.ENCRYPTED), whole=True)
            return
        times = member.file_size // max(1, member.compress_size)
        if times > BOMB_TIMES and member.file_size > BOMB_OCTETS:
            yield Missed(where, said(ImportRefusal.BOMB, times=times), whole=True)
            return
        try:
            with archive.open(member) as head:
                begins = head.read(SNIFFED)
            if begins.startswith(SQLITE):
                raise NotTaken(ImportRefusal.FOREIGN)
            with archive.open(member) as file:
                yield from self._text(file, begins, where, _written(member), so_far, partial(_inside, archive))
        except NotTaken as error:
            if error.why.kind == ImportRefusal.FOREIGN:
                self.passed_over += 1
            else:
                yield Missed(where, error.why, whole=True)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
            yield Missed(where, said(ImportRefusal.BROKEN_ZIP), whole=True)

    # -- text ---------------------------------------------------------------------------------------------------------

    def _text(
        self,
        file: IO[bytes],
        head: bytes,
        where: str,
        at: float,
        so_far: Callable[[int], int],
        asset: Callable[[str], bytes],
    ) -> Iterator[FoundConversation | Missed]:
        """`so_far`: how far it has come in all, from the octets that were read of this file. Raises NotTaken."""
        encoding = json.detect_encoding(head)  # by a mark, or the zeros of UTF-16, which PowerShell writes
        begins = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n\x1e")
        if begins[:1] in ("[", "{"):
            yield from self._json(JsonValues(file, encoding), file, where, at, so_far, asset)
            return
        for format in formats():
            if isinstance(format, TextFormat) and format.fits(begins):
                text = file.read(4 * LONGEST + 4).decode(encoding, "replace")
                try:
                    thread = _read(format.read, text, PurePath(where).stem)
                    yield FoundConversation(thread, format.title, at, where)
                except NotTaken as error:
                    yield Missed(where, error.why)
                return
        raise NotTaken(ImportRefusal.FOREIGN)

    def _json(
        self,
        values: JsonValues,
        file: IO[bytes],
        where: str,
        at: float,
        so_far: Callable[[int], int],
        asset: Callable[[str], bytes],
    ) -> Iterator[FoundConversation | Missed]:
        missed: list[Statement] = []  # until it is known that there are conversations in the file at all
        is_known = False
        for value in _with_sessions(values):
            self.progress.done = so_far(file.tell())
            format = _format_of(value, values.header)
            if format is None:
                missed.append(value.why if isinstance(value, NotTaken) else said(ImportRefusal.NOT_ONE))
                if not is_known and len(missed) >= UNKNOWN:
                    raise NotTaken(ImportRefusal.FOREIGN)
            is_known = is_known or format is not None
            if is_known:
                yield from (Missed(where, why) for why in missed)
                missed.clear()
            if format is not None and isinstance(value, dict):
                try:
                    yield FoundConversation(_read(format.read, value), format.title, at, where, asset)
                except NotTaken as error:
                    yield Missed(where, error.why)
        if not is_known:
            why = next((why for why in missed if why.kind != ImportRefusal.NOT_ONE), None)
            if why is None:
                raise NotTaken(ImportRefusal.FOREIGN)
            yield Missed(where, why, whole=True)

    # -- databases ----------------------------------------------------------------------------------------------------

    def _database(self, path: Path, at: float, head: bytes) -> Iterator[FoundConversation | Missed]:
        """Raises NotTaken."""
        if head[OWN_AT : OWN_AT + len(OWN)] == OWN:
            raise NotTaken(ImportRefusal.OWN_DATABASE)
        base, size = self.progress.done, _size(path)
        try:
            with closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            ) as db:
                db.text_factory = lambda octets: octets.decode("utf-8", "replace")
                tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                format = next(
                    (one for one in formats() if isinstance(one, DatabaseFormat) and one.tables <= tables), None
                )
                if format is None:
                    raise NotTaken(ImportRefusal.FOREIGN)
                whole = db.execute(format.count).fetchone()[0] or 1
                for number, thread in enumerate(format.read(db), 1):
                    self.progress.done = base + min(size, size * number // whole)
                    try:
                        yield FoundConversation(_bounded(thread), format.title, at, str(path))
                    except NotTaken as error:
                        yield Missed(str(path), error.why)
        except sqlite3.Error as error:
            raise NotTaken(ImportRefusal.BROKEN_DATABASE) from error


def _read(read: Callable[P, Item], *given: P.args, **named: P.kwargs) -> Item:
    """A conversation as a format reads it. Raises NotTaken, also where the format stumbles."""
    try:
        item = read(*given, **named)
    except (NotTaken, MemoryError):
        raise
    except Exception as error:
        log.exception("a conversation could not be read")
        raise NotTaken(ImportRefusal.FAULTY) from error
    return _bounded(item)


def _bounded(item: Item) -> Item:
    """A conversation that has not more messages than one may have. Raises NotTaken."""
    if len(item.tree if isinstance(item, Source) else item.messages) > MOST_MESSAGES:
        raise NotTaken(ImportRefusal.MANY_MESSAGES, limit=MOST_MESSAGES)
    return item


class _Counted(io.RawIOBase):
    """A file whose every read reports progress."""

    def __init__(self, file: IO[bytes], on_progress: Callable[[], None]) -> None:
        self._file = file
        self._on_progress = on_progress

    def read(self, size: int = -1) -> bytes:
        self._on_progress()
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return self._file.seekable()


def _format_of(value: object, header: dict[str, object]) -> JsonFormat | None:
    """The format of a value; None: it is no conversation. Raises NotTaken for a header that says so."""
    known = [one for one in formats() if isinstance(one, JsonFormat)]
    for format in known:
        if header:
            format.check(header)
    return next((one for one in known if isinstance(value, dict) and one.fits(value)), None)


def _with_sessions(values: JsonValues) -> Iterator[object]:
    """The values; the lines of a session trace as one, in the shape that the older files of llama.cpp have."""
    session: dict[str, object] | None = None
    messages: list[object] = []
    length = 0
    for value in values:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(value, dict) and kind == "session":
            if session is not None:
                yield _session(session, messages, length)
            session, messages, length = value, [], 0
        elif session is not None and isinstance(value, dict) and kind == "message":
            length += values.length
            if length <= LONGEST:
                messages.append(value.get("message"))
        elif session is None or isinstance(value, NotTaken):
            yield value
    if session is not None:
        yield _session(session, messages, length)


def _session(about: dict[str, object], messages: list[object], length: int) -> object:
    return (
        {"conv": about, "messages": messages} if length <= LONGEST else NotTaken(ImportRefusal.TOO_LARGE, limit=LONGEST)
    )


def _is_asset(name: str, beginning: str) -> bool:
    return bool(beginning) and name.rpartition("/")[2].startswith(beginning)


def _inside(archive: zipfile.ZipFile, beginning: str) -> bytes:
    """The file of an archive whose name begins so."""
    member = next((one for one in archive.infolist() if _is_asset(one.filename, beginning)), None)
    if member is None or member.file_size > LARGEST_ASSET:
        return b""
    try:
        with archive.open(member) as file:
            return file.read(LARGEST_ASSET)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        return b""


def _sibling(path: Path, beginning: str) -> bytes:
    """The file in the folder of another one, or one level below, whose name begins so."""
    name = f"{glob.escape(beginning)}*"
    try:
        found = (
            next((one for pattern in (name, f"*/{name}") for one in path.parent.glob(pattern) if one.is_file()), None)
            if beginning
            else None
        )
        if found is None or found.stat().st_size > LARGEST_ASSET:
            return b""
        return found.read_bytes()
    except OSError:
        return b""


def _scaled(before: int, share: float, base: int, octets: int) -> int:
    """How far it has come, from octets of an archive's files as they are unpacked."""
    return base + round(share * (before + octets))


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # there is no such user: nor such a file
        return path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _length(file: IO[bytes]) -> int:
    length = file.seek(0, 2)
    file.seek(0)
    return length


def _written(member: zipfile.ZipInfo) -> float:
    """When a file of an archive was written, as far as that knows: it has no zone."""
    try:
        return datetime(*member.date_time, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0

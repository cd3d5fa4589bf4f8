"""Files of the memory's folder: found, read and replaced without ever following a link or waiting for a device; and
turns at writing them, taken by all kvchats that have the folder, whichever store each of them is on.

A file holds its old content or its new one, never a part, and only the user can read it. The lock is on the folder
itself, so that no file is left behind; where folders cannot be locked, it is on a hidden file in it. On a file system
without locks nothing waits.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import DecodeError, Struct, field
from msgspec.json import decode, encode

from kvchat.memory.entry import PROFILE
from kvchat.paths import original_of, reason, sync_folder
from kvchat.store.errors import StoreUnavailable
from kvchat.store.presence.locks import WAIT_SECONDS, FolderInUse
from kvchat.text.problems import StoreProblem

LARGEST = 1 << 20
"""Bytes of a page."""
MOST_PAGES = 5000
DEEPEST = 8
"""Folders in folders below one of these."""
TOPICS, SKILLS, EPISODES = "topics", "skills", "episodes"
FOLDERS = (TOPICS, SKILLS, EPISODES)
"""The folders that hold pages."""
ENDING = ".md"

_TEMPORARY = re.compile(r"\.kvchat-[a-z0-9_]{8}\.tmp")
_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f\x7f]|[. ]\Z')
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Stamp = tuple[int, int, int, int]
"""What differs when a file was changed: its number, size and times."""


class UnusablePage(Struct, frozen=True):
    """A page or a folder of pages that cannot be used, and is left alone."""

    path: str
    """Relative to the memory's folder, with forward slashes; empty: that folder itself."""
    line: int
    """From 1; 0 when it is the file as a whole."""
    sentence: str


class Unusable(Exception):  # noqa: N818
    """A file that is not read or written; why, in words."""


class FoundPages(Struct):
    """The files that may be pages."""

    stamps: dict[str, Stamp] = field(default_factory=dict)
    problems: list[UnusablePage] = field(default_factory=list)


def found(root: Path) -> FoundPages:
    """The pages in a folder: `profile.md` and all below the FOLDERS. Costs one stat per file."""
    result = FoundPages()
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(root.iterdir()):
            _is_copy(result, entry.name, entry.name, {PROFILE, *FOLDERS})
    with contextlib.suppress(FileNotFoundError):
        _note(result, PROFILE, (root / PROFILE).lstat())
    for name in FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            info = (root / name).lstat()
            if stat.S_ISDIR(info.st_mode):
                _walk(result, root, name, 1)
            else:
                _note(result, name, info)
    if len(result.stamps) > MOST_PAGES:
        for name in sorted(result.stamps)[MOST_PAGES:]:
            del result.stamps[name]
            result.problems.append(
                UnusablePage(name, 0, f"There are more than {MOST_PAGES} pages; this one is not read.")
            )
    return result


def read(path: Path) -> bytes:
    """The content of a regular file, at most a byte more than LARGEST: more says that it is too large. Raises Unusable
    for what is no such file or cannot be read, FileNotFoundError where there is none."""
    try:
        handle = os.open(path, _OPEN)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(f"It cannot be read: {reason(error)}.") from error
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if (why := _unfit(info)) is not None:
            raise Unusable(why)
        try:
            return file.read(LARGEST + 1)
        except OSError as error:
            raise Unusable(f"It cannot be read: {reason(error)}.") from error


def stamp(path: Path) -> Stamp | None:
    """The stamp of a file; None when there is none."""
    try:
        return _stamp(path.lstat())
    except FileNotFoundError:
        return None


def stage(path: Path, data: bytes) -> Path:
    """A new private file next to `path` that holds `data`, on the disk, to be renamed to it. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".kvchat-", suffix=".tmp")
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)


def keep(path: Path) -> Path | None:
    """A second name for a file, which takes no room and keeps it when another one comes in its place; None: this file
    system has none."""
    kept = path.with_name(f".kvchat-{secrets.token_hex(4)}.tmp")
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        return None
    return kept


# Several files at once


NOTE = ".kvchat-renames"
"""Holds, while more than one file is renamed, which ones: what a crash cuts off there is completed."""


class Rename(Struct, frozen=True, array_like=True):
    """A staged file, and the one next to it that it replaces."""

    staged: str
    """The name of the file alone."""
    name: str
    """Relative to the folder."""
    stamp: Stamp | None
    """The file's, before; None: there was none."""


def note_renames(root: Path, renames: Sequence[Rename]) -> None:
    """Write the note. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(root / NOTE, flags, 0o600), "wb") as file:
        file.write(encode(renames))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(root)


def read_renames(root: Path) -> list[Rename]:
    """What the note says; nothing where there is none, or where it was cut off: then nothing was renamed yet."""
    with contextlib.suppress(OSError, DecodeError):
        handle = os.open(root / NOTE, _OPEN)
        with os.fdopen(handle, "rb") as file:
            renames = decode(file.read(LARGEST), type=list[Rename])
        return [rename for rename in renames if _TEMPORARY.fullmatch(rename.staged)]
    return []


def clean(folder: Path) -> None:
    """Remove what a write that was killed left in `folder` and below. No process may be writing there."""
    for place in _folders(folder, 0):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    Path(entry.path).unlink()


def is_portable(name: str) -> bool:
    """Whether a relative path can be a file on every system."""
    return all(
        part
        and len(part.encode("utf-8", "replace")) <= 200
        and not part.startswith(".")
        and not _FORBIDDEN.search(part)
        and not _RESERVED.fullmatch(part)
        for part in name.split("/")
    )


def _walk(result: FoundPages, root: Path, folder: str, depth: int) -> None:
    try:
        with os.scandir(root / folder) as entries:
            here = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        result.problems.append(UnusablePage(_shown(folder), 0, f"The folder cannot be read: {reason(error)}."))
        return
    names = {entry.name.lower() for entry in here}
    for entry in here:
        if entry.name.startswith("."):
            continue
        name = f"{folder}/{entry.name}"
        if _is_copy(result, entry.name, name, names):
            continue
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            result.problems.append(UnusablePage(_shown(name), 0, f"It cannot be read: {reason(error)}."))
            continue
        if stat.S_ISDIR(info.st_mode):
            if depth < DEEPEST:
                _walk(result, root, name, depth + 1)
            else:
                result.problems.append(UnusablePage(_shown(name), 0, "Folders this deep are not read. Move it up."))
        elif name.lower().endswith(ENDING) or (stat.S_ISLNK(info.st_mode) and (root / name).is_dir()):
            _note(result, name, info)


def _is_copy(result: FoundPages, entry: str, name: str, names: Collection[str]) -> bool:
    """Whether an entry of a folder is another version of one of these `names`; it is a problem then."""
    original = original_of(entry, numbered=True).lower()
    if original not in names or not (original.endswith(ENDING) or original in FOLDERS):
        return False
    why = (
        f"This is another version of {_shown(original)}, made by a program that copies files. It is not read: take "
        "what you need into that one and delete this one."
    )
    result.problems.append(UnusablePage(_shown(name), 0, why))
    return True


def _note(result: FoundPages, name: str, info: os.stat_result) -> None:
    why = _unfit(info)
    if why is None and _UNSEEN.search(name):
        why = "Its name has characters that cannot be shown, or is not UTF-8. Rename it."
    if why is None:
        result.stamps[name] = _stamp(info)
    else:
        result.problems.append(UnusablePage(_shown(name), 0, why))


def _unfit(info: os.stat_result) -> str | None:
    """Why a file is no page."""
    if stat.S_ISLNK(info.st_mode):
        return "It is a link, and links are not followed. Put the file itself here."
    if not stat.S_ISREG(info.st_mode):
        return "It is not a file. Move it away."
    if info.st_size > LARGEST:
        return f"It has {info.st_size >> 20} MB, and a page has at most {LARGEST >> 20}. Divide it."
    return None


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _shown(name: str) -> str:
    return _UNSEEN.sub(lambda match: ascii(match[0])[1:-1], name)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    if depth > DEEPEST:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        below = [
            Path(entry.path)
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
        for place in below:
            yield from _folders(place, depth + 1)


# Turns


PAUSE_SECONDS = 0.005


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Write in `folder` alone. Raises StoreUnavailable when somebody else does for WAIT_SECONDS, OSError."""
    held = FolderInUse(folder)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not held.alone():
            if time.monotonic() > deadline:
                raise StoreUnavailable(StoreProblem.FOLDER_HELD, folder=folder, seconds=WAIT_SECONDS)
            time.sleep(PAUSE_SECONDS)
        yield
    finally:
        with suppress(OSError):
            held.close()

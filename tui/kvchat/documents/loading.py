"""Load the bytes of a file on the disk, as they were at one moment.

Only a regular file of bounded size is ever read: no link is followed, no pipe or device is waited for, and a file that
changes while it is read is not taken for an unchanged one.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from pathlib import Path

from msgspec import Struct

from kvchat import paths
from kvchat.documents.errors import FileUnreadableError

_ESCAPED = re.compile(r"\\(.)")
LINK = "is a symbolic link"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = {
    stat.S_IFLNK: LINK,
    stat.S_IFDIR: "is a folder",
    stat.S_IFIFO: "is a named pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


class VanishedError(FileUnreadableError):
    """The file is not there."""


class LoadedFile(Struct, frozen=True):
    """A file's bytes, and what the system said of it then."""

    data: bytes
    size: int
    mtime_ns: int


def path_meant(typed: str) -> Path:
    """The path that a user means by what they typed: `~` is the home folder, `\\ ` a blank as in a shell, and a name is
    taken in the Unicode form that the disk has it in. What is not there stays as it is. Raises RuntimeError where there
    is no such home folder, OSError where the working folder is gone."""
    spelled = dict.fromkeys((typed, _ESCAPED.sub(r"\1", typed)))
    found = [as_on_disk(Path(one).expanduser().absolute()) for one in spelled]
    return next((path for path in found if os.path.lexists(path)), found[0])


def as_on_disk(path: Path) -> Path:
    """An absolute path with its names in the Unicode forms that the disk has them in: a file from a Mac may be called
    `u` and two dots where `ü` is typed."""
    if str(path).isascii() or os.path.lexists(path):
        return path
    found = Path(path.anchor)
    for name in path.parts[1:]:
        if not os.path.lexists(found / name):
            sought = unicodedata.normalize("NFC", name)
            try:
                with os.scandir(found) as entries:
                    names = (entry.name for entry in entries)
                    name = next((one for one in names if unicodedata.normalize("NFC", one) == sought), "")
            except (OSError, ValueError):
                return path
            if not name:
                return path
        found /= name
    return found


def loaded(path: str | bytes | os.PathLike[str], largest: int) -> LoadedFile:
    """The bytes of the file at `path`, at most `largest` of them. Raises UnreadableError, also VanishedError."""
    for _ in range(2):
        if (found := _loaded_once(path, largest)) is not None:
            return found
    raise FileUnreadableError("changed while it was read")


def kind_in_words(mode: int) -> str:
    """Why what is no regular file is not read: `is a named pipe`."""
    return _KINDS.get(stat.S_IFMT(mode), "is no regular file")


def too_large(largest: int) -> str:
    """Why a file of more than `largest` bytes is not read."""
    return f"is larger than {largest / 1e6:,.10g} MB"


def failure(error: OSError) -> str:
    """Why a file or folder cannot be read."""
    return f"cannot be read: {paths.reason(error)}"


def _loaded_once(path: str | bytes | os.PathLike[str], largest: int) -> LoadedFile | None:
    """None: it changed meanwhile."""
    try:
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise VanishedError("vanished before it was read") from None
    except OSError as error:
        raise FileUnreadableError(LINK if _is_link(path) else failure(error)) from None
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise FileUnreadableError(kind_in_words(before.st_mode))
        if before.st_size > largest:
            raise FileUnreadableError(too_large(largest))
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(before.st_size + 1)
        after = os.fstat(handle)
    except OSError as error:
        raise FileUnreadableError(failure(error)) from None
    finally:
        os.close(handle)
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return LoadedFile(data, after.st_size, after.st_mtime_ns) if same and len(data) == after.st_size else None


def _is_link(path: str | bytes | os.PathLike[str]) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False

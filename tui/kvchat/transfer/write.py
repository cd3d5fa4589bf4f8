"""Writing an export to disk.

The file at the destination is the old one or the whole new one, never a part; nothing is replaced unless
that was asked for; the file is the user's alone (0600). A pipe or a device is written to, a link is followed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kvchat.paths import open_part, sync_folder
from kvchat.prompt.conversation import Conversation
from kvchat.sanitize import one_line
from kvchat.text.format import local
from kvchat.transfer.exported import ExportedFiles, digested
from kvchat.transfer.formats import FileExists, Sources, TransferError, pieces

NAME_LENGTH = 80
"""Characters in a suggested name, suffix included."""
_NAME_OCTETS = 200
"""Octets in it, for titles outside ASCII: file systems stop at 255."""

_REASONS = {
    errno.EACCES: "this folder may not be written to. Choose another one",
    errno.EPERM: "this folder may not be written to. Choose another one",
    errno.EROFS: "this disk is read-only. Choose another folder",
    errno.ENOSPC: "the disk is full. Free some space or choose another folder",
    errno.EDQUOT: "your disk quota is used up. Free some space or choose another folder",
    errno.ENOENT: "there is no such folder. Make it first or choose another one",
    errno.ENOTDIR: "a part of this path is a file, not a folder. Choose another one",
    errno.ENAMETOOLONG: "the file name is too long. Choose a shorter one",
    errno.EISDIR: "this is a folder. Name a file in it",
}


def suggested_name(conversation: Conversation, format: str) -> str:
    """A file name for an export of `conversation`: title and date, `lighthouse-log-2026-11-21.md`.

    Only letters and digits of any script and hyphens: at most 80 characters, safe on every file system.
    """
    created = local(conversation.created)
    end = (f"-{created.date().isoformat()}" if created else "") + f".{format}"
    return slug(conversation.title, end) + end


def slug(title: str, end: str) -> str:
    """A title as the beginning of a file name that is as long as it may be with `end` behind it."""
    letters = [
        char if unicodedata.category(char)[0] in "LNM" else "-"
        for char in unicodedata.normalize("NFKC", title[:1000]).lower()
    ]
    found = re.sub("-+", "-", "".join(letters))[: NAME_LENGTH - len(end)]
    return found.encode()[: _NAME_OCTETS - len(end)].decode(errors="ignore").strip("-") or "conversation"


def export(
    destination: Path,
    format: str,
    sources: Sources,
    *,
    all_branches: bool = False,
    overwrite: bool = False,
    exported: ExportedFiles | None = None,
) -> Path:
    """Write `sources` as `format` to the file `destination`, or each to a file of its own in the folder `destination`;
    the path of the file, or of the folder where several were written.

    In a folder a conversation's own file is replaced where it is among the `exported` and still as it was written.
    Other names are the suggested ones; where one is taken and `overwrite` is false, and for the second of the same name
    in one export, a number is added. Raises FileExists or TransferError; then no more than whole files was written.
    """
    destination = expanded(destination)
    if not _is_folder(destination):
        return _write([destination], pieces(format, sources, all_branches=all_branches), overwrite)
    if not len(sources):
        raise TransferError("There is no conversation to export.")
    exported = exported or ExportedFiles()
    written = dict[Path, None]()
    for source in sources:
        id, name = source.conversation.id, destination / suggested_name(source.conversation, format)
        names = [name, *(name.with_stem(f"{name.stem}-{number}") for number in range(2, 1000))]
        own = exported.own(destination, id, format)
        free = [own] if own is not None else [one for one in names if one not in written]
        digest = sha256()
        text = digested(pieces(format, [source], all_branches=all_branches), digest)
        path = _write(free[:1] if overwrite else free, text, overwrite or own is not None)
        exported.note(id, format, path, digest.hexdigest())
        written[path] = None
    return destination if len(written) > 1 else next(iter(written))


def make_folder(path: Path) -> None:
    """Make a folder for an export, private to the user, if it is not there. Raises TransferError."""
    try:
        expanded(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise failed(path, error) from error


def write_text(path: Path, text: str, *, overwrite: bool = False) -> Path:
    """Write `text` as UTF-8 to `path` in one step, readable by its owner only; the path written.

    Raises FileExists if there is a file and `overwrite` is false, and TransferError if it cannot be written; then
    the destination is as it was.
    """
    return _write([expanded(path)], (text,), overwrite)


def _write(paths: Sequence[Path], text: Iterable[str], overwrite: bool) -> Path:
    """Write to the first of these paths of one folder that is free, or with `overwrite` to the first."""
    path = paths[0]
    if _is_folder(path):
        raise failed(path, OSError(errno.EISDIR, ""))
    try:
        if not stat.S_ISREG(mode := path.stat().st_mode):
            _write_to(path, text)
            return path
        if overwrite and not mode & stat.S_IWUSR:
            raise TransferError(f"{one_line(str(path))} is read-only (chmod u+w makes it writable).")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise failed(path, error) from error
    if overwrite:
        path, paths = Path(os.path.realpath(path)), [Path(os.path.realpath(path))]
    try:
        if not overwrite and all(map(os.path.lexists, paths)):  # before much is written for nothing
            raise FileExistsError(path)
        handle, part = open_part(path)
        try:
            with os.fdopen(handle, "wb") as stream:
                for piece in text:
                    stream.write(piece.encode("utf-8", "replace"))
                stream.flush()
                os.fsync(stream.fileno())
            path = _move_to_free(part, paths, overwrite)
        finally:
            with suppress(OSError):
                part.unlink()
        sync_folder(path.parent)
    except FileExistsError as error:
        raise _exists(paths[-1]) from error
    except OSError as error:
        raise failed(path, error) from error
    return path


def _write_to(path: Path, text: Iterable[str]) -> None:
    """Write to what is no file."""
    with path.open("wb") as stream:
        for piece in text:
            stream.write(piece.encode("utf-8", "replace"))


def _move_to_free(part: Path, paths: Sequence[Path], overwrite: bool) -> Path:
    for path in paths:
        try:
            _move(part, path, overwrite)
        except FileExistsError:
            if path is paths[-1]:
                raise
        else:
            return path
    raise FileExistsError


def _move(part: Path, path: Path, overwrite: bool) -> None:
    """Give `part` the name `path`. Without `overwrite` a file that came there meanwhile stays: FileExistsError."""
    if not overwrite:
        try:
            os.link(part, path, follow_symlinks=False)
            return
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):  # a file system without hard links
            if os.path.lexists(path):
                raise FileExistsError(path) from None
    part.replace(path)


def expanded(path: Path) -> Path:
    """`path` with its `~` resolved. Raises TransferError for one that no file can have."""
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise TransferError(f"{one_line(str(path))} could not be written: there is no such user.") from error
    if "\0" in str(path):
        raise TransferError(f"{one_line(str(path))} is not a file name.")
    return path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder above it is closed to us: writing will say so
        return False


def _exists(path: Path) -> FileExists:
    return FileExists(
        f"{one_line(str(path))} exists already. Choose another name, or replace it (on the command line: --force)."
    )


def failed(path: Path, error: OSError) -> TransferError:
    """Why a path could not be written, and what to do."""
    reason = _REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())
    return TransferError(f"{one_line(str(path))} could not be written: {reason}.")

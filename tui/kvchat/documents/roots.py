"""Roots: the folder or file that a collection is of, and whether it is really there.

The rule: a root that is missing, cannot be read or is suddenly empty is a drive that is not connected, until the
person says otherwise: nothing is concluded about its files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kvchat.documents.errors import DocumentError
from kvchat.documents.loading import failure, kind_in_words
from kvchat.sanitize import one_line

KEPT = "What is in the index of it is kept."


def real_root(root: Path) -> tuple[Path, os.stat_result]:
    """The folder or file that `root` leads to. Raises DocumentError with what is wrong with it."""
    try:
        real = root.resolve(strict=True)
        info = real.stat()
        if stat.S_ISDIR(info.st_mode):
            with os.scandir(real):
                pass
    except (FileNotFoundError, NotADirectoryError):
        raise DocumentError(f"{shown(root)} is not there.") from None
    except (OSError, RuntimeError, ValueError) as error:
        why = failure(error) if isinstance(error, OSError) else "cannot be read"
        raise DocumentError(f"{shown(root)} {why}.") from None
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise DocumentError(f"{shown(root)} {kind_in_words(info.st_mode)}.")
    return real, info


def shown(root: Path) -> str:
    """A root as a sentence may hold it."""
    return one_line(str(root), 200)


def trouble_of(root: Path, has_documents: bool) -> str:
    """What is wrong with a root, in sentences; empty: nothing. An empty folder of which something is in the index is
    where a drive is not connected."""
    try:
        Root(root, has_documents)
    except DocumentError as error:
        return str(error)
    return ""


class Root:
    """A root that is gone through."""

    def __init__(self, root: Path, has_documents: bool) -> None:
        """`has_documents`: whether there is anything of it in the index. Raises DocumentError."""
        self._root, self._kept = root, f" {KEPT}" if has_documents else ""
        real, info = self._real()
        is_folder = stat.S_ISDIR(info.st_mode)
        if is_folder and has_documents and not _has_entries(real):
            raise DocumentError(f"{shown(root)} is empty. {KEPT} Connect its drive, or remove the collection.")
        self._identity = info.st_dev, info.st_ino
        self.folder = os.fsencode(real if is_folder else real.parent)
        """The folder that paths are below."""

    def check(self) -> None:
        """Raises DocumentError where it is no longer what it was: then a file that is missing may not be gone."""
        _, info = self._real()
        if (info.st_dev, info.st_ino) != self._identity:
            raise DocumentError(f"{shown(self._root)} was replaced while it was read.{self._kept}")

    def _real(self) -> tuple[Path, os.stat_result]:
        try:
            return real_root(self._root)
        except DocumentError as error:
            raise DocumentError(f"{error}{self._kept}") from None


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False

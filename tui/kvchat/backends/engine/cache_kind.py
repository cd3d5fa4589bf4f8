"""What a saved slot and the server it is given to must have in common: the model, the shape of the cache, the build.

A model is known by what is in its file, not by the file's name, place or time.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from msgspec import Struct

from kvchat.backends.dialect import ServerInfo
from kvchat.text.snapshots import SnapshotProblem
from kvchat.values import Statement, said

KV_TYPE = "f16"
"""The type of the cache's numbers in the embedded engine; a setting for it would belong into the shape."""
_END = 1 << 20
_BLOCK, _BLOCKS = 1 << 16, 16


class CacheKind(Struct, frozen=True):
    """Two servers of one kind take each other's files."""

    model: str
    """The fingerprint of the model file."""
    shape: str
    """In words, as the screen says it."""
    build: str

    @property
    def key(self) -> str:
        """The name of the model and the build: what a verdict on snapshots is about."""
        return _short(f"{self.model}\n{self.build}".encode())

    def difference(self, other: CacheKind) -> Statement | None:
        """Why a snapshot of this kind does not go into a server of the `other`; None when it does."""
        if self.model != other.model:
            return said(SnapshotProblem.OTHER_MODEL)
        if self.shape != other.shape:
            return said(SnapshotProblem.OTHER_SHAPE, shape=self.shape, now=other.shape)
        return None if self.build == other.build else said(SnapshotProblem.OTHER_BUILD)


def kind_of(model: Path, info: ServerInfo, threads: int) -> CacheKind:
    """The kind of the embedded engine that runs the file `model`. Its number of threads belongs to it: with another one
    the same state answers with other last bits. Reads up to 3 MiB; raises OSError."""
    engine = _version("xllamacpp")
    slots = info.slots or 1
    shape = (
        f"{info.context_size or 0:,} tokens per slot, {slots} {'slot' if slots == 1 else 'slots'}, {KV_TYPE}, "
        f"{threads} {'thread' if threads == 1 else 'threads'}"
    )
    return CacheKind(fingerprint(model), shape, f"{info.build} {engine}".strip())


def fingerprint(path: Path) -> str:
    """The fingerprint of a large file: its size, its first and last MiB and 16 blocks between. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found = hashlib.sha256(str(size).encode())
        found.update(file.read(_END))
        for index in range(1, _BLOCKS + 1):
            file.seek(size * index // (_BLOCKS + 1))
            found.update(file.read(_BLOCK))
        file.seek(max(0, size - _END))
        found.update(file.read(_END))
    return found.hexdigest()[:32]


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _version(package: str) -> str:
    from importlib import metadata  # takes a while, and is used once a start

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""

"""KV snapshots: what a server's slots held, in files of a folder.

No file is given to a server before it was found whole and of the server's own kind. The server takes a
flipped bit for the conversation, ends on a file that is cut short, and empties the slot on any other failure.

Each snapshot is two files of one random name: the server writes `.bin`, then `.json` says what is in it. Without
the second the first counts for nothing, so a process killed in between leaves a leftover and no half snapshot, and
several processes can share a folder. A snapshot holds what was said: the files are private, and bounded. Those that
the user keeps have a bound of their own, and only a newer one of the same conversation takes their place.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from kvchat import paths
from kvchat.backends.engine.cache_kind import CacheKind
from kvchat.backends.engine.snapshot_file import STEM, Snapshot, checksum, kept_among, read_card, token_ids
from kvchat.cache import Tokens
from kvchat.patterns import compiled_later
from kvchat.text.snapshots import SnapshotProblem, snapshot_sentence
from kvchat.values import Statement, said

MOST_SNAPSHOTS = 24
MOST_BYTES = 4 << 30
LEAST_FREE = 2 << 30
"""Bytes that stay free on the disk."""
MOST_BRANCHES = 3
"""Snapshots of one conversation."""
LEFTOVER_SECONDS = 600.0
"""A file that belongs to no snapshot may be one that is being written, for so long."""

_OURS = compiled_later(r"\.?kvchat-[0-9a-f]{16}\.(bin|json)(\..*)?")


class SnapshotError(Exception):
    """A snapshot that cannot be saved or used."""

    def __init__(self, problem: Statement) -> None:
        """`problem`: a `SnapshotProblem` with its arguments."""
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return snapshot_sentence(self.problem)


class Claims(Protocol):
    """What the shelf cannot know of its snapshots. Asked in its thread, each time: another process may have changed
    it."""

    def paths(self) -> Mapping[str, Sequence[str]]:
        """By conversation that the user keeps: the digests of the messages whose state stays, root first."""

    def most_bytes(self) -> int:
        """Bytes that the kept ones may take."""

    def title(self, conversation: str) -> str: ...


class NoClaims:
    """Nothing is kept."""

    def paths(self) -> Mapping[str, Sequence[str]]:
        return {}

    def most_bytes(self) -> int:
        return 0

    def title(self, conversation: str) -> str:
        return ""


class SnapshotDir:
    """The snapshots in a folder. Every method but the properties works on the disk: call it in a thread."""

    def __init__(
        self, folder: Path, *, most: int = MOST_SNAPSHOTS, most_bytes: int = MOST_BYTES, least_free: int = LEAST_FREE
    ) -> None:
        self.folder = folder
        self._most = most
        self._most_bytes = most_bytes
        self._least_free = least_free
        self._lock = threading.RLock()
        self._snapshots: tuple[Snapshot, ...] = ()
        self.claims: Claims = NoClaims()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Those known, used last first. Another process may have added or removed some since `load`."""
        return self._snapshots

    def load(self) -> None:
        """Read the folder again, making it where it is missing, and remove what is of no use. Raises PathError and
        OSError."""
        with self._lock:
            paths.folder(self.folder)
            paths.make_private(self.folder)
            cards = list(self.folder.glob("kvchat-*.json"))  # first: a file that is there before its card is not missed
            found, names = [], {path.stem for path in self.folder.glob("kvchat-*.bin")}
            for card in cards:
                snapshot = read_card(card)
                if snapshot is not None and snapshot.name in names:
                    found.append(snapshot)
                elif STEM.fullmatch(card.stem):
                    card.unlink(missing_ok=True)
            self._hold(found)
            self._clear({snapshot.name for snapshot in found})
            self._trim(self.kept())

    def fresh(self) -> str:
        """The name of a file for the server to write: no other will ever have it."""
        return f"kvchat-{os.urandom(8).hex()}"

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether its file still holds it: its name is its own."""
        return True

    def kept(self) -> dict[str, Snapshot]:
        """The snapshots that stay, by conversation."""
        with self._lock:
            return kept_among(self._snapshots, self.claims.paths())

    def make_room(self, needed: int, conversation: str = "", path: Sequence[str] = ()) -> None:
        """Drop old snapshots until `needed` more bytes fit, for a state of these messages (digests, root first). Raises
        SnapshotError when they cannot."""
        with self._lock:
            paths = self.claims.paths()
            kept = kept_among(self._snapshots, paths)
            stays = paths.get(conversation, ())
            if (
                path
                and tuple(stays[: len(path)]) == tuple(path)
                and (conversation not in kept or len(path) >= len(kept[conversation].path))
            ):
                self._must_fit(needed, conversation, kept)
                self._trim(kept, free=needed)
            elif needed > self._most_bytes:
                raise SnapshotError(said(SnapshotProblem.ABOVE_BOUND, needed=needed, most=self._most_bytes))
            else:
                self._trim(kept, needed, free=needed)
            if self._free() - needed < self._least_free:
                raise SnapshotError(said(SnapshotProblem.DISK_FULL, least=self._least_free))

    def sealed(self, snapshot: Snapshot) -> Snapshot:
        """The same with the checksum of the file that the server has just written. Raises SnapshotError where that is
        not whole, and OSError."""
        file = self.folder / snapshot.file
        size = file.stat().st_size if file.is_file() else -1
        if size != snapshot.size:
            raise SnapshotError(
                said(SnapshotProblem.SHORT, size=max(0, size), whole=snapshot.size, folder=str(self.folder))
            )
        paths.make_private(file)
        return replace(snapshot, checksum=checksum(file))

    def keep(self, snapshot: Snapshot) -> Snapshot:
        """Add a snapshot that is sealed and probed, with the times of now; it replaces those of the conversation that
        it goes on from. Raises SnapshotError, PathError, OSError."""
        now = time.time()
        snapshot = replace(snapshot, saved=now, used=now)
        with self._lock:
            kept = kept_among([*self._snapshots, snapshot], self.claims.paths())
            if kept.get(snapshot.conversation) is snapshot:
                self._must_fit(snapshot.size, snapshot.conversation, kept)
            self._write(snapshot)
            own = [
                other
                for other in self._snapshots
                if other.conversation == snapshot.conversation
                and other.kind == snapshot.kind
                and kept.get(other.conversation) is not other
            ]
            stale = [other for other in own if _replaces(snapshot, other)]
            branches = [other for other in own if other.conversation and other not in stale]
            for other in (*stale, *branches[MOST_BRANCHES - 1 :]):
                self._remove(other)
            self._hold([*self._snapshots, snapshot])
            self._trim(kept)
            if snapshot not in self._snapshots:
                raise SnapshotError(said(SnapshotProblem.NO_ROOM))
        return snapshot

    def touch(self, snapshot: Snapshot, slot: int) -> Snapshot:
        """Note that it was used just now, in this slot. Raises PathError."""
        fresh = replace(snapshot, used=time.time(), slot=slot)
        with self._lock:
            if all(other.name != snapshot.name for other in self._snapshots):
                return snapshot
            self._write(fresh)
            self._hold([other for other in self._snapshots if other.name != snapshot.name] + [fresh])
        return fresh

    def check(self, snapshot: Snapshot, kind: CacheKind) -> Statement | None:
        """Why it must not be given to a server of this kind; None when it may. What is damaged is removed, what belongs
        to another server stays."""
        if (difference := snapshot.kind.difference(kind)) is not None:
            return difference
        file = self.folder / snapshot.file
        try:
            size = file.stat().st_size
            if size == snapshot.size and checksum(file) == snapshot.checksum:
                return None
            damage = (
                said(SnapshotProblem.DAMAGED)
                if size == snapshot.size
                else said(SnapshotProblem.CUT, size=size, whole=snapshot.size)
            )
        except FileNotFoundError:
            damage = said(SnapshotProblem.GONE)
        except OSError as error:
            return said(SnapshotProblem.CANNOT_READ, reason=paths.reason(error))
        self.drop(snapshot)
        return damage

    def ids_on_card(self, state: Tokens) -> str:
        """What a card says of the tokens, as of `Snapshot.ids`: nothing, for the file has them."""
        return ""

    def token_ids(self, snapshot: Snapshot) -> Tokens | None:
        """The tokens in the snapshot; None when its file's form is not the known one."""
        return token_ids(self.folder / snapshot.file, snapshot.tokens)

    def drop(self, *snapshots: Snapshot) -> None:
        """Remove these. A file that cannot be removed now is left for `load`."""
        with self._lock:
            for snapshot in snapshots:
                self._remove(snapshot)

    def discard(self, name: str) -> None:
        """Remove a file that the server wrote and that was not kept."""
        _unlink(self.folder / f"{name}.bin")

    def tidy(self) -> None:
        """Keep the bounds and clear leftovers away. Raises PathError and OSError."""
        if self.folder.is_dir():
            self.load()

    def remove(self, conversations: Collection[str]) -> None:
        """Remove the snapshots of these conversations, and those of which it is not known whose they are: also
        the ones that another process has saved meanwhile. Raises PathError and OSError."""
        with self._lock:
            self.tidy()
            self.drop(*(s for s in self._snapshots if not s.conversation or s.conversation in conversations))

    def _hold(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = tuple(sorted(snapshots, key=lambda snapshot: (snapshot.used, snapshot.name), reverse=True))

    def _write(self, snapshot: Snapshot) -> None:
        paths.write_private(self.folder / snapshot.card, snapshot.as_json())

    def _remove(self, snapshot: Snapshot) -> None:
        _unlink(self.folder / snapshot.card)
        _unlink(self.folder / snapshot.file)
        self._hold(other for other in self._snapshots if other.name != snapshot.name)

    def _must_fit(self, size: int, conversation: str, kept: Mapping[str, Snapshot]) -> None:
        """Raises SnapshotError if a kept state of `size` bytes does not fit next to the other ones."""
        others = [snapshot for other, snapshot in kept.items() if other != conversation]
        room = self.claims.most_bytes()
        if sum(snapshot.size for snapshot in others) + size > room:
            largest = max(others, key=lambda snapshot: snapshot.size, default=None)
            raise SnapshotError(
                said(
                    SnapshotProblem.KEPT_FULL,
                    title=self.claims.title(conversation),
                    room=room,
                    release=self.claims.title(largest.conversation) if largest else "",
                    frees=largest.size if largest else 0,
                )
            )

    def _trim(self, kept: Mapping[str, Snapshot], needed: int = 0, free: int = 0) -> None:
        """Drop the oldest that are not kept until their number and bytes are within bounds with one of `needed` bytes
        more, and the disk with `free` more; none for a disk that is full of other things."""
        stay = {snapshot.name for snapshot in kept.values()}
        loose = [snapshot for snapshot in self._snapshots if snapshot.name not in stay]

        def total() -> int:
            return sum(snapshot.size for snapshot in loose)

        while loose and (len(loose) + bool(needed) > self._most or total() + needed > self._most_bytes):
            self._remove(loose.pop())
        if self._free() + total() - free < self._least_free:
            return
        while loose and self._free() - free < self._least_free:
            self._remove(loose.pop())

    def _free(self) -> int:
        return shutil.disk_usage(self.folder).free

    def _clear(self, known: Collection[str]) -> None:
        """Remove leftovers of snapshots that were never finished."""
        before = time.time() - LEFTOVER_SECONDS
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path.stem not in known and _changed(path) < before:
                _unlink(path)


def _replaces(new: Snapshot, old: Snapshot) -> bool:
    """Whether nothing is in `old`, of the same conversation, that is not in `new`."""
    if not new.conversation:
        return new.slot == old.slot
    return old.digest in new.path or not new.path


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return math.inf


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass

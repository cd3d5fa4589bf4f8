"""Snapshots of a server that is not kvchat's own: its files lie in a folder of its own, mostly out of reach.

Nothing there can be deleted, so the files have a few names, which no other kvchat uses and which are written
over, that of the oldest snapshot first. Where the folder can be read, its files are checked and removed as well.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from kvchat import paths
from kvchat.backends.engine.cache_kind import CacheKind
from kvchat.backends.engine.snapshot_file import Snapshot, checksum, kept_among, read_card, token_ids
from kvchat.backends.engine.snapshots import MOST_BYTES, SnapshotDir, SnapshotError
from kvchat.cache import Tokens
from kvchat.text.snapshots import SnapshotProblem
from kvchat.values import Statement, said

NAMES = 8
_PREFIX = re.compile(r"[0-9a-f]{15}")


def shelf_of(folder: Path, place: str, files: str = "") -> ServerShelf:
    """The shelf of the server at `place`, below the `folder` of all servers. `files`: its own folder, where it is at
    hand."""
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    return ServerShelf(folder / name, Path(files).expanduser() if files else None)


def forget(folder: Path, conversations: Collection[str]) -> None:
    """Remove what is known of the snapshots of these conversations on any server. Raises PathError and OSError."""
    for cards in folder.glob("*/") if folder.is_dir() else ():
        ServerShelf(cards).remove(conversations)


def kept(folder: Path, paths: Mapping[str, Sequence[str]]) -> dict[str, Snapshot]:
    """The snapshots of conversations with these `paths` (as of `kept_among`) on any server, whether it is in use or
    not."""
    return kept_among(filter(None, map(read_card, folder.glob("*/kvchat-*.json"))), paths)


class ServerShelf(SnapshotDir):
    """The cards of one server's snapshots, in a folder of kvchat; the files are the server's. As of `SnapshotDir`."""

    def __init__(self, folder: Path, files: Path | None = None) -> None:
        """`files`: the server's folder, where it is on this machine."""
        super().__init__(folder, most=NAMES, least_free=0)
        self._files = files

    def load(self) -> None:
        with self._lock:
            paths.folder(self.folder)
            paths.make_private(self.folder)
            self._hold(filter(None, map(read_card, self.folder.glob("kvchat-*.json"))))

    def fresh(self) -> str:
        """The name to write to: one that holds nothing, else that of the snapshot that was not used for longest, which
        is lost with this. Raises SnapshotError where the user keeps all, PathError and OSError."""
        with self._lock:
            self.load()  # another kvchat on this store may have written meanwhile
            prefix, taken = self._prefix(), {snapshot.name for snapshot in self._snapshots}
            free = next((name for at in range(NAMES) if (name := f"kvchat-{prefix}{at:x}") not in taken), None)
            if free is not None:
                return free
            stay = self.kept().values()
            oldest = next((snapshot for snapshot in reversed(self._snapshots) if snapshot not in stay), None)
            if oldest is None:
                raise SnapshotError(said(SnapshotProblem.ALL_KEPT, names=NAMES))
            self._remove(oldest)
            return oldest.name

    def _prefix(self) -> str:
        """What the names begin with: of this store and server alone."""
        file = self.folder / "names"
        try:
            found = file.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            found = ""
        if not _PREFIX.fullmatch(found):
            found = os.urandom(8).hex()[:15]
            paths.write_private(file, found.encode())
        return found

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether its name was not written over, by another kvchat on this store."""
        card = read_card(self.folder / snapshot.card)
        if card is not None and card.saved == snapshot.saved:
            return True
        self._hold(other for other in self._snapshots if other.name != snapshot.name)
        return False

    def sealed(self, snapshot: Snapshot) -> Snapshot:
        file = self._file(snapshot)
        if file is None:
            return snapshot
        if (size := file.stat().st_size) != snapshot.size:
            raise SnapshotError(said(SnapshotProblem.SHORT, size=size, whole=snapshot.size, folder=str(self._files)))
        return replace(snapshot, checksum=checksum(file))

    def check(self, snapshot: Snapshot, kind: CacheKind) -> Statement | None:
        if (difference := snapshot.kind.difference(kind)) is not None:
            return difference
        file = self._file(snapshot)
        if file is None or not snapshot.checksum or checksum(file) == snapshot.checksum:
            return None
        self.drop(snapshot)
        return said(SnapshotProblem.DAMAGED)

    def ids_on_card(self, state: Tokens) -> str:
        return base64.b64encode(state.data).decode()

    def token_ids(self, snapshot: Snapshot) -> Tokens | None:
        if not snapshot.ids:  # it was only just written
            file = self._file(snapshot)
            return token_ids(file, snapshot.tokens) if file is not None else None
        try:
            found = Tokens(array("i", base64.b64decode(snapshot.ids, validate=True)))
        except ValueError:
            return None
        return found if len(found) == snapshot.tokens else None

    def discard(self, name: str) -> None:
        if self._files is not None:
            (self._files / f"{name}.bin").unlink(missing_ok=True)

    def _file(self, snapshot: Snapshot) -> Path | None:
        """Its file; None where it cannot be read from here."""
        file = self._files / snapshot.file if self._files is not None else None
        return file if file is not None and os.access(file, os.R_OK) else None

    def _remove(self, snapshot: Snapshot) -> None:
        super()._remove(snapshot)
        if self._files is not None:
            try:
                (self._files / snapshot.file).unlink(missing_ok=True)
            except OSError:
                pass

    def _free(self) -> int:
        return MOST_BYTES  # the disk is the server's

"""One snapshot: the file that a server wrote, and the card that says what is in it.

Both are read without trust. A card of another form is no snapshot; a file is compared to the last byte.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from kvchat.backends.engine.cache_kind import CacheKind
from kvchat.cache import Memory, StateProbe, Tokens
from kvchat.values import decode, encode

STEM = re.compile(r"kvchat-[0-9a-f]{16}")
"""The name that both files have."""
_MOST_CARD_BYTES = 8 << 20
_CHUNK = 4 << 20
_MAGIC, _VERSION = 0x67677371, 4


class Snapshot(Struct, frozen=True):
    """A saved slot. Times are seconds since the epoch."""

    name: str
    conversation: str
    """Its id; empty: whatever was in the slot."""
    digest: str
    """The digest of the last message in it, hex."""
    path: tuple[str, ...]
    """The digests from the first message to the last one in it; empty when only the last one is known."""
    slot: int
    tokens: int
    size: int
    """Bytes of the file."""
    checksum: str
    """SHA-256 of the whole file, hex: the server itself takes a flipped bit for the conversation. Empty where the file
    lies on a server and cannot be read."""
    model: str
    shape: str
    build: str
    saved: float
    used: float
    ids: str
    """The tokens in it, where its file cannot be read: base64 of what `Tokens.data` is."""
    probe: StateProbe
    """What the state answers."""
    spread: float
    """How far two such probes of one state are apart on its server; 0.0: they are equal bit for bit."""
    memory: Memory = field(default_factory=Memory)
    """How far back the state can go, as far as it is known: a file has its checkpoints, too."""

    @property
    def file(self) -> str:
        """The file's name in the folder of slots."""
        return f"{self.name}.bin"

    @property
    def card(self) -> str:
        """The name of the file that describes it."""
        return f"{self.name}.json"

    def as_json(self) -> bytes:
        return encode(self).encode()

    @property
    def kind(self) -> CacheKind:
        return CacheKind(self.model, self.shape, self.build)

    def shared(self, digests: Iterable[str]) -> int:
        """How many messages of a conversation's path, root first, are in it."""
        if not self.path:
            return next((count for count, other in enumerate(digests, 1) if other == self.digest and other), 0)
        count = 0
        for own, other in zip(self.path, digests, strict=False):
            if own != other:
                break
            count += 1
        return count


def kept_among(snapshots: Iterable[Snapshot], paths: Mapping[str, Sequence[str]]) -> dict[str, Snapshot]:
    """By conversation: the snapshot with most of the messages of its path in `paths` (digests, root first) and no
    others; of equals the one saved last."""
    found: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        path = paths.get(snapshot.conversation, ())
        if not snapshot.path or snapshot.path != tuple(path[: len(snapshot.path)]):
            continue
        best = found.get(snapshot.conversation)
        if best is None or (len(snapshot.path), snapshot.saved) >= (len(best.path), best.saved):
            found[snapshot.conversation] = snapshot
    return found


def read_card(card: Path) -> Snapshot | None:
    """The snapshot that a file describes; None for anything that is not of the right form."""
    try:
        if card.stat().st_size > _MOST_CARD_BYTES:
            return None
        found = decode(card.read_bytes(), Snapshot)
    except (OSError, ValueError, RecursionError):
        return None
    is_right = (
        min(found.slot, found.tokens, found.size) >= 0
        and all(map(math.isfinite, (found.saved, found.used, found.spread)))
        and found.probe.is_sound
        and found.name == card.stem
        and STEM.fullmatch(found.name)
    )
    return found if is_right else None


def checksum(file: Path) -> str:
    """SHA-256 of the whole file, hex: a few milliseconds for 7 MB. Raises OSError."""
    found = hashlib.sha256()
    buffer = bytearray(_CHUNK)
    with file.open("rb", buffering=0) as source:
        while count := source.readinto(buffer):
            found.update(memoryview(buffer)[:count])
    return found.hexdigest()


def token_ids(file: Path, count: int) -> Tokens | None:
    """The `count` tokens in a file that llama.cpp wrote; None when its form is not the known one."""
    try:
        with file.open("rb") as source:
            head = source.read(24 + 4 * count)
        if struct.unpack_from("<II4xiii", head) != (_MAGIC, _VERSION, -1, 1, count):
            return None
        return Tokens(struct.unpack_from(f"<{count}i", head, 24))
    except (OSError, struct.error):
        return None

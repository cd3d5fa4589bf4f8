"""What is said about snapshots: what a slot holds, and what became of a save or a restore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from kvchat.backends.dialect import ServerInfo, SlotFile
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.cache.tokens import Tokens


@runtime_checkable
class SlotServer(Protocol):
    """A backend whose slots can be saved."""

    @property
    def info(self) -> ServerInfo: ...

    async def alive(self) -> bool: ...

    async def slot_file(self, action: Literal["save", "restore"], slot: int, file: str, seconds: float) -> SlotFile: ...


@dataclass(frozen=True, slots=True)
class Held:
    """What a slot holds, as the caller knows it."""

    slot: int
    conversation: str
    digest: str
    """Of the last message in the slot, hex."""
    tokens: int = 0
    """0: not known. With a figure, a slot that holds less than nine tenths of it is not saved."""
    path: tuple[str, ...] = ()
    """The digests of all messages up to it, root first; without it the snapshot replaces every other one of the
    conversation."""


@dataclass(frozen=True, slots=True)
class Saved:
    snapshot: Snapshot
    ms: float
    """What saving took, the checksum included; 0: it was there already."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The slot now holds what the snapshot says, and nothing else."""

    slot: int
    snapshot: Snapshot
    ids: Tokens | None
    """The tokens, where the file's form is known."""
    ms: float
    """What it took, the check included."""
    check_ms: float = 0.0

    @property
    def conversation(self) -> str:
        return self.snapshot.conversation

    @property
    def digest(self) -> str:
        return self.snapshot.digest

    @property
    def tokens(self) -> int:
        return self.snapshot.tokens


@dataclass(frozen=True, slots=True)
class Refused:
    sentence: str
    slot_emptied: bool = False
    """Whether the server tried and failed; otherwise the slot holds what it held."""

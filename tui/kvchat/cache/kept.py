"""States that the person keeps: which, and what is saved of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """That the state of a conversation stays."""

    conversation: str
    node: str = ""
    """The message up to which it stays; empty: the last one, whichever that is."""
    since: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """A kept state, with what is saved of it."""

    kept: Kept
    title: str
    """Of its conversation, raw."""
    trashed: bool = False
    tokens: int | None = None
    """None: nothing is saved yet."""
    size: int | None = None
    """Bytes on the disk."""
    fits: bool = True
    """Whether the server in use can take it; so where none is in use."""
    complete: bool = False
    """Whether all that is to stay is saved: not so while the last turns wait for the server to be idle."""


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """All kept states, and the room that they may take."""

    states: tuple[KeptState, ...] = ()
    most: int = 0
    """Bytes."""

    @property
    def size(self) -> int:
        """Bytes that they take."""
        return sum(state.size or 0 for state in self.states)

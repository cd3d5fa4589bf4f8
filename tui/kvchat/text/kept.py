"""Kept states in words."""

from __future__ import annotations

from kvchat.cache.kept import KeptRoom, KeptState
from kvchat.text.format import counted, size

KEPT = "Kept · saved while the server is idle"
KEPT_HERE = "Kept up to this answer · saved while the server is idle"
RELEASED = "No longer kept"


def kept_words(state: KeptState) -> str:
    """What is saved: `5,120 tokens, 118 MB`, or that nothing is yet."""
    if state.tokens is None:
        return "not saved yet"
    words = f"{counted(state.tokens, 'token')}, {size(state.size)}"
    if not state.fits:
        return f"{words}, of another model, window or engine"
    return words if state.complete else f"{words}, without the last turns"


def kept_short(state: KeptState) -> str:
    """The same for a line of the list: `118 MB`."""
    return "not saved yet" if state.size is None else size(state.size)


def room_words(room: KeptRoom) -> str:
    """`3 kept, 354 MB of 4.0 GB`."""
    return f"{len(room.states)} kept, {size(room.size)} of {size(room.most)}" if room.states else "none"

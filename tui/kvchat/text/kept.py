"""Kept states in words."""

from __future__ import annotations

from kvchat.cache.kept import KeptRoom, KeptState
from kvchat.text.format import counted, size
from kvchat.text.snapshots import room_remedy

KEPT = "Kept · saved while the server is idle"
KEPT_HERE = "Kept up to this answer · saved while the server is idle"
RELEASED = "No longer kept"
INCOGNITO = "An incognito conversation writes nothing: its state cannot be kept."
NOTHING_SAID = "This conversation is empty; there is nothing to keep."
NO_ANSWER = "There is no answer here yet. Keep the conversation when it has one."
NOT_SAVED_HERE = "States are not saved: the setting engine.snapshots is off."


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


def room_problem(most: int, largest: KeptState | None) -> str:
    """That one more state has no room. `largest`: of those that are kept."""
    title, frees = (largest.title, size(largest.size or 0)) if largest is not None else ("", "")
    return f"No room: kept states may take {size(most)}. {room_remedy(title, frees)}"

"""The lines around the list of the memory screen: its views, what is shown, and the keys that work now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from textual.content import Content

from kvchat.ui.screens.memory_list import Filter
from kvchat.ui.screens.modal import Hint, hint_line
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, STRONG, content, joined

View = Literal["memories", "queue", "history"]
VIEWS: Mapping[View, str] = {"memories": "Memories", "queue": "Queue", "history": "History"}

HINTS: Mapping[View, Sequence[Hint]] = {
    "memories": (("/", "search"), ("a", "add"), ("u", "undo"), ("U", "take back"), ("tab", "queue"), ("esc", "close")),
    "queue": (("r", "do it now"), ("s", "open"), ("o", "on/off here"), ("tab", "history"), ("esc", "close")),
    "history": (("u", "undo this"), ("s", "source"), ("U", "take back"), ("tab", "memories"), ("esc", "close")),
}
SEARCHING: Sequence[Hint] = (("↑↓", "move"), ("enter", "to the list"), ("esc", "show all"))
WRITING: Sequence[Hint] = (("enter", "save"), ("^J", "new line"), ("tab", "another kind"), ("esc", "leave it"))
CHANGING: Sequence[Hint] = (("enter", "save"), ("^J", "new line"), ("esc", "leave it"))
ENTRY_KEYS: Sequence[Hint] = (("e", "edit"), ("d", "delete"), ("p", "to the profile"), ("s", "source"), ("E", "editor"))
PROPOSAL_KEYS: Sequence[Hint] = (("y", "take it"), ("d", "discard"), ("e", "edit and take"), ("s", "source"))


def views_line(view: View, many: Mapping[View, str], on: bool | None, width: int) -> Content:
    """The views with how many rows each has; at the right whether the open conversation has memory (None: there is no
    such conversation)."""
    names = [content((name + (f" {many[key]}" if many.get(key) else ""), ACCENT if key == view else MUTED))
             for key, name in VIEWS.items()]
    right = content()
    if on is not None:
        right = content((f"{'on' if on else 'off'} in this conversation ", MUTED if on else BAD), ("o", STRONG))
    return joined(content("   ").join(names), right, width)


def filters_line(chosen: Filter) -> Content:
    """What of the memory is shown, and the keys that change it."""
    kind = (str(chosen.kind), ACCENT) if chosen.kind else ("every kind", MUTED)
    where = ("noted here", ACCENT) if chosen.conversation else ("everywhere", MUTED)
    return content(("f ", STRONG), kind, ("  n ", STRONG), where)


def fitting(hints: Sequence[Hint], width: int) -> Sequence[Hint]:
    """The hints that fit in `width` cells: the last two, which lead on and out, always; then from the first on."""
    kept = list(hints)
    while len(kept) > 2 and hint_line(kept).cell_length > width:
        del kept[-3]
    return kept

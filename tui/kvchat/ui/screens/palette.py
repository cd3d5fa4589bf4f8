"""The palette: every action by its name, in groups, with its key and what it would have the server prefill.

The search matches names and commands letter by letter, sentences word by word; the best name comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from textual.content import Content
from textual.fuzzy import FuzzySearch

from kvchat.commands.actions import Action
from kvchat.ui.screens.kit import ACCENT, EVALUATED, MATCH, MUTED, FilterList, Heading, column, content, grouped

LABEL_CELLS = 24
SLASH_CELLS = 14
KEY_CELLS = 12


class PaletteEntry(NamedTuple):
    """An action as the palette shows it."""

    action: Action
    key: str
    cost: str
    """What it would have the server prefill; empty: nothing."""


class PaletteScreen(FilterList[PaletteEntry, Action]):
    """All actions on one filtered list; the one under the cursor is shown in full below."""

    DEFAULT_CSS = "PaletteScreen { & #frame { max-width: 104; } & #detail { height: 2; margin: 1 0 0 2; } }"
    heading = "Actions"
    hints = (
        ("rows.up rows.down", "move"),
        ("type", "to find"),
        ("rows.choose", "do it"),
        ("dialog.close", "close"),
    )
    placeholder = "find an action"
    empty = "No action has this name."
    has_detail = True

    def __init__(self, entries: Sequence[PaletteEntry]) -> None:
        super().__init__("-list")
        self._entries = entries
        self._search = FuzzySearch()

    def find(self, query: str) -> Iterable[PaletteEntry | Heading]:
        query = query.strip()
        if query:
            return best(self._entries, query, self._search)
        return grouped(self._entries, lambda one: one.action.group)

    def detail(self, row: PaletteEntry | None) -> Content:
        return content(row.action.help, (f"  {row.cost}" if row.cost else "", EVALUATED)) if row else content()

    def result(self, row: PaletteEntry) -> Action:
        return row.action

    def draw(self, row: PaletteEntry, width: int) -> Content:
        action = row.action
        parts = [column(self._marked(action.label), LABEL_CELLS)]
        if width >= 72:
            slash = f"/{action.slash}" if action.slash else ""
            parts.append(column(self._marked(slash).stylize(MUTED), SLASH_CELLS))
        room = width - sum(part.cell_length for part in parts) - KEY_CELLS
        parts.append(
            content((row.cost, EVALUATED)).truncate(max(0, room - 2), ellipsis=True).truncate(max(0, room), pad=True)
        )
        parts.append(content((row.key, ACCENT)))
        return Content.assemble(*parts)

    def _marked(self, text: str) -> Content:
        """A name with the letters marked by which it was found."""
        query = self.query_text.strip()
        _, places = self._search.match(query, text) if query else (0.0, ())
        marked = Content(text)
        for place in places:
            marked = marked.stylize(MATCH, place, place + 1)
        return marked


def best(entries: Iterable[PaletteEntry], query: str, search: FuzzySearch) -> Iterable[PaletteEntry]:
    """Those that `query` finds, the best first: by their names, then those whose sentences have its words."""
    words = query.casefold().split()
    scores: dict[int, float] = {}
    found = list(entries)
    for at, (action, _, _) in enumerate(found):
        score = max(search.match(query, name)[0] for name in (action.label, action.slash, action.also))
        if not score and all(word in action.help.casefold() for word in words):
            score = 1e-9
        if score:
            scores[at] = score
    return [found[at] for at in sorted(scores, key=lambda at: (-scores[at], at))]

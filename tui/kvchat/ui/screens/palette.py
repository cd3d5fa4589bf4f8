"""The palette: every action by its name, in groups, with its key and what it would have the server prefill.

The search matches names and commands letter by letter, sentences word by word; the best name comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from textual import on
from textual.content import Content
from textual.fuzzy import FuzzySearch
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.commands.actions import Action
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import FilterLine, RowList, column
from kvchat.ui.screens.tones import ACCENT, EVALUATED, MATCH, MUTED, STRONG, content

LABEL_CELLS = 24
SLASH_CELLS = 14
KEY_CELLS = 12


class Entry(NamedTuple):
    """An action as the palette shows it."""

    action: Action
    key: str
    cost: str
    """What it would have the server prefill; empty: nothing."""


class PaletteScreen(ListModal[Action]):
    """All actions on one filtered list; the one under the cursor is shown in full below."""

    DEFAULT_CSS = "PaletteScreen { & #frame { max-width: 104; } & #whole { height: 2; margin: 1 0 0 2; } }"

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__(classes="-list")
        self.heading = "Actions"
        self.hints = (
            ("rows.up rows.down", "move"),
            ("type", "to find"),
            ("rows.choose", "do it"),
            ("dialog.close", "close"),
        )
        self._entries = entries
        self._search = FuzzySearch()
        self._query = ""
        self._shown: list[Entry | str] = []
        """An entry, or the name above a group."""

    def body(self) -> Iterable[Widget]:
        yield FilterLine("find an action")
        yield RowList(self._draw, empty="No action has this name.")
        yield Static(classes="words", id="whole")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._find("")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value.strip() != self._query:
            self._find(event.value.strip())

    def _find(self, query: str) -> None:
        self._query = query
        self._shown = [*(best(self._entries, query, self._search) if query else grouped(self._entries))]
        self.rows.show(len(self._shown), headings={at for at, row in enumerate(self._shown) if isinstance(row, str)})

    @on(RowList.Moved)
    def _tell(self) -> None:
        entry = self._shown[self.rows.cursor] if self.rows.cursor is not None else None
        whole = content()
        if isinstance(entry, Entry):
            whole = content(entry.action.help, (f"  {entry.cost}" if entry.cost else "", EVALUATED))
        self.query_one("#whole", Static).update(whole)

    def choose(self, index: int) -> None:
        entry = self._shown[index]
        if isinstance(entry, Entry):
            self.finish(entry.action)

    def _draw(self, index: int, width: int) -> Content:
        entry = self._shown[index]
        if isinstance(entry, str):
            return content((entry, STRONG))
        action = entry.action
        parts = [column(self._marked(action.label), LABEL_CELLS)]
        if width >= 72:
            slash = f"/{action.slash}" if action.slash else ""
            parts.append(column(self._marked(slash).stylize(MUTED), SLASH_CELLS))
        room = width - sum(part.cell_length for part in parts) - KEY_CELLS
        parts.append(
            content((entry.cost, EVALUATED)).truncate(max(0, room - 2), ellipsis=True).truncate(max(0, room), pad=True)
        )
        parts.append(content((entry.key, ACCENT)))
        return Content.assemble(*parts)

    def _marked(self, text: str) -> Content:
        """A name with the letters marked by which it was found."""
        _, places = self._search.match(self._query, text) if self._query else (0.0, ())
        marked = Content(text)
        for place in places:
            marked = marked.stylize(MATCH, place, place + 1)
        return marked


def grouped(entries: Iterable[Entry]) -> Iterable[Entry | str]:
    """All of them in the order of the table, each group behind its name and a blank."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.action.group, []).append(entry)
    for number, (name, members) in enumerate(groups.items()):
        yield from ("", name) if number else (name,)
        yield from members


def best(entries: Iterable[Entry], query: str, search: FuzzySearch) -> Iterable[Entry]:
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

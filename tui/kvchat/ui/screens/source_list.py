"""The sources of a message: what an answer cites, or what a question was sent with. One is chosen with its number.

The rule: the numbers are those that the answer uses, so that `[3]` is opened with 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Static

from kvchat.prompt.context import ContextBlock
from kvchat.sanitize import one_line
from kvchat.ui.render.sources import ending, headings_of, title_of
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.source import SourceScreen
from kvchat.ui.screens.source_file import SourceService
from kvchat.ui.screens.tones import ACCENT, MUTED, content, joined


class SourcesScreen(ListModal[None]):
    """Several sources; the one that is chosen is shown above the list, and Esc comes back to it."""

    DEFAULT_CSS = "SourcesScreen .words { margin-bottom: 1; }"

    def __init__(self, service: SourceService, sources: Sequence[tuple[int | None, ContextBlock]], *,
                 heading: str = "Sources", words: str = "") -> None:
        super().__init__(classes="-list" if len(sources) > 12 else "")
        self.heading = heading
        self.hints = (("enter", "show"), ("1–9", "by number"), ("esc", "close"))
        self.service = service
        self._sources = sources
        self._words = words
        self._typed = ""

    def body(self) -> Iterable[Widget]:
        if self._words:
            yield Static(Content(one_line(self._words)), classes="words")
        yield RowList(self._draw, classes=None if len(self._sources) > 12 else "-fits")

    def on_mount(self) -> None:
        self.rows.show(len(self._sources))

    def _draw(self, index: int, width: int) -> Content:
        cells = max(len(str(number or "–")) for number, _ in self._sources)
        number, block = self._sources[index]
        left = content((f"{number or '–':>{cells}}  ", ACCENT), ending(title_of(block), width - cells - 2))
        room = width - left.cell_length - 2
        headings = one_line(headings_of(block), room) if room >= 12 else ""
        return joined(left, content((headings, MUTED)), width)

    def on_key(self, event: Key) -> None:
        """A number opens its source once no other begins with it."""
        if event.character is None or not event.character.isdecimal() or not event.character.isascii():
            self._typed = ""
            return
        event.stop()
        for typed in (self._typed + event.character, event.character):
            found = [i for i, (number, _) in enumerate(self._sources) if str(number or "").startswith(typed)]
            if found:
                break
        else:
            self._typed = ""
            return
        self._typed = typed
        exact = next((i for i in found if str(self._sources[i][0]) == typed), found[0])
        self.rows.move(exact - (self.rows.cursor or 0))
        if len(found) == 1:
            self.choose(exact)

    def choose(self, index: int) -> None:
        self._typed = ""
        number, block = self._sources[index]
        self.app.push_screen(SourceScreen(self.service, block, number=number))

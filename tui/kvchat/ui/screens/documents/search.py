"""Try the index: show what it finds for some words, with the text that would go with a question.

A search starts when the typing pauses, and the result of an older query is never shown. It sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from kvchat.documents.collection import Collection, Passage
from kvchat.sanitize import clean, one_line
from kvchat.text.format import counted
from kvchat.ui.bindings import bindings
from kvchat.ui.render.sources import ending
from kvchat.ui.screens.modal import Hint, ListModal
from kvchat.ui.screens.rows import FilterLine, RowList, highlighted
from kvchat.ui.screens.sources import SourceScreen
from kvchat.ui.screens.tones import MUTED, content, joined

if TYPE_CHECKING:
    from kvchat.chat.background.document_service import DocumentService

PAUSE_SECONDS = 0.15
MOST = 50
_HELLO = "Type some words: this shows what of your documents they find. Nothing is sent."


class PassageRows(RowList):
    """Two rows for each passage; the cursor is on the first and both are in view."""

    def _follow(self) -> None:
        super()._follow()
        height = self.scrollable_content_region.height
        if self.cursor is not None and height > 1 and self.cursor + 2 > round(self.scroll_offset.y) + height:
            self.scroll_to(y=self.cursor + 2 - height, animate=False, immediate=True)


class DocumentSearchScreen(ListModal[None]):
    """What the index finds. A passage that is chosen is shown above the list."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("passages")]

    def __init__(
        self, documents: DocumentService, collection: Collection | None = None, *, query: str = "", editor: str = ""
    ) -> None:
        """`collection`: the one that the search can be narrowed to; `editor`: the command of the user's editor."""
        super().__init__(classes="-list -wide")
        self.heading = "Search the documents"
        self.documents = documents
        self._editor = editor
        self._collection = collection
        self._narrow = False
        self._query = query
        self._shown_query = ""
        self._found: Sequence[Passage] = ()
        self._timer: Timer | None = None
        self.hints = self._keys()

    def _keys(self) -> Sequence[Hint]:
        name = one_line(self._collection.name, 30) if self._collection is not None else ""
        where = (("passages.scope", "everywhere" if self._narrow else f"only in {name}"),) if name else ()
        return (("rows.choose", "show"), *where, ("dialog.close", "close"))

    def body(self) -> Iterable[Widget]:
        yield FilterLine("words to look for", self._query)
        yield PassageRows(self._draw)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._show((), "", _HELLO)
        if self._query:
            self._run(self._query)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query = event.value
            if self._timer is not None:
                self._timer.stop()
            if not self._found and self._query.strip():
                self.rows.empty = "searching …"
                self.rows.refresh()
            self._timer = self.set_timer(PAUSE_SECONDS, lambda: self._run(self._query))

    @work(exclusive=True, group="search", exit_on_error=False)
    async def _run(self, query: str) -> None:
        if not query.strip():
            self._show((), "", _HELLO)
            return
        try:
            found = await self.documents.search(query, MOST, self._collection if self._narrow else None)
        except Exception as error:
            self._show((), query, f"The search did not work: {one_line(str(error), 200) or type(error).__name__}")
            return
        self._show(found, query, "Nothing found. Other words may do: it finds words, not meanings.")

    def _show(self, found: Sequence[Passage], query: str, empty: str) -> None:
        self._found, self._shown_query = found, query
        self.rows.empty = empty
        where = f" {one_line(self._collection.name, 30)}" if self._narrow and self._collection is not None else ""
        count = f" · {counted(len(found), 'passage')}" if found else ""
        self.query_one("#frame").border_title = Content(f"Search{where or ' the documents'}{count}")
        self.rows.show(2 * len(found), headings=range(1, 2 * len(found), 2))

    def _draw(self, index: int, width: int) -> Content:
        passage = self._found[index // 2]
        if index % 2:
            return content(("  ", MUTED)) + highlighted(
                content((snippet(passage.text, self._shown_query), MUTED)), self._shown_query
            )
        title = content(ending(one_line(passage.title), width))
        room = width - title.cell_length - 2
        headings = one_line(headings_of(passage), room) if room >= 12 else ""
        return joined(title, content((headings, MUTED)), width)

    def choose(self, index: int) -> None:
        self.app.push_screen(
            SourceScreen(self.documents, self._found[index // 2].block, query=self._shown_query, editor=self._editor)
        )

    def action_scope(self) -> None:
        """Everywhere, or only in the collection that the cursor stood on."""
        if self._collection is not None:
            self._narrow = not self._narrow
            self.show_hints(self._keys())
            self._run(self._query)


def headings_of(passage: Passage) -> str:
    """The headings above a passage, without the file's name, which precedes them."""
    first, _, rest = passage.head.partition(" > ")
    return rest if first == passage.place.path.rpartition("/")[2] else passage.head


def snippet(text: str, query: str) -> str:
    """The line of a passage that has most of the query's words, on one line and begun near the first of them; an
    inflected word counts half."""
    words = list(dict.fromkeys(re.findall(r"\w+", query.casefold())))[:20]
    stems = [word[: max(4, len(word) - 2)] for word in words]
    lines = [line for line in clean(text).split("\n") if line.strip()] or [""]

    def fits(line: str) -> int:
        low = line.casefold()
        return sum((word in low) + (stem in low) for word, stem in zip(words, stems, strict=True))

    best = max(lines, key=fits)
    found = re.search("|".join(map(re.escape, stems)), best, re.IGNORECASE) if words else None
    first = found.start() if found is not None else 0
    start = 0 if first <= 40 else best.rfind(" ", 0, first - 20) + 1
    return ("… " if start else "") + one_line(best[start:], 400)

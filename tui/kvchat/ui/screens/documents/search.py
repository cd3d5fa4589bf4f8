"""Try the index: show what it finds for some words, with the text that would go with a question.

A search starts when the typing pauses, and the result of an older query is never shown. It sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content

from kvchat.documents.collection import Collection, Passage
from kvchat.sanitize import clean, one_line
from kvchat.text.format import counted
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import ending
from kvchat.ui.screens.kit import MUTED, Heading, Hint, RowList, SearchList, content, highlighted, joined
from kvchat.ui.screens.sources import SourceScreen

if TYPE_CHECKING:
    from kvchat.chat.background.document_service import DocumentService

MOST = 50


class PassageRows(RowList):
    """Two rows for each passage; the cursor is on the first and both are in view."""

    def _follow(self) -> None:
        super()._follow()
        height = self.scrollable_content_region.height
        if self.cursor is not None and height > 1 and self.cursor + 2 > round(self.scroll_offset.y) + height:
            self.scroll_to(y=self.cursor + 2 - height, animate=False, immediate=True)


class DocumentSearchScreen(SearchList[Passage, None]):
    """What the index finds. A passage that is chosen is shown above the list."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("passages")]
    heading = "Search the documents"
    placeholder = "words to look for"
    invitation = "Type some words: this shows what of your documents they find. Nothing is sent."
    not_found = "Nothing found. Other words may do: it finds words, not meanings."
    list_class = PassageRows

    def __init__(
        self, documents: DocumentService, collection: Collection | None = None, *, query: str = "", editor: str = ""
    ) -> None:
        """`collection`: the one that the search can be narrowed to; `editor`: the command of the user's editor."""
        super().__init__("-list -wide", query=query)
        self.documents = documents
        self._editor = editor
        self._collection = collection
        self._narrow = False
        self._name = one_line(collection.name, 30) if collection is not None else ""
        self.hints = self._keys()

    def _keys(self) -> Sequence[Hint]:
        name = self._name
        where = (("passages.scope", "everywhere" if self._narrow else f"only in {name}"),) if name else ()
        return (("rows.choose", "show"), *where, ("dialog.close", "close"))

    def query_changed(self) -> None:
        if not self.found and self.query_text.strip():
            self.empty = "searching …"
            self.fill()
        super().query_changed()

    async def search(self, query: str) -> Sequence[Passage | Heading]:
        found = await self.documents.search(query, MOST, self._collection if self._narrow else None)
        return [row for one in found for row in (one, Heading(snippet(one.text, query)))]

    def found_heading(self) -> str:
        count = f" · {counted(len(self.found) // 2, 'passage')}" if self.found else ""
        return f"Search {self._name if self._narrow else 'the documents'}{count}"

    def draw(self, row: Passage, width: int) -> Content:
        title = content(ending(one_line(row.title), width))
        room = width - title.cell_length - 2
        headings = one_line(headings_of(row), room) if room >= 12 else ""
        return joined(title, content((headings, MUTED)), width)

    def draw_heading(self, heading: Heading, width: int) -> Content:
        return content(("  ", MUTED)) + highlighted(content((heading.text, MUTED)), self.found_for)

    def choose(self, index: int) -> None:
        if (passage := self.current) is not None:
            self.app.push_screen(SourceScreen(self.documents, passage.block, query=self.found_for, editor=self._editor))

    def action_scope(self) -> None:
        """Everywhere, or only in the collection that the cursor stood on."""
        if self._collection is not None:
            self._narrow = not self._narrow
            self.show_hints(self._keys())
            self.look_up()


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

"""The painted lines of the rows: their styles, and what lies over them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from kvchat.prompt.message import Role
from kvchat.ui.widgets.jump import Letter, with_letters
from kvchat.ui.widgets.transcript.copying import place_of
from kvchat.ui.widgets.transcript.entry import TranscriptEntry
from kvchat.ui.widgets.transcript.find import Finder
from kvchat.ui.widgets.transcript.styles import GUTTER, StyleBook, restyled


class RowPainter:
    """Paints the rows of messages: the row, what was found in it, what the mouse selected, the jump letters."""

    def __init__(self, widget: Widget, finder: Finder) -> None:
        """`widget`: the one that is painted; it has the theme, the focus and the mouse's selection."""
        self._widget = widget
        self._finder = finder
        self._book = StyleBook(widget)
        self._letters: dict[Hashable, list[Letter]] = {}
        """Jump letters by message and row."""

    def clear(self) -> None:
        """The theme has changed."""
        self._book.clear()

    def set_letters(self, letters: Sequence[Letter]) -> None:
        """Paint these jump letters and no others."""
        self._letters = {}
        for letter in letters:
            self._letters.setdefault(letter.target.place, []).append(letter)

    def blank(self, width: int) -> Strip:
        return Strip.blank(width, self._book.style(""))

    def strip(self, entry: TranscriptEntry, index: int, row: int, width: int, text_width: int) -> Strip:
        """A row of the message at this place in `width` cells, of which `text_width` are for text."""
        strip = entry.strips.get(row)
        if strip is None or strip.cell_length != width:
            question = entry.item.role is Role.USER and row < entry.height - 1
            strip = entry.strips[row] = self._book.strip(
                entry.row(row),
                width,
                text_width,
                entry.where(row),
                self._bar(entry, row),
                "question" if question else "",
            )
        if self._finder.query:
            strip = self._found(entry, row, strip)
        selection = self._widget.text_selection
        if selection is not None and (span := selection.get_span(place_of(index, row))) is not None:
            start, stop = span
            style = self._widget.screen.get_component_rich_style("screen--selection")
            strip = restyled(strip, max(start, GUTTER), None if stop == -1 else stop, style)
        if self._letters and (letters := self._letters.get((entry.item.node_id, row))):
            strip = with_letters(strip, letters, self._book.style("jump"))
        return strip

    def with_more(self, strip: Strip, width: int) -> Strip:
        """The last row of the view with a word that there is more below."""
        mark = Segment(" ↓ new text below ", self._book.style("more"))
        left = width - mark.cell_length - 2
        tail = Segment("  ", self._book.style(""))
        return Strip.join([strip.crop(0, left), Strip([mark, tail], mark.cell_length + 2)]) if left > 0 else strip

    def _bar(self, entry: TranscriptEntry, row: int) -> str:
        """The style of the bar at the left of a row: a selected message has one, but not on its last, empty row."""
        if not entry.selected or row == entry.height - 1:
            return ""
        return "bar" if self._widget.has_focus else "bar-blurred"

    def _found(self, entry: TranscriptEntry, row: int, strip: Strip) -> Strip:
        """The strip with what was searched for made visible."""
        for start, stop in self._finder.marks_in(entry).get(row, ()):
            name = "find-current" if self._finder.current == (entry.item.node_id, row, start) else "find"
            strip = restyled(strip, start + GUTTER, stop + GUTTER, self._book.style(name))
        return strip

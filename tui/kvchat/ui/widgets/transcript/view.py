"""The transcript's drawing and scrolling: one widget that draws rows itself, with no widget per message.

Nothing moves that the user did not move. What is at the top of the view stays there when heights around it change,
unless the end is followed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import TypeAlias

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kvchat.prompt.message import Role
from kvchat.reports.rail import NO_WORD, Stretch
from kvchat.ui.render.rows import copied
from kvchat.ui.widgets.jump import Letter, with_letters
from kvchat.ui.widgets.transcript import messages
from kvchat.ui.widgets.transcript.column import Column
from kvchat.ui.widgets.transcript.entry import Entry
from kvchat.ui.widgets.transcript.find import marks
from kvchat.ui.widgets.transcript.styles import CSS, GUTTER, StyleBook, restyled

NEAR = 2
"""Rows from the end within which scrolling down follows it again."""
MAX_TEXT_WIDTH = 100  # kvchat.tcss adds the gutter, a blank and the scrollbar
"""Cells of the longest line; more is hard to read."""
_ROW_BITS = 24
"""A place for a text selection is one number: the message's place, then this many bits for its row. So it stays
right when heights above it change."""


class TranscriptView(ScrollView):
    """Draws a `Column`."""

    DEFAULT_CSS = CSS
    ALLOW_SELECT = True
    Selected: TypeAlias = messages.Selected
    CodeCopyRequested: TypeAlias = messages.CodeCopyRequested
    BranchesRequested: TypeAlias = messages.BranchesRequested
    SourcesRequested: TypeAlias = messages.SourcesRequested
    FollowChanged: TypeAlias = messages.FollowChanged
    TypeThrough: TypeAlias = messages.TypeThrough

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.following = True
        """Whether the view stays at the end while text comes."""
        self._column = Column()
        self._book = StyleBook(self)
        self._placing = False
        self._painting = False
        self._unseen = False
        """Whether text came below the view since it stopped following."""
        self._reported = (True, 0)
        self._query = ""
        self._current: tuple[str, int, int] | None = None
        """The message, row and first character of the current match."""
        self._letters: dict[Hashable, list[Letter]] = {}
        """Jump letters by message and row."""

    # -- geometry

    @property
    def text_width(self) -> int:
        """Cells of a row of text; what a live row is drawn for."""
        return max(16, min(self.scrollable_content_region.width - GUTTER - 1, MAX_TEXT_WIDTH))

    @property
    def _view_height(self) -> int:
        return max(1, self.scrollable_content_region.height)

    @property
    def _whole_height(self) -> int:
        """Rows of all messages, without the blank one that parts the last from what comes next."""
        return max(0, self._column.height - 1)

    @property
    def rows_below(self) -> int:
        """Rows below the view."""
        return max(0, self._whole_height - round(self.scroll_y) - self._view_height)

    def on_resize(self, _event: events.Resize) -> None:
        """Another size: what was at the top stays there, message by message."""
        anchor = self._column.locate(round(self.scroll_y))
        before = self._column.entries[anchor[0]].height if anchor else 1
        width = self.text_width
        for entry in self._column.entries:
            entry.resize(width)
        self._column.changed(0)
        if anchor is not None:
            index, row = anchor
            entry = self._column.entries[index]
            entry.draw()
            self._column.changed(index)
            anchor = index, row * entry.height // max(1, before)
        self._arrange(anchor)

    def _anchor(self) -> tuple[int, int] | None:
        """The message and row at the top of the view."""
        return self._column.locate(round(self.scroll_y))

    def _arrange(self, anchor: tuple[int, int] | None) -> None:
        """Draw what is in view and a page around it, and put `anchor` at the top, or the end at the bottom when it
        is followed. Repaints everything if the view moved over the text."""
        entries, page = self._column.entries, self._view_height
        if not self.size.width:
            return
        if not entries:
            self._place(0)
        elif self.following or anchor is None:
            last = len(entries) - 1
            self._column.draw_around(last, sys.maxsize, 2 * page, page)
            self._place(self._whole_height - page)
        else:
            index, row = anchor
            row = self._column.draw_around(index, row, page, 2 * page)
            self._place(self._column.top(index) + min(row, entries[index].height - 1))
        self.refresh()

    def _place(self, y: int) -> None:
        """Set the height of all rows and the scroll position together, without a layout of the screen."""
        height = self._whole_height
        self.set_reactive(Widget.virtual_size, Size(self.scrollable_content_region.width, height))
        self.vertical_scrollbar.window_virtual_size = height
        self.vertical_scrollbar.window_size = self._view_height
        self._placing = True
        try:
            self.scroll_target_y = y
            self.scroll_y = y
        finally:
            self._placing = False
        if self.following:
            self._unseen = False
        self._report()

    def _report(self) -> None:
        state = self.following, 0 if self.following else self.rows_below
        if state != self._reported and self.is_attached:
            self._reported = state
            self.post_message(self.FollowChanged(*state))

    # -- scrolling

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._placing or round(old_value) == round(new_value):
            return
        # A view that grew taller is moved up too, but to the very end.
        if new_value < old_value and new_value < self.max_scroll_y:
            self.following = False
        elif self.max_scroll_y - new_value <= NEAR:
            self.following = True
            self._unseen = False
        anchor = self._anchor()
        if anchor is not None:
            index, row = anchor
            row = self._column.draw_around(index, row, self._view_height, 2 * self._view_height)
            self._place(self._column.top(index) + row)

    def follow(self) -> None:
        """Jump to the end and stay there while text comes."""
        self.following = True
        self._arrange(None)

    def _changed(self, index: int, first_row: int, old_height: int) -> None:
        """Rows of a message have changed from `first_row` on; it was `old_height` rows high."""
        entry = self._column.entries[index]
        anchor = self._anchor() if entry.height != old_height else None
        top = self._column.top(index)
        self._column.changed(index)
        if not self.size.width:
            return
        if not self.following and top + old_height >= round(self.scroll_y) + self._view_height:
            self._unseen = self._unseen or entry.height > old_height
        if entry.height != old_height:
            at_end = index == len(self._column.entries) - 1
            before = round(self.scroll_y)
            if at_end and entry.drawn:
                y = self._whole_height - self._view_height if self.following else before
                self._place(y)
            else:
                self._arrange(anchor)
            if round(self.scroll_y) == before:
                self._refresh_from(top + first_row, None)
        else:
            self._refresh_from(top + first_row, top + entry.height)

    def _refresh_from(self, first: int, stop: int | None) -> None:
        """Repaint rows of the column that are in view, from `first` up to `stop` or the end."""
        offset, page = round(self.scroll_y), self._view_height
        low = max(0, first - offset)
        high = page if stop is None else min(page, stop - offset)
        if low < high:
            self.refresh(Region(0, low, self.size.width, high - low))
        if not self.following:
            self.refresh(Region(0, page - 1, self.size.width, 1))

    # -- drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget_strips()

    def _forget_strips(self) -> None:
        self._book.clear()
        for entry in self._column.entries:
            entry.strips.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The painted lines. They carry no place in the text: that would give every piece of every row a style of its
        own, built and compared at each paint, and only the mouse asks, by `render_line`."""
        self._painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._painting = False

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        place = self._column.locate(round(self.scroll_y) + y)
        if place is None:
            return Strip.blank(width, self._book.style(""))
        strip = self._row_strip(*place, width)
        if self._unseen and not self.following and y == self._view_height - 1:
            return self._with_mark(strip, width)
        return strip

    def _row_strip(self, index: int, row: int, width: int) -> Strip:
        entry = self._column.entries[index]
        if not entry.is_laid_out(row):
            self.call_later(self._arrange, self._anchor())
            return Strip.blank(width, self._book.style(""))
        strip = entry.strips.get(row)
        if strip is None or strip.cell_length != width:
            question = entry.item.role is Role.USER and row < entry.height - 1
            strip = entry.strips[row] = self._book.strip(
                entry.row(row),
                width,
                self.text_width,
                entry.where(row),
                self._bar(entry, row),
                "question" if question else "",
            )
        if self._query:
            strip = self._found(entry, row, strip)
        place = self._code(index, row)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(place)) is not None:
            start, stop = span
            style = self.screen.get_component_rich_style("screen--selection")
            strip = restyled(strip, max(start, GUTTER), None if stop == -1 else stop, style)
        if self._letters and (letters := self._letters.get((entry.item.node_id, row))):
            strip = with_letters(strip, letters, self._book.style("jump"))
        return strip if self._painting else strip.apply_offsets(0, place)

    def set_rail(self, stretches: Mapping[str, Stretch]) -> None:
        """Show where the tokens of messages are; of those that are left out it is not known."""
        changed = False
        for entry in self._column.entries:
            stretch = stretches.get(entry.item.node_id, NO_WORD)
            if stretch != entry.stretch:
                entry.stretch, changed = stretch, True
                entry.strips.clear()
        if changed:
            self.refresh()

    def _bar(self, entry: Entry, row: int) -> str:
        """The style of the bar at the left of a row: a selected message has one, but not on its last, empty row."""
        if not entry.selected or row == entry.height - 1:
            return ""
        return "bar" if self.has_focus else "bar-blurred"

    def _found(self, entry: Entry, row: int, strip: Strip) -> Strip:
        """The strip with what was searched for made visible."""
        if entry.marks is None:
            entry.marks = {}
            for number, start, stop in marks(entry.rows(), entry.body_start, self._query):
                entry.marks.setdefault(number, []).append((start, stop))
        for start, stop in entry.marks.get(row, ()):
            name = "find-current" if self._current == (entry.item.node_id, row, start) else "find"
            strip = restyled(strip, start + GUTTER, stop + GUTTER, self._book.style(name))
        return strip

    def _with_mark(self, strip: Strip, width: int) -> Strip:
        """The last row of the view with a word that there is more below."""
        style = self._book.style("more")
        mark = Segment(" ↓ new text below ", style)
        left = width - mark.cell_length - 2
        tail = Segment("  ", self._book.style(""))
        return Strip.join([strip.crop(0, left), Strip([mark, tail], mark.cell_length + 2)]) if left > 0 else strip

    # -- text selection

    @staticmethod
    def _code(index: int, row: int) -> int:
        """The place of a row for a text selection."""
        return index << _ROW_BITS | row

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The source text of what is selected."""
        entries = self._column.entries
        if not entries:
            return None
        start, end = selection
        first, first_row = divmod(start.y, 1 << _ROW_BITS) if start else (0, 0)
        last, last_row = divmod(end.y, 1 << _ROW_BITS) if end else (len(entries) - 1, 0)
        parts: list[str] = []
        for index in range(first, min(last, len(entries) - 1) + 1):
            entry = entries[index]
            begins = start is not None and index == first
            ends = end is not None and index == last
            if not begins and not ends and not entry.drawn:
                parts.append(f"{entry.item.title}\n{entry.item.text}\n\n")
                continue
            parts.append(
                copied(
                    entry.rows(),
                    (first_row, max(0, start.x - GUTTER)) if start and begins else None,
                    (last_row, max(0, end.x - GUTTER)) if end and ends else None,
                )
            )
        return "".join(parts).strip("\n"), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

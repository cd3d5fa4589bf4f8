"""The part of the column that is in view.

Nothing moves that the user did not move. What is at the top of the view stays there when heights around it change,
unless the end is followed.
"""

from __future__ import annotations

import sys

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.widget import Widget

from kvchat.ui.widgets.transcript.column import Column
from kvchat.ui.widgets.transcript.messages import FollowChanged
from kvchat.ui.widgets.transcript.styles import GUTTER

NEAR = 2
"""Rows from the end within which scrolling down follows it again."""
MAX_TEXT_WIDTH = 100  # kvchat.tcss adds the gutter, a blank and the scrollbar
"""Cells of the longest line; more is hard to read."""


class Viewport:
    """The place of a widget in the column that it shows. Rows `y` are counted from the top of the column."""

    def __init__(self, widget: ScrollView, column: Column) -> None:
        self._widget = widget
        self._column = column
        self.following = True
        """Whether the view stays at the end while text comes."""
        self.unseen = False
        """Whether text came below the view since it stopped following."""
        self._placing = False
        self._reported = (True, 0)

    @property
    def y(self) -> int:
        """The row at the top of the view."""
        return round(self._widget.scroll_y)

    @property
    def height(self) -> int:
        """Rows that are in view."""
        return max(1, self._widget.scrollable_content_region.height)

    @property
    def text_width(self) -> int:
        """Cells of a row of text; what a live row is drawn for."""
        return max(16, min(self._widget.scrollable_content_region.width - GUTTER - 1, MAX_TEXT_WIDTH))

    @property
    def whole_height(self) -> int:
        """Rows of all messages, without the blank one that parts the last from what comes next."""
        return max(0, self._column.height - 1)

    @property
    def rows_below(self) -> int:
        """Rows below the view."""
        return max(0, self.whole_height - self.y - self.height)

    def anchor(self) -> tuple[int, int] | None:
        """The message and row at the top of the view."""
        return self._column.locate(self.y)

    def resized(self) -> None:
        """Another size: what was at the top stays there, message by message."""
        anchor = self.anchor()
        before = self._column.entry(anchor[0]).height if anchor else 1
        self._column.resize(self.text_width)
        if anchor is not None:
            index, row = anchor
            entry = self._column.entry(index)
            entry.draw()
            self._column.changed(index)
            anchor = index, row * entry.height // max(1, before)
        self.arrange(anchor)

    def arrange(self, anchor: tuple[int, int] | None) -> None:
        """Draw what is in view and a page around it, and put `anchor` at the top, or the end at the bottom when it
        is followed. Repaints everything if the view moved over the text."""
        page = self.height
        if not self._widget.size.width:
            return
        if not self._column:
            self.place(0)
        elif self.following or anchor is None:
            self._column.draw_around(len(self._column) - 1, sys.maxsize, 2 * page, page)
            self.place(self.whole_height - page)
        else:
            index, row = anchor
            row = self._column.draw_around(index, row, page, 2 * page)
            self.place(self._column.top(index) + min(row, self._column.entry(index).height - 1))
        self._widget.refresh()

    def place(self, y: int) -> None:
        """Set the height of all rows and the scroll position together, without a layout of the screen."""
        widget, height = self._widget, self.whole_height
        widget.set_reactive(Widget.virtual_size, Size(widget.scrollable_content_region.width, height))
        widget.vertical_scrollbar.window_virtual_size = height
        widget.vertical_scrollbar.window_size = self.height
        self._placing = True
        try:
            widget.scroll_target_y = y
            widget.scroll_y = y
        finally:
            self._placing = False
        if self.following:
            self.unseen = False
        self._report()

    def _report(self) -> None:
        state = self.following, 0 if self.following else self.rows_below
        if state != self._reported and self._widget.is_attached:
            self._reported = state
            self._widget.post_message(FollowChanged(*state))

    # -- moving

    def scrolled(self, before: float, y: float) -> None:
        """The scroll position changed; what the user moved is drawn around its new place."""
        if self._placing or round(before) == round(y):
            return
        end = self._widget.max_scroll_y
        # A view that grew taller is moved up too, but to the very end.
        if y < before and y < end:
            self.following = False
        elif end - y <= NEAR:
            self.following = True
            self.unseen = False
        anchor = self.anchor()
        if anchor is not None:
            index, row = anchor
            row = self._column.draw_around(index, row, self.height, 2 * self.height)
            self.place(self._column.top(index) + row)

    def follow(self) -> None:
        """Jump to the end and stay there while text comes."""
        self.following = True
        self.arrange(None)

    def scroll_to(self, y: int) -> None:
        """Scroll to a row as the user would."""
        self.place(self.y)
        self._widget.scroll_to(y=max(0, y), animate=False)

    def show(self, index: int) -> None:
        """Scroll as little as is needed to see a message, its begin rather than its end."""
        entry, page = self._column.entry(index), self.height
        self._column.draw_around(index, 0, page, 2 * page)
        top, y = self._column.top(index), self.y
        if top < y or entry.height > page:
            y = top
        elif top + entry.height > y + page:
            y = top + entry.height - page
        self.scroll_to(y)

    # -- what is in view changes

    def changed(self, index: int, first_row: int, old_height: int) -> None:
        """Rows of a message have changed from `first_row` on; it was `old_height` rows high."""
        entry = self._column.entry(index)
        anchor = self.anchor() if entry.height != old_height else None
        top = self._column.top(index)
        self._column.changed(index)
        if not self._widget.size.width:
            return
        if not self.following and top + old_height >= self.y + self.height:
            self.unseen = self.unseen or entry.height > old_height
        if entry.height != old_height:
            at_end = index == len(self._column) - 1
            before = self.y
            if at_end and entry.drawn:
                self.place(self.whole_height - self.height if self.following else before)
            else:
                self.arrange(anchor)
            if self.y == before:
                self._refresh_from(top + first_row, None)
        else:
            self._refresh_from(top + first_row, top + entry.height)

    def _refresh_from(self, first: int, stop: int | None) -> None:
        """Repaint rows of the column that are in view, from `first` up to `stop` or the end."""
        widget, offset, page = self._widget, self.y, self.height
        low = max(0, first - offset)
        high = page if stop is None else min(page, stop - offset)
        if low < high:
            widget.refresh(Region(0, low, widget.size.width, high - low))
        if not self.following:
            widget.refresh(Region(0, page - 1, widget.size.width, 1))

"""A list of one-line rows, drawn on demand, and the filter line on top of it.

A row is drawn when it is seen and never before, so ten thousand rows open as fast as ten. Every word of the filter must
occur in a row's text, in any order and case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual
from textual.widgets import Input, Label
from textual.widgets.input import Selection

from kvchat.clusters import clusters
from kvchat.ui.screens.kit.tones import MATCH, MUTED, content


def kept(texts: Sequence[str], query: str) -> list[int]:
    """The indices of the `texts` (already case-folded) that the query keeps, in their order."""
    words = query.casefold().split()
    return [i for i, text in enumerate(texts) if all(word in text for word in words)]


def column(text: Content, cells: int) -> Content:
    """A text in a column of `cells` cells, the last two of them free."""
    return text.truncate(cells - 2, ellipsis=True).truncate(cells, pad=True)


def highlighted(text: Content, query: str) -> Content:
    """`text` with the words of the query marked where they occur."""
    words = query.split()
    if not words:
        return text
    return text.highlight_regex(re.compile("|".join(map(re.escape, words)), re.IGNORECASE), style=MATCH)


class FilterInput(Input):
    """An input that goes by grapheme clusters, and leaves the delete key to the screen when there is nothing to delete
    to its right."""

    def validate_selection(self, selection: Selection) -> Selection:
        start, end = super().validate_selection(selection)
        return Selection(self._outside(start), self._outside(end))

    def _outside(self, at: int) -> int:
        """A place that is not within a cluster: beyond the one that the cursor is about to enter."""
        for left, right in clusters(self.value):
            if left < at < right:
                return left if self.selection.end >= right else right
        return at

    def delete(self, start: int, end: int) -> None:
        for left, right in clusters(self.value):
            start = left if left < start < right else start
            end = right if left < end < right else end
        super().delete(start, end)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "delete_right" and self.cursor_position >= len(self.value):
            return False
        return super().check_action(action, parameters)


class FilterLine(Horizontal):
    """A filter input behind its prompt sign."""

    def __init__(self, placeholder: str, value: str = "") -> None:
        super().__init__(classes="line")
        self._placeholder = placeholder
        self._value = value

    def compose(self) -> ComposeResult:
        yield Label(Content("› "))
        yield FilterInput(self._value, placeholder=self._placeholder)


Draw = Callable[[int, int], Content]
"""The content of the row with this index in this many cells."""

GUTTER = 2
"""Cells in front of each row, for the cursor."""


class RowList(ScrollView, can_focus=False):
    """Rows with a cursor that the screen moves. Rows in `headings` are drawn and never under the cursor."""

    DEFAULT_CSS = """
    RowList {
        width: 1fr; height: 1fr; background: transparent; overflow-x: hidden;
        scrollbar-size-vertical: 1;
        & > .row-list--row { background: transparent; }
        & > .row-list--cursor { background: $foreground 10%; text-style: bold; }
        & > .row-list--bar { color: $accent; }
        &:ansi > .row-list--cursor { background: ansi_default; text-style: bold; }
        &:ansi > .row-list--bar { color: ansi_cyan; }
        &.-fits { height: auto; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"row-list--row", "row-list--cursor", "row-list--bar"}
    ALLOW_SELECT = False

    class Chosen(Message):
        """A row was clicked."""

        def __init__(self, rows: RowList, index: int) -> None:
            super().__init__()
            self.rows = rows
            self.index = index

    class Moved(Message):
        """The cursor moved to another row."""

        def __init__(self, rows: RowList, index: int | None) -> None:
            super().__init__()
            self.rows = rows
            self.index = index

    def __init__(
        self,
        draw: Draw,
        *,
        empty: str = "",
        cursor: bool = True,
        tip: Callable[[int], str] | None = None,
        classes: str | None = None,
    ) -> None:
        """`empty`: the text shown when there are no rows; `tip`: the tooltip of a row."""
        super().__init__(classes=classes)
        self._draw = draw
        self._tip = tip
        self._headings: Collection[int] = ()
        self._has_cursor = cursor
        self.empty = empty
        self.count = 0
        self.cursor: int | None = None

    @property
    def room(self) -> int:
        """Cells for the content of a row: the gutter and a blank before the scrollbar are not among them."""
        return max(0, self.scrollable_content_region.width - GUTTER - 1)

    def show(self, count: int, *, cursor: int | None = 0, headings: Collection[int] = ()) -> None:
        """Show `count` rows with the cursor on the row `cursor`, or the next one that can have it."""
        self.count = count
        self._headings = headings
        self.virtual_size = Size(self.scrollable_content_region.width, max(1, count))
        self.cursor = self._nearest(cursor, 1) if self._has_cursor and cursor is not None else None
        if self.has_class("-fits"):
            self.refresh(layout=True)
        self.refresh()
        self._follow()
        if self._has_cursor:
            self.post_message(self.Moved(self, self.cursor))

    def move(self, step: int) -> None:
        """Move the cursor by `step` rows, or scroll where there is none; the ends stop it."""
        if not self._has_cursor:
            self.scroll_relative(y=step, animate=False)
            return
        if self.count and self.cursor is not None:
            target = min(self.count - 1, max(0, self.cursor + step))
            found = self._nearest(target, 1 if step > 0 else -1)
            self._put(self.cursor if found is None else found)

    def page(self, direction: int) -> None:
        """Move by one screenful but a few rows, up (-1) or down (1)."""
        self.move(direction * max(1, self.scrollable_content_region.height - 3))

    def _put(self, index: int) -> None:
        if index != self.cursor:
            self.cursor = index
            self.refresh()
            self.post_message(self.Moved(self, index))
        self._follow()

    def _nearest(self, index: int, step: int) -> int | None:
        """The row at `index` or next to it in the direction of `step`, else in the other; None if all are headings."""
        for way in (
            range(index, self.count) if step > 0 else range(index, -1, -1),
            range(index, -1, -1) if step > 0 else range(index, self.count),
        ):
            for row in way:
                if 0 <= row < self.count and row not in self._headings:
                    return row
        return None

    def _follow(self) -> None:
        """Scroll as little as needed to show the cursor, and a heading right above it."""
        if self.cursor is None:
            if not self._has_cursor:
                return
            self.scroll_to(y=0, animate=False, immediate=True)
            return
        height = self.scrollable_content_region.height
        top = self.cursor - 1 if self.cursor - 1 in self._headings else self.cursor
        y = self.scroll_offset.y
        if top < y:
            self.scroll_to(y=top, animate=False, immediate=True)
        elif height and self.cursor >= y + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, max(1, self.count))
        self._follow()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.count or max(1, len(self._empty_lines(width - GUTTER - 1)))

    def _empty_lines(self, room: int) -> list[Content]:
        return content((self.empty, MUTED)).wrap(max(1, room)) if self.empty else []

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = y + self.scroll_offset.y
        style = self.get_visual_style("row-list--row")
        if index >= self.count:
            lines = [] if self.count else self._empty_lines(self.room)
            words = lines[y] if y < len(lines) else content()
            return self._strip(content((" " * GUTTER, MUTED)) + words, width, style)
        mark: Content = content(" " * GUTTER)
        if index == self.cursor:
            style = self.get_visual_style("row-list--cursor")
            mark = content(("▌", ".row-list--bar"), " " * (GUTTER - 1))
        return self._strip(mark + self._draw(index, self.room), width, style)

    def _strip(self, line: Content, width: int, style: object) -> Strip:
        line = line.truncate(width, ellipsis=True, pad=True)
        strips = Visual.to_strips(self, line, width, 1, style, pad=True)  # type: ignore[arg-type]
        return strips[0] if strips else Strip.blank(width)

    def _row_at(self, event: events.MouseEvent) -> int | None:
        """The row under the mouse; None outside the rows and on a heading."""
        offset = event.get_content_offset(self)
        if offset is None:
            return None
        index = offset.y + self.scroll_offset.y
        return index if index < self.count and index not in self._headings else None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._tip is not None:
            index = self._row_at(event)
            words = "" if index is None else self._tip(index)
            self.tooltip = Content(words) if words else None

    def on_click(self, event: events.Click) -> None:
        index = self._row_at(event)
        if index is not None and self._has_cursor:
            self._put(index)
            self.post_message(self.Chosen(self, index))


class FocusRows(RowList, can_focus=True, inherit_bindings=False):
    """The list, where it has the keys of its screen. A click moves the cursor, a double click chooses."""

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()
        index = self._row_at(event)
        if index is not None and index == self.cursor and event.chain > 1:
            self.post_message(self.Chosen(self, index))
        elif index is not None:
            self._put(index)

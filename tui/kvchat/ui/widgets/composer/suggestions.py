"""A list of what the text at the cursor can become, drawn over the transcript just above the composer.

It takes no focus and moves nothing; Enter takes the item under its cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widget import Widget

from kvchat.sanitize import one_line
from kvchat.ui.runs import fit

T = TypeVar("T")


class SuggestionRow(NamedTuple):
    """A suggestion as it is drawn; both texts as they came from outside."""

    name: str
    description: str


class Suggestions(Widget, Generic[T]):
    """The suggestions, one a line. A subclass says how one is drawn and what a click on one means."""

    DEFAULT_CSS = """
    Suggestions {
        overlay: screen; constrain: none inside; display: none;
        height: auto; width: 1fr;
        background: $panel; color: $foreground;
        & .suggestion--name { color: $foreground; text-style: bold; }
        & .suggestion--description { color: $foreground 65%; }
        & .suggestion--cursor {
            background: $block-cursor-background; color: $block-cursor-foreground; text-style: bold;
        }
        &:ansi { background: ansi_default; border: round ansi_bright_black; }
        &:ansi .suggestion--description { color: ansi_default; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"suggestion--name", "suggestion--description", "suggestion--cursor"}
    ALLOW_SELECT = False
    ROWS = 8
    WIDEST = 24
    """Cells of the names' column at most."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[T] = []
        self.cursor: int | None = None

    def row_of(self, item: T) -> SuggestionRow:
        """How an item is drawn."""
        raise NotImplementedError

    def clicked(self, item: T) -> None:
        """An item was clicked."""

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    @property
    def chosen(self) -> T | None:
        """The item under the cursor."""
        return self.items[self.cursor] if self.is_open and self.items and self.cursor is not None else None

    def show(self, items: Sequence[T], *, marks_first: bool = True) -> None:
        """Show these; nothing to show closes the list. The cursor stays on its item when that is still there, else it
        is on the first one, or (`marks_first` False) nowhere."""
        if not items:
            self.close()
            return
        current, rows = self.chosen, min(self.ROWS, len(self.items)) if self.is_open else 0
        self.items = list(items)
        first = 0 if marks_first else None
        self.cursor = self.items.index(current) if current is not None and current in self.items else first
        if (shown := min(self.ROWS, len(self.items))) == rows:
            self.refresh()
            return
        self.display = True
        above = self.gutter.height + (self.parent.gutter.top if isinstance(self.parent, Widget) else 0)
        self.styles.offset = (0, -shown - above)
        self.refresh(layout=True)

    def close(self) -> None:
        """Called at every key: a list that is closed costs nothing."""
        if self.is_open:
            self.display = False
            self.items = []

    def move(self, step: int) -> None:
        """Move the cursor, round at both ends."""
        at = self.cursor if self.cursor is not None else -1 if step > 0 else 0
        self.cursor = (at + step) % max(1, len(self.items))
        self.refresh()

    @property
    def _first(self) -> int:
        return max(0, min((self.cursor or 0) - self.ROWS // 2, len(self.items) - self.ROWS))

    def render(self) -> Content:
        rows = [self.row_of(item) for item in self.items]
        width = self.content_size.width
        column = min(self.WIDEST, max(1, width - 4), 3 + max((cell_len(one_line(row.name)) for row in rows), default=0))
        lines = []
        for index in range(self._first, min(len(rows), self._first + self.ROWS)):
            name = fit(" " + one_line(rows[index].name), column)
            rest = fit(one_line(rows[index].description), width - column - 2)
            name += " " * (column + 1 - cell_len(name))
            rest += " " * (width - cell_len(name) - cell_len(rest))
            if index == self.cursor:
                lines.append(Content.styled(name + rest, self.get_visual_style("suggestion--cursor")))
            else:
                lines.append(
                    Content.assemble(
                        (name, self.get_visual_style("suggestion--name")),
                        (rest, self.get_visual_style("suggestion--description")),
                    )
                )
        return Content("\n").join(lines)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        offset = event.get_content_offset(self)
        if offset is not None and self._first + offset.y < len(self.items):
            self.clicked(self.items[self._first + offset.y])

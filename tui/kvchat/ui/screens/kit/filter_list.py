"""A list under a filter line, in groups where it has some, with the row under the cursor in full below it where a row
has more to say.

`FilterList` keeps rows of what it has, at each letter; `SearchList` looks them up when the typing pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct
from textual import on, work
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.sanitize import one_line
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit.modal import ListModal
from kvchat.ui.screens.kit.rows import FilterInput, FilterLine, RowList
from kvchat.ui.screens.kit.tones import MUTED, STRONG, content, joined

T = TypeVar("T")
R = TypeVar("R")
PAUSE_SECONDS = 0.12
"""From the last letter to its search."""


class Heading(Struct, frozen=True):
    """A line that is never under the cursor: the name of a group, or the blank between two."""

    text: str = ""
    note: str = ""
    """At the right."""


class FilterList(ListModal[R], Generic[T, R]):
    """A dialog of one list. A subclass says what a query finds, how a row is drawn, and what choosing it gives."""

    placeholder: str = ""
    """Of the filter line; empty: there is none."""
    empty: str = ""
    """Shown in place of the rows where there are none."""
    has_detail: ClassVar[bool] = False
    """Whether `detail` is shown below the list."""
    list_class: ClassVar[type[RowList]] = RowList

    def __init__(self, classes: str, *, query: str = "", first: T | None = None, row: int = 0) -> None:
        """The cursor begins on `first` where the query finds it, else on the row with the number `row`."""
        super().__init__(classes=classes)
        self.query_text = query
        """What is written in the filter line."""
        self.shown: list[T | Heading] = []
        self._first = first
        self.row = row

    def find(self, query: str) -> Iterable[T | Heading]:
        """The rows that a query keeps, in their order."""
        raise NotImplementedError

    def draw(self, row: T, width: int) -> Content:
        """A row in `width` cells."""
        raise NotImplementedError

    def draw_heading(self, heading: Heading, width: int) -> Content:
        title = content((shown(heading.text, width), STRONG))
        return joined(title, content((heading.note, MUTED)), width) if heading.note else title

    def detail(self, row: T | None) -> Content:
        """The row under the cursor in full; None: there is none."""
        return content()

    def tip(self, row: T) -> str:
        """The tooltip of a row."""
        return ""

    def result(self, row: T) -> R | None:
        """What the dialog gives when this row is chosen; None: it stays open."""
        return None

    def body(self) -> Iterable[Widget]:
        if self.placeholder:
            yield FilterLine(self.placeholder, self.query_text)
        yield self.list_class(self._draw, empty=self.empty, tip=self._tip)
        if self.has_detail:
            yield Static(classes="words", id="detail")

    def on_mount(self) -> None:
        self.query(FilterInput).focus()
        self.fill(self._first, self.row)

    def fill(self, under: T | None = None, row: int = 0) -> None:
        """Show what the query keeps, with the cursor on `under` where that is among it, else on this row."""
        self.shown = [*self.find(self.query_text)]
        headings = {at for at, line in enumerate(self.shown) if isinstance(line, Heading)}
        cursor = self.shown.index(under) if under in self.shown else min(row, max(0, len(self.shown) - 1))
        self.rows.empty = self.empty
        self.rows.show(len(self.shown), cursor=cursor, headings=headings)

    @property
    def current(self) -> T | None:
        """The row under the cursor."""
        line = None if self.rows.cursor is None else self.shown[self.rows.cursor]
        return None if isinstance(line, Heading) else line

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        before, self.query_text = self.query_text, event.value
        if event.value.split() != before.split():
            self.query_changed()

    def query_changed(self) -> None:
        """Other words are written in the filter line."""
        self.fill()

    @on(RowList.Moved)
    def _moved(self) -> None:
        self.cursor_moved(self.current)

    def cursor_moved(self, row: T | None) -> None:
        """The cursor is on this row now."""
        if self.has_detail:
            self.query_one("#detail", Static).update(self.detail(row))

    def _draw(self, index: int, width: int) -> Content:
        line = self.shown[index]
        return self.draw_heading(line, width) if isinstance(line, Heading) else self.draw(line, width)

    def _tip(self, index: int) -> str:
        line = self.shown[index]
        return "" if isinstance(line, Heading) else self.tip(line)

    def choose(self, index: int) -> None:
        row = self.current
        if row is not None and (result := self.result(row)) is not None:
            self.finish(result)


class SearchList(FilterList[T, R]):
    """A list that is looked up when the typing pauses. The result of an older query is never shown."""

    invitation: ClassVar[str]
    """Shown in place of the rows until a word is written."""
    not_found: ClassVar[str]
    found: Sequence[T | Heading] = ()
    found_for: str = ""
    """The query that found them."""
    _timer: Timer | None = None

    async def search(self, query: str) -> Sequence[T | Heading]:
        """What a query finds. Any error is shown in place of the rows."""
        raise NotImplementedError

    def found_heading(self) -> str:
        """The dialog's title, with how much was found."""
        return self.heading

    def find(self, query: str) -> Iterable[T | Heading]:
        return self.found

    def on_mount(self) -> None:
        self.empty = self.invitation
        if self.query_text:
            self.look_up()

    def query_changed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PAUSE_SECONDS, self.look_up)

    @work(exclusive=True, group="search", exit_on_error=False)
    async def look_up(self) -> None:
        """Search for what is written now."""
        query, empty = self.query_text, self.invitation
        found: Sequence[T | Heading] = ()
        if query.strip():
            try:
                found, empty = await self.search(query), self.not_found
            except Exception as error:
                empty = f"The search did not work: {one_line(str(error), 200) or type(error).__name__}."
        self.found, self.found_for, self.empty = found, query, empty
        self.query_one("#frame").border_title = Content(self.found_heading())
        self.fill()


def grouped(rows: Iterable[T], group: Callable[[T], str]) -> Iterator[T | Heading]:
    """The rows, those of a group together under its name, with a blank between two groups. The order is that of their
    first rows."""
    groups: dict[str, list[T]] = {}
    for row in rows:
        groups.setdefault(group(row), []).append(row)
    for number, (name, members) in enumerate(groups.items()):
        if number:
            yield Heading()
        yield Heading(name)
        yield from members

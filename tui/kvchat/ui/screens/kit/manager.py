"""One screen for what kvchat keeps, memories or documents: pages of rows, a search, and the row under the cursor in
full below them.

It lays out, listens and draws. Its source decides what is listed, in which words, and what can be done with it. The
screen looks again when something may have changed, and the cursor stays on its row.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from rich.cells import cell_len
from textual import on, work
from textual.binding import BindingsMap, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.errors import ChatError
from kvchat.sanitize import one_line
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.kit.modal import Hint, ListModal
from kvchat.ui.screens.kit.rows import FilterLine, FocusRows, RowList
from kvchat.ui.screens.kit.tones import ACCENT, BAD, content

if TYPE_CHECKING:
    from kvchat.chat.events import EventBus, ServiceEvent

PATIENCE = 0.25
"""Seconds between two looks, or drawings, while things change."""
RENEWAL = 5.0
"""Seconds between two looks at what other programs may have changed."""
PAUSE_SECONDS = 0.12
"""After the last letter of a search."""
SEARCHING: Sequence[Hint] = (
    ("rows.up rows.down", "move"),
    ("rows.choose", "to the list"),
    ("dialog.close", "show all"),
)

T = TypeVar("T")
Act = Callable[[], Awaitable[None] | None]
Due = Literal["", "draw", "look"]
"""What an event asks for: nothing, to draw what is known again, or to look again."""
log = logging.getLogger(__name__)


class Jump(NamedTuple):
    """The message that the user wants to see."""

    conversation: str
    node: str | None


class Page(ABC):
    """A list of a source."""

    hints: Sequence[Hint] = ()
    """What can be done on the page, the way on and the way out last."""
    has_search: ClassVar[bool] = False

    @property
    @abstractmethod
    def keys(self) -> Sequence[object]:
        """What tells its rows from each other, whatever came since; None: a heading."""

    @property
    @abstractmethod
    def empty(self) -> str:
        """The text shown when it has no rows."""

    @abstractmethod
    def row(self, index: int, width: int) -> Content:
        """A row in `width` cells."""

    @abstractmethod
    def detail(self, index: int, width: int) -> Sequence[Content]:
        """The row in sentences, in at most four lines."""

    def acts(self, index: int) -> Sequence[Hint]:
        """What can be done with the row."""
        return ()

    def columns(self, width: int) -> Content:
        """The headings of the columns."""
        return Content()

    @abstractmethod
    def choose(self, index: int) -> Awaitable[None] | None:
        """The user chose the row."""


class ManagerSource(ABC):
    """What is managed: its pages, and what can be done."""

    heading: ClassVar[str]
    context: ClassVar[str]
    """Of its keys, in the table of actions."""
    screen: ManagerScreen
    """Where it is shown."""
    pages: Sequence[Page]
    acts: Mapping[str, Act]
    """What its keys do, by the names of the table."""
    renew: Callable[[], Awaitable[None]] | None = None
    """What is done now and then before a look at what other programs have changed; None: they are not looked for."""
    begins_with_adding: bool = False
    query: str | None = None
    """What is searched for; None: there is nothing to search in."""

    # What is shown.

    @property
    def is_writing(self) -> bool:
        """Whether a text is being written."""
        return False

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether there was a first look."""

    @property
    @abstractmethod
    def welcome(self) -> Sequence[str]:
        """The text in place of the first page while there is nothing at all to show; empty: there is something."""

    def title(self) -> str:
        return self.heading

    def lines(self, page: Page, width: int) -> Mapping[str, Content]:
        """The lines above the list, by their places: `views`, `filters`, `problems`. Asked for before all else is
        drawn."""
        return {}

    def note(self, width: int) -> Content:
        """The last line when there is no other notice."""
        return Content()

    def widgets(self) -> Iterable[Widget]:
        """More widgets, below the list."""
        return ()

    def hints(self) -> Sequence[Hint]:
        """The keys that work now, if they are not those of the page."""
        return ()

    # What happens.

    @abstractmethod
    def look(self) -> AsyncIterator[None]:
        """Take everything as it is now; it yields whenever there is something new to draw. Raises ChatError."""

    async def search(self) -> bool:
        """Search for `query`; whether it is still what is searched for. Raises ChatError."""
        return False

    @abstractmethod
    def due(self, event: ServiceEvent) -> Due:
        """What an event asks for."""

    @abstractmethod
    def add(self) -> None:
        """Begin to add something."""

    def turn(self, step: int) -> bool:
        """The key of the next page was pressed; whether it meant something else."""
        return False

    def leave(self) -> bool:
        """Escape was pressed; whether it ended something that was begun."""
        return False


class ManagerScreen(ListModal[Jump]):
    """What a source has. Result: the message to show, None when the screen was only closed."""

    DEFAULT_CSS = """
    ManagerScreen {
        & #frame { height: 96%; max-height: 50; padding: 0 2; }
        & #views { height: auto; margin-bottom: 1; }
        & #search { height: 2; border-bottom: solid $foreground 20%; }
        & #search FilterLine { height: 1; border: none; width: 1fr; }
        & #filters { width: auto; height: 1; margin-left: 2; }
        & #columns { height: 1; padding-left: 2; }
        & #rows { height: 1fr; min-height: 3; scrollbar-gutter: stable; }
        & #empty { display: none; height: 1fr; padding: 1 2; }
        & #detail { height: 4; margin-top: 1; padding: 0 1 0 2; }
        & #keys, & #note { height: 1; padding: 0 1 0 2; }
        &.-notice-long #note { height: 2; }
        &.-notice-long #keys { display: none; }
        &.-empty #rows, &.-empty #detail, &.-empty #keys { display: none; }
        &.-empty #empty { display: block; }
        &.-other #search { display: none; }
        &.-editing #detail, &.-editing #keys { display: none; }
        &:ansi #search { border-bottom: solid ansi_bright_black; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("manager")]
    AUTO_FOCUS: ClassVar[str | None] = "#rows"

    def __init__(self, source: ManagerSource, events: EventBus, *, page: int = 0) -> None:
        """`page`: the number of the one that is shown first."""
        super().__init__(classes="-list -wide")
        self._bindings = BindingsMap.merge([self._bindings, BindingsMap(bindings(source.context))])
        self.source = source
        self.page = source.pages[page]
        self.heading = source.heading
        self.hints = self.page.hints
        self._events = events
        self._keys: Sequence[object] = ()
        """Of the rows that are shown."""
        self._notice: tuple[str, bool, object] = ("", False, None)
        """The sentence in the last line, whether it is bad, and the row that was under the cursor."""
        self._soon: Timer | None = None
        self._due: Due = ""
        self._typing: Timer | None = None

    def body(self) -> Iterable[Widget]:
        yield Static(classes="words", id="views")
        if self.source.query is not None:
            with Horizontal(id="search"):
                yield FilterLine("search", self.source.query)
                yield Static(id="filters")
        yield Static(classes="words", id="problems")
        yield Static(classes="words", id="columns")
        rows = FocusRows(self._draw, empty="looking …")
        rows.id = "rows"
        yield rows
        yield Static(classes="words", id="empty")
        yield Static(classes="words", id="detail")
        yield from self.source.widgets()
        yield Static(classes="words", id="keys")
        yield Static(classes="words", id="note")

    def on_mount(self) -> None:
        self.source.screen = self
        self.hear(self._events, self._heard)
        for id in ("views", "problems", "columns"):
            self.query_one(f"#{id}").display = False
        self.rows.show(0)
        self.look_soon()
        if self.source.renew is not None:
            self.set_interval(RENEWAL, self._renew)
        if self.source.begins_with_adding:
            self.source.add()

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)

    @property
    def search_field(self) -> Input | None:
        """The field in which the user writes what to search for."""
        return next(iter(self.query("#search Input").results(Input)), None)

    @property
    def at(self) -> int | None:
        """The number of the row under the cursor, as far as it has one that can be acted on."""
        at = self.rows.cursor
        return at if at is not None and at < len(self._keys) and self._keys[at] is not None else None

    # Looking.

    def _heard(self, event: ServiceEvent) -> None:
        due = self.source.due(event)
        if due and self._due != "look":
            self._due = due
        if due and self._soon is None:
            self._soon = self.set_timer(PATIENCE, self._refresh_due)

    def _refresh_due(self) -> None:
        due, self._due, self._soon = self._due, "", None
        if due == "look":
            self.look_soon()
        else:
            self.fill()

    @work(exclusive=True, group="renew")
    async def _renew(self) -> None:
        assert self.source.renew is not None
        await self.source.renew()
        self.look_soon()

    @work(exclusive=True, group="look")
    async def look_soon(self) -> None:
        """Look again, in the background."""
        await self.look_again()

    @property
    def is_looking(self) -> bool:
        """Whether a look is running, or will be soon, because of an event."""
        return self._soon is not None or any(
            worker.group == "look" and worker.node is self and not worker.is_finished for worker in self.workers
        )

    async def look_again(self, *, at: object = None) -> None:
        """Everything as it is now; the cursor goes to the row with the key `at`, else it stays."""
        with self.telling():
            async for _ in self.source.look():
                self.show_rows(keep=True, at=at)
                at = None
        if self._can_draw and not self.source.is_ready:
            self.rows.empty = one_line(self.notice, 400)
            self.rows.refresh()

    @on(Input.Changed, "#search Input")
    def _typed(self, event: Input.Changed) -> None:
        if event.value != self.source.query:
            self.source.query = event.value
            if self._typing is not None:
                self._typing.stop()
            self._typing = self.set_timer(PAUSE_SECONDS, self._search)

    @work(exclusive=True, group="search")
    async def _search(self) -> None:
        with self.telling():
            if await self.source.search():
                self.show_rows()

    # Doing.

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Report what fails in here: a disk or a store that fails must not end the app."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, ChatError):
                log.info("%s", self.heading, exc_info=True)
            self.tell(str(error) or type(error).__name__, bad=True)

    async def act(self, act: Awaitable[T], said: Callable[[T], str], *, at: object = None) -> bool:
        """Do something, look again and say what was done; whether it was done. The cursor goes to the row `at`."""
        with self.telling():
            done = await act
            await self.look_again(at=at)
            self.tell(said(done))
            return True
        return False

    async def action_act(self, name: str) -> None:
        """What a key of the source does."""
        done = self.source.acts[name]()
        if isawaitable(done):
            await done

    def action_add(self) -> None:
        self.source.add()

    async def action_search(self) -> None:
        if (field := self.search_field) is None:
            await self.action_act("search")
        elif self.page.has_search:
            field.focus()

    def action_page_by(self, step: int) -> None:
        if self.source.turn(step):
            return
        if isinstance(self.focused, Input):
            self.rows.focus()
        elif len(self.source.pages) > 1:
            pages = self.source.pages
            self.page = pages[(pages.index(self.page) + step) % len(pages)]
            self.set_class(not self.page.has_search, "-other")
            self.tell("")
            self.show_rows()

    def choose(self, index: int) -> None:
        if isinstance(self.focused, Input):
            self.rows.focus()
        elif self.at is not None:
            self.call_later(self.page.choose, self.at)

    def action_close(self) -> None:
        """Out of what was begun last: writing, searching, the screen."""
        field = self.search_field
        if self.source.leave():
            self.rows.focus()
        elif not self.source.is_writing and field is not None and (field.value or field.has_focus):
            field.value = ""
            self.rows.focus()
        else:
            self.finish(None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing can be done before there is something to do it with, and the cursor stays while a text is written."""
        stays = self.source.is_writing and action in ("move", "page")
        return self._can_draw and not stays and super().check_action(action, parameters)

    # Drawing.

    @property
    def _can_draw(self) -> bool:
        """Whether there is something to draw on: what was waited for may come when the screen is being closed."""
        return self.is_running and bool(self.query("#note"))

    def show_rows(self, *, keep: bool = False, at: object = None) -> None:
        """The rows of the page, with the cursor on the row with the key `at`; with `keep` it stays on its row, or near
        where that was when it is gone."""
        if not self._can_draw or not self.source.is_ready:
            return
        rows, old, place = self.rows, self._keys, self.rows.cursor or 0
        self._keys = self.page.keys
        wanted = at if at is not None else old[place] if keep and place < len(old) else None
        rows.empty = self.page.empty
        if keep and at is None and rows.count and self._keys == old:
            rows.refresh()
        else:
            rows.show(
                len(self._keys),
                cursor=_place(wanted, old, place, self._keys),
                headings={at for at, key in enumerate(self._keys) if key is None},
            )
        self.fill()

    def fill(self) -> None:
        """All that depends on what goes on, and on the width."""
        if not self._can_draw or not self.source.is_ready:
            return
        width = self.query_one("#note", Static).content_size.width  # that one is always there
        if not width:
            return
        for id, line in self.source.lines(self.page, width).items():
            self._put(id, line)
        welcome = self.source.welcome if self.page is self.source.pages[0] else ()
        self._put("columns", Content() if welcome else self.page.columns(max(1, self.rows.room)))
        self.set_class(bool(welcome), "-empty")
        self.query_one("#empty", Static).update(Content("\n".join(welcome)))
        self.query_one("#frame").border_title = Content(self.source.title())
        self.rows.refresh()
        self._draw_note()
        self.tell_row()
        self.hint()

    def _put(self, id: str, line: Content) -> None:
        place = self.query_one(f"#{id}", Static)
        place.display = bool(line)
        place.update(line)

    def tell(self, text: str, *, bad: bool = False) -> None:
        """A sentence in the last line until the cursor moves."""
        self._notice = (text, bad, self._row_key)
        if self._can_draw:
            self._draw_note()

    def _draw_note(self) -> None:
        text, bad, _ = self._notice
        note = self.query_one("#note", Static)
        width = note.content_size.width or self.size.width
        self.set_class(cell_len(text) > width, "-notice-long")
        if text:
            note.update(content((one_line(text, 2 * width), BAD if bad else ACCENT)))
        elif self.source.is_ready:
            note.update(self.source.note(width))
        else:
            note.update("")

    @property
    def notice(self) -> str:
        """The sentence in the last line; empty: none."""
        return self._notice[0]

    @property
    def _row_key(self) -> object:
        return self._keys[self.at] if self.is_running and self.query("#rows") and self.at is not None else None

    @on(RowList.Moved)
    def _moved(self) -> None:
        if self._can_draw:
            if self.notice and self._notice[2] != self._row_key:
                self.tell("")
            self.tell_row()

    def tell_row(self) -> None:
        """The row under the cursor in sentences, and what can be done with it."""
        width, at = self.query_one("#note", Static).content_size.width, self.at
        lines = self.page.detail(at, width) if at is not None and width else ()
        self.query_one("#detail", Static).update(Content("\n").join(lines))
        self.query_one("#keys", Static).update(self.hint_line(self.page.acts(at) if at is not None else ()))

    def hint(self) -> None:
        """The keys that work now, in the bottom edge; those in the middle give way when there is no room."""
        searching = SEARCHING if isinstance(self.focused, Input) else self.page.hints
        self.show_hints(self.source.hints() or searching, fits=True)

    def on_descendant_focus(self) -> None:
        self.hint()

    def _draw(self, index: int, width: int) -> Content:
        return self.page.row(index, width) if index < len(self._keys) else content()


def _place(wanted: object, old: Sequence[object], place: int, keys: Sequence[object]) -> int:
    """Where the row `wanted` is now, that was at `place` of an older list; where it is gone, the next one of those that
    came after it there, else before it."""
    if wanted is None:
        return 0
    places: dict[Any, int] = {key: at for at, key in enumerate(keys) if key is not None}
    return next((places[key] for key in (wanted, *old[place:], *reversed(old[:place])) if key in places), 0)

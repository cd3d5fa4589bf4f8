"""The cache inspector: what the server reused of each turn and message, why not more, and what it holds now.

The rule: it only shows; what it shows is a `CacheReport`, asked for again when the cache may have changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import ClassVar, Literal, Protocol

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache.report import CacheReport
from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerEnded, ConversationChanged, ServerChanged, ServiceEvent, WarmthChanged
from kvchat.chat.live import OpenConversation
from kvchat.sanitize import clean, one_line
from kvchat.text.format import UNKNOWN
from kvchat.ui.screens import inspector_messages as messages
from kvchat.ui.screens import inspector_turns as turns
from kvchat.ui.screens.inspector_facts import ServerFacts, facts
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, content

View = Literal["turns", "messages", "server"]
VIEWS: dict[View, str] = {"turns": "Turns", "messages": "Messages", "server": "Sums and server"}
TALL = 36
"""Rows of the terminal from which on the sums and the server stand below the turns."""
PATIENCE = 0.4
"""Seconds between two looks while the cache changes."""


class CacheSource(Protocol):
    """What the inspector asks: `ChatService`."""

    @property
    def server(self) -> ServerFacts | None: ...
    def cache_report(self, id: str) -> Awaitable[CacheReport]: ...
    def subscribe(self, listener: Callable[[ServiceEvent], None]) -> Callable[[], None]: ...
    def now(self) -> datetime: ...


class InspectorScreen(ListModal[None]):
    """Three views, one at a time where the terminal is low: the turns, the messages, and the sums with the server."""

    DEFAULT_CSS = """
    InspectorScreen {
        & > #frame { height: 96%; max-height: 50; }
        & #headline { height: 3; }
        & #views { height: 1; margin-top: 1; }
        & #head { height: 1; }
        & #rows { height: 1fr; min-height: 3; scrollbar-gutter: stable; }
        & #detail { height: 4; margin-top: 1; padding: 0 1 0 2; }
        & #facts { display: none; scrollbar-gutter: stable; }
        &.-tall #facts { display: block; height: auto; max-height: 40%; margin-top: 1; }
        &.-server #facts { display: block; height: 1fr; max-height: 100%; margin-top: 1; }
        &.-server #rows, &.-server #head, &.-server #detail { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,right,m", "view(1)", "Next view", show=False),
        Binding("shift+tab,left", "view(-1)", "Previous view", show=False),
    ]

    def __init__(self, conversation: OpenConversation, source: CacheSource) -> None:
        super().__init__(classes="-list -wide")
        self.heading = f"Cache · {one_line(conversation.record.title, 60)}"
        self.hints = (("↑↓", "move"), ("tab", "next view"), ("esc", "close"))
        self._conversation = conversation
        self._source = source
        self._report: CacheReport | None = None
        self._trouble = ""
        self._view: View = "turns"
        self._facts: list[Content] = []
        self._soon: Timer | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def body(self) -> Iterable[Widget]:
        yield Static(classes="words", id="headline")
        yield Static(classes="words", id="views")
        yield Static(classes="words", id="head")
        rows = RowList(self._draw)
        rows.id = "rows"
        yield rows
        yield Static(classes="words", id="detail")
        below = RowList(lambda index, width: self._facts[index], cursor=False, classes="-fits")
        below.id = "facts"
        yield below

    @property
    def rows(self) -> RowList:
        """The list that the arrow keys move."""
        return self.query_one("#facts" if self._view == "server" else "#rows", RowList)

    def on_mount(self) -> None:
        self._stop_listening = self._source.subscribe(self._heard)
        self.set_class(self.size.height >= TALL, "-tall")
        self._load()

    def on_unmount(self) -> None:
        self._stop_listening()

    def on_resize(self) -> None:
        self.set_class(self.size.height >= TALL, "-tall")
        self.call_after_refresh(self._fill)

    # What is shown.

    def _heard(self, event: ServiceEvent) -> None:
        """Look again soon; what changes fast is not looked at each time."""
        if isinstance(event, WarmthChanged | AnswerEnded | ConversationChanged | ServerChanged) and self._soon is None:
            self._soon = self.set_timer(PATIENCE, self._load)

    @work(exclusive=True, group="report")
    async def _load(self) -> None:
        self._soon = None
        try:
            report = await self._source.cache_report(self._conversation.id)
        except ChatError as error:
            self._trouble = clean(str(error))
        else:
            self._trouble = ""
            self._take(report)
        self._fill()

    def _take(self, report: CacheReport) -> None:
        """Show this; the cursor stays, and goes along with the newest turn if it was there."""
        first, before = self._report is None, self._count()
        at = self.query_one("#rows", RowList).cursor
        self._report = report
        self._list(None if first or at is None or at >= before - 1 else at)

    def _count(self) -> int:
        if self._report is None:
            return 0
        return len(self._report.turns if self._view == "turns" else self._report.messages)

    def _list(self, cursor: int | None) -> None:
        """The rows of the view, with the cursor at `cursor`, or at the end."""
        rows = self.query_one("#rows", RowList)
        rows.empty = ("Nothing has been asked yet." if self._view == "turns"
                      else "Which tokens belong to which message is not known yet.")
        size = self._count()
        rows.show(size, cursor=max(0, size - 1) if cursor is None else cursor)

    def _fill(self) -> None:
        """All that depends on the width."""
        width = max(self.query_one("#rows", RowList).room, self.query_one("#facts", RowList).room)
        report = self._report
        if report is None:
            waiting = content((self._trouble, BAD)) if self._trouble else content(("looking …", MUTED))
            self.query_one("#headline", Static).update(content("  ") + waiting)
            return
        now = self._source.now().timestamp()
        self._put("headline", messages.headline(report, width, now), width)
        names = content().join([
            content(("   " if at else ""), (name, ACCENT if view == self._view else MUTED))
            for at, (view, name) in enumerate(VIEWS.items())])
        self._put("views", [names], width)
        self._put("head", [turns.turns_head(width) if self._view == "turns" else messages.messages_head(width)], width)
        path = self._conversation.path()
        digest = path[0].digest.hex()[:12] if path else UNKNOWN
        self._facts = facts(report, self._source.server, digest, width, now)
        self.query_one("#facts", RowList).show(len(self._facts))
        self._tell()

    def _put(self, id: str, lines: Sequence[Content], width: int) -> None:
        cut = [content("  ") + line.truncate(width, ellipsis=True) for line in lines]
        self.query_one(f"#{id}", Static).update(Content("\n").join(cut))

    @on(RowList.Moved)
    def _tell(self) -> None:
        """The row under the cursor in sentences."""
        report, at = self._report, self.query_one("#rows", RowList).cursor
        lines: Sequence[Content] = ()
        if report is not None and at is not None and at < self._count():
            lines = turns.turn_words(report.turns, at) if self._view == "turns" else messages.message_words(report, at)
        self.query_one("#detail", Static).update(Content("\n").join(lines))

    def _draw(self, index: int, width: int) -> Content:
        report = self._report
        if report is None or index >= self._count():
            return content()
        if self._view == "turns":
            return turns.turn_row(report.turns, index, turns.scale_of(report.turns), width)
        return messages.message_row(report, index, messages.tokens_scale(report.messages), width)

    def action_view(self, step: int) -> None:
        """Go to the next view; in the messages the cursor begins where the prompts part."""
        views = list(VIEWS)
        self._view = views[(views.index(self._view) + step) % len(views)]
        self.set_class(self._view == "server", "-server")
        if self._report is not None and self._view != "server":
            parted = messages.divergence(self._report) if self._view == "messages" else None
            self._list(parted.message if parted else None)
        self.call_after_refresh(self._fill)

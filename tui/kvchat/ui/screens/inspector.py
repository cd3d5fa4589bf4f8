"""The cache inspector: what the server reused of each turn and message, why not more, and what it holds now.

It only shows a `CacheReport`, and asks for a new one when the cache may have changed. Figures are the server's or
measured by kvchat; what neither knows is shown as unknown.

In the order in which they are called:

1. `InspectorScreen`: has a report made, when it opens and when the cache may have changed, and lists it.
2. `turn_row`, `message_row`: a row of a list; `turns_head`, `messages_head`: the heads of its columns.
3. `turn_words`, `message_words`: what is said of the row under the cursor.
4. `headline`, `totals_line`, `days_lines`, `facts`: the lines around the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import on, work
from textual.binding import BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache import Divergence
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerEnded, ConversationChanged, ServerChanged, ServiceEvent, WarmthChanged
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.figures.stats import Day
from kvchat.reports.cache_report import CacheReport, HeldState, KeptRoom, Ledger, MessageCells, TurnReport
from kvchat.sanitize import clean, one_line
from kvchat.text.cache import (
    REUSE_UNKNOWN,
    TOTAL_HEADS,
    UNREPORTED,
    WASTED_BY,
    accuracy,
    count_of,
    held_words,
    misses,
    prediction,
    sent_words,
    shown_tokens,
    side_request_words,
    speed_words,
    token_parts,
    turn_name,
    turn_of,
    turn_sum,
    verdict,
    warm_up_words,
    warmth_words,
    why,
)
from kvchat.text.format import KEPT_MARK, UNKNOWN, count, counted, duration, percent, short_day
from kvchat.text.options import beginning_words, warning_sentence
from kvchat.text.servers import model_name
from kvchat.text.snapshots import kept_words, room_words
from kvchat.text.stats import REUSE, answers_words, unknown_words
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import (
    BAD,
    CACHED,
    EVALUATED,
    GLYPHS,
    MARK_TONES,
    MATCH,
    MUTED,
    STRONG,
    WASTED,
    ListModal,
    RowList,
    content,
    joined,
)
from kvchat.ui.widgets.bars import split_cells
from kvchat.ui.widgets.header_text import HOSTS
from kvchat.ui.widgets.sidebar_rows import GLYPHS as MARK_GLYPHS
from kvchat.ui.widgets.sidebar_rows import mark_of
from kvchat.ui.widgets.transcript import breaks

if TYPE_CHECKING:
    from datetime import datetime

    from kvchat.chat.cache.reports import CacheReports
    from kvchat.chat.events import EventBus
    from kvchat.chat.server.servers import Servers

QUESTION = 22
"""Cells for the first words of a question, where there is room."""
GLYPH_HEADS = (("█", "cached"), ("▒", "new"), ("░", "wasted"))
OTHER_HEADS = ("TTFT", "prefill", "decode")
"""Time to the first token, prompt tokens and answer tokens a second."""
LAST = "last request "


def cells_of(figures: TurnFigures, scale: int, width: int) -> tuple[int, int, int]:
    """How many cells of a turn's bar are reused, new and wasted. Wasted tokens within the noise are new."""
    wasted = figures.notable_waste
    cached, new, again = split_cells(
        (figures.cached_tokens or 0, (figures.evaluated_tokens or 0) - wasted, wasted), scale, width
    )
    return cached, new, again


def bar(cached: int, new: int, wasted: int) -> Content:
    """A bar with this many cells of each kind."""
    return content(("█" * cached, CACHED), ("▒" * new, EVALUATED), ("░" * wasted, WASTED))


def scale_of(turns: Sequence[TurnReport]) -> int:
    """The tokens of a bar of full width: the longest prompt; 0 where no turn has figures."""
    return max((turn.figures.prompt_tokens or 0 for turn in turns if turn.figures), default=0)


def column_cells(width: int) -> tuple[int, ...]:
    """The widths of the columns of numbers on a line of `width` cells; the speeds give way to the bar."""
    cells = (10, 9, 11, 11, 10, 9) if width >= 90 else (9, 7, 9, 8, 8, 7)
    return cells if width >= sum(cells) + 12 else cells[:4]


def glyph_heads(cells: Sequence[int]) -> list[Content]:
    """The heads of the columns of reused, new and wasted tokens, with their glyphs."""
    return [
        content(" " * max(0, wide - len(word) - 2), (glyph, GLYPHS[glyph]), (f" {word}", MUTED))
        for (glyph, word), wide in zip(GLYPH_HEADS, cells, strict=True)
    ]


def turns_head(width: int) -> Content:
    """The heads of the columns."""
    cells = column_cells(width)
    heads = glyph_heads(cells[:3])
    heads += [content((word.rjust(wide), MUTED)) for word, wide in zip(OTHER_HEADS, cells[3:], strict=False)]
    return joined(content(("turn", MUTED)), content().join(heads), width)


def turn_row(turns: Sequence[TurnReport], index: int, scale: int, width: int) -> Content:
    """A request: its turn's number where it is the first one of that, its question where there is room, its bar, its
    numbers."""
    turn = turns[index]
    figures = turn.figures
    cells = column_cells(width)
    turn_number, requests = turn_of(turns, index)
    number = f"{turn_number if index == requests.start else '':>{len(str(len(turns)))}} "
    room = max(0, width - len(number) - sum(cells) - 2)
    words = QUESTION if room >= QUESTION + 18 else 0
    start = content((number, MUTED))
    if words:
        start += content((shown(turn.question, words), MUTED)).truncate(words + 2, pad=True)
    numbers = content(_figures(figures, cells))
    if figures is None or figures.evaluated_tokens is None:
        why_not = "not reported" if figures else "no figures"
        return joined(start + content((why_not, MUTED)), numbers, width)
    return joined(start + bar(*cells_of(figures, scale, room - (words + 2 if words else 0))), numbers, width)


def turn_words(turns: Sequence[TurnReport], index: int) -> list[Content]:
    """A turn in sentences: its wasted tokens with their cause, what helps, and what had been predicted."""
    turn = turns[index]
    again = turn.figures is not None and turn.figures.notable_waste and not turn.figures.first_read
    said = content(("░ ", WASTED), verdict(turn)) if again else content((verdict(turn), MUTED))
    lines = [content((f"{_start(turn_name(turns, index))}: ", STRONG)) + said]
    remedy = why(turn)[1]
    if remedy:
        lines.append(content(("→ ", WASTED), one_line(remedy)))
    if predicted := prediction(turn.figures):
        lines.append(content((f"{_start(predicted)}.", MUTED)))
    if whole := turn_sum(turns, index):
        lines.append(content((f"{_start(whole)}.", MUTED)))
    return lines


def _start(words: str) -> str:
    """With a capital letter."""
    return words[0].upper() + words[1:]


def _figures(figures: TurnFigures | None, cells: Sequence[int]) -> str:
    figures = figures or TurnFigures()
    speeds = (figures.prefill_speed, figures.decode_speed)
    values = (
        *(count_of(figures, number) for number in shown_tokens(figures)),
        _seconds(figures.ttft_ms, cells[3]),
        *map(_per_second, speeds),
    )
    return "".join(value.rjust(wide) for value, wide in zip(values, cells, strict=False))


def _seconds(ms: float | None, cells: int) -> str:
    words = duration(None if ms is None else ms / 1000)
    return words if len(words) < cells or ms is None else f"{ms / 1000:.0f} s"


def _per_second(speed: float | None) -> str:
    return UNKNOWN if speed is None else f"{speed:,.0f}/s"


ROLES = {"user": "you", "assistant": "answer"}
WIDE = 90
"""Cells of a line from which on there are columns for each kind of tokens."""


def headline(report: CacheReport, width: int, now: float) -> list[Content]:
    """Two lines: how warm the conversation is, and what the cache had of its last request."""
    mark = mark_of(report.warmth)
    warm = content((MARK_GLYPHS[mark], MARK_TONES[mark]), f" {warmth_words(report.warmth, now)}")
    estimate = content() if report.exact else content(("~ estimate", MUTED))
    return [joined(warm, estimate, width), _prefix(report, width)]


def _prefix(report: CacheReport, width: int) -> Content:
    """The last request as one bar: what was cached, what was wasted, what was new."""
    figures = report.turns[-1].figures if report.turns else None
    if figures is None or figures.evaluated_tokens is None:
        return content(("the last request has no figures" if report.turns else "no request yet", MUTED))
    (number, label), (fresh, kind), *last = token_parts(figures)
    words = content((number, CACHED), (f" {label} · ", MUTED), (fresh, STRONG), (f" {kind}", MUTED))
    for tokens, label in last:
        words += content((" · ", MUTED), (f"{tokens} {label}", WASTED if figures.notable_waste else MUTED))
    label = LAST if width - words.cell_length - len(LAST) - 4 >= 20 else ""
    room = max(8, width - words.cell_length - len(label) - 4)
    cached, new, wasted = cells_of(figures, figures.prompt_tokens or 0, room)
    whole = content(("▕", MUTED), ("█" * cached, CACHED), ("░" * wasted, WASTED), ("▒" * new, EVALUATED))
    return content((label, MUTED)) + whole.truncate(room + 1, pad=True) + content(("▏ ", MUTED)) + words


def tokens_scale(messages: Sequence[MessageCells]) -> int:
    """The tokens of a bar of full width: the longest prompt; 0 where no turn has figures."""
    return max((message.tokens or 0 for message in messages), default=0)


def messages_head(width: int) -> Content:
    """The heads of the columns."""
    if width >= WIDE:
        heads = [content(("tokens", MUTED)), *glyph_heads((10, 9, 11))]
    else:
        heads = [*glyph_heads([len(word) + 4 for _, word in GLYPH_HEADS]), content(("   tokens", MUTED))]
    return joined(content(("message", MUTED)), content().join(heads), width)


def message_row(report: CacheReport, index: int, scale: int, width: int) -> Content:
    """A message: who, its first words, its bar, its tokens; ≠ where the prompt parts from what the server held."""
    message = report.messages[index]
    parted = divergence(report)
    mark = content(("≠ ", WASTED)) if parted is not None and parted.message == index else content("  ")
    number = f"{index:>{len(str(len(report.messages)))}} "
    start = mark + content((number, MUTED), f"{ROLES.get(message.role, one_line(message.role, 8)):<8}")
    right = content(f"{_tokens(message.tokens, report.exact):>9}")
    if width >= WIDE:
        parts = (message.cached, message.new, message.wasted)
        right += content("".join(count(part).rjust(wide) for part, wide in zip(parts, (10, 9, 11), strict=True)))
    room = max(0, width - start.cell_length - right.cell_length - 2)
    words = room * 2 // 5
    start += content((shown(message.text, words), MUTED)).truncate(words, pad=True) + content("  ")
    room -= words + 2
    if message.cached is None:
        unsent = "the reply" if _is_reply(report, index) else "not known"
        return joined(start + content((unsent, MUTED)), right, width)
    again = message.wasted if message.wasted and message.wasted > NOISE else 0
    read = max(0, (message.tokens or 0) - message.cached - again)
    cached, new, wasted = split_cells((message.cached, read, again), scale, room)
    return joined(start + bar(cached, new, wasted), right, width)


def _is_reply(report: CacheReport, index: int) -> bool:
    """Whether it is the reply to the last request, which no request has sent yet."""
    message = report.messages[index]
    return message.cached is None and index == len(report.messages) - 1 and message.role == "assistant"


def message_words(report: CacheReport, index: int) -> list[Content]:
    """What is worth saying about a message: whether the prompt parts from what the server held here, else where."""
    parted = divergence(report)
    if _is_reply(report, index):
        return [content(("Written by the model.", MUTED))]
    if parted is None:
        figures = report.turns[-1].figures if report.turns else None
        if figures is None or figures.cached_tokens is None:
            return [content((REUSE_UNKNOWN, MUTED))]
        return [
            content(
                ("Everything came from the cache.", MUTED)
                if not figures.notable_waste
                else ("Where the prompt differs is unknown.", MUTED)
            )
        ]
    place = f"in message {parted.message}" if parted.message is not None else "in an unknown message"
    here = "here" if parted.message == index else place
    lines = [
        content(
            ("≠ ", WASTED),
            (f"The prompt differs {here} from the cache, ", ""),
            (f"after {counted(parted.token, 'token')}.", ""),
        )
    ]
    if parted.held or parted.sent:
        lines.append(
            content(
                ("held ", MUTED),
                f"“{one_line(parted.held, 80)}”",
                ("   sent ", MUTED),
                f"“{one_line(parted.sent, 80)}”",
            )
        )
    return lines


def divergence(report: CacheReport) -> Divergence | None:
    """Where the last request parts from what the server held, if it does."""
    finding = report.turns[-1].finding if report.turns else None
    return finding.divergence if finding else None


def _tokens(tokens: int | None, exact: bool) -> str:
    return UNKNOWN if tokens is None else f"{'' if exact else '~'}{tokens:,}"


LABEL = 13
TOTAL_CELLS = (15, 15, 9, 14)
DAY = 7
"""Cells of a day of the week."""
TITLE = 28
"""Cells for the title of a conversation that a slot holds."""


def totals_line(ledger: Ledger, width: int) -> Content:
    """The sums over some turns, under `TOTAL_HEADS`, in `width` cells. Within the noise of a turn nothing is wasted, as
    in the line of the turn."""
    totals, wasted = ledger.totals, ledger.totals.wasted_tokens
    if not totals.turns:
        return content(("  no answers yet", MUTED))
    if totals.are_unknown:
        return content((f"  {answers_words(totals)}, {UNREPORTED}", MUTED))
    values = (count(totals.cached_tokens), count(wasted), percent(totals.reuse), duration(totals.seconds_saved))
    tones = (CACHED, WASTED if wasted else "", STRONG, "")
    line = content(*((value.rjust(cells), tone) for value, cells, tone in zip(values, TOTAL_CELLS, tones, strict=True)))
    unknown = content((f"   {unknown_words(totals)} unknown", MUTED))
    return line + unknown if totals.unknown and line.cell_length + unknown.cell_length <= width else line


def days_lines(days: Sequence[Day]) -> Iterable[Content]:
    """The days of the week, and the reuse of each."""
    names = "".join(f"{short_day(day.date).split()[0]:>{DAY}}" for day in days)
    yield content((f"{'':<{LABEL}}{names}", MUTED))
    reuse = "".join(f"{percent(day.totals.reuse):>{DAY}}" for day in days)
    yield content((f"{'reuse by day':<{LABEL}}", MUTED), reuse)


def facts(report: CacheReport, servers: Servers, width: int, now: float) -> list[Content]:
    """All of it in lines of `width` cells, the most important first."""
    lines: list[Content] = []
    for warning in report.warnings:
        lines += _told("! prompt", warning_sentence(warning), width, WASTED)
    lines += _sums(report, width)
    if report.beginning is not None:
        lines += _told("begins with", beginning_words(report.beginning), width)
    if sent := sent_words(report.plan):
        lines += _told("last request", sent, width)
    lines += _told("prediction", accuracy(report), width)
    lines += _told("prefill", speed_words(report.speed), width)
    lines += _states(report.states, width, now)
    lines += _kept(report.kept, width)
    lines += _told("cache", report.rules or "unknown for this server", width)
    for name, words in _about(servers):
        lines += _told(name, words, width)
    return lines


def _told(name: str, words: str, width: int, tone: str = MUTED) -> list[Content]:
    """A name and what there is to say, on as many lines as it takes."""
    words = one_line(words)
    parts = [words[start:stop] for start, stop in breaks(words, max(20, width - LABEL))]
    return [content((f"{name if not at else '':<{LABEL}}", tone), part) for at, part in enumerate(parts)]


def _sums(report: CacheReport, width: int) -> Iterable[Content]:
    heads = "".join(head.rjust(cells) for head, cells in zip(TOTAL_HEADS, TOTAL_CELLS, strict=True))
    yield content((" " * LABEL + heads, MUTED))
    ledgers: list[tuple[str, Ledger]] = [("conversation", report.here), ("last 7 days", report.week)]
    for name, ledger in ledgers:
        yield content((f"{name:<{LABEL}}", MUTED)) + totals_line(ledger, width - LABEL)
    if report.days:
        yield from days_lines(report.days)
    if report.week.totals.reuse is not None:
        yield from _told("reuse", REUSE, width)
    for name, ledger in ((WASTED_BY, report.here), ("  7 days", report.week)):
        yield from _told(name, misses(ledger), width)
    yield from _told(
        "warm-up", f"{warm_up_words(report.here.warmup)} · 7 days: {warm_up_words(report.week.warmup)}", width
    )
    if report.week.memory.count:
        here, week = side_request_words(report.here.memory), side_request_words(report.week.memory)
        yield from _told("side work", f"{here} · 7 days: {week}", width)


def _states(states: Sequence[HeldState] | None, width: int, now: float) -> Iterable[Content]:
    """A line for each slot, and one for each state in the server's memory."""
    if not states:
        yield from _told("slots", "contents unknown" if states is None else "empty", width)
    for state in states or ():
        words = held_words(state, now, shown(state.owner, TITLE))
        where = one_line(state.where, LABEL - 2) if "slot" in state.where else "host cache"
        yield content((f"{where:<{LABEL}}", MUTED)) + content(words)


def _kept(room: KeptRoom, width: int) -> Iterable[Content]:
    """The states that the user keeps, and the room that they take."""
    if room.states:
        yield from _told("kept", room_words(room), width)
    for state in room.states:
        yield content(
            (" " * LABEL, MUTED),
            (f"{KEPT_MARK} ", CACHED),
            f"{shown(state.title, TITLE)} {kept_words(state)}{' · in the trash' if state.trashed else ''}",
        )


def _about(servers: Servers) -> list[tuple[str, str]]:
    server = servers.info
    if server is None:
        return [("server", "not connected")]
    kind = "built-in engine" if server.embedded else one_line(server.kind, 40)
    address = "" if server.embedded else one_line(server.base_url, 80)
    where = HOSTS.get(server.host_class, one_line(server.host_class, 20))
    build = f" · build {one_line(server.build, 40)}" if server.build and "unknown" not in server.build else ""
    return [
        ("server", " · ".join(filter(None, (kind, where, address)))),
        ("model", (model_name(server.model) or "unknown") + build),
        ("window", f"{_number(server.context_size, 'token')} a conversation · {_number(server.slots, 'slot')}"),
    ]


def _number(number: int | None, noun: str) -> str:
    return counted(number, noun) if number is not None else f"unknown {noun}s"


View = Literal["turns", "messages", "server"]
VIEWS: dict[View, str] = {"turns": "Turns", "messages": "Messages", "server": "Totals and server"}
TALL = 36
"""Rows of the terminal from which on the sums and the server stand below the turns."""
PATIENCE = 0.4
"""Seconds between two looks while the cache changes."""
AGES = 5.0
"""Seconds between updates of the ages shown."""


class InspectorScreen(ListModal[None]):
    """Three views, one at a time where the terminal is low: the turns, the messages, and the sums with the server."""

    DEFAULT_CSS = """
    InspectorScreen {
        & #frame { height: 96%; max-height: 50; }
        & #headline { height: 2; }
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
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("inspector")]

    def __init__(
        self,
        conversation: OpenConversation,
        reports: CacheReports,
        servers: Servers,
        events: EventBus,
        now: Callable[[], datetime],
        *,
        pin: Callable[[], None],
        can_pin: bool = False,
    ) -> None:
        """`pin`: shows or hides the panel next to the conversation. `can_pin`: whether there is room for it."""
        super().__init__(classes="-list -wide")
        self.heading = f"Cache · {one_line(conversation.record.title, 60)}"
        self.hints = (
            ("rows.up rows.down", "move"),
            ("inspector.next_view", "next view"),
            *((("inspector.pin", "pin"),) if can_pin else ()),
            ("dialog.close", "close"),
        )
        self._conversation = conversation
        self._reports, self._servers, self._events, self._now = reports, servers, events, now
        self._pin = pin
        self._report: CacheReport | None = None
        self._trouble = ""
        self._view: View = "turns"
        self._facts: list[Content] = []
        self._soon: Timer | None = None

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
        self.hear(self._events, self._heard)
        self.set_class(self.size.height >= TALL, "-tall")
        self.set_interval(AGES, self._fill)
        self._load()

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
            report = await self._reports.report(self._conversation.id)
        except ChatError as error:
            self._trouble = clean(str(error))
        else:
            self._trouble = ""
            self._take(report)
        self._fill()

    def _take(self, report: CacheReport) -> None:
        """Show this report; the cursor stays, or follows the newest turn if it was there."""
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
        rows.empty = "No request yet." if self._view == "turns" else "Tokens per message: not known yet."
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
        now = self._now().timestamp()
        self._put("headline", headline(report, width, now), width)
        names = content().join(
            [
                content(("   " if at else ""), (name, MATCH if view == self._view else MUTED))
                for at, (view, name) in enumerate(VIEWS.items())
            ]
        )
        self._put("views", [names], width)
        self._put("head", [turns_head(width) if self._view == "turns" else messages_head(width)], width)
        self._facts = facts(report, self._servers, width, now)
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
            lines = turn_words(report.turns, at) if self._view == "turns" else message_words(report, at)
        self.query_one("#detail", Static).update(Content("\n").join(lines))

    def _draw(self, index: int, width: int) -> Content:
        report = self._report
        if report is None or index >= self._count():
            return content()
        if self._view == "turns":
            return turn_row(report.turns, index, scale_of(report.turns), width)
        return message_row(report, index, tokens_scale(report.messages), width)

    def action_pin(self) -> None:
        self._pin()

    def action_view(self, step: int) -> None:
        """Go to the next view; in the messages the cursor begins where the prompts part."""
        views = list(VIEWS)
        self._view = views[(views.index(self._view) + step) % len(views)]
        self.set_class(self._view == "server", "-server")
        if self._report is not None and self._view != "server":
            parted = divergence(self._report) if self._view == "messages" else None
            self._list(parted.message if parted else None)
        self.call_after_refresh(self._fill)

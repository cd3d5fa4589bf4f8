"""The sidebar: the list of conversations, grouped by age, with what each would cost to open.

It is one widget, whatever the number of rows. Only the lines on the screen are drawn and asked for their warmth, and
new rows move neither the cursor nor the view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer

from kvchat.commands.actions import BY_ID
from kvchat.reports.warmth import UNKNOWN, Warmth
from kvchat.sanitize import one_line
from kvchat.text.format import KEPT_MARK
from kvchat.text.messages import queued_words
from kvchat.ui.bindings import binding, bindings
from kvchat.ui.runs import Run, Runs, fit
from kvchat.ui.tones import ThemeStyles
from kvchat.ui.widgets.jump import Letter, Target, with_letters
from kvchat.ui.widgets.sidebar_rows import (
    FRAMES,
    GLYPHS,
    Line,
    Mark,
    SidebarRow,
    described,
    lines_of,
    mark_of,
    until_midnight,
)

_MARK_TONES: dict[Mark, str] = {
    "warm": "cached",
    "parked": "cached",
    "cold": "quiet",
    "unknown": "unknown",
    "streaming": "accent",
}


class Sidebar(ScrollView, can_focus=True):
    """The conversations, newest first."""

    DEFAULT_CSS = """
    Sidebar {
        width: 24%; min-width: 24; max-width: 36; height: 1fr; background: transparent; color: $foreground;
        overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
    }
    """
    ALLOW_SELECT = False
    FOCUS_ON_CLICK = False
    """Letters act where the user went by a key; who clicks may be writing."""
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("rows.up", "step(-1)"),
        binding("rows.down", "step(1)"),
        binding("rows.page_up", "page(-1)"),
        binding("rows.page_down", "page(1)"),
        binding("rows.first", "edge(-1)"),
        binding("rows.last", "edge(1)"),
        *bindings("sidebar"),
    ]
    FRAME_SECONDS = 0.25

    class Opened(Message):
        """A conversation was chosen with Enter, a click or a jump letter."""

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        warmth: Callable[[str], Warmth] = lambda _: UNKNOWN,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """`warmth` tells what the server holds of the conversation with this id."""
        super().__init__(id=id, classes=classes)
        self._ask_warmth = warmth
        self._warmth: dict[str, Warmth] = {}
        """What was shown of the conversations on the screen."""
        self._styles = ThemeStyles(self)
        self.rows: Sequence[SidebarRow] = ()
        self._is_known = False
        """Whether it has received its rows; before that nothing is shown."""
        self._clock = clock
        self._lines: list[Line] = []
        self._line_of: dict[str, int] = {}
        self._cursor: int = 0
        """Index of a row."""
        self._open: str | None = None
        self._hover: int | None = None
        self._letters: dict[str, Letter] = {}
        """Jump letters by conversation."""
        self._frame = 0
        self._spinner: Timer | None = None
        self._midnight: Timer | None = None

    # What the app sets and reads.

    @property
    def cursor_id(self) -> str | None:
        """The conversation under the cursor."""
        return self.rows[self._cursor].id if self.rows else None

    @property
    def open_id(self) -> str | None:
        return self._open

    def set_rows(self, rows: Sequence[SidebarRow]) -> None:
        """Show these, favourites first, then the newest. The cursor stays on its conversation, and so does the first
        line of a view that was scrolled down."""
        if not self._is_known:
            self._is_known = True
            self.refresh()
        if tuple(rows) == tuple(self.rows):
            self.refresh_marks()
            return
        places = [[(row.id, row.updated, row.favourite) for row in those] for those in (rows, self.rows)]
        if places[0] == places[1]:
            self._redraw(rows)
            return
        cursor_id, top = self.cursor_id, round(self.scroll_y)
        below = self._lines[top:] if top else []
        anchor = next((self.rows[line].id for line in below if isinstance(line, int)), None)
        shift = top - self._line_of[anchor] if anchor else 0
        self.rows = rows
        self._warmth.clear()
        self._regroup()
        index = next((i for i, row in enumerate(rows) if row.id == cursor_id), None)
        self._cursor = min(self._cursor, max(0, len(rows) - 1)) if index is None else index
        if anchor in self._line_of:
            self.scroll_to(y=self._line_of[anchor] + shift, animate=False, immediate=True)
        self._spin()

    def _redraw(self, rows: Sequence[SidebarRow]) -> None:
        """Take the same list with other titles or states, and redraw only the lines that changed."""
        before, self.rows = self.rows, rows
        for old, new in zip(before, rows, strict=True):
            if old != new:
                self.refresh_line(self._line_of[new.id])
        self.refresh_marks()
        self._spin()

    def refresh_marks(self) -> None:
        """Look how warm the conversations on the screen are now, and redraw only the lines that changed."""
        before, self._warmth = self._warmth, {}
        top = self.scroll_offset.y
        for at, line in enumerate(self._lines[top : top + self.size.height], top):
            if isinstance(line, int):
                id = self.rows[line].id
                if id in before and self._warmth_of(id) != before[id]:
                    self.refresh_line(at)
        self._explain()

    def _warmth_of(self, id: str) -> Warmth:
        if id not in self._warmth:
            self._warmth[id] = self._ask_warmth(id)
        return self._warmth[id]

    def set_open(self, id: str | None) -> None:
        """Highlight the open conversation and put the cursor there; it is scrolled into view."""
        self._open = id
        if id in self._line_of:
            line = self._lines[self._line_of[id]]
            assert isinstance(line, int)
            self._go(line)
        self.refresh()

    def on_show(self) -> None:
        """A list that was hidden, or had no size yet, comes up with its cursor in view."""
        self._go(self._cursor)

    def regroup(self) -> None:
        """Sort the rows into their groups again, as at midnight."""
        self._regroup()

    def _regroup(self) -> None:
        now = self._clock()
        self._lines = lines_of(self.rows, now)
        self._line_of = {self.rows[line].id: at for at, line in enumerate(self._lines) if isinstance(line, int)}
        self.virtual_size = Size(0, max(1, len(self._lines)))
        if self._midnight is not None:
            self._midnight.stop()
        if self.is_attached:
            self._midnight = self.set_timer(until_midnight(now) + 1, self.regroup)
        self.refresh()

    # Drawing.

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at = y + self.scroll_offset.y
        if not self.rows and at == 0 and self._is_known:
            return self._strip([Run(" No conversations yet", "quiet")], width)
        if at >= len(self._lines):
            return self._strip([], width)
        line = self._lines[at]
        if isinstance(line, str):
            return self._strip([Run(" " + fit(line, width - 2), "quiet")], width)
        return self._row(line, width)

    def _row(self, index: int, width: int) -> Strip:
        row = self.rows[index]
        warmth = self._warmth_of(row.id)
        mark = mark_of(warmth, row.streaming)
        glyph = FRAMES[self._frame % len(FRAMES)] if row.streaming else GLYPHS[mark]
        kept, tail = f" {KEPT_MARK}" if row.kept else "", " •" if row.unread else ""
        queued = queued_words(row.held) if row.held else ""
        room = width - 4 - len(kept) - len(tail) - (cell_len(queued) + 1 if queued else 0)
        title = fit(one_line(row.title, 4 * max(width, 1)), room)
        gap = " " * (room - cell_len(title) + (1 if queued else 0))
        over = self._overlay(index)
        strip = self._strip(
            [
                Run(" "),
                Run(glyph, _MARK_TONES[mark]),
                Run(" "),
                Run(title, "bright" if row.unread else "plain"),
                Run(kept, "quiet"),
                Run(tail, "dot"),
                Run(gap),
                Run(queued, "warning"),
            ],
            width,
            over,
        )
        letters = [letter] if (letter := self._letters.get(row.id)) is not None else []
        return with_letters(strip, letters, self._styles.style("jump").rich_style)

    def _overlay(self, index: int) -> str:
        """The style name of a row's background: cursor before open before hover."""
        if index == self._cursor and self.has_focus:
            return "cursor"
        if self.rows[index].id == self._open:
            return "shown"
        return "hover" if index == self._hover else ""

    def _strip(self, runs: Runs, width: int, over: str = "") -> Strip:
        """A line of `width` cells; all of its runs have the background of `over`."""
        base = self._styles.style(*over.split())
        content = self._styles.content([Run(run.text, f"{run.tone} {over}") for run in runs])
        return Strip(content.render_segments(base), content.cell_length).adjust_cell_length(width, base.rich_style)

    def _spin(self) -> None:
        """Run the spinner exactly while something streams."""
        streams = any(row.streaming for row in self.rows)
        if streams and self._spinner is None and self.is_attached and self.app.animation_level != "none":
            self._spinner = self.set_interval(self.FRAME_SECONDS, self._next_frame)
        elif not streams and self._spinner is not None:
            self._spinner.stop()
            self._spinner = None
            self._frame = 0

    def _next_frame(self) -> None:
        self._frame += 1
        top = self.scroll_offset.y
        for y, line in enumerate(self._lines[top : top + self.size.height]):
            if isinstance(line, int) and self.rows[line].streaming:
                self.refresh_line(top + y)

    # Jump letters.

    def jump_targets(self) -> list[Target]:
        """The conversations on the screen."""
        top = self.scroll_offset.y
        shown = self._lines[top : top + self.size.height] if self.display else []
        return [
            Target(id, 0, partial(self.post_message, self.Opened(id)))
            for id in (self.rows[line].id for line in shown if isinstance(line, int))
        ]

    def show_letters(self, letters: Sequence[Letter]) -> None:
        self._letters = {letter.target.place: letter for letter in letters if isinstance(letter.target.place, str)}
        self.refresh()

    # Keys and mouse.

    def _go(self, index: int) -> None:
        """Put the cursor on a row and scroll as little as shows it; the first row shows its group too."""
        if self.rows:
            self._cursor = max(0, min(index, len(self.rows) - 1))
            at = self._line_of[self.rows[self._cursor].id]
            top = at - 1 if at and isinstance(self._lines[at - 1], str) else at
            self.scroll_to_region(Region(0, top, 1, at - top + 1), animate=False, force=True, immediate=True)
            self.refresh()

    def action_step(self, step: int) -> None:
        self._go(self._cursor + step)

    def action_page(self, step: int) -> None:
        self._go(self._cursor + step * max(1, self.size.height - 1))

    def action_edge(self, side: int) -> None:
        self._go(0 if side < 0 else len(self.rows) - 1)

    def action_open(self) -> None:
        if (id := self.cursor_id) is not None:
            self.post_message(self.Opened(id))

    def _row_at(self, event: events.MouseEvent) -> int | None:
        at = event.y + self.scroll_offset.y
        line = self._lines[at] if 0 <= at < len(self._lines) else None
        return line if isinstance(line, int) else None

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        if (index := self._row_at(event)) is not None:
            self._go(index)
            if event.button == 3:
                await self.run_action(BY_ID["sidebar.menu"].action)
            else:
                self.action_open()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(self._row_at(event))

    def on_leave(self) -> None:
        self._point(None)

    def _point(self, index: int | None) -> None:
        if index != self._hover:
            self._hover = index
            self._explain()
            self.refresh()

    def _explain(self) -> None:
        """The tooltip of the row under the mouse."""
        row = self.rows[self._hover] if self._hover is not None and self._hover < len(self.rows) else None
        if row is None:
            self.tooltip = None
            return
        words = described(row, self._warmth_of(row.id), self._clock())
        self.tooltip = Content(f"{one_line(row.title, 200)}\n{words}")

    def on_mount(self) -> None:
        if self.rows:
            self._regroup()
            self._spin()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

"""The transcript of a conversation: what the app gives it to show, and how a streaming answer is drawn.

It shows the items it is given and posts what the user wants; it decides nothing. Drawing what streams in takes a
bounded share of a core, however fast the text comes and however dear it is to draw.
"""

from __future__ import annotations

import sys
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, thread_time

from msgspec.structs import replace

from kvchat.commands.keymap import KeyOf, default_key
from kvchat.prompt.images import Thumbnail, sha256_of
from kvchat.ui.render.message import Folds, TranscriptItem
from kvchat.ui.render.rows import Span
from kvchat.ui.widgets.transcript.entry import Entry
from kvchat.ui.widgets.transcript.find import Match, marks, matches
from kvchat.ui.widgets.transcript.keys import TranscriptKeys

FRAME = 1 / 15
"""Seconds between two flushes at least."""
PAINT = 0.5
"""Seconds for which the next flush waits for this one to be painted: what is to follow a paint is dropped with a dialog
that is closed meanwhile."""
REST = 3
"""After a flush, this many times the CPU it took is left to others."""
ECHO = 1 / 30
"""Seconds after a key in which nothing is drawn but what the key did."""
HELD = 0.25
"""Seconds for which keys that keep coming hold text up at most."""


class Pace:
    """Tells when the next flush is due. Times are monotonic seconds, costs CPU seconds."""

    def __init__(self) -> None:
        self._due = 0.0
        self._echoed = 0.0
        """When the last key is surely on the screen."""

    def flushed(self, now: float) -> None:
        """A flush is drawn and will be painted."""
        self._due = now + PAINT

    def painted(self, now: float, cost: float) -> None:
        """A flush that took `cost` is on the screen."""
        self._due = now + max(FRAME, REST * cost)

    def typed(self, now: float) -> None:
        """A key has come."""
        self._echoed = now + ECHO

    def delay(self, now: float) -> float:
        """Seconds until text may be drawn again; 0: at once."""
        return max(0.0, max(self._due, min(self._echoed, self._due + HELD)) - now)


__all__ = ["Transcript", "TranscriptItem"]


def _kept(entry: Entry | None, item: TranscriptItem) -> Entry | None:
    """The entry a message has already, brought up to date."""
    if entry is not None and entry.item != item:
        entry.set_item(item)
    return entry


class Transcript(TranscriptKeys, can_focus=True):
    """The messages of the branch in use."""

    def __init__(
        self,
        *,
        unfold_reasoning: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._unfold_reasoning = unfold_reasoning
        self._key: KeyOf = default_key
        self._pending: tuple[str, str, str, str] | None = None
        self._pace = Pace()
        self._flush_timer: TimerHandle | None = None
        self._live: Callable[[int], Sequence[Span]] | None = None
        self._live_node: str | None = None
        """The message that has the live row."""
        self._matches: list[Match] = []
        self._match = -1
        self._pictures: dict[str, Thumbnail] = {}
        """The images that can be shown, by their names."""

    # -- items

    @property
    def items(self) -> list[TranscriptItem]:
        """What is shown."""
        return [entry.item for entry in self._column.entries]

    def set_items(self, items: Sequence[TranscriptItem]) -> None:
        """Show these messages. Messages shown before keep their folds and what was drawn; if none of them was
        shown before, it is another conversation and its end is shown."""
        self._flush()
        entries = self._column.entries
        known = {entry.item.node_id: entry for entry in entries}
        anchor = self._anchor()
        top = (entries[anchor[0]].item.node_id, anchor[1]) if anchor else None
        fresh = [_kept(known.get(item.node_id), item) or self._entry(item) for item in items]
        if not any(item.node_id in known for item in items):
            self.following = True
        self._column.set(fresh)
        if self._column.find(self._from) is None:
            self._from = None
        if self._column.find(self._selected) is None and self._selected is not None:
            self._selected = None
            self.post_message(self.Selected(None))
        self._mark_selected(fresh)
        self._place_live()
        index = self._column.find(top[0]) if top else None
        self._arrange((index, top[1]) if index is not None and top else None)
        self._search_again()

    def append(self, item: TranscriptItem) -> None:
        """Show one more message at the end."""
        anchor = self._anchor()
        self._column.append(self._entry(item))
        self._place_live()
        self._unseen = self._unseen or not self.following
        self._arrange(anchor)

    def _entry(self, item: TranscriptItem) -> Entry:
        folds = Folds(reasoning=self._unfold_reasoning)
        return Entry(item, folds, self.text_width, self._pictures, self.has_focus, self._key)

    def name_keys(self, key: KeyOf) -> None:
        """Name these keys in the messages."""
        self._key = key
        for index, entry in enumerate(self._column.entries):
            height = entry.height
            self._changed(index, entry.name_keys(key), height)

    def add_pictures(self, pictures: Mapping[str, Thumbnail]) -> None:
        """Show these images, by their names, in the messages that have them."""
        self._pictures.update(pictures)
        for index, entry in enumerate(self._column.entries):
            if any(sha256_of(block) in pictures for block in entry.item.blocks):
                height = entry.height
                self._changed(index, entry.pictures_came(), height)

    def update_item(self, node_id: str, item: TranscriptItem) -> None:
        """Show another state of a message."""
        index = self._column.find(node_id)
        if index is None:
            return
        entry = self._column.entries[index]
        if entry.item != item:
            height = entry.height
            self._changed(index, entry.set_item(item), height)

    def unfold_reasoning(self, unfolded: bool) -> None:
        """Show all reasoning folded or unfolded, from now on too."""
        self._unfold_reasoning = unfolded
        anchor = self._anchor()
        for entry in self._column.entries:
            entry.set_folds(replace(entry.folds, reasoning=unfolded))
        self._column.changed(0)
        self._arrange(anchor)

    # -- streaming

    def stream_text(self, node_id: str, text: str, reasoning: str = "", call: str = "") -> None:
        """What there is of a streaming message so far; drawn when its time has come."""
        if self._pending is not None and self._pending[0] != node_id:
            self._flush()
        self._pending = (node_id, text, reasoning, call)
        self._schedule()

    def _schedule(self) -> None:
        """Draw what came, now or when its time has come. Called whenever that may have changed.

        The time is the loop's: Textual's own timer never rings where its time is over before it looks at the clock.
        """
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._pending is None:
            return
        delay = self._pace.delay(monotonic())
        if delay > 0 and self.is_attached:
            self._flush_timer = get_running_loop().call_later(delay, self.call_next, self._schedule)
        else:
            self._flush()

    def make_way(self) -> None:
        """A key has come: its echo goes before what streams in."""
        self._pace.typed(monotonic())

    def _flush(self) -> None:
        """Draw what came; the next flush waits until this one is painted, and then according to its cost."""
        if self._pending is None:
            return
        (node_id, *came), self._pending = self._pending, None
        index = self._column.find(node_id)
        if index is None:
            return
        began = thread_time()
        entry = self._column.entries[index]
        height = entry.height
        self._changed(index, entry.stream(*came), height)
        self._pace.flushed(monotonic())
        self.call_after_refresh(self._painted, began)

    def _painted(self, began: float) -> None:
        self._pace.painted(monotonic(), thread_time() - began)
        self._schedule()

    def set_live(self, live: Callable[[int], Sequence[Span]] | Sequence[Span] | str | None) -> None:
        """The row below the last message: how far the prompt is read, or what is waited for. A function draws it
        for a width in cells; None removes it."""
        if live is None or callable(live):
            self._live = live
        else:
            spans = [Span(live, "muted")] if isinstance(live, str) else list(live)
            self._live = lambda _width: spans
        self._place_live()

    def _place_live(self) -> None:
        """Give the live row to the last message only."""
        entries = self._column.entries
        last = entries[-1].item.node_id if entries and self._live else None
        for node_id, live in ((self._live_node, None), (last, self._live)):
            index = self._column.find(node_id)
            if index is not None and (live is not None or node_id != last):
                entry = entries[index]
                height = entry.height
                self._changed(index, entry.set_live(live), height)
        self._live_node = last

    def end_stream(self, item: TranscriptItem) -> None:
        """A streaming message is settled: draw its final form."""
        self._pending = None
        self._live = None
        self._place_live()
        self.update_item(item.node_id, item)

    # -- finding

    def find(self, query: str) -> int:
        """Look for `query` in the conversation and show the match nearest above the end of the view; an empty
        query ends it. Returns the number of matches."""
        self._query = query if query.strip() else ""
        self._current = None
        for entry in self._column.entries:
            entry.marks = None
        self._matches = matches(self.items, self._query)
        self._match = -1
        self.refresh()
        if self._matches:
            self._go_to_match(self._nearest())
        return len(self._matches)

    def find_next(self, step: int = 1) -> int:
        """Go to the next (1) or previous (-1) match, around the end. Returns its number from 1; 0: none."""
        if not self._matches:
            return 0
        self._go_to_match((self._match + step) % len(self._matches))
        if self.has_focus:
            self.select_match()
        return self._match + 1

    def select_match(self) -> None:
        """Mark the message of the match that is shown."""
        if self._current is not None:
            self.select(self._current[0], show=False)

    def _nearest(self) -> int:
        """The last match that starts in or above the view."""
        place = self._column.locate(min(self._column.height - 1, round(self.scroll_y) + self._view_height - 1))
        last = place[0] if place else 0
        above = [n for n, match in enumerate(self._matches) if (self._column.find(match.node) or 0) <= last]
        return above[-1] if above else 0

    def _go_to_match(self, number: int) -> None:
        self._match = number
        match = self._matches[number]
        index = self._column.find(match.node)
        if index is None:
            return
        entry = self._column.entries[index]
        entry.lay_out(0, 0, sys.maxsize)
        self._column.changed(index)
        self._column.draw_around(index, 0, self._view_height, 2 * self._view_height)
        found = marks(entry.rows(), entry.body_start, self._query)
        row, start, _ = found[min(match.ordinal, len(found) - 1)] if found else (0, 0, 0)
        self._current = (match.node, row, start)
        top = self._column.top(index) + row
        y = round(self.scroll_y)
        if not y + 1 <= top < y + self._view_height - 2:
            self._scroll_to_row(top - self._view_height // 3)
        self.refresh()

    def _search_again(self) -> None:
        """The messages have changed while something is looked for."""
        if self._query:
            self._matches = matches(self.items, self._query)
            self._match = min(self._match, len(self._matches) - 1)

"""Compacting on the screen: a calm offer when the window fills up, the price before, the summary while it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual import work

from kvchat.chat.answering import previous_figures
from kvchat.chat.compaction import CompactionPrice
from kvchat.chat.errors import ChatError
from kvchat.chat.live import LiveAnswer
from kvchat.numbers import count, counted, duration, percent
from kvchat.ui.chat.base import ChatBase
from kvchat.ui.chat.live_row import live_row
from kvchat.ui.render.rows import Span
from kvchat.ui.widgets.statusline import live_of


class CompactingActs(ChatBase):
    """What the main screen does about a window that fills up."""

    _offered: str = ""
    """The conversation in which compacting was offered last in a notice."""

    @work(group="dialog")
    async def action_compact(self) -> None:
        from kvchat.ui.screens.confirm import ConfirmScreen

        id = self.conversation.id
        try:
            price = self.service.compaction_price(id)
        except ChatError as error:
            self.say(str(error))
            return
        agreed = await self.ask(ConfirmScreen(
            "Compact this conversation?", price_lines(price, self.app.key_of("undo")),
            [("y", "Compact", True), ("n", "Cancel", False)]))
        if (agreed and await self.may_leave_this_machine() and await self.attempt(self.service.compact(id))
                and self.current is not None and self.current.id == id):
            self.transcript.follow()

    def compaction_offer(self) -> str:
        """A few words for the status line while the window of the open conversation is nearly full."""
        if self.current is None or not self.service.compaction_due(self.current):
            return ""
        return f"{percent(self.service.window_share(self.current))} full: /compact"

    def offer_compaction(self) -> None:
        """After an answer: say once that compacting would make room."""
        conversation = self.conversation
        if not self.service.compaction_due(conversation):
            if self._offered == conversation.id:
                self._offered = ""
        elif self._offered != conversation.id:
            self._offered = conversation.id
            full = percent(self.service.window_share(conversation))
            self.say(f"The window is {full} full. /compact goes on with a summary of the older turns; "
                     "the branch you leave stays.")

    def show_compacting(self) -> None:
        """The summary that is being written for the open conversation, if one is."""
        running, conversation = self.service.compacting, self.current
        if running is None or conversation is None or running.conversation != conversation.id:
            return
        live, now = running.live, time.monotonic()
        self.status.set_live(live_of(live, now))
        if live.first_token_at is not None:
            self.transcript.set_live(summary_row(live))
        else:
            speed = self.service.prefill_speed(conversation.id)
            self.transcript.set_live(live_row(live, now, speed, previous_figures(conversation.path())))


def summary_row(live: LiveAnswer) -> Callable[[int], Sequence[Span]]:
    """The row below the conversation while the summary comes."""
    words = len(live.text.split())
    what = f"summary: {counted(words, 'word')}" if words else "thinking about the summary"
    return lambda _width: [Span("◌ ", "accent"), Span(what, "muted"), Span(" · Esc stops it, nothing changes", "muted")]


def price_lines(price: CompactionPrice, undo: str) -> list[str]:
    """What a compaction does and costs, in sentences."""
    plan = price.plan
    replaced = plan.turns - plan.keep
    turns = f"{count(replaced)} older turns" if replaced > 1 else "the first turn"
    kept = f"the last {count(plan.keep)} stay as they are" if plan.keep > 1 else "the last one stays as it is"
    lines = [f"A summary replaces {turns}; {kept}.",
             f"{count(plan.before)} → at most {counted(plan.after, 'token')}"
             + (f", in a window of {count(price.window)}." if price.window else ".")]
    if price.summary_seconds is None:
        lines.append("How long the summary takes is not measured yet.")
    else:
        read = f"; the new branch is read once, {duration(price.read_seconds)}" if price.read_seconds else ""
        lines.append(f"The summary takes at most {duration(price.summary_seconds)}{read}.")
    return [*lines, f"The branch you leave stays; {undo} goes back to it."]

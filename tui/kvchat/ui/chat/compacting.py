"""Compacting on the screen: a calm offer when the window fills up, the price before, the summary while it comes.

The rule: a summary that is being written stands below the conversation as a message of its own, until it is in place
or given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual import work

from kvchat.chat.errors import ChatError
from kvchat.numbers import count, counted, duration, percent
from kvchat.prompt.message import Role, State
from kvchat.ui.chat.base import ChatBase
from kvchat.ui.chat.live_row import live_row
from kvchat.ui.items import items_of
from kvchat.ui.render.message import TranscriptItem
from kvchat.ui.render.rows import Span
from kvchat.ui.widgets.statusline import live_of

if TYPE_CHECKING:
    from kvchat.chat.compactor import CompactionPrice, RunningCompaction
    from kvchat.chat.live import LiveAnswer

STOPS = "Esc stops · nothing changes"


class CompactingActs(ChatBase):
    """What the main screen does about a window that fills up."""

    _offered: str = ""
    """The conversation in which compacting was offered last in a notice."""

    @work(group="dialog")
    async def action_compact(self) -> None:
        from kvchat.ui.screens.confirm import ConfirmScreen

        id = self.conversation.id
        try:
            price = self.service.compactor.price(id)
        except ChatError as error:
            self.say(str(error))
            return
        agreed = await self.ask(ConfirmScreen(
            "Compact this conversation?", price_lines(price, self.app.key_of("undo")),
            [("y", "Compact", True), ("n", "Cancel", False)]))
        if agreed and await self.may_leave_this_machine():
            self.transcript.follow()
            if (await self.attempt(self.service.compactor.compact(id))
                    and self.current is not None and self.current.id == id):
                self.transcript.follow()

    def compaction_offer(self) -> str:
        """A few words for the status line while the window of the open conversation is nearly full."""
        if self.current is None or not self.service.compactor.due(self.current):
            return ""
        return f"{percent(self.service.servers.window_share(self.current))} full: /compact"

    def offer_compaction(self) -> None:
        """After an answer: say once that compacting would make room."""
        conversation = self.conversation
        if not self.service.compactor.due(conversation):
            if self._offered == conversation.id:
                self._offered = ""
        elif self._offered != conversation.id:
            self._offered = conversation.id
            full = percent(self.service.servers.window_share(conversation))
            self.say(f"The window is {full} full. /compact goes on with a summary of the older turns; "
                     "the branch you leave stays.")

    def summary(self) -> RunningCompaction | None:
        """The compaction of the branch that is looked at, while its summary is written."""
        running, conversation = self.service.compactor.running, self.current
        if running is None or conversation is None:
            return None
        here = (running.conversation, running.head) == (conversation.id, conversation.record.head)
        return running if here else None

    def items(self) -> list[TranscriptItem]:
        """The branch that is looked at, and below it the summary that is being written of it."""
        items = items_of(self.conversation, self.model(), self.now())
        running = self.summary()
        return items if running is None else [*items, summary_item(running)]

    def show_compacting(self) -> None:
        """The summary that is being written for the open conversation, if one is."""
        running, now = self.summary(), time.monotonic()
        if running is None:
            return
        live = running.live
        self.status.set_live(live_of(live, now, "compacting"))
        if live.text or live.reasoning:
            self.transcript.stream_text(live.node, live.text, live.reasoning)
        if live.first_token_at is not None:
            self.transcript.set_live(summary_row(live))
        else:
            from kvchat.chat.answering import previous_figures

            speed = self.service.tracker.prefill_speed(running.conversation)
            self.transcript.set_live(live_row(live, now, speed, previous_figures(self.conversation.path())))


def summary_item(running: RunningCompaction) -> TranscriptItem:
    """The summary as a message below the conversation."""
    live, turns = running.live, running.replaced
    return TranscriptItem(
        live.node, Role.ASSISTANT, f"Summary of {counted(turns, 'older turn')}", text=live.text,
        reasoning=live.reasoning, state=State.STREAMING, figures=STOPS, streaming=True)


def summary_row(live: LiveAnswer) -> Callable[[int], Sequence[Span]]:
    """The row below the summary while it comes."""
    words = len(live.text.split())
    what = f"summary: {counted(words, 'word')}" if words else "thinking about the summary"
    return lambda _width: [Span("◌ ", "accent"), Span(what, "muted")]


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

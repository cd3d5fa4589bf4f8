"""Compacting on the screen: a calm offer when the window fills up, the price before, the summary while it comes.

A summary that is being written is shown below the conversation as a message of its own, until it is in place or given
up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvchat.prompt.message import Role, State
from kvchat.text.format import counted, percent
from kvchat.text.prices import summary_offer, summary_ready
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.runs import Run
from kvchat.ui.view_models import BranchItems, live_row
from kvchat.ui.widgets.statusline import live_of
from kvchat.ui.widgets.transcript import TranscriptItem

if TYPE_CHECKING:
    from kvchat.chat.compactor import RunningCompaction
    from kvchat.chat.conversations.live import LiveAnswer


class CompactionController:
    """Offers to compact the open conversation, and shows a summary while it is written."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._servers = service.servers
        self._speeds = service.speeds
        self._transcript = screen.transcript
        self._status = screen.status
        self._offered = ""
        """The conversation in which compacting was offered last in a notice."""

    @in_worker("dialog")
    async def compact(self) -> None:
        """For a message that was too long."""
        await self.workspace.attempt(self.workspace.acts.messages.compact())

    def offer_words(self) -> str:
        """A few words for the status line while the window of the open conversation is nearly full."""
        current = self.workspace.current
        if current is None or not self._servers.is_nearly_full(current):
            return ""
        if self._service.compactor.ready_summary(current) is not None:
            return f"summary ready: {self._key}"
        return f"{percent(self._servers.window_share(current))} full: /compact"

    @property
    def _key(self) -> str:
        return self.workspace.key_of("compact") or "/compact"

    def offer(self) -> None:
        """After an answer: say once that compacting would make room, or that its summary can be written at rest."""
        conversation = self.workspace.conversation
        full = percent(self._servers.window_share(conversation))
        if self._service.compactor.offers_rest(conversation):
            self.workspace.say(summary_offer(full, "/settings summary_at_rest"))
        if not self._servers.is_nearly_full(conversation):
            if self._offered == conversation.id:
                self._offered = ""
        elif self._offered != conversation.id:
            self._offered = conversation.id
            self.workspace.say(f"Window {full} full · /compact sums up the older turns")

    def announce(self) -> None:
        """Say that a summary is prepared for the open conversation, and what putting it in place costs."""
        price = self._service.compactor.price(self.workspace.conversation.id)
        self.workspace.say(summary_ready(self._key, price.plan.after, price.read_seconds))

    def _summary(self) -> RunningCompaction | None:
        """The compaction of the branch that is looked at, while its summary is written."""
        running, conversation = self._service.compacting, self.workspace.current
        if running is None or conversation is None:
            return None
        here = (running.conversation, running.head) == (conversation.id, conversation.record.head)
        return running if here else None

    def items(self) -> BranchItems:
        """The branch that is looked at, and below it the summary that is being written of it."""
        workspace, running = self.workspace, self._summary()
        summary = summary_item(running, workspace.key_of("stop")) if running is not None else None
        return BranchItems(
            workspace.conversation, workspace.model(), workspace.now(), workspace.continues, below=summary
        )

    def show(self) -> None:
        """The summary that is being written for the open conversation, if one is."""
        running, now = self._summary(), time.monotonic()
        if running is None:
            return
        live = running.live
        self._status.set_live(live_of(live, now, "compacting"))
        if live.text or live.reasoning:
            self._transcript.stream_text(live.node, live.text, live.reasoning)
        if live.first_token_at is not None:
            self._transcript.set_live(summary_row(live))
        else:
            speed = self._speeds.tokens_per_second(running.conversation)
            self._transcript.set_live(live_row(live, now, speed))


def summary_item(running: RunningCompaction, stop: str) -> TranscriptItem:
    """The summary as a message below the conversation. `stop`: the key that does."""
    live, turns = running.live, running.replaced
    return TranscriptItem(
        live.node,
        Role.ASSISTANT,
        f"Summary of {counted(turns, 'older turn')}",
        text=live.text,
        reasoning=live.reasoning,
        state=State.STREAMING,
        time=f"{stop} stops · nothing changes",
        streaming=True,
    )


def summary_row(live: LiveAnswer) -> Callable[[int], Sequence[Run]]:
    """The row below the summary while it comes."""
    words = len(live.text.split())
    what = f"summary: {counted(words, 'word')}" if words else "thinking about the summary"
    return lambda _width: [Run("◌ ", "accent"), Run(what, "muted")]

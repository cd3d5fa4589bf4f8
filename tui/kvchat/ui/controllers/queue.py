"""The queue on the screen: the lines over the composer, the list, and what takes a message out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.commands.keys import shown
from kvchat.text.messages import held_words
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.chat.turns.queue import Queued
    from kvchat.ui.controllers.drafts import DraftController
    from kvchat.ui.controllers.sending import SendingController

GONE = "This message is no longer in the queue."


class QueueController:
    """Shows what waits in the open conversation, and acts on it."""

    def __init__(self, workspace: Workspace, drafts: DraftController, sending: SendingController) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._queue = service.queue
        self._drafts = drafts
        self._sending = sending
        self._composer = screen.composer
        self._lines = screen.queue_lines

    def show(self) -> None:
        """The queue of the open conversation as it is now."""
        id = self.workspace.open_id
        items = self._queue.of(id) if id else ()
        self._lines.show([item.question.text for item in items], self._held())
        self._composer.has_queue = bool(items)

    def _held(self) -> str:
        """What holds the queue, in a clause; empty: nothing does."""
        kind = self._queue.held(self.workspace.open_id)
        enter, newline = map(shown, self.workspace.host.keys.send_keys)
        return held_words(kind, enter if self._composer.enter_sends else newline) if kind is not None else ""

    async def send_next(self) -> None:
        """Have a held queue go on with its first message."""
        items = self._queue.of(self.workspace.open_id)
        if items and self.workspace.editing is None and self._queue.held(self.workspace.open_id) is not None:
            await self._send(items[0])

    async def _send(self, item: Queued) -> None:
        """Send a message of the queue now, or as the first one behind the answer that runs."""
        id = self.workspace.open_id
        if self._service.conversations.is_taken(id):
            while item.id in [one.id for one in self._queue.of(id)[1:]]:
                await self._queue.move(id, item, -1)
            self._queue.release(id)
        else:
            self._sending.send_queued(id, item)

    async def take_back(self) -> None:
        """The last message of the queue, back into the composer."""
        items = self._queue.of(self.workspace.open_id)
        if items and self.workspace.editing is None:
            await self._edit(items[-1])

    async def _edit(self, item: Queued) -> None:
        if not await self._drafts.take_back(self.workspace.open_id, item):
            self.workspace.say(GONE)

    async def _drop(self, item: Queued) -> None:
        if not await self._queue.take_back(self.workspace.open_id, item):
            self.workspace.say(GONE)

    @in_worker("dialog")
    async def open(self) -> None:
        """The list of what waits in the open conversation."""
        from kvchat.ui.screens.queue import QueueScreen

        conversation = self.workspace.conversation
        words = self._held() or "Each is sent behind the answer to the one before it."
        chosen = await self.workspace.ask(
            QueueScreen(
                self._queue,
                conversation.id,
                self._service.events,
                title=conversation.record.title,
                words=words.partition(" · ")[0],
                drop=self._drop,
            )
        )
        if not self.workspace.shows(conversation.id):
            return
        match chosen:
            case ("edit", item):
                await self._edit(item)
            case ("send", item):
                await self._send(item)

"""The queue of a conversation: messages that were sent while it was busy.

A queue goes on by itself only in the window in which it was filled, and only behind whole answers. Whatever
else comes holds it, until the user sends its first message or takes it back; nothing of an earlier run is sent
without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import QueueChanged
from kvchat.chat.question import Question
from kvchat.chat.question.stored import decoded, encoded, folder_of, waiting
from kvchat.prompt.drafts import unsent_in
from kvchat.prompt.message import new_id
from kvchat.prompt.queued import HoldKind, hold_of
from kvchat.store import StoreError
from kvchat.store.queue import QueuedRow


class Queued(Struct, frozen=True):
    """A message in the queue."""

    id: str
    question: Question
    """Without what is looked up when it is sent."""
    created: float
    place: float | None = None
    """None: behind all others, until the store has it."""
    folder: str = ""
    """Where kvchat ran when it was put in, if it mentions something; empty: it does not matter."""


class MessageQueue:
    """The queues of all conversations, in the store; what the disk refuses waits in memory. `Turns` sends."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = core.store.queue
        self._items: dict[str, list[Queued]] = {}
        """By conversation, as far as they were asked for."""
        self._flowing: set[str] = set()
        """The conversations whose queue goes on by itself."""
        self._holds: dict[str, HoldKind] = {}
        """What held a queue in this run."""
        self._writes = 0
        """Changes on their way to the store: what it has is not the newest."""
        core.conversations.unsaved.queued = self._draft_with_unsaved

    # -- looking

    def of(self, id: str) -> tuple[Queued, ...]:
        """The messages that wait in a conversation, in the order in which they are sent."""
        return tuple(self._of(id))

    def flows(self, id: str) -> bool:
        """Whether the first message goes out by itself when the conversation is free."""
        return id in self._flowing and bool(self._of(id))

    def held(self, id: str) -> HoldKind | None:
        """What holds the queue; None: it goes on, is empty, or another window answers and may go on with it."""
        if not self._of(id) or id in self._flowing or self._core.conversations.answered_elsewhere(id):
            return None
        conversation = self._core.conversations.get(id)
        last = conversation.path()[-1:] if conversation is not None else []
        return self._holds.get(id) or (hold_of(last[0]) if last else None) or HoldKind.EARLIER

    def held_ids(self) -> frozenset[str]:
        """The conversations whose queue waits for the user."""
        try:
            stored = self._store.conversations()
        except StoreError:
            stored = []
        return frozenset(
            id for id in {*stored, *(id for id, items in self._items.items() if items)} if self.held(id) is not None
        )

    def read(self, id: str) -> None:
        """Take over what other kvchats did, unless something of this one is on its way to the disk."""
        if self._writes or self._core.writer.unsaved:
            return
        try:
            rows = self._store.of(id)
        except StoreError:
            return
        before = self._items.get(id)
        self._items[id] = [_queued(row) for row in rows]
        if not rows:
            self._flowing.discard(id)
            self._holds.pop(id, None)
        if before is not None and before != self._items[id]:
            self._changed(id)

    def look_again(self) -> None:
        """Another kvchat may have changed the queues."""
        for id in tuple(self._items):
            self.read(id)

    def _of(self, id: str) -> list[Queued]:
        if id not in self._items:
            self.read(id)
        return self._items.setdefault(id, [])

    # -- changing

    async def put(self, id: str, question: Question, *, place: float | None = None, first: bool = False) -> None:
        """One more message: at its place, in front (`first`), or behind the others. A queue that was empty goes on by
        itself from now on."""
        items = self._of(id)
        if not items:
            self._flowing.add(id)
            self._holds.pop(id, None)
        if first and items:
            place = (items[0].place or 0.0) - 1.0
        question = waiting(question)
        item = Queued(new_id(), question, self._core.timestamp(), place, folder_of(question))
        behind = (at for at, one in enumerate(items) if place is not None and (one.place is None or one.place > place))
        items.insert(next(behind, len(items)), item)
        row = QueuedRow(item.id, id, question.text, encoded(question, item.folder), item.created, place)
        await self._written(id, lambda: self._store.put(row))

    async def take_back(self, id: str, item: Queued, draft: str | None = None) -> bool:
        """Take a message out of the queue, and store with that what is written in its conversation then (None: that
        stays); False: it was sent just now."""
        self.forget(id, item.id)
        return await self._written(id, lambda: self._store.drop(item.id, draft)) is not False

    async def move(self, id: str, item: Queued, step: int) -> None:
        """Have a message change places with the one before it (`step` -1) or after it (1)."""
        items = self._of(id)
        at = next((at for at, one in enumerate(items) if one.id == item.id), -1)
        if at >= 0 and 0 <= at + step < len(items):
            items[at], items[at + step] = (
                replace(items[at + step], place=items[at].place),
                replace(items[at], place=items[at + step].place),
            )
            await self._written(id, lambda: self._store.move(item.id, step))

    async def _written(self, id: str, write: Callable[[], bool | None]) -> bool | None:
        """Store a change that is shown already; what `write` gives, None where it waits for the disk."""
        self._changed(id)
        with self._writing():
            done = await self._core.writer.write(write)
        self.read(id)
        return done

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1

    # -- going on

    def forget(self, id: str, item: str) -> None:
        """A message is in the queue no more: it is a question now, or was taken out."""
        self._items[id] = [one for one in self._of(id) if one.id != item]
        if not self._items[id]:
            self._flowing.discard(id)
            self._holds.pop(id, None)
        self._changed(id)

    def hold(self, id: str, kind: HoldKind) -> None:
        """Nothing of this queue is sent by itself any more."""
        if self.flows(id):
            self._flowing.discard(id)
            self._holds[id] = kind
            self._changed(id)

    def hold_all(self) -> None:
        """Nothing is sent by itself any more: kvchat ends."""
        self._flowing.clear()

    def release(self, id: str) -> None:
        """The queue goes on by itself: the user wants it to."""
        if self._of(id):
            self._flowing.add(id)
            self._holds.pop(id, None)
            self._changed(id)

    def _draft_with_unsaved(self, conversation: OpenConversation) -> str:
        try:
            stored = {row.id for row in self._store.of(conversation.id)}
        except StoreError:
            stored = set()
        unsent = unsent_in(conversation.draft)
        for item in reversed(self._items.get(conversation.id, [])):
            if item.id not in stored:
                unsent = replace(unsent, draft=item.question.draft.before(unsent.draft))
        return unsent.encoded()

    def _changed(self, id: str) -> None:
        self._core.events.tell(QueueChanged(id))


def _queued(row: QueuedRow) -> Queued:
    question, folder = decoded(row.text, row.more)
    return Queued(row.id, question, row.created, row.place, folder)

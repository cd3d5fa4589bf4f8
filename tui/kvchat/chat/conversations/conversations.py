"""Conversations: the list, the open ones, and what is done with a whole conversation.

An open conversation is loaded once and shared by all who hold it; of those that are not held, the ones used
last stay loaded. Every change to its row goes through `change`. Nothing here speaks to a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.conversations.shared import Head, RunningAct, SharedConversations
from kvchat.chat.conversations.unsaved import Unsaved
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ConversationChanged, ConversationsChanged, ServiceEvent, StorageChanged
from kvchat.chat.ground import Ground
from kvchat.prompt.conversation import NEW_TITLE, Conversation, SearchHit
from kvchat.prompt.message import Node, Role
from kvchat.prompt.tags import ARCHIVE, listed, tagged
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.store import Change, StoreError
from kvchat.text.problems import ChatProblem

KEPT = 16
"""Conversations that stay loaded though they are not in use."""


class OpenConversations(WeakValueDictionary[str, OpenConversation]):
    """Loaded conversations by id. `may_go` tells whether the store has all that one of them holds."""

    def __init__(self, may_go: Callable[[OpenConversation], bool]) -> None:
        super().__init__()
        self._may_go = may_go
        self._kept: dict[str, OpenConversation] = {}
        """Used last at the end."""

    def keep(self, conversation: OpenConversation) -> None:
        """It is used now: keep it loaded, and let go of what was not used for long."""
        self._kept.pop(conversation.id, None)
        self[conversation.id] = self._kept[conversation.id] = conversation
        for old in list(self._kept.values())[:-KEPT]:
            if self._may_go(old):
                del self._kept[old.id]


class ConversationObserver(Protocol):
    """Told what the user does with conversations. Who names it as a base hears only what it defines."""

    def typed(self, id: str) -> None:
        """They write in one."""
        return

    def opened(self, id: str, before: str) -> None:
        """They look at one, and looked at `before` until now; empty: at none."""
        return

    async def deleting(self, id: str) -> None:
        """One is put into the trash now."""
        return

    async def restored(self, id: str) -> None:
        """One was taken out of the trash."""
        return


class Occupation(Protocol):
    """What keeps a conversation busy: its answer, or a compaction."""

    def busy(self) -> Mapping[str, asyncio.Future[None]]:
        """The conversations that it keeps busy now, each with the end of that: once done, it is not in here any
        more."""

    def refuse(self, id: str) -> None:
        """Raises ChatError where it keeps this one busy."""

    async def stop(self, id: str) -> None:
        """End it in this conversation, if it is there."""


class Conversations:
    """All conversations of a store."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._store = ground.store
        self.looked_at = ""
        """The conversation that the user looks at; empty: none."""
        self.observers: list[ConversationObserver] = []
        self.occupations: list[Occupation] = []
        self.shared = SharedConversations(ground.store, ground.writer, ground.events.tell)
        self.loaded = OpenConversations(self._may_go)
        """The open ones, by id."""
        self.unsaved = Unsaved(ground.store, ground.writer, self.loaded, incognito=ground.incognito)
        self._undo: dict[str, list[str | None]] = {}
        """By conversation: the heads before its last acts."""
        self._list: list[Conversation] | None = None
        self._by_id: dict[str, Conversation] = {}
        self._seen_version = ground.store.data_version()
        ground.events.subscribe(self._heard)

    # -- the list -------------------------------------------------------------------------------------------------

    def all(self) -> list[Conversation]:
        """All conversations but the deleted ones, newest first."""
        if self._list is None:
            self._list = [*self._unstored(), *self._store.conversations()]
            self._by_id = {record.id: record for record in self._list}
        return self._list

    def take_list(self, rows: list[Conversation], version: int) -> None:
        """Have these as the list, which were read at this version of the store (`Store.data_version`)."""
        if version == self._seen_version:
            self._list, self._by_id = rows, {record.id: record for record in rows}

    def _unstored(self) -> list[Conversation]:
        """Conversations that were begun while the disk refuses."""
        if not self._ground.writer.unsaved:
            return []
        return [one.record for one in list(self.loaded.values()) if self._store.known(one.id) is None]

    def shown(self) -> list[Conversation]:
        """The list as it is shown: favourites first, the archived left out."""
        return listed(self.all())

    def latest(self) -> Conversation | None:
        """The newest one that something was said in and that is not archived."""
        return next((record for record in self.all() if record.turns and ARCHIVE not in record.tags), None)

    def to_continue(self) -> Conversation | None:
        """The one in which something was written last and is not sent; else `latest`."""
        return self.listed(self._store.written_last()) or self.latest()

    def listed(self, id: str) -> Conversation | None:
        """The conversation with this id, if it is not deleted."""
        self.all()
        return self._by_id.get(id)

    def record(self, id: str) -> Conversation | None:
        """The row of a conversation, as it is open or else in the list."""
        conversation = self.loaded.get(id)
        return conversation.record if conversation is not None else self.listed(id)

    def title(self, id: str) -> str:
        """The title of a conversation in the list; empty where there is none."""
        record = self.listed(id)
        return record.title if record is not None else ""

    def find(self, id: str) -> Conversation:
        """The conversation whose id begins with `id`. Raises ChatError."""
        try:
            return self._store.conversation(id)
        except StoreError as error:
            raise ChatError.of(error) from None

    async def search(self, query: str, limit: int = 50, ranked: bool = False) -> list[SearchHit]:
        """Messages and titles that match, newest first; `ranked`: best first among the newest."""
        return await self._ground.writer.call(lambda: self._store.search(query, limit, ranked=ranked))

    def list_changed(self) -> None:
        """The list is another one now."""
        self._list = None
        self._ground.events.tell(ConversationsChanged())

    # -- open ones ------------------------------------------------------------------------------------------------

    def get(self, id: str) -> OpenConversation | None:
        """The conversation if it is open."""
        return self.loaded.get(id)

    def load(self, id: str) -> OpenConversation:
        """The conversation, loaded, whether or not it is looked at. Raises UnknownConversation."""
        conversation = self.loaded.get(id)
        if conversation is None:
            record = self._store.conversation(id)
            conversation = self.loaded.get(record.id) or self.shared.open(record.id)
        self.loaded.keep(conversation)
        return conversation

    async def open(self, id: str) -> OpenConversation:
        """The conversation, loaded, to be looked at: that marks it as read. Raises UnknownConversation."""
        conversation, before = self.load(id), self.looked_at
        self.looked_at = conversation.id
        for observer in self.observers:
            observer.opened(conversation.id, before)
        if conversation.record.unread:
            await self.update(conversation, unread=False)
        return conversation

    async def insert(self, record: Conversation, path: Sequence[Node]) -> OpenConversation:
        """Store a new conversation that begins with `path`, of which all but the system message is stored, and open it.
        Raises ChatError."""
        writer, (root, *others) = self._ground.writer, path

        def create() -> Conversation:
            return self._store.create(record, root)

        try:
            if (known := await writer.write(create)) is None:
                root = await writer.call(lambda: self._store.like(path[0]))  # what is said waits to stand on this one
                known = record = record if others else replace(record, head=root.id)
                self.loaded.keep(OpenConversation(known, Tree([root, *others])))
        except StoreError as error:
            raise ChatError.of(error) from None
        self.list_changed()
        return await self.open(known.id)

    async def take_empty(self, id: str) -> bool:
        """Whether an empty conversation is this window's alone, so that it can be begun here; True also where the disk
        refuses to say."""
        try:
            return await self._ground.writer.call(lambda: self._store.take_empty(id))
        except StoreError:
            return True

    def _may_go(self, conversation: OpenConversation) -> bool:
        """Whether a conversation that is not looked at can be loaded again as it is."""
        return (
            conversation.id != self.looked_at
            and not self.is_taken(conversation.id)
            and conversation.elsewhere is None
            and self.shared.is_stored(conversation)
        )

    def branch_turns(self, record: Conversation) -> int:
        """The questions on the branch in use."""
        conversation = self.loaded.get(record.id)
        if conversation is not None:
            return sum(node.role is Role.USER for node in conversation.path())
        try:
            return self._store.branch_turns(record.id) if record.turns else 0
        except StoreError:
            return record.turns

    # -- its row --------------------------------------------------------------------------------------------------

    async def rename(self, id: str, title: str) -> None:
        title = " ".join(whole_characters(title).split()) or NEW_TITLE
        await self.update(self.load(id), title=title[:200])

    async def tag(self, id: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Put tags on a conversation and take others off. Raises ChatError, for an empty one too: it is in no list."""
        conversation, add, remove = self.load(id), tuple(add), tuple(remove)
        if conversation.record.turns == 0:
            raise ChatError(ChatProblem.EMPTY)
        await self.change(conversation, lambda row: replace(row, tags=tagged(row.tags, add, remove)))

    async def delete(self, id: str) -> None:
        """Move the conversation to the trash, what runs in it ended; `restore` brings it back."""
        await self.stop(id)
        for observer in self.observers:
            await observer.deleting(id)
        await self.update(self.load(id), trashed=self._ground.timestamp())

    async def restore(self, id: str) -> None:
        await self.update(self.load(id), trashed=None)
        for observer in self.observers:
            await observer.restored(id)

    def set_draft(self, id: str, text: str) -> asyncio.Task[None]:
        """Have this as what is written in a conversation (`prompt.drafts.Unsent`), at once; done when it is stored. Who
        may be cancelled waits for it behind a shield."""
        self.load(id).draft = text = whole_characters(text)
        for observer in self.observers:
            observer.typed(id)
        return self._ground.in_background(self._ground.writer.write(lambda: self._store.set_draft(id, text)))

    async def update(self, conversation: OpenConversation, **changes: object) -> None:
        """Store these fields of a conversation."""
        await self.change(conversation, lambda row: replace(row, **changes))

    async def change(self, conversation: OpenConversation, change: Change) -> None:
        """Store what `change` makes of a conversation's row as it is by then."""
        await self.shared.change(conversation, change)
        self.list_changed()
        self._ground.events.tell(ConversationChanged(conversation.id))

    # -- acts on it -----------------------------------------------------------------------------------------------

    def streaming(self) -> frozenset[str]:
        """The ids of the conversations whose answer, or summary, is running or waiting."""
        return frozenset().union(*(one.busy() for one in self.occupations))

    def is_taken(self, id: str) -> bool:
        """Whether nothing else may go on with a conversation: something runs there, or one of several answers is to be
        chosen, which the user does when they like."""
        conversation = self.loaded.get(id)
        return id in self.streaming() or (conversation is not None and bool(conversation.alternatives))

    def free(self, id: str) -> OpenConversation:
        """The conversation, with nothing running in it. Raises ChatError."""
        for one in self.occupations:
            one.refuse(id)
        return self.load(id)

    async def for_act(self, id: str, head: Head, act: RunningAct) -> OpenConversation:
        """The conversation as all kvchats have made it, free for an act that needs this of its head. Raises
        ChatError."""
        conversation = self.free(id)
        await self.shared.look(conversation)
        if conversation.record.trashed is not None:
            raise ChatError(ChatProblem.IN_TRASH)
        if head is Head.AWAITED:
            await self.shared.settled(conversation, act)
        elif head is Head.SETTLED:
            self.shared.refuse_while_answered(conversation)
        return self.free(id)

    async def stop(self, id: str) -> None:
        """End what runs in a conversation and keep what came; return when it is settled. A question that waits for the
        reply of another kvchat is given up. Nothing runs: nothing happens."""
        self.give_up(id)
        for one in self.occupations:
            await one.stop(id)

    async def wait(self, id: str) -> None:
        """Return when nothing runs in a conversation any more."""
        while ends := [busy[id] for one in self.occupations if id in (busy := one.busy())]:
            await asyncio.wait(ends)

    def remember_head(self, conversation: OpenConversation) -> None:
        """An act leaves the branch that is shown: it can be undone."""
        heads = self._undo.setdefault(conversation.id, [])
        if heads[-1:] != [conversation.record.head]:  # an act that begins again leaves one branch
            heads.append(conversation.record.head)

    def forget_head(self, id: str, head: str) -> None:
        """A message is removed: no act leads back to it."""
        self._undo[id] = [one for one in self._undo.get(id, []) if one != head]

    def head_before(self, conversation: OpenConversation) -> str | None:
        """The head before the last act that is not undone yet; None if there is none. It is given once."""
        heads = self._undo.get(conversation.id, [])
        while heads:
            head = heads.pop()
            if head is not None and head in conversation.tree and head != conversation.record.head:
                return head
        return None

    # -- other kvchats --------------------------------------------------------------------------------------------

    def look_elsewhere(self) -> bool:
        """Look whether another process changed the store, and tell; whether what it changed was seen now."""
        seen = self._seen_version
        version, here = self._store.data_version(), self.loaded.get(self.looked_at)
        if version != self._seen_version:
            self.list_changed()
            if self.shared.look_at(self.loaded.values()):
                self._seen_version = version
        elif here is not None and self.answered_elsewhere(here.id):
            self.shared.look_at([here])  # its kvchat may have died
        if here is not None and here.record.unread and here.live is None:
            self._ground.in_background(self.update(here, unread=False))
        return self._seen_version != seen

    def answered_elsewhere(self, id: str) -> bool:
        """Whether the last reply that an open conversation shows streams into another kvchat."""
        conversation = self.loaded.get(id)
        return conversation is not None and self.shared.reply_elsewhere(conversation) is not None

    def awaits_reply(self, id: str) -> bool:
        """Whether a question of this conversation waits for the reply of another kvchat; `give_up` ends that."""
        return self.shared.waiting(id)

    def give_up(self, id: str) -> None:
        """Do not send the question of this conversation that waits for the reply of another kvchat."""
        self.shared.give_up(id)

    def _heard(self, event: ServiceEvent) -> None:
        if isinstance(event, StorageChanged) and not event.trouble:
            self._seen_version = -1  # while the disk refused, it was not looked what others did

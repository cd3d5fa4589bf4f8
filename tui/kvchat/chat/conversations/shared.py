"""Conversations that other kvchats write too: each act is written by its fields, what others did is taken over, and a
reply that streams elsewhere is in no history before it is whole.

An open conversation changes under no act. It follows where another window went on from the very message that
it shows; where that one went elsewhere, it stays on its own branch and says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import AnsweredElsewhere, ChatError, GivenUp, NotInQueue
from kvchat.chat.events import (
    ConversationChanged,
    DeletedElsewhere,
    HeadAwaited,
    ServiceEvent,
    WrittenElsewhere,
)
from kvchat.chat.store_writer import StoreWriter
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, State
from kvchat.prompt.tree import Tree
from kvchat.store import (
    Change,
    ConversationDeleted,
    HeadMoved,
    NotQueued,
    Store,
    StoreError,
    StoreUnavailable,
    UnknownConversation,
)
from kvchat.text.problems import ChatProblem

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""How often it is looked whether a reply that is waited for has ended: another process gives no word of it."""
OWNER_S = 1.0
"""How often it is looked whether the kvchat that streams it still lives."""


class Head(Enum):
    """What an act needs of the end of the branch that it goes on from."""

    ANY = auto()
    """Nothing: it begins a branch further up."""
    SETTLED = auto()
    """That no reply streams there; while one does, the act is refused."""
    AWAITED = auto()
    """The same; a reply that streams there is waited for."""


class Stored(Struct, frozen=True):
    """An open conversation as it is in the store."""

    record: Conversation
    mark: tuple[int, int] | None
    tree: Tree | None
    """None: the tree is as it was."""


class RunningAct(Struct, eq=False):
    """An act on a conversation, from its beginning to its end, however often it begins again."""

    conversation: str
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: it waits for no reply, neither now nor later."""
    waits: bool = False
    """Whether it waits for the reply of another kvchat just now."""


class SharedConversations:
    """The open conversations of one kvchat against the store that it shares with others."""

    def __init__(self, store: Store, writer: StoreWriter, tell: Callable[[ServiceEvent], None]) -> None:
        self._store = store
        self._writer = writer
        self._tell = tell
        self._held: Counter[str] = Counter()
        """Conversations that an act is built on just now."""
        self._acts: list[RunningAct] = []

    def open(self, id: str) -> OpenConversation:
        """Load a conversation. Raises UnknownConversation."""
        record = self._store.conversation(id)
        mark = self._store.mark(record.id)  # before the tree: what comes in between is looked at again
        return OpenConversation(record, self._store.tree(record.id), self._store.draft(record.id), mark=mark)

    # -- taking over what others did

    def look_at(self, conversations: Iterable[OpenConversation]) -> bool:
        """Take over what others did in these conversations; whether all could be looked at now."""
        all_seen = True
        for conversation in conversations:
            stored = self._read(conversation) if self.is_stored(conversation) else None
            if stored is not None:
                self._take(conversation, stored)
            all_seen = all_seen and stored is not None
        return all_seen

    def reload(self, conversations: Iterable[OpenConversation]) -> None:
        """Show these conversations as they are stored, wherever their branches end: this kvchat changed them so."""
        for conversation in conversations:
            stored = self._read(conversation) if self.is_stored(conversation) else None
            if stored is None:
                continue
            if stored.tree is not None:
                conversation.tree, conversation.mark = stored.tree, stored.mark
            self._put(conversation, stored.record, stored.record.head)
            self._tell(ConversationChanged(conversation.id))

    async def look(self, conversation: OpenConversation) -> bool:
        """Take over what others did in a conversation; whether it could be looked at now."""
        if not self.is_stored(conversation):
            return False
        stored = await self._writer.call(partial(self._read, conversation))
        if stored is None or not self.is_stored(conversation):
            return False
        self._take(conversation, stored)
        return True

    def is_stored(self, conversation: OpenConversation) -> bool:
        """Not under an act, nor while what is said here is not on the disk yet."""
        return not self._held[conversation.id] and not self._writer.unsaved

    def _read(self, conversation: OpenConversation) -> Stored | None:
        """None: the store cannot be read."""
        id, tree = conversation.id, conversation.tree
        try:
            mark, reply = self._store.mark(id), self.reply_elsewhere(conversation)
            stale = mark != conversation.mark or (reply is not None and not self._store.is_streaming(reply.id))
            if stale:
                tree = self._store.tree(id)
            record = self._store.conversation(id)
            if record.head not in tree:  # it came this moment
                tree, stale = self._store.tree(id), True
        except UnknownConversation:  # it went with the trash: a write decides what becomes of it
            return Stored(conversation.record, conversation.mark, None)
        except StoreError as error:
            log.info("it cannot be looked what other kvchats did: %s", error)
            return None
        return Stored(record, mark, tree if stale else None) if record.head in tree else None

    def _take(self, conversation: OpenConversation, stored: Stored) -> None:
        before, shown, written = conversation.record, conversation.record.head, False
        if stored.tree is not None:
            written = any(node.id not in conversation.tree for node in stored.tree)
            conversation.tree, conversation.mark = stored.tree, stored.mark
        head, tree = stored.record.head, conversation.tree
        followed = head == shown or shown not in tree or shown in {node.id for node in tree.path(head)}
        self._put(conversation, stored.record, head if followed else shown)
        if conversation.record != before or stored.tree is not None:
            self._tell(ConversationChanged(conversation.id))
        if written:
            self._tell(WrittenElsewhere(conversation.id, followed))
        if before.trashed is None and stored.record.trashed is not None:
            self._tell(DeletedElsewhere(conversation.id))

    def _put(self, conversation: OpenConversation, row: Conversation, head: str | None) -> None:
        """Show the row, at this head."""
        conversation.record = replace(row, head=head)
        conversation.elsewhere = row.head if row.head != head else None

    @contextmanager
    def held(self, conversation: OpenConversation) -> Iterator[None]:
        """An act is built on the conversation as it is shown: it stays so."""
        self._held[conversation.id] += 1
        try:
            yield
        finally:
            self._held -= Counter((conversation.id,))  # drops what is not held any more

    # -- writing

    async def change(self, conversation: OpenConversation, change: Change) -> None:
        """Store what `change` makes of the conversation's row. Raises ChatError when that is gone for good."""
        known = conversation.record
        with self.held(conversation):
            try:
                row = await self._writer.write(lambda: self._store.change(known, change, shown=known.head))
            except ConversationDeleted as error:
                raise ChatError.of(error) from None
            self._written(conversation, row, change)

    async def add(
        self, conversation: OpenConversation, nodes: Sequence[Node], change: Change, *, whole: bool, queued: str = ""
    ) -> None:
        """Store new messages, and what `change` makes of the row. `whole`: they were made from all of the branch that
        is shown. `queued`: the message that leaves the queue by it; such a one is never stored later than it is sent.
        Raises ChatError when the conversation was deleted, or the queued message is gone (NotInQueue), and HeadMoved
        when they cannot stand there: then nothing has changed, and a look at the store tells how it is."""
        known = conversation.record

        def add(late: bool = False) -> Conversation:
            return self._store.add(known, nodes, change, shown=known.head, whole=whole, late=late, queued=queued)

        with self.held(conversation):
            try:
                row = await (self._writer.now(add) if queued else self._writer.write(add, partial(add, late=True)))
            except NotQueued as error:
                raise NotInQueue.of(error) from None
            except StoreUnavailable as error:
                if not queued:
                    raise
                raise ChatError.of(error) from None
            except HeadMoved:
                conversation.mark = None
                raise
            except ConversationDeleted as error:
                raise ChatError.of(error) from None
            for node in nodes:
                conversation.tree.put(node)
            self._count(conversation, len(nodes), sum(node.state is State.STREAMING for node in nodes))
            self._written(conversation, row, change)

    async def settle(self, conversation: OpenConversation, answer: Node, change: Change) -> None:
        """Store the final form of an answer, and what `change` makes of the row. Raises StoreError."""
        known = conversation.record
        with self.held(conversation):
            conversation.tree.put(answer)
            row = await self._writer.write(lambda: self._store.settle(answer, known, change))
            self._count(conversation, 0, -1)
            self._written(conversation, row, change)

    async def drop(self, conversation: OpenConversation, answer: str) -> None:
        """Remove an answer of which no text came."""
        with self.held(conversation):
            conversation.tree.drop(answer)
            await self._writer.write(lambda: self._store.drop(answer))
            self._count(conversation, -1, 0)

    def _written(self, conversation: OpenConversation, row: Conversation | None, change: Change) -> None:
        """An act was stored, and this is the row now, with what others changed in it; None: it waits for the disk."""
        mine = change(conversation.record)
        self._put(conversation, mine if row is None else row, mine.head)
        if row is not None and row.trashed is not None and mine.trashed is None:
            self._tell(DeletedElsewhere(conversation.id))

    @staticmethod
    def _count(conversation: OpenConversation, messages: int, streaming: int) -> None:
        """Our own messages make the mark another one: what differs beyond that was done elsewhere."""
        if conversation.mark is not None:
            conversation.mark = conversation.mark[0] + messages, conversation.mark[1] + streaming

    # -- replies that stream elsewhere

    @staticmethod
    def reply_elsewhere(conversation: OpenConversation) -> Node | None:
        """The reply at the end of the branch that is shown, if it streams and is not this conversation's own."""
        head = conversation.record.head
        tip = conversation.tree[head] if head is not None and head in conversation.tree else None
        if tip is None or tip.state is not State.STREAMING:
            return None
        return None if conversation.live is not None and conversation.live.node == tip.id else tip

    def waiting(self, id: str) -> bool:
        """Whether a question waits in this conversation for the reply of another window."""
        return any(act.waits and act.conversation == id for act in self._acts)

    @contextmanager
    def register_act(self, id: str) -> Iterator[RunningAct]:
        """An act on a conversation while it runs: it may wait for a reply, and can be given up."""
        act = RunningAct(id)
        self._acts.append(act)
        try:
            yield act
        finally:
            self._acts.remove(act)

    def give_up(self, id: str) -> None:
        """Let no act on this conversation wait for a reply, now or later: a question that does is not sent."""
        for act in self._acts:
            if act.conversation == id:
                act.given_up.set()

    def give_up_all(self) -> None:
        """Let no act wait any longer: kvchat ends."""
        for act in self._acts:
            act.given_up.set()

    def refuse_while_answered(self, conversation: OpenConversation) -> None:
        """Raises AnsweredElsewhere while another kvchat's reply streams at the end of the branch."""
        if self.reply_elsewhere(conversation) is not None:
            raise AnsweredElsewhere(ChatProblem.ANSWERED_ELSEWHERE)

    async def settled(self, conversation: OpenConversation, act: RunningAct) -> None:
        """Return when no reply streams elsewhere at the end of the branch; when its kvchat dies, it is settled with
        what came. Raises GivenUp."""
        if self.reply_elsewhere(conversation) is None:
            return
        act.waits = True
        self._tell(HeadAwaited(conversation.id))
        try:
            while self.reply_elsewhere(conversation) is not None:
                await self._ended(conversation, act.given_up)
                if act.given_up.is_set():
                    raise GivenUp(ChatProblem.NOT_SENT)
                if not await self.look(conversation):
                    await asyncio.sleep(LOOK_S)
        except StoreError as error:
            raise ChatError.of(error) from None
        finally:
            act.waits = False
            self._tell(HeadAwaited(conversation.id))

    async def _ended(self, conversation: OpenConversation, given_up: asyncio.Event) -> None:
        """Return when the reply at the end of the branch has ended, the window went to another branch, or the wait is
        given up."""
        looked = time.monotonic()
        while (reply := self.reply_elsewhere(conversation)) is not None and not given_up.is_set():
            owner = time.monotonic() - looked >= OWNER_S
            looked = time.monotonic() if owner else looked
            if not await self._writer.call(partial(self._store.is_streaming, reply.id, owner=owner)):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await given_up.wait()

"""The list of conversations, the open ones, and telling who listens.

The rule: an open conversation is loaded once and shared; every change to its record goes through `_update`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from kvchat.backends.dialect import ServerInfo
from kvchat.chat.answering import Answering
from kvchat.chat.connection import Connector
from kvchat.chat.errors import ChatError
from kvchat.chat.events import (
    ConversationChanged,
    ConversationsChanged,
    Noticed,
    ServerChanged,
    ServiceEvent,
    StorageChanged,
)
from kvchat.chat.keeper import Keeper
from kvchat.chat.lane import Lane
from kvchat.chat.live import OpenConversation
from kvchat.config import Settings
from kvchat.prompt.conversation import NEW_TITLE, Conversation
from kvchat.prompt.message import (
    DEFAULT_INSTRUCTIONS,
    Message,
    Node,
    instructions_of,
    new_id,
    new_tag,
    node,
    system_message,
)
from kvchat.prompt.wire import whole_characters
from kvchat.store import Store, StoreError

Listener = Callable[[ServiceEvent], None]


LAST_SERVER = "last server"
"""The setting that holds the server's address or the model file chosen last on the screen."""


def system_clock() -> datetime:
    """Now, in the system's time zone."""
    return datetime.now().astimezone()


class ConversationList:
    """The ground of the service: what all its parts share."""

    def __init__(
        self, store: Store, settings: Settings, *, incognito: bool = False, strict: bool = False,
        clock: Callable[[], datetime] = system_clock, snapshots: Path | None = None,
    ) -> None:
        self.settings = settings
        self.incognito = incognito
        self.asks_before_leaving = False
        """Whether nothing goes to another machine until the person agreed (`allow_sending_to`)."""
        self._store = store
        self._clock = clock
        self._listeners: list[Listener] = []
        self._keeper = Keeper(lambda trouble: self._tell(StorageChanged(trouble)), strict=strict)
        self._connector = Connector(settings, self._server_changed, snapshot_folder=snapshots)
        if last := store.setting(LAST_SERVER):
            self._connector.prefer(last)
        self._lane = Lane()
        self._open: dict[str, OpenConversation] = {}
        self._answering: dict[str, tuple[Answering, asyncio.Task[None]]] = {}
        self._undo: dict[str, list[str | None]] = {}
        self._list: list[Conversation] | None = None
        self._by_id: dict[str, Conversation] = {}
        self._seen_version = store.data_version()
        self._looked_at = ""
        self._beside: set[asyncio.Task[None]] = set()

    # -- listening ------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event, on the loop, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _server_changed(self) -> None:
        self._tell(ServerChanged())

    def _tell(self, event: ServiceEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    # -- the list -------------------------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """All conversations but the deleted ones, newest first."""
        if self._list is None:
            self._list = self._store.conversations()
            self._by_id = {record.id: record for record in self._list}
        return self._list

    def _listed(self, id: str) -> Conversation | None:
        """The conversation in the list with this id."""
        self.conversations()
        return self._by_id.get(id)

    def streaming(self) -> frozenset[str]:
        """The conversations whose answer is running or waiting."""
        return frozenset(self._answering)

    def refresh(self) -> None:
        """Look whether another process changed the store; tell if so."""
        version = self._store.data_version()
        if version != self._seen_version:
            self._seen_version = version
            self._list_changed()

    def _list_changed(self) -> None:
        self._list = None
        self._tell(ConversationsChanged())

    async def create(self, instructions: str | None = None, *, reuse: bool = True) -> OpenConversation:
        """A new conversation. `reuse`: an empty one that nobody has written in is used again."""
        if instructions is None:
            instructions = self.settings.system_prompt or DEFAULT_INSTRUCTIONS
        message = system_message(instructions)
        for known in self.conversations() if reuse else ():
            if known.turns == 0 and known.id not in self._answering and not self._store.draft(known.id):
                conversation = await self.open(known.id)
                if instructions_of(conversation.tree[known.head or ""].text) == instructions_of(message.text):
                    return conversation
        if await self._wants_tag(message):
            message = system_message(instructions, new_tag())
        now = self._clock().timestamp()
        root = node(None, message, now)
        record = Conversation(id=new_id(), head=root.id, created=now, updated=now,
                              parameters=self.settings.parameters)
        return await self._create(record, root)

    async def _wants_tag(self, system: Message) -> bool:
        """Whether a new conversation with this system message should begin with a tag of its own."""
        return False

    async def _create(self, record: Conversation, root: Node) -> OpenConversation:
        record = await self._keeper.call(lambda: self._store.create(record, root))
        self._list_changed()
        return await self.open(record.id)

    async def open(self, id: str) -> OpenConversation:
        """The conversation, loaded, to be looked at: that marks it as read. Raises UnknownConversation."""
        conversation = self._loaded(id)
        self._looked_at = conversation.id
        if conversation.record.unread:
            await self._update(conversation, unread=False)
        return conversation

    def _loaded(self, id: str) -> OpenConversation:
        """The conversation, loaded, whether or not it is looked at. Raises UnknownConversation."""
        conversation = self._open.get(id)
        if conversation is None:
            record = self._store.conversation(id)
            conversation = self._open.get(record.id) or OpenConversation(
                record, self._store.tree(record.id), self._store.draft(record.id))
            self._open[record.id] = conversation
        return conversation

    def get(self, id: str) -> OpenConversation | None:
        """The conversation if it is open."""
        return self._open.get(id)

    def find(self, id: str) -> Conversation:
        """The conversation whose id begins with `id`. Raises ChatError."""
        try:
            return self._store.conversation(id)
        except StoreError as error:
            raise ChatError(str(error)) from None

    def now(self) -> datetime:
        """Now, as the time stamps have it."""
        return self._clock()

    async def rename(self, id: str, title: str) -> None:
        title = " ".join(whole_characters(title).split()) or NEW_TITLE
        await self._update(await self._opened(id), title=title[:200])

    async def delete(self, id: str) -> None:
        """Move the conversation to the trash; `restore` brings it back."""
        await self._update(await self._opened(id), trashed=self._clock().timestamp())

    async def restore(self, id: str) -> None:
        await self._update(await self._opened(id), trashed=None)

    async def set_draft(self, id: str, text: str) -> None:
        conversation = await self._opened(id)
        conversation.draft = text = whole_characters(text)
        await self._keeper.write(lambda: self._store.set_draft(id, text))

    async def _opened(self, id: str) -> OpenConversation:
        return self._loaded(id)

    async def _update(self, conversation: OpenConversation, **changes: object) -> None:
        conversation.record = record = replace(conversation.record, **changes)  # type: ignore[arg-type]
        await self._keeper.write(lambda: self._store.update(record))
        self._list_changed()
        self._tell(ConversationChanged(record.id))

    # -- what is done beside -------------------------------------------------------------------------------------------

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        """Do `work` in a task of its own; a failure to write is told."""
        task = asyncio.create_task(self._told(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _told(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except StoreError as error:
            self._tell(Noticed(str(error), "warning"))

    # -- leaving this machine -----------------------------------------------------------------------------------------

    def may_send_to(self, server: ServerInfo) -> bool:
        """Whether the server is on this machine, or the person agreed to send to it."""
        return server.host_class == "loopback" or bool(self._store.setting(_agreement(server)))

    def _agreed_to(self, server: ServerInfo) -> bool:
        """Whether conversations may go to this server now."""
        return not self.asks_before_leaving or self.may_send_to(server)

    async def allow_sending_to(self, server: ServerInfo) -> None:
        """The person agrees that conversations go to this server. Kept over restarts."""
        await self._keeper.write(lambda: self._store.set_setting(_agreement(server), "yes"))


def _agreement(server: ServerInfo) -> str:
    return f"allowed {server.host_class} {server.base_url}"

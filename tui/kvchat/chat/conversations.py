"""The list of conversations, the open ones, and telling who listens.

The rule: an open conversation is loaded once and shared; every change to its record goes through `_change`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from kvchat.backends.dialect import BackendError, HostClass, ServerInfo
from kvchat.chat.answering import Answering
from kvchat.chat.errors import ChatError
from kvchat.chat.events import (
    ConversationChanged,
    ConversationsChanged,
    FallbackChosen,
    Noticed,
    ServerChanged,
    ServiceEvent,
    StorageChanged,
)
from kvchat.chat.fallback import ServerFallback
from kvchat.chat.keeper import Keeper
from kvchat.chat.link import DEFAULT, Link, Links, is_file, is_on_this_machine, normal
from kvchat.chat.live import OpenConversation
from kvchat.chat.once import Once
from kvchat.chat.opened import OpenConversations
from kvchat.chat.shared import SharedConversations
from kvchat.chat.unsaved import Unsaved
from kvchat.config import Settings
from kvchat.prompt.conversation import NEW_TITLE, Conversation
from kvchat.prompt.message import (
    DEFAULT_INSTRUCTIONS,
    Message,
    Node,
    Role,
    State,
    instructions_of,
    new_id,
    new_tag,
    node,
    system_message,
)
from kvchat.prompt.request import Parameters, merged
from kvchat.prompt.wire import whole_characters
from kvchat.store import Change, Store, StoreError

Listener = Callable[[ServiceEvent], None]


LAST_SERVER = "last server"
"""The setting that holds the name of the server chosen last on the screen (see `link.Link.name`)."""


def system_clock() -> datetime:
    """Now, in the system's time zone."""
    return datetime.now().astimezone()


class ConversationObserver(Protocol):
    """Told what the person does with conversations."""

    def typed(self, id: str) -> None:
        """They write in one."""

    def opened(self, id: str, before: str) -> None:
        """They look at one, and looked at `before` until now; empty: at none."""

    async def deleting(self, id: str) -> None:
        """One is put into the trash now."""

    async def restored(self, id: str) -> None:
        """One was taken out of the trash."""


class TurnObserver(Protocol):
    """Told of the turns that end, when all is stored."""

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None: ...


class Occupation(Protocol):
    """What keeps a conversation as busy as an answer does."""

    def busy(self) -> frozenset[str]:
        """The conversations that it keeps busy now."""

    def refuse(self, id: str) -> None:
        """Raises ChatError where it keeps this one busy."""

    async def stop(self, id: str) -> None:
        """End it in this conversation, if it is there."""

    async def wait(self, id: str) -> None:
        """Return when it has ended in this conversation."""


class ConversationList:
    """The ground of the service: what all its parts share."""

    def __init__(
        self, store: Store, settings: Settings, *, incognito: bool = False, strict: bool = False,
        clock: Callable[[], datetime] = system_clock, snapshots: Path | None = None, lanes: Path | None = None,
        one_server: bool = False,
    ) -> None:
        """`snapshots`, `lanes`: the folders of saved states and of the locks between kvchats. `one_server`: every
        conversation goes to the server of the settings, whatever it was begun on."""
        self.settings = settings
        self.incognito = incognito
        self.connects_ahead = False
        """Whether a server is connected to as soon as one of its conversations is looked at: the app sets it."""
        self.asks_before_leaving = False
        """Whether nothing goes to another machine until the person agreed (`allow_sending_to`)."""
        self.store = store
        self._one_server = one_server
        self._moved: set[str] = set()
        """Conversations whose server was chosen in this run."""
        self.clock = clock
        self._listeners: list[Listener] = []
        self.observers: list[ConversationObserver] = []
        self.turn_observers: list[TurnObserver] = []
        self.occupations: list[Occupation] = []
        self.keeper = Keeper(self._disk_changed, strict=strict, at_rest=store.checkpoint)
        self.shared = SharedConversations(store, self.keeper, lambda event: self.tell(event))
        self.once = Once(store, self.keeper)
        self.links = Links(settings, self._link_changed, snapshots, lanes)
        self.fallback = ServerFallback(self.links, self._known_servers, self._trusts)
        self._falling: asyncio.Task[None] | None = None
        """Looks for a server to stand in for one that is off."""
        self.open_conversations = OpenConversations(self._is_stored)
        self.unsaved = Unsaved(store, self.keeper, self.open_conversations, incognito=incognito)
        self._answering: dict[str, tuple[Answering, asyncio.Task[None]]] = {}
        self._undo: dict[str, list[str | None]] = {}
        self._list: list[Conversation] | None = None
        self._by_id: dict[str, Conversation] = {}
        self._seen_version = store.data_version()
        self.looked_at = ""
        self._beside: set[asyncio.Task[None]] = set()

    # -- listening ------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event, on the loop, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- servers --------------------------------------------------------------------------------------------------

    def link(self, id: str = "") -> Link:
        """The server of a conversation; without an id, of the one that is looked at."""
        record = self.record(id or self.looked_at)
        if record is None:
            return self.links.at(self._first_server())
        return self.links.at(DEFAULT if self._one_server and record.id not in self._moved else record.server)

    def asked_model(self, id: str) -> str:
        """The model that a conversation asks its server for; empty: the one that the server has loaded."""
        record, link = self.record(id), self.link(id)
        info, chosen = link.info, record.model if record is not None else ""
        if self._one_server and id not in self._moved and info is not None and info.known(chosen) is None:
            chosen = ""  # it was chosen on another server
        return chosen or link.connector.server.model or (info.model if info is not None else "")

    def context_used(self, conversation: OpenConversation) -> int | None:
        """Tokens of the branch in use: as the server reported them after its last answer, else as they were known."""
        figures = next((n.figures for n in reversed(conversation.path()) if n.figures is not None), None)
        used = figures.context_used if figures else None
        return conversation.record.context_used if used is None else used

    def window_share(self, conversation: OpenConversation) -> float | None:
        """How full the window is, from 0 to 1; None when that is not known."""
        used, size = self.context_used(conversation), self.window(conversation.id)
        return used / size if used is not None and size and conversation.record.turns else None

    def window(self, id: str) -> int | None:
        """Tokens that fit in a conversation, with its server and model."""
        info, record = self.link(id).info, self.record(id)
        return info.window(record.model if record else "") if info else None

    def is_on_the_internet(self, link: Link) -> bool:
        """Whether what is sent to a server leaves the person's own machines, or may."""
        if link.info is not None:
            return link.info.host_class is HostClass.CLOUD or bool(link.info.remote_of(link.connector.server.model))
        if not link.connector.base_url:
            return False
        return not re.match(r"https?://(?:127\.|\[::1\])", normal(link.connector.base_url))

    def record(self, id: str) -> Conversation | None:
        conversation = self.open_conversations.get(id)
        return conversation.record if conversation is not None else self.listed(id)

    async def _met(self, link: Link) -> None:
        """Connect to the server of the conversation that is looked at now. The engine is not taken from another model
        for a look: that waits for a question."""
        self.tell(ServerChanged())
        engine = self.links.engine
        takes_engine = link.connector.model_path is not None and engine not in (None, link)
        if self.connects_ahead and not takes_engine:
            try:
                await link.connector.ready()
            except BackendError:
                pass  # it is said in the connection

    def _link_changed(self, link: Link) -> None:
        link.changed()
        self._begin_here(self.looked_at)
        self.tell(ServerChanged())

    def _begin_here(self, id: str) -> None:
        """Where servers are connected to ahead, see at once that a conversation does not wait for one that is off."""
        if self.connects_ahead:
            self._fall_back(id)

    def _fall_back(self, id: str) -> asyncio.Task[None] | None:
        """Look for another server for a conversation that has nothing on its own yet, if that one was used last and is
        off; without an id: for the next new one."""
        link = self.link(id)
        if self._falling is None and link.connector.connection.is_awaited and self._follows_last(id):
            self.fallback.off = link
            self._falling = asyncio.create_task(self._told(self._begin_elsewhere(id, link)))
            self._falling.add_done_callback(lambda _: self._fell_back())
        return self._falling

    def _fell_back(self) -> None:
        self._falling = self.fallback.off = None
        self.tell(ServerChanged())

    def _follows_last(self, id: str) -> bool:
        """Whether a conversation is on the server that was used last for want of a choice, and nothing was answered in
        it."""
        if self._one_server or self.server_is_named or id in self._moved:
            return False
        conversation = self.open_conversations.get(id)
        if conversation is None:
            return not id
        answered = any(node.role is Role.ASSISTANT and node.state is not State.STREAMING for node in conversation.tree)
        return not answered and self.link(id) is self.links.at(self._first_server())

    async def _begin_elsewhere(self, id: str, off: Link) -> None:
        name = await self.fallback.find(off)
        if name is None or off.connector.connection.phase == "ready":
            return
        self.fallback.use(name, off)
        self.tell(FallbackChosen(off.name or off.connector.home, name))
        conversation = self.open_conversations.get(id)
        if conversation is None or self.link(id) is not off:
            return
        after = self.links.at(name)
        parameters = conversation.record.parameters
        if parameters == self._first_parameters(off):
            parameters = self._first_parameters(after)
        await self.update(conversation, server=name, model="", parameters=parameters)
        off.connector.release()
        if self.looked_at == id:
            self.in_background(self._met(after))

    def _known_servers(self) -> Iterator[str]:
        """The names of the servers that the person knows: those of the settings, then those used lately."""
        yield self.settings.server.base_url
        yield from self.settings.profiles
        yield from (record.server for record in self.conversations())

    def _trusts(self, link: Link) -> bool:
        """Whether what is said may go to a server without another question: it is on this machine, or elsewhere but on
        the internet and the person agreed to it."""
        info = link.info
        if info is None:
            url = normal(link.connector.base_url)
            return is_on_this_machine(url) or has_agreed(self.store, url)
        if info.host_class is HostClass.CLOUD or info.remote_of(link.connector.server.model or info.model):
            return False
        return info.host_class is HostClass.LOOPBACK or bool(self.store.setting(_agreement(info)))

    @property
    def server_is_named(self) -> bool:
        """Whether the settings, or the command line, name the server of new conversations."""
        settings = self.settings
        return self._one_server or bool(settings.server.base_url or settings.default_profile or settings.engine.model)

    def tell(self, event: ServiceEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    # -- the list -------------------------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """All conversations but the deleted ones, newest first."""
        if self._list is None:
            self._list = self.store.conversations()
            self._by_id = {record.id: record for record in self._list}
        return self._list

    def listed(self, id: str) -> Conversation | None:
        """The conversation in the list with this id."""
        self.conversations()
        return self._by_id.get(id)

    def streaming(self) -> frozenset[str]:
        """The conversations whose answer, or summary, is running or waiting."""
        return frozenset(self._answering).union(*(one.busy() for one in self.occupations))

    def look_elsewhere(self) -> bool:
        """Look whether another process changed the store, and tell; whether what it changed was seen now."""
        seen = self._seen_version
        version, here = self.store.data_version(), self.open_conversations.get(self.looked_at)
        if version != self._seen_version:
            self.list_changed()
            if self.shared.look_at(self.open_conversations.values()):
                self._seen_version = version
        elif here is not None and self.answered_elsewhere(here.id):
            self.shared.look_at([here])  # its kvchat may have died
        if here is not None and here.record.unread and here.live is None:
            self.in_background(self.update(here, unread=False))
        return self._seen_version != seen

    def answered_elsewhere(self, id: str) -> bool:
        """Whether the last reply that an open conversation shows streams into another kvchat."""
        conversation = self.open_conversations.get(id)
        return conversation is not None and self.shared.reply_elsewhere(conversation) is not None

    def awaits_reply(self, id: str) -> bool:
        """Whether a question of this conversation waits for the reply of another kvchat; `give_up` ends that."""
        return self.shared.waiting(id)

    def give_up(self, id: str) -> None:
        """Do not send the question of this conversation that waits for the reply of another kvchat."""
        self.shared.give_up(id)

    def _disk_changed(self, trouble: str) -> None:
        """Writing failed, or works again: then it is looked what others did meanwhile."""
        if not trouble:
            self._seen_version = -1
        self.tell(StorageChanged(trouble))

    def list_changed(self) -> None:
        self._list = None
        self.tell(ConversationsChanged())

    async def create(self, instructions: str | None = None, *, reuse: bool = True) -> OpenConversation:
        """A new conversation. `reuse`: an empty one that nobody has written in is used again."""
        if instructions is None:
            instructions = self.settings.system_prompt or DEFAULT_INSTRUCTIONS
        message = system_message(instructions)
        for known in self.conversations() if reuse else ():
            if known.turns == 0 and known.id not in self._answering and not self.store.draft(known.id):
                same = self.loaded(known.id).instructions == instructions_of(message.text)
                if same and await self._took_empty(known.id):
                    conversation = await self.open(known.id)
                    if known.server != (first := self._first_server()):
                        await self.update(conversation, server=first, model="",
                                           parameters=self._first_parameters(self.links.at(first)))
                        self._begin_here(conversation.id)
                    return conversation
        if await self._wants_tag(self.links.at(self._first_server()), message):
            message = system_message(instructions, new_tag())
        now = self.clock().timestamp()
        root = node(None, message, now)
        record = Conversation(id=new_id(), head=root.id, created=now, updated=now, server=self._first_server(),
                              parameters=self._first_parameters(self.links.at(self._first_server())))
        return await self._create(record, root)

    def _first_parameters(self, link: Link) -> Parameters:
        """The sampling parameters that a conversation on this server begins with."""
        return merged(self.settings.parameters, link.connector.server.parameters)

    def _first_server(self) -> str:
        """The server that a new conversation begins with: the settings', else the one chosen last on the screen."""
        settings = self.settings
        if self._one_server:
            return DEFAULT
        if settings.default_profile in settings.profiles:
            return settings.default_profile
        if settings.server.base_url or settings.engine.model:
            return DEFAULT
        last = self.store.setting(LAST_SERVER) or DEFAULT
        there = "://" in last or last in settings.profiles or (is_file(last) and Path(last).is_file())
        return self.fallback.instead_of(last if there else DEFAULT)

    async def _wants_tag(self, link: Link, system: Message) -> bool:
        """Whether a new conversation with this system message should begin with a tag of its own."""
        return False

    async def _create(self, record: Conversation, root: Node) -> OpenConversation:
        try:
            record = await self.keeper.call(lambda: self.store.create(record, root))
        except StoreError as error:
            raise ChatError(str(error)) from None
        self.list_changed()
        return await self.open(record.id)

    async def open(self, id: str) -> OpenConversation:
        """The conversation, loaded, to be looked at: that marks it as read. Raises UnknownConversation."""
        conversation, left = self.loaded(id), self.looked_at
        before, self.looked_at = self.link(), conversation.id
        if (link := self.link()) is not before or not link.info:
            self.in_background(self._met(link))
        self._begin_here(conversation.id)
        if conversation.record.unread:
            await self.update(conversation, unread=False)
        for observer in self.observers:
            observer.opened(conversation.id, left)
        return conversation

    def loaded(self, id: str) -> OpenConversation:
        """The conversation, loaded, whether or not it is looked at. Raises UnknownConversation."""
        conversation = self.open_conversations.get(id)
        if conversation is None:
            record = self.store.conversation(id)
            conversation = self.open_conversations.get(record.id) or self.shared.open(record.id)
        self.open_conversations.keep(conversation)
        return conversation

    def _is_stored(self, conversation: OpenConversation) -> bool:
        """Whether a conversation that is not looked at can be loaded again as it is."""
        return (conversation.id != self.looked_at and conversation.id not in self._answering
                and conversation.elsewhere is None and self.shared.is_stored(conversation))

    async def _took_empty(self, id: str) -> bool:
        """Whether an empty conversation is this window's alone. On a disk that refuses nobody can say."""
        try:
            return await self.keeper.call(lambda: self.store.take_empty(id))
        except StoreError:
            return True

    def get(self, id: str) -> OpenConversation | None:
        """The conversation if it is open."""
        return self.open_conversations.get(id)

    def find(self, id: str) -> Conversation:
        """The conversation whose id begins with `id`. Raises ChatError."""
        try:
            return self.store.conversation(id)
        except StoreError as error:
            raise ChatError(str(error)) from None

    def now(self) -> datetime:
        """Now, as the time stamps have it."""
        return self.clock()

    async def rename(self, id: str, title: str) -> None:
        title = " ".join(whole_characters(title).split()) or NEW_TITLE
        await self.update(await self.opened(id), title=title[:200])

    async def delete(self, id: str) -> None:
        """Move the conversation to the trash; `restore` brings it back."""
        for observer in self.observers:
            await observer.deleting(id)
        await self.update(await self.opened(id), trashed=self.clock().timestamp())

    async def restore(self, id: str) -> None:
        await self.update(await self.opened(id), trashed=None)
        for observer in self.observers:
            await observer.restored(id)

    async def set_draft(self, id: str, text: str) -> None:
        conversation = await self.opened(id)
        conversation.draft = text = whole_characters(text)
        for observer in self.observers:
            observer.typed(id)
        await self.keeper.write(lambda: self.store.set_draft(id, text))

    async def opened(self, id: str) -> OpenConversation:
        return self.loaded(id)

    async def update(self, conversation: OpenConversation, **changes: object) -> None:
        """Store these fields of a conversation."""
        await self.change(conversation, lambda row: replace(row, **changes))  # type: ignore[arg-type]

    async def change(self, conversation: OpenConversation, change: Change) -> None:
        """Store what `change` makes of a conversation's row as it is by then."""
        await self.shared.change(conversation, change)
        self.list_changed()
        self.tell(ConversationChanged(conversation.id))

    # -- what is done beside -------------------------------------------------------------------------------------------

    def in_background(self, work: Coroutine[object, object, None]) -> None:
        """Do `work` in a task of its own; a failure to write is told."""
        task = asyncio.create_task(self._told(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _told(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except StoreError as error:
            self.tell(Noticed(str(error), "warning"))

    # -- leaving this machine -----------------------------------------------------------------------------------------

    def may_send_to(self, server: ServerInfo, id: str = "") -> bool:
        """Whether the server is on this machine, or the person agreed to send to it. A conversation that was begun on
        another server goes to the internet only when the person agreed to that for this very one."""
        server = self.destination(server, id)
        if server.host_class == "loopback":
            return True
        if not self.store.setting(_agreement(server)):
            return False
        return not self.was_begun_nearer(id, server) or bool(self.store.setting(_agreement(server, id)))

    def destination(self, server: ServerInfo, id: str = "") -> ServerInfo:
        """Where a conversation really goes: a server on this machine may pass a model's text on to the internet."""
        remote = server.remote_of(self.asked_model(id) or server.model)
        if not remote:
            return server
        return replace(server, host_class=HostClass.CLOUD, base_url=remote)

    def was_begun_nearer(self, id: str, server: ServerInfo) -> bool:
        """Whether a conversation that would go to this server on the internet was answered by another one before."""
        record = self.record(id)
        server = self.destination(server, id)
        if server.host_class != "cloud" or record is None or not record.turns:
            return False
        path = self.loaded(id).path()
        found = (self.store.request_of(node.id) for node in path if node.role is Role.ASSISTANT)
        return any(sent is None or sent.server != server.place for sent in found)

    def agreed_to(self, server: ServerInfo, id: str = "") -> bool:
        """Whether a conversation may go to this server now."""
        return not self.asks_before_leaving or self.may_send_to(server, id)

    async def allow_sending_to(self, server: ServerInfo, id: str = "") -> None:
        """The person agrees that conversations go to this server, and conversation `id` with what it holds. Kept over
        restarts."""
        server = self.destination(server, id)
        keys = {_agreement(server), _agreement(server, id)}
        for key in keys:
            await self.keeper.write(partial(self.store.set_setting, key, "yes"))


def _agreement(server: ServerInfo, id: str = "") -> str:
    return " ".join(filter(None, ("allowed", server.host_class, server.base_url, id)))


def has_agreed(store: Store, base_url: str) -> bool:
    """Whether the person agreed to send to a server of their network at this address."""
    near = (HostClass.LAN, HostClass.TAILNET)
    return any(store.setting(f"allowed {where} {normal(base_url)}") for where in near)

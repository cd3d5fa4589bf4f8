"""The servers of the conversations: which one each goes to, connected, and what it is.

A conversation stays with the server it was begun on. Only one that nothing was answered in follows the server
used last, and begins elsewhere where that one is off.

In the order in which they are called:

1. `first`: where a new conversation begins; `begin_here` looks for another server where that one is off.
2. `opened`, `connect`: a conversation is looked at, its server is connected to (`link.Link`).
3. `reach`: before a request; `must_take` refuses what the server cannot take, `backend` gives the way to it.
4. `keep`: an answer came: the conversation stays with this server and model. `move`: the user chose another one.
5. `is_gone`, `other`: the server did not answer, and which other one could.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from kvchat.backends import kinds
from kvchat.backends.dialect import Backend, BackendError, HostClass, ServerInfo, Trouble, failure
from kvchat.chat.conversations.conversations import ConversationObserver, Conversations
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.events import FallbackChosen, ServerChanged
from kvchat.chat.ground import QUIT_S, Ground
from kvchat.chat.server.connection_state import Connecting, Connection
from kvchat.chat.server.consent import Consent
from kvchat.chat.server.fallback import ServerFallback
from kvchat.chat.server.link import DEFAULT, Link, Links, is_file, normal
from kvchat.prompt.images import has_images
from kvchat.prompt.mending import is_whole
from kvchat.prompt.message import Node, NoteKind, Role, State, tools_of
from kvchat.prompt.request import Parameters, merged
from kvchat.sanitize import one_line
from kvchat.text.faults import Fault
from kvchat.text.notes import note_sentence
from kvchat.text.problems import ChatProblem
from kvchat.text.servers import Reaching, model_name, place_words
from kvchat.values import Statement, said

LAST_SERVER = "last server"
"""The setting that holds the name of the server used last: chosen on the screen, given to a run, or found on this
machine and answered by."""


class ServerObserver(Protocol):
    """Called when a server in use changes."""

    def link_changed(self, link: Link) -> None:
        """A server was identified, lost, or is another one."""


class Servers(ConversationObserver):
    """The server of every conversation."""

    def __init__(
        self,
        ground: Ground,
        conversations: Conversations,
        *,
        snapshots: Path | None = None,
        lanes: Path | None = None,
        one_server: bool = False,
        model: str = "",
    ) -> None:
        """`snapshots`, `lanes`: the folders of saved states and of the locks between kvchats. `one_server`, `model`:
        this run was given its server, or model: every conversation goes there, whatever answered it before."""
        self._ground = ground
        self._conversations = conversations
        self._one_server = one_server
        self._model = model
        self._moved: set[str] = set()
        """Conversations whose server or model was chosen in this run."""
        self.connects_ahead = False
        """Whether a server is connected to as soon as one of its conversations is looked at: the app sets it."""
        self.waits = False
        """Whether a user is there to wait for a server that is gone: the app sets it."""
        self.observers: list[ServerObserver] = []
        self.links = Links(ground, self._link_changed, self._names_model, snapshots, lanes)
        self.consent = Consent(ground, conversations, self.asked_model)
        self.fallback = ServerFallback(self.links, self._known, self.consent.trusts)
        self._last: str | None = None
        """The server used last, when it was first asked for; None: not yet."""
        self._looking: asyncio.Task[None] | None = None
        """Looks for a server to replace one that is off."""
        conversations.observers.append(self)

    # -- of a conversation ----------------------------------------------------------------------------------------

    def link(self, id: str = "") -> Link:
        """The server of a conversation; without an id, of the one that is looked at."""
        record = self._conversations.record(id or self._conversations.looked_at)
        if record is None:
            return self.links.at(self.first())
        if self._one_server and record.id not in self._moved:
            return self.links.at(DEFAULT)
        return self.links.at(record.server or self.first())

    def asked_model(self, id: str) -> str:
        """The model that a conversation asks its server for; empty: the one that the server has loaded."""
        link = self.link(id)
        info, named = link.info, self._kept_model(id, link) or self._named_model(link)
        if info is None or info.known(named) is not None:
            return named
        return next((model.id for model in info.listing if _is_same_file(model.id, named)), named or info.model)

    def _kept_model(self, id: str, link: Link) -> str:
        """The model that answered a conversation on its server, or was chosen for it; empty: none, or this run was
        given another."""
        record = self._conversations.record(id)
        if record is None or (id not in self._moved and self._model):
            return ""
        return record.model if not record.server or link.leads_to(record.server) else ""

    def _named_model(self, link: Link) -> str:
        """The model that was given for this run, or that the settings name for a server."""
        return self._model or link.connector.server.model

    def _names_model(self, link: Link) -> bool:
        """Whether a model is named for a server, or has answered a conversation there."""
        if self._named_model(link):
            return True
        return any(record.model and link.leads_to(record.server) for record in self._conversations.all())

    def model_of(self, conversation: OpenConversation, server: ServerInfo) -> str:
        """The model to ask for. Raises BackendError where the server lists its models and the one that answered here
        is not there any more; one that is named for this run, or in the settings, is asked for all the same, but where
        the server would silently let another model answer."""
        model = self.asked_model(conversation.id)
        is_strict = model != self._named_model(self.link(conversation.id)) or kinds.kind_of(server.kind).takes_any_model
        if server.listing and server.known(model) is None and is_strict:
            raise failure(
                Trouble.REFUSED,
                Fault.NO_SUCH_MODEL,
                url=server.base_url,
                model=one_line(model, 80),
                models=one_line(", ".join(server.models), 200),
            )
        return model

    def window(self, id: str) -> int | None:
        """Tokens that fit in a conversation, with its server and model."""
        info = self.link(id).info
        return info.window(self.asked_model(id)) if info else None

    def window_share(self, conversation: OpenConversation) -> float | None:
        """How full the window is, from 0 to 1; None when that is not known."""
        used, size = conversation.context_used, self.window(conversation.id)
        return used / size if used is not None and size and conversation.record.turns else None

    def is_nearly_full(self, conversation: OpenConversation) -> bool:
        """Whether the window is so full that compacting is to be offered."""
        share = self.window_share(conversation)
        return share is not None and share >= self._ground.settings.cache.compact_at / 100

    async def move(self, conversation: OpenConversation, name: str, model: str) -> None:
        """Let a conversation go on with another server and model. Parameters that it began with become those of the
        other one."""
        before, after = self.link(conversation.id), self.links.at(name)
        self._moved.add(conversation.id)
        first, own = self.first_parameters(before), self.first_parameters(after)
        await self._conversations.change(
            conversation,
            lambda row: replace(
                row, server=name, model=model, parameters=own if row.parameters == first else row.parameters
            ),
        )

    async def keep(self, conversation: OpenConversation, link: Link, model: str = "") -> None:
        """A conversation is answered: from now on it goes to this server and asks for this model (empty: the one that
        it asks for now), in later runs too."""
        model, was = model or self.asked_model(conversation.id), conversation.record
        name = was.server if was.server and link.leads_to(was.server) else link.kept_name
        if (was.server, was.model) != (name, model):
            await self._conversations.change(
                conversation,
                lambda row: (
                    replace(row, server=name, model=model)
                    if row.model == was.model and row.server in (was.server, name)
                    else row
                ),
            )
            if link.connector.home and link.name == DEFAULT:
                await self.used(name)

    async def used(self, name: str) -> None:
        """A server was chosen, or found and has answered: new conversations begin there, in later runs too."""
        self._last = name
        await self._ground.keep_setting(LAST_SERVER, name)

    # -- of the one that is looked at -----------------------------------------------------------------------------

    @property
    def info(self) -> ServerInfo | None:
        """The server of the conversation that is looked at; None until it was found."""
        return self.link().info

    @property
    def connection(self) -> Connection:
        """The connection state of the shown conversation's server."""
        link = self.link()
        if link is self.fallback.off:
            return Connecting(Reaching.OFF.format(server=place_words(self.name)))
        return link.connector.connection

    @property
    def name(self) -> str:
        """The name of the server of the conversation that is looked at; of one that was found its address."""
        link = self.link()
        return link.name or link.connector.address

    def title(self) -> str:
        """The kind of server as the screen names it; empty for a service on the internet, that is said otherwise."""
        info = self.info
        return kinds.title_of(info.kind) if info is not None and info.kind != kinds.CLOUD else ""

    # -- connecting -----------------------------------------------------------------------------------------------

    async def connect(self, id: str = "") -> None:
        """Look for the server of a conversation (without an id: of the one that is looked at), or start the engine; how
        it went is in `connection`."""
        try:
            await self.link(id).connector.ready()
        except BackendError:
            pass

    async def meet(self, id: str = "") -> None:
        """`connect` ahead of a question: not to a server elsewhere that the user has not agreed to."""
        link = self.link(id)
        if self.may_meet(id):
            await self.connect(id)
        else:
            link.connector.left_alone()

    def may_meet(self, id: str = "") -> bool:
        """Whether the server of a conversation may be connected to ahead of a question."""
        link = self.link(id)
        return link.leads_to(self.first()) or self.consent.may_meet(link, id or self._conversations.looked_at)

    async def backend(self, id: str = "", *, name: str = "") -> Backend:
        """The server of a conversation, or the one of this name, connected; without both that of the next new
        conversation, which begins elsewhere while the server used last is off. Raises BackendError."""
        try:
            return await (self.links.at(name) if name else self.link(id)).connector.ready()
        except BackendError:
            if name or (looking := self._fall_back(id)) is None:
                raise
            await looking
            return await self.link(id).connector.ready()

    async def reach(self, id: str = "", *, name: str = "") -> ServerInfo:
        """`backend`, which has the conversation's model, and where words may go. Raises ChatError: then nothing was
        stored or sent."""
        try:
            backend = await self.backend(id, name=name)
            if (conversation := self._conversations.get(id)) is not None:
                self.model_of(conversation, backend.info)
        except BackendError as error:
            raise ChatError.of(error) from None
        if not self.consent.agreed_to(backend.info, id):
            raise ChatError.of(note_sentence(self.consent.not_agreed(backend.info, id)))
        return backend.info

    async def must_take(self, conversation: OpenConversation, path: Sequence[Node]) -> None:
        """Nothing, where the server, as far as it is known, has the conversation's model, and that takes the images of
        `path`, its tools, and its calls with their results. Raises ChatError: nothing was sent or stored."""
        if not is_whole(path):
            raise ChatError(ChatProblem.CALLS_LOST)
        if (known := self.link(conversation.id).info) is not None:
            try:
                self.model_of(conversation, known)
            except BackendError as error:
                raise ChatError.of(error) from None
        if known is not None and known.takes_tools is False and tools_of(path):
            raise ChatError(ChatProblem.NO_TOOLS, model=model_name(known.model))
        if not has_images(node.wire for node in path):
            return
        from kvchat.text.messages import no_images

        info = await self.reach(conversation.id)
        model = self.model_of(conversation, info)
        if not (sees := self._sees(conversation, info, model)):
            earlier = not has_images([path[-1].wire])
            raise ChatError.of(no_images(model or info.model, sees, earlier=earlier))

    def refused(self, conversation: OpenConversation, info: ServerInfo, path: Sequence[Node]) -> Statement | None:
        """Why `path` cannot be sent to a server, as in `must_take`; None: it can."""
        if not is_whole(path):
            return said(NoteKind.CALLS_LOST)
        if info.takes_tools is False and tools_of(path):
            return said(NoteKind.NO_TOOLS, model=info.model)
        if not has_images(node.wire for node in path):
            return None
        sees = self._sees(conversation, info, self.model_of(conversation, info))
        return None if sees else said(NoteKind.NO_IMAGES, model=info.model)

    def _sees(self, conversation: OpenConversation, info: ServerInfo, model: str) -> bool | None:
        """Whether a model takes images: as the settings of its server say, else as that says itself. None: neither
        does."""
        setting = self.link(conversation.id).connector.server.vision
        return info.takes_images(model) if setting == "auto" else setting == "yes"

    async def restart(self) -> None:
        """Connect again; the embedded engine is started again. Raises BackendError."""
        link = self.link()
        await link.lane.stop_spare()
        try:
            await link.connector.restart()
        except BackendError:
            pass

    async def is_gone(self, link: Link, error: BackendError, *, was_sent: bool = True) -> bool:
        """Whether a request failed because its server was gone, so that it is to be sent when the server is back.
        Behind a proxy (502, 504) a server may have begun, so that counts only before the request was sent
        (`was_sent`)."""
        if error.trouble in (Trouble.UNREACHABLE, Trouble.DEAD) or error.is_behind_proxy:
            link.connector.lost(error.sentence, refuses=error.trouble is Trouble.UNREACHABLE)
        elif error.trouble is Trouble.CUT:
            self._ground.in_background(link.connector.looked_after(error.sentence))
        is_new = not was_sent or error.status == 503
        is_off = error.trouble is Trouble.UNREACHABLE or (error.is_behind_proxy and is_new)
        return self.waits and is_off and link.connector.is_awaited

    def is_on_the_internet(self, link: Link) -> bool:
        """Whether what is sent to a server leaves the user's own machines, or may."""
        if link.info is not None:
            return link.info.host_class is HostClass.CLOUD or bool(link.info.remote_of(link.connector.server.model))
        if not link.connector.base_url:
            return False
        return not re.match(r"https?://(?:127\.|\[::1\])", normal(link.connector.base_url))

    @property
    def snapshot_folder(self) -> Path | None:
        """Where the built-in engine saves slots; None where it does not."""
        return self.links.folder

    def usual_places(self) -> str:
        """Where servers are looked for, in words."""
        return kinds.usual_places()

    def opened(self, id: str, before: str) -> None:
        """A conversation is looked at: its server is connected to. A fork goes on where that was chosen in this run."""
        link, record = self.link(), self._conversations.record(id)
        if record is not None and before == record.forked_from and before in self._moved:
            self._moved.add(id)
            link = self.link()
        was = self.link(before) if before else self.links.at(self.first())
        self._ground.in_background(self._met(link, is_known=link is was and link.info is not None))
        self.begin_here(id)

    async def _met(self, link: Link, *, is_known: bool = False) -> None:
        """Connect to the server of the conversation that is looked at now, unless that is known. The engine is not
        taken from another model for a look: that waits for a question."""
        self._ground.events.tell(ServerChanged())
        engine = self.links.engine
        takes_engine = link.connector.model_path is not None and engine not in (None, link)
        if self.connects_ahead and not is_known and not takes_engine and link is self.link():
            await self.meet()

    def _link_changed(self, link: Link) -> None:
        link.changed()
        if self._one_server and link is self.links.at(DEFAULT) and link.connector.connection.phase == "ready":
            self._ground.in_background(self.used(link.kept_name))
        self.begin_here(self._conversations.looked_at)
        self._ground.events.tell(ServerChanged())
        for observer in self.observers:
            observer.link_changed(link)

    async def rest(self) -> None:
        """End what is done in spare time, and wait until what the last answers left is known."""

        async def left_alone(link: Link) -> None:
            await link.lane.stop_spare()
            if link.cache is not None:
                await link.cache.settled(QUIT_S)

        await asyncio.gather(*(left_alone(link) for link in self.links))

    # -- the server of new conversations --------------------------------------------------------------------------

    @property
    def is_named(self) -> bool:
        """Whether the settings, or the command line, name the server of new conversations."""
        settings = self._ground.settings
        server = settings.server
        named = server.base_url or server.wrong or settings.default_profile or settings.engine.model
        return self._one_server or bool(named)

    @property
    def named_address(self) -> str:
        """The address that the settings, or the command line, name for new conversations; empty: none."""
        return self.links.at(self.first()).connector.base_url if self.is_named else ""

    @property
    def is_given(self) -> bool:
        """Whether this run was given its server, which every conversation goes to."""
        return self._one_server

    def first(self) -> str:
        """The name of the server that a new conversation begins with: the settings', else the one chosen last on the
        screen; where none was, what the built-in engine runs already, and else what is found."""
        settings = self._ground.settings
        if self._one_server:
            return DEFAULT
        if settings.default_profile in settings.profiles:
            return settings.default_profile
        if settings.server.base_url or settings.server.wrong or settings.engine.model:
            return DEFAULT
        if self._last is None:  # what another kvchat names later is no choice that was made here
            self._last = self._ground.store.setting(LAST_SERVER)
        last = self._last or DEFAULT
        there = "://" in last or last in settings.profiles or (is_file(last) and Path(last).is_file())
        if not there and (engine := self.links.engine) is not None and self.links.at(DEFAULT).info is None:
            return engine.name
        return self.fallback.instead_of(last if there else DEFAULT)

    @property
    def last_off(self) -> str:
        """The name of the server used last, while it is off, the shown conversation would begin there, and no other one
        replaces it; else empty."""
        link, id = self.link(), self._conversations.looked_at
        connection = link.connector.connection
        is_off = connection.phase == "failed" and connection.is_awaited and self._looking is None
        return link.name if is_off and self._follows_last(id) else ""

    def first_parameters(self, link: Link) -> Parameters:
        """The sampling parameters that a conversation on this server begins with."""
        return merged(self._ground.settings.parameters, link.connector.server.parameters)

    def begin_here(self, id: str) -> None:
        """Where servers are connected to ahead, see at once that a conversation does not wait for one that is off."""
        if self.connects_ahead:
            self._fall_back(id)

    def _fall_back(self, id: str) -> asyncio.Task[None] | None:
        """Look for another server for a conversation that has nothing on its own yet, if that one was used last and is
        off; without an id: for the next new one."""
        link = self.link(id)
        if self._looking is None and link.connector.connection.is_awaited and self._follows_last(id):
            self.fallback.off = link
            self._looking = asyncio.create_task(self._ground.run_and_notify(self._begin_elsewhere(id, link)))
            self._looking.add_done_callback(lambda _: self._looked())
        return self._looking

    def _looked(self) -> None:
        self._looking = self.fallback.off = None
        self._ground.events.tell(ServerChanged())

    def look_no_more(self) -> None:
        """End the look for a server that replaces another."""
        if self._looking is not None:
            self._looking.cancel()

    def _follows_last(self, id: str) -> bool:
        """Whether a conversation is on the server that was used last for want of a choice, and nothing was answered in
        it."""
        if self._one_server or self.is_named or id in self._moved:
            return False
        conversation = self._conversations.get(id)
        if conversation is None:
            return not id
        answered = any(node.role is Role.ASSISTANT and node.state is not State.STREAMING for node in conversation.tree)
        return not answered and self.link(id) is self.links.at(self.first())

    async def _begin_elsewhere(self, id: str, off: Link) -> None:
        name = await self.fallback.find(off)
        if name is None or off.connector.connection.phase == "ready":
            return
        self.fallback.use(name, off)
        self._ground.events.tell(FallbackChosen(off.name or off.connector.home, name))
        conversation = self._conversations.get(id)
        if conversation is None or self.link(id) is not off:
            return
        after = self.links.at(name)
        parameters = conversation.record.parameters
        if parameters == self.first_parameters(off):
            parameters = self.first_parameters(after)
        await self._conversations.update(conversation, server=name, model="", parameters=parameters)
        off.connector.release()
        if self._conversations.looked_at == id:
            self._ground.in_background(self._met(after))

    async def other(self, id: str) -> str | None:
        """The name of a server that answers now and that a conversation could go on with instead of its own, without
        another question; None where there is none."""
        return await self.fallback.find(self.link(id))

    def _known(self) -> Iterator[str]:
        """The names of the servers that the user knows: those of the settings, then those used lately."""
        yield self._ground.settings.server.base_url
        yield from self._ground.settings.profiles
        yield from (record.server for record in self._conversations.all())


def _is_same_file(one: str, other: str) -> bool:
    """Whether two models' names are paths of a file of one name: llama-server calls a model as it was started with."""
    return one.endswith(".gguf") and Path(one).name == Path(other).name

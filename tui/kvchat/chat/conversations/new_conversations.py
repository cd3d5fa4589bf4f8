"""New conversations.

An empty conversation without a draft is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import Noticed
from kvchat.chat.server.link import Link
from kvchat.chat.tools.named import listed_tools, named_tools
from kvchat.config.unknown import nearest
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import (
    DEFAULT_INSTRUCTIONS,
    Message,
    new_id,
    node,
    system_message,
)
from kvchat.prompt.request import Parameters, merged
from kvchat.sanitize import one_line
from kvchat.text.problems import ChatProblem
from kvchat.text.servers import model_name

if TYPE_CHECKING:
    from kvchat.config.personas import Persona


class NewConversations:
    """Creates conversations on the server that new ones begin with."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(
        self,
        instructions: str | None = None,
        *,
        persona: Persona | None = None,
        trunk: Message | None = None,
        tools: Sequence[str] | None = None,
        reuse: bool = True,
    ) -> OpenConversation:
        """A new conversation, looked at. `trunk`: the system message of a trunk, which it shares with others to the
        byte. `tools`: names of tools and groups; None: those of the persona, the server or the settings. `reuse`: an
        empty one without a draft is used again. Raises ChatError."""
        if instructions is None:
            own = persona.system_prompt if persona is not None else ""
            instructions = own or self._core.settings.system_prompt or DEFAULT_INSTRUCTIONS
        server, servers = self.server_of(persona), self._core.servers
        link = servers.links.at(server)
        message = trunk or system_message(instructions, tools=await self._tools(link, persona, tools))
        model, parameters = "", servers.first_parameters(link)
        if persona is not None:
            _must_have(link, persona)
            model, parameters = persona.model, merged(parameters, persona.parameters)
        if reuse and (conversation := await self._used_again(message, server, model, parameters)) is not None:
            return conversation
        now = self._core.timestamp()
        root = node(None, message, now)
        record = Conversation(
            id=new_id(), head=root.id, created=now, updated=now, server=server, model=model, parameters=parameters
        )
        return await self._core.conversations.insert(record, [root])

    async def _tools(self, link: Link, persona: Persona | None, names: Sequence[str] | None) -> bytes:
        """The tools that a conversation begins with. Those that are asked for must be there; a usual one that is not is
        left out, and that is said. Raises ChatError."""
        info = link.info
        if names and info is not None and info.takes_tools is False:
            raise ChatError(ChatProblem.NO_TOOLS, model=model_name(info.model))
        if names is not None:
            return await listed_tools(self._core, names, recent=True)
        for usual in (persona.tools if persona is not None else None, link.connector.server.tools):
            names = usual if names is None else names
        names = (self._core.settings.tools or ()) if names is None else names
        had = []
        for name in () if info is not None and info.takes_tools is False else names:
            try:
                named_tools(self._core, [name])
                had.append(name)
            except ChatError as error:
                self._core.events.tell(Noticed(str(error), "warning"))
        return named_tools(self._core, had)

    def server_of(self, persona: Persona | None) -> str:
        """The name of the server that a conversation begins with: the one this run was given, else the persona's, else
        that of new conversations. Raises ChatError."""
        if persona is None or not persona.profile or self._core.servers.is_given:
            return self._core.servers.first()
        profiles = self._core.settings.profiles
        if persona.profile in profiles:
            return persona.profile
        near = nearest(persona.profile, profiles)
        raise ChatError(
            ChatProblem.NO_PROFILE_BUT if near else ChatProblem.NO_PROFILE,
            persona=persona.name,
            profile=one_line(persona.profile, 40),
            near=near,
        )

    async def _used_again(
        self, message: Message, server: str, model: str, parameters: Parameters
    ) -> OpenConversation | None:
        """An empty conversation with this system message, opened, with what a new one begins with."""
        conversations, servers = self._core.conversations, self._core.servers
        streaming = conversations.streaming()
        for known in conversations.all():
            if known.turns == 0 and known.id not in streaming and not self._is_written_in(known.id):
                same = conversations.load(known.id).path()[0].message == message
                if same and await conversations.take_empty(known.id):
                    conversation = await conversations.open(known.id)
                    if (known.server, known.model, known.parameters) != (server, model, parameters):
                        await conversations.update(conversation, server=server, model=model, parameters=parameters)
                    if known.server != server:
                        servers.begin_here(conversation.id)
                    return conversation
        return None

    def _is_written_in(self, id: str) -> bool:
        store = self._core.store
        return bool(store.draft(id) or store.queue.of(id))


def _must_have(link: Link, persona: Persona) -> None:
    """Raises ChatError where the server is known not to have the model of a persona."""
    info = link.info
    if persona.model and info is not None and info.listing and not info.known(persona.model):
        raise ChatError(
            ChatProblem.ENGINE_HAS_NO_MODEL if info.embedded else ChatProblem.NO_MODEL,
            url=info.base_url,
            persona=persona.name,
            model=one_line(persona.model, 60),
            models=", ".join(one_line(model, 60) for model in info.models[:6]),
        )

"""Requests beside a conversation: its own messages and one instruction more, whose answer is no part of it.

The rule: such a request extends what the server holds of the conversation, so that it costs its instruction and the
turn after it costs nothing more; it is played on the model of the cache like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from kvchat.backends.dialect import Backend, ChatTurn, Emit, Ended, StreamEvent, Trouble, Waiting
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.causes.cause import said
from kvchat.chat.answering import Answering
from kvchat.chat.cache.following import FollowedTurn, Following
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.tracker import CacheTracker
from kvchat.chat.conversations import Conversations
from kvchat.chat.events import Noticed
from kvchat.chat.ground import Ground
from kvchat.chat.live import LiveAnswer, OpenConversation
from kvchat.chat.server.link import DEFAULT, Link
from kvchat.chat.server.servers import Servers
from kvchat.prompt.branching import awaited
from kvchat.prompt.message import Node, NoteKind, State
from kvchat.prompt.request import Parameters, wires_of
from kvchat.store.side_requests import SideRequest
from kvchat.text.findings import SYSTEM_MOVED

SILENT_S = 180.0
"""A background request from which nothing has come for so long is given up."""
LONG_TOKEN = 16
"""Characters that a token may have on average, before an answer counts as one without an end."""
APART = "kvchat-memory"
"""The session of prompts that are no conversation's own."""


class SideRequests:
    """Sends them. Whoever has one sent holds the lane."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers, tracker: CacheTracker,
                 routes: Routes) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._tracker = tracker
        self._routes = routes

    async def of_conversation(self, backend: Backend, conversation: OpenConversation, path: Sequence[Node],
                              parameters: Parameters, emit: Emit, began: Callable[[FollowedTurn], None]) -> Ended:
        """Send `path`, which ends with the instruction. `began` is told how it is followed, before it goes out."""
        record, info = conversation.record, backend.info
        following = await self._tracker.follow(backend)
        if not self._servers.consent.agreed_to(info, record.id):
            return Ended(State.ERROR, said(NoteKind.NOT_AGREED_BESIDE, url=info.base_url))
        turn = ChatTurn(wires_of(path), record.id, self._servers.model_of(conversation, info), parameters,
                        record.template_options, system_in_user=record.system_in_user)
        ended = await self._sent_beside(backend, following, turn, path, emit, began)
        if ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE and not record.system_in_user:
            await self._conversations.update(conversation, system_in_user=True)
            self._ground.events.tell(Noticed(SYSTEM_MOVED))
            ended = await backend.chat(replace(turn, system_in_user=True), emit)
        return ended

    async def _asked_apart(self, link: Link, backend: Backend, id: str, path: Sequence[Node], parameters: Parameters,
                           emit: Emit, began: Callable[[FollowedTurn], None]) -> Ended:
        """Send a prompt of its own, with words of conversation `id`, to the model that this server is for."""
        chosen = link.name != DEFAULT and link.name == self._ground.settings.memory.profile
        if not self._ground.settings.memory.on_cloud and self._servers.is_on_the_internet(link):
            return Ended(State.ERROR, said(NoteKind.ON_THE_INTERNET, url=backend.info.base_url))
        if not self._servers.consent.agreed_to(backend.info, "" if chosen else id):
            return Ended(State.ERROR, said(NoteKind.NOT_AGREED_APART, url=backend.info.base_url))
        following = await self._tracker.follow(backend)
        turn = ChatTurn(wires_of(path), APART, link.connector.server.model or backend.info.model, parameters)
        ended = await self._sent_beside(backend, following, turn, path, emit, began)
        if ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE:
            ended = await backend.chat(replace(turn, system_in_user=True), emit)
        return ended

    async def _sent_beside(self, backend: Backend, following: Following | None, turn: ChatTurn, path: Sequence[Node],
                           emit: Emit, began: Callable[[FollowedTurn], None]) -> Ended:
        if following is not None:
            followed = await following.before(turn, path, "side", emit=emit)
            began(followed)
            turn = replace(turn, slot=await self._routes.planned(backend, following, followed))
            following.sent(followed, turn.slot)
        elif (shared := self._servers.links.of(backend).shared) is not None:
            shared.sent(path, turn.session_id, self._ground.timestamp())
        return await backend.chat(turn, emit)

    async def settled(self, kind: str, link: Link, conversation: OpenConversation,
                                      path: Sequence[Node], parameters: Parameters, *, apart: bool = False) -> Node:
        """The settled answer to `path`, which ends with the instruction; its state says how it ended. What it took is
        put down in the ledger under `kind`. `apart`: it is a prompt of its own, not the conversation's. Whoever is
        cancelled while waiting has it closed first."""
        answer, began = awaited(path[-1], self._ground.clock()), time.monotonic()
        live, followed = LiveAnswer(answer.id, began), list[FollowedTurn]()
        heard, most, endless = began, (parameters.max_tokens or 0) * LONG_TOKEN, False

        async def chat(emit: Emit) -> Ended:
            def hearing(event: StreamEvent) -> None:
                nonlocal heard, endless
                if not isinstance(event, Waiting):
                    heard = time.monotonic()
                emit(event)
                if most and len(live.text) + len(live.reasoning) > most and not endless:
                    endless = True
                    answering.stop()

            backend = await link.connector.ready()
            live.sent_at = time.monotonic()
            if apart:
                return await self._asked_apart(link, backend, conversation.id, path, parameters, hearing,
                                               followed.append)
            return await self.of_conversation(backend, conversation, path, parameters, hearing, followed.append)

        async def checkpoint(text: str, reasoning: str) -> None:
            """Nothing of it is stored."""

        answering = Answering(answer, path, live, chat=chat, checkpoint=checkpoint, changed=lambda: None)
        work = asyncio.create_task(answering.run(lambda: self._servers.window(conversation.id)))
        try:
            while not (await asyncio.wait({work}, timeout=SILENT_S))[0]:
                if time.monotonic() - heard >= SILENT_S:
                    answering.stop()
        except asyncio.CancelledError:
            answering.stop()
            await asyncio.wait({work})
            raise
        finally:
            settled = work.result()
            self._note_beside(link, conversation, followed, settled)
            self._count_beside(kind, link, conversation.id, settled, time.monotonic() - began)
        if settled.state is State.CANCELLED and endless:
            settled = replace(settled, state=State.LENGTH)  # a server that does not keep to max_tokens
        elif settled.state is State.CANCELLED:
            settled = replace(settled, state=State.ERROR, note=said(NoteKind.SILENT))
        return settled

    def _note_beside(self, link: Link, conversation: OpenConversation, followed: Sequence[FollowedTurn],
                     answer: Node) -> None:
        """What the request left in the server's cache is found out."""
        following = link.following
        if following is not None and followed and following.plays(followed[-1]):
            turn = followed[-1].turn
            following.left(followed[-1], answer, replace(turn, wires=(*turn.wires, answer.wire)))

    def _count_beside(self, kind: str, link: Link, id: str, answer: Node, seconds: float) -> None:
        info, figures = link.info, answer.figures or TurnFigures()
        if info is None:
            return
        spent = SideRequest(
            kind, id, self._ground.timestamp(), info.place, answer.model or info.model, answer.state.value,
            figures.prompt_tokens, figures.cached_tokens, figures.predicted_tokens, seconds)
        self._ground.in_background(self._ground.keeper.write(lambda: self._ground.store.side_requests.record(spent)))

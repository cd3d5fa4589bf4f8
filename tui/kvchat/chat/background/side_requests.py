"""Side requests: a conversation's own messages and one instruction more, whose answer is no part of it.

Such a request extends what the server holds of the conversation, so that it costs its instruction and the
turn after it costs nothing more; it goes through the cache simulator like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from kvchat.backends.dialect import Backend, ChatTurn, Emit, Ended, StreamEvent, Trouble, Waiting
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.tracked_turn import EndedAnswers, TrackedTurn
from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import Noticed
from kvchat.chat.server.link import DEFAULT, Link
from kvchat.chat.turns.answer_run import AnswerRun
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.branching import awaited, instructed
from kvchat.prompt.message import Node, NoteKind, State, tools_of
from kvchat.prompt.prefilled_before import prefilled_before
from kvchat.prompt.request import Parameters, wires_of
from kvchat.reports.warmth import Heat
from kvchat.store.side_requests import SideRequest
from kvchat.text.findings import SYSTEM_MOVED
from kvchat.values import said

ROOM = 800
"""Tokens that an instruction and its answer take, at most."""
THINKING = 4
"""A model that reasons before it answers is given this many times the tokens."""
SILENT_S = 180.0
"""Seconds of silence after which a background request is given up."""
LONG_TOKEN = 16
"""Characters that a token may have on average, before an answer counts as one without an end."""
OWN_SESSION = "kvchat-memory"
"""The session of prompts that are no conversation's own."""


class SideRequests:
    """Sends them. Whoever has one sent holds the lane."""

    def __init__(self, core: Core, routes: Routes) -> None:
        self._core = core
        self._routes = routes

    async def of_conversation(
        self,
        backend: Backend,
        conversation: OpenConversation,
        path: Sequence[Node],
        parameters: Parameters,
        emit: Emit,
        began: Callable[[TrackedTurn], None],
    ) -> Ended:
        """Send `path`, which ends with the instruction. `began` is called with how it is tracked, as it goes out."""
        record, info = conversation.record, backend.info
        cache = await self._core.tracker.cache_of(backend, self._core.servers.asked_model(record.id), sends=True)
        if not self._core.servers.consent.agreed_to(info, record.id):
            kind = NoteKind.NOT_AGREED_BESIDE
            return Ended(State.ERROR, self._core.servers.consent.not_agreed(info, record.id, kind=kind))
        if (why := self._core.servers.refused(conversation, info, path)) is not None:
            return Ended(State.ERROR, why)
        turn = ChatTurn(
            wires_of(path),
            record.id,
            self._core.servers.model_of(conversation, info),
            parameters,
            record.template_options,
            system_in_user=record.system_in_user,
            tools=tools_of(path),
        )
        turn = self._core.branch_requests.by_ids(turn, path, info)
        ended = await self._send(backend, cache, turn, path, emit, began)
        if ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE and not record.system_in_user:
            await self._core.conversations.update(conversation, system_in_user=True)
            self._core.events.tell(Noticed(SYSTEM_MOVED))
            ended = await backend.chat(replace(turn, system_in_user=True), emit)
        return ended

    def extends(self, conversation: OpenConversation, *, in_slot: bool = False, room: int = ROOM) -> bool:
        """Whether the server still has most of a conversation, and `room` tokens fit behind it. `in_slot`: where going
        on with it pushes no other one out."""
        used, window = conversation.context_used, self._core.servers.window(conversation.id)
        if used is not None and window and used + room > window:
            return False
        found = self._core.tracker.warmth(conversation.id)
        if found.heat is Heat.UNKNOWN:
            return self._core.conversations.looked_at == conversation.id
        if found.heat is Heat.PARKED and not in_slot:
            return (found.to_prefill or 0) <= (found.held or 0) // 4 and self._spares_open(conversation)
        return found.heat is Heat.WARM and self._spares_open(conversation)

    def _spares_open(self, conversation: OpenConversation) -> bool:
        cache = self._core.tracker.cache_for(conversation.id)
        return cache is None or self._routes.spares_open(cache, conversation)

    def can_ask(self, link: Link, conversation: OpenConversation, room: int = ROOM) -> bool:
        """Whether the server could answer an instruction at the end of a conversation now, for that alone."""
        id = conversation.id
        return (
            link.info is not None
            and link.connector.connection.phase == "ready"
            and not self._core.conversations.is_taken(id)
            and not self._core.conversations.answered_elsewhere(id)
            and self.extends(conversation, in_slot=True, room=room)
        )

    async def at_the_end(
        self,
        kind: str,
        link: Link,
        conversation: OpenConversation,
        instruction: str,
        shape: Mapping[str, Any],
        tokens: int,
    ) -> Node:
        """The settled answer to an instruction at the end of a conversation, of the shape `shape` (a
        `response_format`) and of `tokens` tokens at most; more where the model reasons. Runs in the lane."""
        path = conversation.path()
        thinks = any(known.message.reasoning for known in path)
        path = instructed(path, instruction, self._core.timestamp())
        parameters = Parameters(temperature=0.0, max_tokens=tokens * (THINKING if thinks else 1), response_format=shape)
        return await self.settled(kind, link, conversation, path, parameters)

    async def _ask_by_itself(
        self,
        link: Link,
        backend: Backend,
        id: str,
        path: Sequence[Node],
        parameters: Parameters,
        emit: Emit,
        began: Callable[[TrackedTurn], None],
    ) -> Ended:
        """Send a prompt of its own, with words of conversation `id`, to the model that this server is for."""
        chosen = link.name != DEFAULT and link.name == self._core.settings.memory.profile
        if not self._core.settings.memory.on_cloud and self._core.servers.is_on_the_internet(link):
            return Ended(State.ERROR, said(NoteKind.ON_THE_INTERNET, url=backend.info.base_url))
        consent, model = self._core.servers.consent, link.connector.server.model or backend.info.model
        if not consent.agreed_to(backend.info, "" if chosen else id, model):
            return Ended(State.ERROR, consent.not_agreed(backend.info, id, model, NoteKind.NOT_AGREED_APART))
        cache = await self._core.tracker.cache_of(backend)
        turn = ChatTurn(wires_of(path), OWN_SESSION, model, parameters)
        ended = await self._send(backend, cache, turn, path, emit, began)
        if ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE:
            ended = await backend.chat(replace(turn, system_in_user=True), emit)
        return ended

    async def _send(
        self,
        backend: Backend,
        cache: ServerCache | None,
        turn: ChatTurn,
        path: Sequence[Node],
        emit: Emit,
        began: Callable[[TrackedTurn], None],
    ) -> Ended:
        if cache is not None:
            prepared = await cache.before(turn, path, prefilled_before(path, path), "side", emit=emit)
            turn = replace(turn, slot=await self._routes.planned(backend, cache, prepared))
            began(cache.sent(prepared, turn.slot))
        elif (shared := self._core.servers.links.of(backend).shared) is not None:
            shared.sent(path, self._core.timestamp())
        return await backend.chat(turn, emit)

    async def settled(
        self,
        kind: str,
        link: Link,
        conversation: OpenConversation,
        path: Sequence[Node],
        parameters: Parameters,
        *,
        by_itself: bool = False,
    ) -> Node:
        """The settled answer to `path`, which ends with the instruction; its state says how it ended. What it took is
        put down in the ledger under `kind`. `by_itself`: it is a prompt of its own, not the conversation's. Whoever is
        cancelled while waiting has it closed first."""
        answer, began = awaited(path[-1], self._core.clock()), time.monotonic()
        live, tracked = LiveAnswer(answer.id, began), list[TrackedTurn]()
        heard, most, endless = began, (parameters.max_tokens or 0) * LONG_TOKEN, False

        async def chat(emit: Emit) -> Ended:
            def hearing(event: StreamEvent) -> None:
                nonlocal heard, endless
                if not isinstance(event, Waiting):
                    heard = time.monotonic()
                emit(event)
                if most and len(live.text) + len(live.reasoning) > most and not endless:
                    endless = True
                    answer_run.stop()

            backend = await link.connector.ready()
            live.context_size = self._core.servers.window(conversation.id)
            live.sent_at = time.monotonic()
            if by_itself:
                return await self._ask_by_itself(
                    link, backend, conversation.id, path, parameters, hearing, tracked.append
                )
            return await self.of_conversation(backend, conversation, path, parameters, hearing, tracked.append)

        answer_run = AnswerRun(answer, path, live, chat=chat)
        work = asyncio.create_task(answer_run.run())
        try:
            while not (await asyncio.wait({work}, timeout=SILENT_S))[0]:
                if time.monotonic() - heard >= SILENT_S:
                    answer_run.stop()
        except asyncio.CancelledError:
            answer_run.stop()
            await asyncio.wait({work})
            raise
        finally:
            settled = work.result()
            self._note_side_request(link, conversation, tracked, settled)
            self._count_side_request(kind, link, conversation.id, settled, live, time.monotonic() - began)
        if settled.state is State.CANCELLED and endless:
            settled = replace(settled, state=State.LENGTH)  # a server that does not keep to max_tokens
        elif settled.state is State.CANCELLED:
            settled = replace(settled, state=State.ERROR, note=said(NoteKind.SILENT))
        return settled

    def _note_side_request(
        self, link: Link, conversation: OpenConversation, tracked: Sequence[TrackedTurn], answer: Node
    ) -> None:
        """What the request left in the server's cache is found out."""
        cache = link.cache
        if cache is not None and tracked and cache.plays(tracked[-1]):
            request = tracked[-1].request
            turn, path = request.turn, [*request.path, answer]
            left = self._core.branch_requests.by_ids(
                replace(turn, wires=(*turn.wires, answer.wire)), path, cache.server
            )
            cache.left(tracked[-1], EndedAnswers([answer]), left)

    def _count_side_request(
        self, kind: str, link: Link, id: str, answer: Node, live: LiveAnswer, seconds: float
    ) -> None:
        info, figures = link.info, answer.figures or TurnFigures()
        if info is None:
            return
        if live.first_token_at is None and live.progress is not None:  # cut while its prompt was prefilled
            figures = replace(figures, prompt_tokens=live.progress.processed)
        spent = SideRequest(
            kind,
            id,
            self._core.timestamp(),
            info.place,
            answer.model or info.model,
            answer.state.value,
            figures.prompt_tokens,
            figures.cached_tokens,
            figures.predicted_tokens,
            seconds,
        )
        self._core.in_background(self._core.writer.write(lambda: self._core.store.side_requests.record(spent)))

"""The request for an answer: when it may go out, to which server, and what is settled before it does.

Nothing is sent outside the server's lane, nor to a server that the user did not agree to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import chain, repeat

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import (
    Backend,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    OfAlternative,
    Posted,
    ReasoningDelta,
    ServerInfo,
    StreamEvent,
    TextDelta,
    Trouble,
    Waiting,
)
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.tracked_turn import TrackedTurn
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import Noticed
from kvchat.chat.server import connection
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.chat.turns.answer_run import AnswerRun
from kvchat.chat.turns.queue import MessageQueue
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.message import Node, NoteKind, Role, State, tools_of
from kvchat.prompt.request import Parameters, wires_of
from kvchat.text.findings import SYSTEM_MOVED, SYSTEM_STAYS
from kvchat.text.notes import note_sentence
from kvchat.values import said


class AnswerRequest(Struct, eq=False):
    """One request, for one answer or for several."""

    conversation: OpenConversation
    path: Sequence[Node]
    """The branch as it is sent: up to and with the question, or the cut answer that is continued."""
    before: str | None
    """The conversation's head before it."""
    parameters: Parameters | None = None
    """None: the conversation's."""
    model: str = ""
    """Empty: the conversation's."""
    may_call: bool = False
    """Whether the answer may call tools."""
    runs: list[AnswerRun] = field(default_factory=list)
    """One for each answer."""
    tracked: TrackedTurn | None = None
    """What is known of it at the server; None: it has not gone out."""

    @property
    def continued(self) -> str | None:
        """The id of the cut answer that the request continues; None: it continues none."""
        return self.path[-1].id if self.path[-1].role is Role.ASSISTANT else None

    @property
    def live(self) -> LiveAnswer:
        """The first answer."""
        return self.runs[0].live

    def warmed(self, progress: PromptProgress) -> None:
        for answer_run in self.runs:
            answer_run.warmed(progress)

    def stop(self) -> None:
        for answer_run in self.runs:
            answer_run.stop()


class AnswerRequests:
    """The requests for answers, one after the other in each server's lane."""

    def __init__(
        self,
        core: Core,
        routes: Routes,
        queue: MessageQueue,
        warm_up: WarmUp,
    ) -> None:
        self._core = core
        self._routes = routes
        self._queue = queue
        self._warm_up = warm_up
        self._expecting: dict[str, Lane] = {}
        """By conversation: the lane that is kept for the next message of its queue."""

    async def send(self, request: AnswerRequest, emit: Emit) -> Ended:
        """Wait for the lane and the server, then send the one request. A server that is gone before it has seen the
        request is waited for, while somebody is there to wait."""
        conversation, waiting = request.conversation, time.monotonic()
        pauses = chain(connection.AGAIN_S, repeat(connection.AGAIN_S[-1]))
        while True:
            was_sent = False
            link = self._core.servers.link(conversation.id)
            lane = link.lane
            if lane.holder:
                emit(Waiting("lane", 0.0))
            async with lane.chat(conversation.id, ends_spare=False):
                self.expect_no_more(conversation.id)
                emit(Waiting("connecting", 0.0))
                try:
                    backend = await link.connector.ready()
                    if link.lane is not lane or self._core.servers.link(conversation.id) is not link:
                        continue  # it was found at an address that has a lane already, or another one was chosen
                    await lane.sit()
                    was_sent = True
                    emit(Waiting("queued", 0.0))
                    for answer_run in request.runs:
                        answer_run.live.sent_at = time.monotonic()
                    ended = await self._sent(link, backend, request, emit)
                except BackendError as error:
                    ended = Ended(State.ERROR, error=error)
                goes_on = ended.state is State.DONE and self._queue.flows(conversation.id)
                if (goes_on and not conversation.alternatives) or (ended.calls and request.may_call):
                    self._expecting[conversation.id] = lane
                    lane.expect(conversation.id)
            if ended.error is None or not await self._core.servers.is_gone(link, ended.error, was_sent=was_sent):
                return ended
            if self._core.servers.link(conversation.id) is link:  # another server may stand in for it by now
                emit(Waiting("gone", time.monotonic() - waiting, False))
                await link.connector.back()
                if was_sent and ended.error.is_behind_proxy:
                    await asyncio.sleep(next(pauses))  # what lists its models again may still refuse to answer

    async def _sent(self, link: Link, backend: Backend, request: AnswerRequest, emit: Emit) -> Ended:
        """Send the one request, and note what is to be shown of its answer."""
        conversation, consent = request.conversation, self._core.servers.consent
        if not consent.agreed_to(backend.info, conversation.id, request.model):
            return Ended(State.ERROR, consent.not_agreed(backend.info, conversation.id, request.model))
        cache = await self._core.tracker.cache_of(
            backend, request.model or self._core.servers.asked_model(conversation.id), sends=True
        )
        if not consent.agreed_to(backend.info, conversation.id, request.model):  # found at another address just now
            return Ended(State.ERROR, said(NoteKind.MOVED, url=backend.info.base_url))
        await self._freeze_template(link, conversation, backend)
        ended = await self._asked_once(link, backend, cache, request, emit)
        refused = ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE
        if refused and not conversation.record.system_in_user:
            await self._core.conversations.update(conversation, system_in_user=True)
            self._core.events.tell(Noticed(SYSTEM_MOVED))
            if cache is not None:
                cache.refused()
            ended = await self._asked_once(link, backend, cache, request, emit)
        if ended.model and not request.model and not conversation.record.model:
            await self._core.servers.keep(
                conversation, link, ended.model
            )  # it has no list of models: now its name is known
        for warning in ended.warnings:
            self._core.events.tell(Noticed(note_sentence(warning), "warning"))
        return ended

    async def _asked_once(
        self, link: Link, backend: Backend, cache: ServerCache | None, request: AnswerRequest, emit: Emit
    ) -> Ended:
        """One request, played on the model of the server's cache where there is one."""
        conversation, path = request.conversation, request.path
        record, info = conversation.record, backend.info
        turn = ChatTurn(
            wires_of(path),
            record.id,
            request.model or self._core.servers.model_of(conversation, info),
            request.parameters or record.parameters,
            record.template_options,
            system_in_user=record.system_in_user,
            continues=request.continued is not None,
            answers=len(request.runs),
            tools=tools_of(path),
            may_call=request.may_call,
        )
        turn = self._core.branch_requests.by_ids(turn, path, info)
        if cache is not None:
            await self._warm_up.finished_for(link.lane, cache, turn, request.warmed)
        await link.lane.stop_spare()
        for answer_run in request.runs:
            answer_run.live.context_size = info.window(turn.model)
        if cache is not None:
            prepared = await cache.before(turn, path, request.live.read, emit=emit)
            turn = replace(turn, slot=await self._routes.planned(backend, cache, prepared))
            tracked = cache.sent(prepared, turn.slot)
        else:
            tracked = self._core.tracker.sent(backend, turn, path)
            if link.shared is not None:
                asked = path[:-1] if turn.continues else path  # the answer takes the place of the cut one
                link.shared.sent(asked, self._core.timestamp())
        request.tracked = tracked
        watched = self._core.tracker.watched(tracked, emit)
        is_kept = False

        def noting(event: StreamEvent) -> None:
            nonlocal is_kept
            if not (is_kept or request.model) and isinstance(event, TextDelta | ReasoningDelta | OfAlternative):
                is_kept = True
                self._core.in_background(self._core.servers.keep(conversation, link))
            if isinstance(event, Posted):
                for answer_run in request.runs:
                    self._record(answer_run.answer.id, event.body_sha256, info, turn.model)
            else:
                watched(event)

        return await backend.chat(turn, noting)

    def _record(self, answer: str, body_sha256: str, info: ServerInfo, model: str) -> None:
        """Keep what was sent for an answer, and where to."""
        self._core.in_background(
            self._core.writer.write(
                lambda: self._core.store.record_request(
                    answer, body_sha256=body_sha256, server=info.place, kind=info.kind, build=info.build, model=model
                )
            )
        )

    async def _freeze_template(self, link: Link, conversation: OpenConversation, backend: Backend) -> None:
        """At a conversation's first message, decide once whether the template is asked to keep reasoning, and where the
        system message goes."""
        options, info = conversation.record.template_options, backend.info
        if conversation.record.turns != 1:
            return
        if info.reasoning_option is not None and info.reasoning_option[0] not in options:
            kept = dict([info.reasoning_option])
            await self._core.conversations.change(
                conversation, lambda row: replace(row, template_options={**row.template_options, **kept})
            )
        template = link.template or info.template
        if template is not None and template.moves_system and not conversation.record.system_in_user:
            await self._core.conversations.update(conversation, system_in_user=True)
            self._core.events.tell(Noticed(SYSTEM_STAYS))

    def expect_no_more(self, id: str) -> None:
        """The next message of this queue has its lane, or none comes."""
        if (lane := self._expecting.pop(id, None)) is not None:
            lane.expect_no_more(id)

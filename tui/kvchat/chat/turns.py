"""Turns: asking, and being answered.

The rule: a question is stored before anything is sent, and an answer runs in a task of its own, whoever looks at it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from kvchat.backends.dialect import (
    Backend,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    Posted,
    StreamEvent,
    Trouble,
    Waiting,
)
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.causes.cause import said
from kvchat.chat.answer_run import AnswerRun
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.server_cache import ServerCache, TrackedTurn
from kvchat.chat.cache.tracker import CacheTracker
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations import Conversations
from kvchat.chat.errors import ChatError
from kvchat.chat.events import (
    AnswerEnded,
    AnswerProgressed,
    AnswerStarted,
    ConversationChanged,
    Noticed,
    QuestionRefused,
)
from kvchat.chat.ground import QUIT_S, Ground
from kvchat.chat.live import LiveAnswer, OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.question.builder import QuestionBuilder
from kvchat.chat.question.mentions import ALL, Meant
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.chat.server.consent import not_agreed
from kvchat.chat.server.link import DEFAULT, Link
from kvchat.chat.server.servers import Servers
from kvchat.chat.shared import Head, on_newest
from kvchat.prompt.branching import Branch, awaited, before_refused
from kvchat.prompt.conversation import NEW_TITLE, Conversation, title_of
from kvchat.prompt.message import Node, NoteKind, Role, State
from kvchat.prompt.request import Parameters, wires_of
from kvchat.store import StoreError
from kvchat.text.findings import SYSTEM_MOVED, SYSTEM_STAYS
from kvchat.text.notes import note_sentence

log = logging.getLogger(__name__)


class TurnObserver(Protocol):
    """Told of the turns that end, when all is stored."""

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None: ...


class Turns:
    """Questions and running answers."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers, tracker: CacheTracker,
                 routes: Routes, warm_up: WarmUp, questions: QuestionBuilder, sizes: PromptSizes) -> None:
        self.conversations = conversations
        self._ground = ground
        self._servers = servers
        self._tracker = tracker
        self._routes = routes
        self._warm_up = warm_up
        self._questions = questions
        self._sizes = sizes
        self.observers: list[TurnObserver] = []
        self._running: dict[str, tuple[AnswerRun, asyncio.Task[None]]] = {}
        """By conversation."""
        self._tracked: dict[str, TrackedTurn] = {}
        self._explanations: set[asyncio.Task[TurnFigures]] = set()
        conversations.occupations.append(self)

    @on_newest(Head.AWAITED)
    async def send(self, id: str, question: Question, *, parameters: Parameters | None = None,
                   anyway: bool = False) -> None:
        """Store the question with what goes in front of it, then let the answer stream in its own task. A reply that
        another kvchat streams at the branch's end is waited for. `parameters` replace the conversation's for this turn.
        `anyway`: also where the prompt is too long for the server. Raises ChatError (TooLongError), and OutsideError
        where a file that it mentions needs the person's yes."""
        conversation = self.conversations.free(id)
        branch = await self._fitting(conversation, conversation.record.head or "", question, anyway)
        await self._grow(conversation, branch, parameters, whole=True)

    async def _fitting(self, conversation: OpenConversation, head: str, question: Question, anyway: bool) -> Branch:
        """The branch of a question after `head`. Raises TooLongError where its prompt does not fit, but for
        `anyway`."""
        branch = await self._questions.built(conversation, head, question)
        if not anyway:
            await self._sizes.must_fit(conversation, [*conversation.tree.path(head), branch.nodes[0]])
        return branch

    @on_newest(Head.ANY)
    async def edit(self, id: str, node_id: str, text: str, *, anyway: bool = False, meant: Meant = ALL) -> None:
        """Ask a question differently: a sibling of it, answered anew. The old branch stays. `anyway`: also where the
        prompt is too long for the server. Raises ChatError (TooLongError), and OutsideError where a file that it
        mentions needs the person's yes."""
        conversation = self.conversations.free(id)
        question, _ = conversation.tree.turn_of(node_id)
        branch = await self._fitting(conversation, question.parent or "", Question(text, meant=meant, again=question),
                                     anyway)
        self._tracker.did(conversation, "edit", question.id)
        self.conversations.remember_head(conversation)
        await self._grow(conversation, branch)

    @on_newest(Head.ANY)
    async def regenerate(self, id: str, node_id: str) -> None:
        """Another answer to the same question. An answer that failed without a word makes room for it."""
        conversation = self.conversations.free(id)
        question, answer = conversation.tree.turn_of(node_id)
        if answer is None:
            answer = next((n for n in conversation.tree.children(question.id) if n.role is Role.ASSISTANT), None)
        fresh = awaited(question, self._ground.clock())
        self._tracker.did(conversation, "regenerate", answer.id if answer else None)
        self.conversations.remember_head(conversation)
        await self._grow(conversation, Branch((fresh,), fresh.id))
        if answer is not None and _said_nothing(answer) and not conversation.tree.children(answer.id):
            self.conversations.forget_head(id, answer.id)
            await self.conversations.shared.drop(conversation, answer.id)
            self._ground.events.tell(ConversationChanged(id))

    async def _grow(self, conversation: OpenConversation, branch: Branch, parameters: Parameters | None = None, *,
                    whole: bool = False) -> None:
        """Store a branch that ends in an empty answer, move the head to it, and start the answer. `whole`: it goes on
        from the end of the branch that is shown. Raises HeadMoved."""
        question = next((n for n in branch.nodes if n.role is Role.USER), None)
        before, info = conversation.record.head, self._servers.link(conversation.id).info
        if info is not None:  # so that an answer that is cut off still says whose it was
            model = conversation.record.model or info.model
            branch = Branch((*branch.nodes[:-1], replace(branch.nodes[-1], model=model)), branch.head)

        def grown(row: Conversation) -> Conversation:
            if question is not None:
                title = row.title
                if row.turns == 0 and title == NEW_TITLE:
                    title = title_of(question.text, question.message.blocks)
                row = replace(row, title=title, turns=row.turns + 1)
            return replace(row, head=branch.head, updated=branch.nodes[-1].created)

        await self.conversations.shared.add(conversation, branch.nodes, grown, whole=whole)
        if question is not None:
            conversation.stamped = None
        self.conversations.list_changed()
        self._start(conversation, branch.nodes[-1], parameters, before)

    def _start(self, conversation: OpenConversation, answer: Node, parameters: Parameters | None,
               before: str | None) -> None:
        live = LiveAnswer(answer.id, time.monotonic(), before=before)
        path = conversation.tree.path(answer.parent)

        async def checkpoint(text: str, reasoning: str) -> None:
            await self._ground.keeper.write(
                lambda: self._ground.store.append(answer.id, text, reasoning, live.reasoning_field))

        async def chat(emit: Emit) -> Ended:
            return await self._chat(conversation, path, parameters, emit)

        def changed() -> None:
            self._ground.events.tell(AnswerProgressed(conversation.id, answer.id))

        answer_run = AnswerRun(answer, path, live, chat=chat, checkpoint=checkpoint, changed=changed)
        conversation.live = live
        self._running[conversation.id] = (answer_run, asyncio.create_task(self._answer(conversation, answer_run)))
        self._ground.events.tell(ConversationChanged(conversation.id))
        self._ground.events.tell(AnswerStarted(conversation.id, answer.id))

    async def _chat(self, conversation: OpenConversation, path: Sequence[Node], parameters: Parameters | None,
                    emit: Emit) -> Ended:
        """Wait for the lane and the server, then send the one request. A server that is gone before it has seen the
        request is waited for, while somebody is there to wait."""
        live, waiting = conversation.live, time.monotonic()
        while True:
            link = self._servers.link(conversation.id)
            lane = link.lane
            if lane.holder:
                emit(Waiting("lane", 0.0))
            async with lane.chat(conversation.id):
                emit(Waiting("connecting", 0.0))
                try:
                    backend = await link.connector.ready()
                    if link.lane is not lane or self._servers.link(conversation.id) is not link:
                        continue  # it was found at an address that has a lane already, or another one was chosen
                    await lane.sit()
                    if live:
                        live.sent_at = time.monotonic()
                    ended = await self._sent(link, backend, conversation, path, parameters, emit)
                except BackendError as error:
                    ended = Ended(State.ERROR, error=error)
            if ended.error is None or not await self._servers.is_gone(link, ended.error):
                return ended
            emit(Waiting("gone", time.monotonic() - waiting, False))
            await link.connector.back()

    async def _sent(self, link: Link, backend: Backend, conversation: OpenConversation, path: Sequence[Node],
                    parameters: Parameters | None, emit: Emit) -> Ended:
        """Send the one request, and tell what is to be told of its answer."""
        if not self._servers.consent.agreed_to(backend.info, conversation.id):
            return Ended(State.ERROR, not_agreed(backend.info))
        cache = await self._tracker.cache_of(backend)
        if not self._servers.consent.agreed_to(backend.info, conversation.id):  # found at another address just now
            return Ended(State.ERROR, said(NoteKind.MOVED, url=backend.info.base_url))
        await self._freeze_template(link, conversation, backend)
        ended = await self._asked_once(link, backend, cache, conversation, path, parameters, emit)
        refused = ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE
        if refused and not conversation.record.system_in_user:
            await self.conversations.update(conversation, system_in_user=True)
            self._ground.events.tell(Noticed(SYSTEM_MOVED))
            if cache is not None:
                cache.refused()
            ended = await self._asked_once(link, backend, cache, conversation, path, parameters, emit)
        for warning in ended.warnings:
            self._ground.events.tell(Noticed(note_sentence(warning), "warning"))
        return ended

    async def _asked_once(self, link: Link, backend: Backend, cache: ServerCache | None,
                          conversation: OpenConversation, path: Sequence[Node], parameters: Parameters | None,
                          emit: Emit) -> Ended:
        """One request, played on the model of the server's cache where there is one."""
        record, info = conversation.record, backend.info
        turn = ChatTurn(wires_of(path), record.id, self._servers.model_of(conversation, info),
                        parameters or record.parameters, record.template_options,
                        system_in_user=record.system_in_user)
        tracked = self._tracked[record.id] = await cache.before(turn, path, emit=emit) if cache else (
            self._tracker.asked_of(backend, turn, path))
        if cache:
            turn = replace(turn, slot=await self._routes.planned(backend, cache, tracked))
        answer = conversation.live.node if conversation.live else ""
        if conversation.live:
            conversation.live.context_size = info.window(turn.model)
        if cache:
            cache.sent(tracked, turn.slot)
        elif link.shared:
            link.shared.sent(path, record.id, self._ground.timestamp())
        watched = self._tracker.watched(tracked, emit)

        def noting(event: StreamEvent) -> None:
            if isinstance(event, Posted):
                self._ground.in_background(self._ground.keeper.write(lambda: self._ground.store.record_request(
                    answer, body_sha256=event.body_sha256, server=info.place, kind=info.kind, build=info.build,
                    model=turn.model)))
            else:
                watched(event)

        return await backend.chat(turn, noting)

    async def _freeze_template(self, link: Link, conversation: OpenConversation, backend: Backend) -> None:
        """At a conversation's first message, decide once whether the template is asked to keep reasoning, where the
        system message goes, and that it stays with the server that was found for it."""
        options, info = conversation.record.template_options, backend.info
        if conversation.record.turns != 1:
            return
        if link.connector.home and conversation.record.server == DEFAULT:
            await self.conversations.update(conversation, server=link.connector.home)
        if info.preserves_reasoning and "preserve_reasoning" not in options:
            await self.conversations.change(conversation, lambda row: replace(
                row, template_options={**row.template_options, "preserve_reasoning": True}))
        template = link.template or info.template
        if template is not None and template.moves_system and not conversation.record.system_in_user:
            await self.conversations.update(conversation, system_in_user=True)
            self._ground.events.tell(Noticed(SYSTEM_STAYS))

    async def _answer(self, conversation: OpenConversation, answer_run: AnswerRun) -> None:
        answer = await answer_run.run(lambda: answer_run.live.context_size)
        tracked = self._tracked.pop(conversation.id, None)
        if tracked is not None and answer_run.live.progress is not None:
            tracked.processed = answer_run.live.progress.processed
        answer = replace(answer, figures=await self._explained_if_possible(tracked, answer.figures))
        used, now = answer.figures.context_used if answer.figures else None, self._ground.timestamp()
        unread = self.conversations.looked_at != conversation.id
        refusal = answer_run.error if answer_run.error is not None and answer_run.error.is_too_long else None
        if answer.text or answer.message.reasoning:
            refusal = None
        kept = before_refused(conversation.tree, answer, answer_run.live.before) if refusal is not None else answer.id

        def ended(row: Conversation) -> Conversation:
            row = replace(row, updated=max(row.updated, now), unread=unread)
            if row.head != answer.id:
                return row
            if refusal is not None:
                return replace(row, head=kept)
            return replace(row, context_used=used) if used is not None or answer.state is State.DONE else row

        try:
            await self.conversations.shared.settle(conversation, answer, ended)
        except StoreError as error:
            self._ground.events.tell(Noticed(str(error), "error"))
        conversation.live = None
        del self._running[conversation.id]
        self._ended(conversation, tracked, answer)
        self.conversations.list_changed()
        self._ground.events.tell(AnswerEnded(conversation.id, answer.id))
        if refusal is not None:
            self._ground.events.tell(QuestionRefused(conversation.id, answer.parent or "", refusal.prompt_tokens,
                                       refusal.context_size))
        self._ground.events.tell(ConversationChanged(conversation.id))

    async def _explained_if_possible(self, tracked: TrackedTurn | None, figures: TurnFigures | None,
                                     ) -> TurnFigures | None:
        """The answer is worth more than what can be told about it."""
        if tracked is None or figures is None:
            return figures
        explanation = asyncio.create_task(self._explained(tracked, figures))
        self._explanations.add(explanation)
        await asyncio.wait({explanation})
        self._explanations.discard(explanation)
        if explanation.cancelled():
            return figures
        if error := explanation.exception():
            log.error("a turn could not be explained", exc_info=error)
            return figures
        return explanation.result()

    async def _explained(self, tracked: TrackedTurn, figures: TurnFigures) -> TurnFigures:
        """The figures with the prediction and, where tokens were wasted, the cause."""
        cache = self._tracker.playing(tracked)
        if cache is not None:
            figures = await cache.ended(tracked, figures) or figures
            await self._routes.checked(tracked, figures)
        return self._tracker.explained(tracked, cache, figures)

    def _ended(self, conversation: OpenConversation, tracked: TrackedTurn | None, answer: Node) -> None:
        """An answer is stored: note what it left in the cache, and warm up what its settled form lacks there."""
        if self._tracker.left(conversation, tracked, answer):
            self._routes.save_soon()
        self._questions.forget(conversation.id)
        for observer in self.observers:
            observer.turn_ended(conversation, answer)
        if self.conversations.looked_at:
            self._warm_up.soon(self.conversations.looked_at)

    # -- as an occupation of its conversation ----------------------------------------------------------------------

    def busy(self) -> frozenset[str]:
        """The conversations whose answer is running or waiting."""
        return frozenset(self._running)

    def refuse(self, id: str) -> None:
        """Raises ChatError while an answer runs in a conversation."""
        if id in self._running:
            raise ChatError("An answer is still running here. Stop it (Esc), or wait for it.")

    async def stop(self, id: str) -> None:
        """End the running answer and keep what came; return when it is settled."""
        running = self._running.get(id)
        if running is not None:
            running[0].stop()
            await asyncio.wait({running[1]})

    async def wait(self, id: str) -> None:
        """Return when the running answer is settled."""
        running = self._running.get(id)
        if running is not None:
            await asyncio.wait({running[1]})

    async def stop_all(self) -> None:
        """End all running answers and keep what came, without an explanation where that takes too long."""
        for answer_run, _ in self._running.values():
            answer_run.stop()
        if tasks := {task for _, task in self._running.values()}:
            _, late = await asyncio.wait(tasks, timeout=QUIT_S)
            if late:
                for explanation in self._explanations:
                    explanation.cancel()
                await asyncio.wait(late, timeout=QUIT_S)


def _said_nothing(answer: Node) -> bool:
    return not answer.text and not answer.message.reasoning and answer.state in (
        State.ERROR, State.CANCELLED, State.INTERRUPTED, State.EMPTY)

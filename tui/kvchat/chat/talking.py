"""Asking and being answered.

The rule: a question is stored before anything is sent, and an answer runs in a task of its own, whoever looks at it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvchat.backends.dialect import (
    Backend,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    Posted,
    ServerInfo,
    StreamEvent,
    Trouble,
    Waiting,
)
from kvchat.cache.accounting import TurnFigures
from kvchat.chat.answering import Answering
from kvchat.chat.errors import ChatError
from kvchat.chat.events import (
    AnswerEnded,
    AnswerProgressed,
    AnswerStarted,
    ConversationChanged,
    Noticed,
    QuestionRefused,
)
from kvchat.chat.following import FollowedTurn, Following
from kvchat.chat.link import DEFAULT, Link
from kvchat.chat.live import LiveAnswer, OpenConversation
from kvchat.chat.prompt_size import PromptSizes
from kvchat.chat.question import Question
from kvchat.chat.reading import Reading
from kvchat.chat.shared import IN_TRASH, Head, on_newest
from kvchat.display import one_line
from kvchat.prompt.branching import Branch, before_refused
from kvchat.prompt.conversation import NEW_TITLE, Conversation, title_of
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.request import Parameters, wires_of
from kvchat.store import StoreError

log = logging.getLogger(__name__)


SYSTEM_MOVED = ("This model's template has no place for a system prompt: in this conversation it now stands at the "
                "beginning of the first question.")

SYSTEM_STAYS = ("This model's template moves the system prompt with every question, so that all would be read again: "
                "in this conversation it stands at the beginning of the first question.")


def not_agreed(server: ServerInfo) -> str:
    """Why nothing was sent to a server that is not on this machine."""
    return (f"{server.base_url} is not on this machine, and you have not agreed to send this conversation to it. "
            "Nothing was sent; try again in the app to be asked, or name it with --base-url.")


class Talking(Reading):
    """Questions and running answers."""

    waits_for_servers = False
    """Whether a person is there to wait for a server that is gone: the app sets it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._followed: dict[str, FollowedTurn] = {}
        self._explanations: set[asyncio.Task[TurnFigures | None]] = set()
        self.sizes = PromptSizes(self.link, self.turn_after, self.follow, self.agreed_to)

    @on_newest(Head.AWAITED)
    async def send(self, id: str, question: Question, *, parameters: Parameters | None = None,
                   anyway: bool = False) -> None:
        """Store the question with what goes in front of it, then let the answer stream in its own task. A reply that
        another kvchat streams at the branch's end is waited for. `parameters` replace the conversation's for this turn.
        `anyway`: also where the prompt is too long for the server. Raises ChatError (TooLongError), and OutsideError
        where a file that it mentions needs the person's yes."""
        conversation = await self._free(id)
        branch = await self._fitting(conversation, conversation.record.head or "", question, anyway)
        await self._grow(conversation, branch, parameters, whole=True)

    async def _fitting(self, conversation: OpenConversation, head: str, question: Question, anyway: bool) -> Branch:
        """The branch of a question after `head`. Raises TooLongError where its prompt does not fit, but for
        `anyway`."""
        branch = await self.questions.built(conversation, head, question)
        if not anyway:
            await self.sizes.must_fit(conversation, [*conversation.tree.path(head), branch.nodes[0]])
        return branch

    async def _free(self, id: str) -> OpenConversation:
        for one in self.occupations:
            one.refuse(id)
        if id in self._answering:
            raise ChatError("An answer is still running in this conversation. Stop it first (Esc), or wait for it.")
        return await self.opened(id)

    async def for_act(self, id: str, head: Head) -> OpenConversation:
        """The conversation as all kvchats have made it, free for an act that needs this of its head. Raises
        ChatError."""
        conversation = await self._free(id)
        await self.shared.look(conversation)
        if conversation.record.trashed is not None:
            raise ChatError(IN_TRASH)
        if head is Head.AWAITED:
            await self.shared.settled(conversation)
        elif head is Head.SETTLED:
            self.shared.refuse_beside_a_reply(conversation)
        return await self._free(id)

    async def _grow(self, conversation: OpenConversation, branch: Branch, parameters: Parameters | None = None, *,
                    whole: bool = False) -> None:
        """Store a branch that ends in an empty answer, move the head to it, and start the answer. `whole`: it goes on
        from the end of the branch that is shown. Raises HeadMoved."""
        question = next((n for n in branch.nodes if n.role is Role.USER), None)
        before, info = conversation.record.head, self.link(conversation.id).info
        if info is not None:  # so that an answer that is cut off still says whose it was
            model = conversation.record.model or info.model
            branch = Branch((*branch.nodes[:-1], replace(branch.nodes[-1], model=model)), branch.head)

        def grown(row: Conversation) -> Conversation:
            if question is not None:
                title = title_of(question.text) if row.turns == 0 and row.title == NEW_TITLE else row.title
                row = replace(row, title=title, turns=row.turns + 1)
            return replace(row, head=branch.head, updated=branch.nodes[-1].created)

        await self.shared.add(conversation, branch.nodes, grown, whole=whole)
        if question is not None:
            conversation.stamped = None
        self.list_changed()
        self._start(conversation, branch.nodes[-1], parameters, before)

    def _start(self, conversation: OpenConversation, answer: Node, parameters: Parameters | None,
               before: str | None) -> None:
        live = LiveAnswer(answer.id, time.monotonic(), before=before)
        path = conversation.tree.path(answer.parent)

        async def checkpoint(text: str, reasoning: str) -> None:
            await self.keeper.write(lambda: self.store.append(answer.id, text, reasoning, live.reasoning_field))

        async def chat(emit: Emit) -> Ended:
            return await self._chat(conversation, path, parameters, emit)

        def changed() -> None:
            self.tell(AnswerProgressed(conversation.id, answer.id))

        answering = Answering(answer, path, live, chat=chat, checkpoint=checkpoint, changed=changed)
        conversation.live = live
        self._answering[conversation.id] = (answering, asyncio.create_task(self._answer(conversation, answering)))
        self.tell(ConversationChanged(conversation.id))
        self.tell(AnswerStarted(conversation.id, answer.id))

    async def _chat(self, conversation: OpenConversation, path: Sequence[Node], parameters: Parameters | None,
                    emit: Emit) -> Ended:
        """Wait for the lane and the server, then send the one request. A server that is gone before it has seen the
        request is waited for, while somebody is there to wait."""
        live, waiting = conversation.live, time.monotonic()
        while True:
            link = self.link(conversation.id)
            lane = link.lane
            if lane.holder:
                emit(Waiting("lane", 0.0))
            async with lane.chat(conversation.id):
                emit(Waiting("connecting", 0.0))
                try:
                    backend = await link.connector.ready()
                    if link.lane is not lane or self.link(conversation.id) is not link:
                        continue  # it was found at an address that has a lane already, or another one was chosen
                    await lane.sit()
                    if live:
                        live.sent_at = time.monotonic()
                    ended = await self._sent(link, backend, conversation, path, parameters, emit)
                except BackendError as error:
                    ended = Ended(State.ERROR, error.sentence, error)
            if ended.error is None or not await self.is_gone(link, ended.error):
                return ended
            emit(Waiting("gone", time.monotonic() - waiting, False))
            await link.connector.back()

    async def is_gone(self, link: Link, error: BackendError) -> bool:
        """Whether a request failed because nobody was there, so that it is to be sent when the server is back."""
        if error.trouble in (Trouble.UNREACHABLE, Trouble.DEAD):
            link.connector.lost(error.sentence)
        elif error.trouble is Trouble.CUT:
            self.in_background(link.connector.looked_after(error.sentence))
        return self.waits_for_servers and error.trouble is Trouble.UNREACHABLE and link.connector.is_awaited

    async def _sent(self, link: Link, backend: Backend, conversation: OpenConversation, path: Sequence[Node],
                    parameters: Parameters | None, emit: Emit) -> Ended:
        """Send the one request, and tell what is to be told of its answer."""
        if not self.agreed_to(backend.info, conversation.id):
            return Ended(State.ERROR, not_agreed(backend.info))
        following = await self.follow(backend)
        if not self.agreed_to(backend.info, conversation.id):  # it was found at another address just now
            return Ended(State.ERROR, f"{backend.info.base_url} has moved to another machine, and you have not "
                                      "agreed to send to it. Nothing was sent; try again to be asked.")
        await self._freeze_template(link, conversation, backend)
        ended = await self._asked_once(link, backend, following, conversation, path, parameters, emit)
        refused = ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE
        if refused and not conversation.record.system_in_user:
            await self.update(conversation, system_in_user=True)
            self.tell(Noticed(SYSTEM_MOVED))
            if following is not None:
                following.refused()
            ended = await self._asked_once(link, backend, following, conversation, path, parameters, emit)
        for warning in ended.warnings:
            self.tell(Noticed(warning, "warning"))
        return ended

    async def _asked_once(self, link: Link, backend: Backend, following: Following | None,
                          conversation: OpenConversation, path: Sequence[Node], parameters: Parameters | None,
                          emit: Emit) -> Ended:
        """One request, played on the model of the server's cache where there is one."""
        record, info = conversation.record, backend.info
        turn = ChatTurn(wires_of(path), record.id, self.model_of(conversation, info),
                        parameters or record.parameters, record.template_options,
                        system_in_user=record.system_in_user)
        followed = self._followed[record.id] = await following.before(turn, path, emit=emit) if following else (
            self._asked_of(backend, turn, path))
        if following:
            turn = replace(turn, slot=await self.planned(backend, following, followed))
        answer = conversation.live.node if conversation.live else ""
        if conversation.live:
            conversation.live.context_size = info.window(turn.model)
        if following:
            following.sent(followed, turn.slot)
        elif link.shared:
            link.shared.sent(path, record.id, self.clock().timestamp())
        watched = self._watched(followed, emit)

        def noting(event: StreamEvent) -> None:
            if isinstance(event, Posted):
                self.in_background(self.keeper.write(lambda: self.store.record_request(
                    answer, body_sha256=event.body_sha256, server=info.place, kind=info.kind, build=info.build,
                    model=turn.model)))
            else:
                watched(event)

        return await backend.chat(turn, noting)

    def model_of(self, conversation: OpenConversation, server: ServerInfo) -> str:
        """The model to ask for. Raises BackendError where the server lists its models and this one is not there:
        llama.cpp would let another model answer without a word."""
        model = self.asked_model(conversation.id)
        if server.models and model not in server.models and server.kind == "llama.cpp":
            raise BackendError(Trouble.REFUSED, f"The server at {server.base_url} has no model {one_line(model, 80)}. "
                               f"It has: {one_line(', '.join(server.models), 200)}. Choose one with --model or Ctrl+L.")
        return model

    async def _freeze_template(self, link: Link, conversation: OpenConversation, backend: Backend) -> None:
        """At a conversation's first message, decide once whether the template is asked to keep reasoning, where the
        system message goes, and that it stays with the server that was found for it."""
        options, info = conversation.record.template_options, backend.info
        if conversation.record.turns != 1:
            return
        if link.connector.home and conversation.record.server == DEFAULT:
            await self.update(conversation, server=link.connector.home)
        if info.preserves_reasoning and "preserve_reasoning" not in options:
            await self.change(conversation, lambda row: replace(
                row, template_options={**row.template_options, "preserve_reasoning": True}))
        template = link.template or info.template
        if template is not None and template.moves_system and not conversation.record.system_in_user:
            await self.update(conversation, system_in_user=True)
            self.tell(Noticed(SYSTEM_STAYS))

    async def _answer(self, conversation: OpenConversation, answering: Answering) -> None:
        answer = await answering.run(lambda: answering.live.context_size)
        followed = self._followed.pop(conversation.id, None)
        if followed is not None and answering.live.progress is not None:
            followed.processed = answering.live.progress.processed
        answer = replace(answer, figures=await self._explained_if_possible(followed, answer.figures))
        used, now = answer.figures.context_used if answer.figures else None, self.clock().timestamp()
        unread = self.looked_at != conversation.id
        refusal = answering.error if answering.error is not None and answering.error.is_too_long else None
        if answer.text or answer.message.reasoning:
            refusal = None
        kept = before_refused(conversation.tree, answer, answering.live.before) if refusal is not None else answer.id

        def ended(row: Conversation) -> Conversation:
            row = replace(row, updated=max(row.updated, now), unread=unread)
            if row.head != answer.id:
                return row
            if refusal is not None:
                return replace(row, head=kept)
            return replace(row, context_used=used) if used is not None or answer.state is State.DONE else row

        try:
            await self.shared.settle(conversation, answer, ended)
        except StoreError as error:
            self.tell(Noticed(str(error), "error"))
        conversation.live = None
        del self._answering[conversation.id]
        self._left(conversation, followed, answer)
        self.list_changed()
        self.tell(AnswerEnded(conversation.id, answer.id))
        if refusal is not None:
            self.tell(QuestionRefused(conversation.id, answer.parent or "", refusal.prompt_tokens,
                                       refusal.context_size))
        self.tell(ConversationChanged(conversation.id))

    async def _explained_if_possible(self, followed: FollowedTurn | None, figures: TurnFigures | None,
                                     ) -> TurnFigures | None:
        """The answer is worth more than what can be told about it."""
        explanation = asyncio.create_task(self._explained(followed, figures))
        self._explanations.add(explanation)
        await asyncio.wait({explanation})
        self._explanations.discard(explanation)
        if explanation.cancelled():
            return figures
        if error := explanation.exception():
            log.error("a turn could not be explained", exc_info=error)
            return figures
        return explanation.result()

    def _explain_no_more(self) -> None:
        """Keep the answers that have ended without an explanation."""
        for explanation in self._explanations:
            explanation.cancel()

    async def stop(self, id: str) -> None:
        """End the running answer and keep what came; return when it is settled. A question that waits for the reply of
        another kvchat is given up. Nothing runs: nothing happens."""
        for one in self.occupations:
            await one.stop(id)
        self.give_up(id)
        running = self._answering.get(id)
        if running is not None:
            running[0].stop()
            await asyncio.wait({running[1]})

    async def wait(self, id: str) -> None:
        """Return when the running answer is settled."""
        for one in self.occupations:
            await one.wait(id)
        running = self._answering.get(id)
        if running is not None:
            await asyncio.wait({running[1]})

    async def delete(self, id: str) -> None:
        """Move the conversation to the trash; `restore` brings it back."""
        await self.stop(id)
        await super().delete(id)

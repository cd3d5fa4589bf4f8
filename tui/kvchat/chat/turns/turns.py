"""Turns: a question is asked, answered and settled, and what waits behind it follows.

A question is stored before anything is sent, and an answer runs in a task of its own, whoever looks at it.
What was sent while one ran follows it in order: settle, release the lane, send the next.

In the order in which they are called:

1. `send`, `edit`, `regenerate`, `go_on`: what the user does. `_fitting` has the question made (`question.builder`), and
   refuses one that is too long.
2. `_begin`: stores question and empty answer, and starts `_answer` as a task.
3. `_settle_all`: one request for one answer or several (`answer_request`, `answer_run`): sent, explained, stored.
4. `_with_tools`: carries out the calls of the answer (`chat.tools.steps`) and asks again, until it calls no more.
5. `_settled`: tells the observers, then `send_next` sends the next message of the queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from kvchat.backends.dialect import Emit, Ended
from kvchat.backends.kinds import kind_of
from kvchat.cache import Change, Finding
from kvchat.chat.cache.states.state_saver import StateSaver
from kvchat.chat.cache.tracked_turn import EndedAnswers, TrackedTurn
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
from kvchat.chat.conversations.shared import Head
from kvchat.chat.core import Core, on_newest
from kvchat.chat.errors import ChatError, GivenUp, HeldError, NotInQueue, TooLongError
from kvchat.chat.events import (
    AnswerEnded,
    AnswerProgressed,
    AnswerStarted,
    ConversationChanged,
    Noticed,
    QuestionRefused,
)
from kvchat.chat.ground import QUIT_S
from kvchat.chat.question import Question
from kvchat.chat.question.builder import QuestionBuilder
from kvchat.chat.question.mentions import ALL, MentionScope, OutsideError
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.chat.question.stored import folder_of
from kvchat.chat.turns.alternatives import AlternativesRequest, SharedRequest, is_over, usual_choice, with_figures
from kvchat.chat.turns.answer_request import AnswerRequest, AnswerRequests
from kvchat.chat.turns.answer_run import AnswerRun
from kvchat.chat.turns.queue import MessageQueue, Queued
from kvchat.chat.turns.running_turn import AnswerTask, RunningTurn
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.branching import Branch, awaited, before_refused, closed, continuation
from kvchat.prompt.conversation import NEW_TITLE, Conversation, title_of
from kvchat.prompt.message import CUT, Node, NoteKind, Role, State, new_id, tools_of
from kvchat.prompt.prefilled_before import prefilled_before
from kvchat.prompt.queued import HoldKind, hold_of
from kvchat.prompt.request import Parameters
from kvchat.prompt.tools import tool_names
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.store import StoreError
from kvchat.text.messages import GO_ON, asked_to_go_on
from kvchat.text.problems import ChatProblem
from kvchat.values import Statement, said

if TYPE_CHECKING:
    from kvchat.chat.tools.steps import ToolSteps

log = logging.getLogger(__name__)


MOST_STEPS = 8
"""Requests of one turn that may call tools; the next one must answer."""
BESIDE_S = 1e-6
"""Between the times of answers to one request: their order as versions."""


class TurnObserver(Protocol):
    """Called when a turn has ended and all is stored."""

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None: ...


class Turns:
    """Questions and running answers."""

    def __init__(
        self,
        core: Core,
        saver: StateSaver,
        warm_up: WarmUp,
        questions: QuestionBuilder,
        sizes: PromptSizes,
        queue: MessageQueue,
        requests: AnswerRequests,
        steps: Callable[[], ToolSteps],
    ) -> None:
        self._core = core
        self._saver = saver
        self._warm_up = warm_up
        self._questions = questions
        self._sizes = sizes
        self._queue = queue
        self._requests = requests
        self._steps = steps
        self.observers: list[TurnObserver] = []
        self._running: dict[str, tuple[RunningTurn, asyncio.Task[None]]] = {}
        """By conversation."""
        self._undecided: set[str] = set()
        """The conversations in which one of several answers is to be chosen."""
        self._next: dict[str, asyncio.Task[None]] = {}
        """By conversation: sends the next message of its queue."""
        self._explanations: set[asyncio.Task[tuple[TurnFigures, Finding | None]]] = set()
        core.conversations.occupations.append(self)

    @on_newest(Head.AWAITED)
    async def send(
        self, id: str, question: Question, *, parameters: Parameters | None = None, anyway: bool = False
    ) -> None:
        """Store the question with what goes in front of it, then let the answer stream in its own task. A reply that
        another kvchat streams at the branch's end is waited for. `parameters` replace the conversation's for this turn.
        `anyway`: also where the prompt is too long for the server. Raises ChatError (TooLongError), and OutsideError
        where a file that it mentions needs the user's yes."""
        await self._ask(self._core.conversations.free(id), question, parameters=parameters, anyway=anyway)

    @on_newest(Head.SETTLED)
    async def send_now(self, id: str, question: Question, *, anyway: bool = False, queued: str = "") -> None:
        """The same, for one who does not wait: raises AnsweredElsewhere while another kvchat streams a reply there.
        `queued`: the message of the queue that it is; the others follow it. Raises NotInQueue where it is sent
        already."""
        await self._ask(self._core.conversations.free(id), question, anyway=anyway, queued=queued)
        if queued:
            self._queue.release(id)

    async def _ask(
        self,
        conversation: OpenConversation,
        question: Question,
        *,
        parameters: Parameters | None = None,
        anyway: bool = False,
        queued: str = "",
        flows: bool = False,
    ) -> None:
        """`flows`: it is sent only while the queue still goes on by itself. Raises HeldError."""
        branch = await self._fitting(conversation, conversation.record.head or "", question, anyway)
        if flows and not self._queue.flows(conversation.id):
            raise HeldError(HoldKind.STOPPED)
        task = AnswerTask(conversation, branch, parameters, calls=question.calls, queued=queued)
        await self._begin(task, at_end=True)

    async def _fitting(self, conversation: OpenConversation, head: str, question: Question, anyway: bool) -> Branch:
        """The branch of a question after `head`. Raises TooLongError where its prompt does not fit, but for
        `anyway`."""
        branch = await self._questions.built(conversation, head, question)
        path = [*conversation.tree.path(head), *branch.nodes[:-1]]
        await self._core.servers.must_take(conversation, path)
        if not anyway:
            await self._sizes.must_fit(conversation, path)
        return branch

    @on_newest(Head.ANY)
    async def edit(self, id: str, node_id: str, text: str, *, anyway: bool = False, meant: MentionScope = ALL) -> None:
        """Ask a question differently: a sibling of it, with an answer of its own. The old branch stays. `anyway`: also
        where the prompt is too long for the server. Raises ChatError (TooLongError), and OutsideError where a file that
        it mentions needs the user's yes."""
        conversation = self._core.conversations.free(id)
        question, _ = conversation.turn_of(node_id)
        branch = await self._fitting(
            conversation, question.parent or "", Question(text, meant=meant, again=question), anyway
        )
        await self._branch_off(AnswerTask(conversation, branch), "edit", question)

    @on_newest(Head.ANY)
    async def regenerate(self, id: str, node_id: str) -> None:
        """Another answer to the same question. An answer that failed without a new word makes room for it."""
        await self._regenerate(self._core.conversations.free(id), node_id)

    @on_newest(Head.ANY)
    async def go_on(self, id: str, node_id: str, parameters: Parameters | None = None) -> None:
        """Continue a cut answer: a sibling of it that begins with what came. One of which nothing came is regenerated.
        A server that cannot continue an answer is asked to by a message, which the user is shown. Raises ChatError."""
        conversation = self._core.conversations.free(id)
        question, cut = conversation.turn_of(node_id)
        if cut is not None and cut.is_wordless and cut.state in (*CUT, State.EMPTY):
            await self._regenerate(conversation, node_id, parameters)
            return
        if cut is None or not cut.is_cut:
            raise ChatError(_no_continuing(cut))
        info = self._core.servers.link(id).info or await self._core.servers.reach(id)
        if not info.continues(cut.message):
            branch = await self._fitting(conversation, cut.id, Question(GO_ON), anyway=False)
            at_end = cut.id == conversation.record.head
            if not at_end:
                self._core.conversations.remember_head(conversation)
            await self._begin(AnswerTask(conversation, branch, parameters), at_end=at_end)
            self._core.events.tell(Noticed(asked_to_go_on(kind_of(info.kind).title, GO_ON)))
            return
        await self._core.servers.must_take(conversation, conversation.tree.path(cut.id))
        await self._sizes.must_fit(conversation, conversation.tree.path(cut.id))
        answer = continuation(_asked(conversation.tree, question, cut), cut, self._core.clock())
        task = AnswerTask(conversation, Branch((answer,), answer.id), parameters, cut=cut)
        await self._branch_off(task, "continue", cut)
        await self._make_room(conversation, cut)

    async def _regenerate(
        self, conversation: OpenConversation, node_id: str, parameters: Parameters | None = None
    ) -> None:
        question, answer = conversation.turn_of(node_id)
        if answer is None:
            answer = next((n for n in conversation.tree.children(question.id) if n.role is Role.ASSISTANT), None)
        await self._core.servers.must_take(conversation, conversation.tree.path(question.id))
        fresh = awaited(_asked(conversation.tree, question, answer), self._core.clock())
        await self._branch_off(AnswerTask(conversation, Branch((fresh,), fresh.id), parameters), "regenerate", answer)
        if answer is not None:
            await self._make_room(conversation, answer)

    async def _make_room(self, conversation: OpenConversation, answer: Node) -> None:
        """Remove an answer that failed without a new word, when another one was asked for."""
        if _said_nothing(conversation.tree, answer) and not conversation.tree.children(answer.id):
            self._core.conversations.forget_head(conversation.id, answer.id)
            await self._core.conversations.shared.drop(conversation, answer.id)
            self._core.events.tell(ConversationChanged(conversation.id))

    # -- several answers to one question -----------------------------------------------------------------------------

    @on_newest(Head.AWAITED)
    async def ask_for(
        self,
        id: str,
        wanted: AlternativesRequest,
        question: Question,
        *,
        parameters: Parameters | None = None,
        anyway: bool = False,
    ) -> None:
        """As `send`, for several answers, of which `choose` takes one; nothing else is done here until then."""
        conversation = self._core.conversations.free(id)
        if self._core.servers.link(id).info is None:
            await self._core.servers.reach(id)
        branch = await self._fitting(conversation, conversation.record.head or "", question, anyway)
        await self._begin(AnswerTask(conversation, branch, parameters, wanted=wanted), at_end=True)

    @on_newest(Head.ANY)
    async def ask_again_for(self, id: str, wanted: AlternativesRequest, node_id: str) -> None:
        """The same, to a question that was asked before; the answer that is there stays."""
        conversation = self._core.conversations.free(id)
        if self._core.servers.link(id).info is None:
            await self._core.servers.reach(id)
        question, answer = conversation.turn_of(node_id)
        fresh = awaited(_asked(conversation.tree, question, answer), self._core.clock())
        await self._core.servers.must_take(conversation, conversation.tree.path(fresh.parent))
        task = AnswerTask(conversation, Branch((fresh,), fresh.id), wanted=wanted)
        await self._branch_off(task, "alternatives", answer)

    @property
    def running(self) -> frozenset[str]:
        """The conversations whose answers have not all ended."""
        return frozenset(self._running)

    def is_undecided(self, id: str) -> bool:
        """Whether one of several answers, which have all ended, is to be chosen."""
        return id in self._undecided

    def choices(self, id: str) -> list[Node]:
        """The answers of which one is to be chosen."""
        conversation = self._core.conversations.load(id)
        nodes = [live.node for live in conversation.alternatives]
        return [conversation.tree[node] for node in nodes if node in conversation.tree]

    async def choose(self, id: str, node_id: str | None = None) -> None:
        """Go on with one of several answers: the others stay as its versions. None: with the usual one."""
        if id not in self._undecided:
            return
        conversation, choices = self._core.conversations.load(id), self.choices(id)
        chosen = next((node for node in choices if node.id == node_id), None) or usual_choice(choices)
        self._undecided.discard(id)
        link = self._core.servers.link(id)
        if not conversation.record.model and link.info is not None and link.info.known(chosen.model):
            await self._core.servers.keep(
                conversation, link, chosen.model
            )  # of several models, it goes on with this one's
        conversation.alternatives = ()
        used, ids = chosen.figures.context_used if chosen.figures else None, {node.id for node in choices}

        def taken(row: Conversation) -> Conversation:
            if row.head not in ids:
                return row  # another kvchat has continued one of them
            return replace(row, head=chosen.id, context_used=row.context_used if used is None else used)

        await self._core.conversations.change(conversation, taken)
        for node in choices:
            if node.id != chosen.id:
                await self._make_room(conversation, node)
        self._settled(conversation, chosen)
        self._warm_up_looked_at()

    # -- the queue -------------------------------------------------------------------------------------------------

    async def queue_up(self, id: str, question: Question, *, place: float | None = None, first: bool = False) -> None:
        """Have a message sent behind the answers that run or stream in this conversation, here or in another kvchat,
        and behind the messages that wait there already: at its place, or in front of them (`first`)."""
        await self._queue.put(id, question, place=place, first=first)
        self.send_next(id)

    def send_next(self, id: str) -> None:
        """Send the next message of a queue that goes on by itself, when nothing runs in the conversation."""
        if id not in self._running and id not in self._next and self._queue.flows(id):
            self._next[id] = asyncio.create_task(self._send_first(id))

    async def _send_first(self, id: str) -> None:
        try:
            while self._queue.flows(id):
                self._queue.read(id)  # another kvchat may have put one in front
                item = next(iter(self._queue.of(id)), None)
                if item is None:
                    break
                try:
                    await self._send_queued(id, item)
                    break
                except NotInQueue:
                    self._queue.forget(id, item.id)
                except (ChatError, StoreError) as error:
                    if any(id in one.busy() for one in self._core.conversations.occupations if one is not self) or (
                        id in self._running
                    ):
                        break  # it goes on at the end of that
                    kind = _kind_of(error)
                    self._queue.hold(id, kind)
                    if kind is HoldKind.NOT_SENT:
                        conversations = self._core.conversations
                        where = "" if conversations.looked_at == id else f"{conversations.title(id)}: "
                        self._core.events.tell(Noticed(f"{where}{error}", "warning"))
        except Exception:
            log.exception("the next message of a queue was not sent")
            self._queue.hold(id, HoldKind.NOT_SENT)
        finally:
            del self._next[id]
            if id not in self._running:
                self._requests.expect_no_more(id)
                self._core.events.tell(ConversationChanged(id))

    @on_newest(Head.AWAITED)
    async def _send_queued(self, id: str, item: Queued) -> None:
        """Send a message of the queue, when the reply before it is whole. Raises HeldError where it is not, NotInQueue,
        and what `send` raises."""
        conversation, info = self._core.conversations.free(id), self._core.servers.link(id).info
        if kind := hold_of(conversation.path()[-1]):
            raise HeldError(kind)
        elsewhere = item.folder and item.folder != folder_of(item.question)  # its paths mean other files here
        if elsewhere or (info is not None and not self._core.servers.consent.agreed_to(info, id)):
            raise HeldError(HoldKind.NEEDS_YES)
        await self._ask(conversation, item.question, queued=item.id, flows=True)

    # -- an answer -------------------------------------------------------------------------------------------------

    async def _branch_off(self, task: AnswerTask, act: Change, at: Node | None) -> None:
        """Begin a branch further up, by an act at one of its messages; undo finds the way back. As `_begin`."""
        self._core.tracker.did(task.conversation, act, at.id if at is not None else None)
        self._core.conversations.remember_head(task.conversation)
        await self._begin(task)

    async def _begin(self, task: AnswerTask, *, at_end: bool = False) -> None:
        """Store the branch, move the head to its end, and start the answer. `at_end`: it goes on from the end of the
        branch that is shown. Raises HeadMoved and NotInQueue."""
        conversation, branch = task.conversation, task.branch
        question = next((n for n in branch.nodes if n.role is Role.USER), None)
        answer = branch.nodes[-1]
        most = self._core.tracker.most_answers(conversation.id)
        (count, model), *further = task.wanted.requests(most) if task.wanted else [(1, "")]
        answers, before = self._new_versions(conversation, answer, count, model), conversation.record.head

        def grown(row: Conversation) -> Conversation:
            if question is not None:
                title = row.title
                if row.turns == 0 and title == NEW_TITLE:
                    title = title_of(question.text, question.message.blocks)
                row = replace(row, title=title, turns=row.turns + 1)
            return replace(row, head=branch.head, updated=answer.created)

        nodes = *branch.nodes[:-1], *answers
        await self._core.conversations.shared.add(conversation, nodes, grown, whole=at_end, queued=task.queued)
        if question is not None:
            conversation.stamped = None
        self._core.conversations.list_changed()
        path = conversation.tree.path(task.cut.id if task.cut is not None else answer.parent)
        steps = MOST_STEPS if tools_of(path) and task.calls and not task.wanted else 0
        callable_tools = tool_names(tools_of(path)) if steps else ()
        if any("__" in name for name in callable_tools):  # a server's name comes before it
            self._core.mcp.start_programs(callable_tools)
        request = AnswerRequest(conversation, path, before, task.parameters, model, may_call=steps > 0)
        self._prepare(request, answers)
        conversation.live = request.live
        conversation.alternatives = tuple(answer_run.live for answer_run in request.runs) if task.wanted else ()
        turn = RunningTurn(task, request, further, steps)
        self._running[conversation.id] = (turn, asyncio.create_task(self._answer(turn)))
        self._core.events.tell(ConversationChanged(conversation.id))
        self._core.events.tell(AnswerStarted(conversation.id, answer.id))
        if task.queued:
            self._queue.forget(conversation.id, task.queued)

    def _new_versions(self, conversation: OpenConversation, answer: Node, count: int, model: str) -> list[Node]:
        """`count` empty answers to the question of `answer`, in its place; each names the model that it is asked of, so
        that one that is cut off still says whose it was."""
        is_known = self._core.servers.link(conversation.id).info is not None
        model = model or (self._core.servers.asked_model(conversation.id) if is_known else answer.model)
        return [
            replace(answer, id=new_id() if at else answer.id, created=answer.created + at * BESIDE_S, model=model)
            for at in range(count)
        ]

    def _prepare(self, request: AnswerRequest, answers: Sequence[Node]) -> None:
        """Make the runs of the answers to a request."""
        chat = partial(self._requests.send, request)
        shared = SharedRequest(len(answers), chat) if len(answers) > 1 else None
        request.runs = [
            self._run(request, answer, partial(shared.answer, at) if shared else chat)
            for at, answer in enumerate(answers)
        ]

    def _run(self, request: AnswerRequest, answer: Node, chat: Callable[[Emit], Awaitable[Ended]]) -> AnswerRun:
        message = answer.message
        live = LiveAnswer(
            answer.id,
            time.monotonic(),
            message.text,
            message.reasoning,
            message.reasoning_field,
            continued=request.continued,
            read=prefilled_before(request.conversation.tree, request.path, answer.model),
        )

        async def checkpoint(text: str, reasoning: str) -> None:
            await self._core.writer.write(
                lambda: self._core.store.append(answer.id, text, reasoning, live.reasoning_field)
            )

        def changed() -> None:
            self._core.events.tell(AnswerProgressed(request.conversation.id, answer.id))

        return AnswerRun(
            answer, request.path, live, chat=chat, checkpoint=checkpoint, changed=changed, may_call=request.may_call
        )

    async def _answer(self, turn: RunningTurn) -> None:
        """Have all answers come that are asked for, one request after the other."""
        conversation, first = turn.conversation, turn.request.runs[0]
        undecided = bool(conversation.alternatives)
        try:
            answer, *_ = answers = await self._settle_all(turn.request)
            if answer.message.calls:
                answer = await self._with_tools(turn, answer)
                answers = [answer]
            refusal = first.error if first.error is not None and first.error.is_too_long else None
            if refusal is not None and not answer.is_wordless:
                refusal = None
            while turn.further and not turn.is_stopped and not is_over(answers):
                if not await self._begin_further(turn, answer):
                    break
                answers = await self._settle_all(turn.request)
        finally:
            conversation.live = None
            del self._running[conversation.id]
        if undecided and refusal is None:
            self._undecided.add(conversation.id)
            self._core.conversations.list_changed()
            self._core.events.tell(AnswerEnded(conversation.id, answer.id))
            self._core.events.tell(ConversationChanged(conversation.id))
            return
        for live in conversation.alternatives[1:]:
            await self._make_room(conversation, conversation.tree[live.node])
        conversation.alternatives = ()
        self._settled(conversation, answer)
        self._warm_up_looked_at()
        if refusal is not None:
            self._core.events.tell(
                QuestionRefused(conversation.id, answer.parent or "", refusal.prompt_tokens, refusal.context_size)
            )
            self._core.events.tell(ConversationChanged(conversation.id))

    async def _with_tools(self, turn: RunningTurn, answer: Node) -> Node:
        """Have the calls of an answer carried out and the model go on with the results, until it calls no more or the
        turn is stopped. The last answer."""
        conversation = turn.conversation
        try:
            while answer.message.calls:
                last = await self._steps().carry_out(turn, answer)
                if turn.is_stopped:
                    return await self._closed(conversation, last)
                await self._begin_step(turn, last)
                answer, *_ = await self._settle_all(turn.request)
        except (ChatError, StoreError) as error:
            self._core.events.tell(Noticed(str(error), "error"))
        return answer

    async def _begin_step(self, turn: RunningTurn, last: Node) -> None:
        """Begin the answer to the results of the last one's calls. Raises ChatError and StoreError."""
        conversation = turn.conversation
        fresh = awaited(last, self._core.clock())
        answers = self._new_versions(conversation, fresh, 1, "")

        def goes_on(row: Conversation) -> Conversation:
            return replace(row, head=fresh.id) if row.head == last.id else row

        await self._core.conversations.shared.add(conversation, answers, goes_on, whole=False)
        turn.steps -= 1
        path, head = conversation.tree.path(last.id), conversation.record.head
        request = AnswerRequest(conversation, path, head, turn.task.parameters, may_call=turn.steps > 0)
        self._prepare(request, answers)
        conversation.live = request.live
        turn.go_on(request)
        self._core.events.tell(ConversationChanged(conversation.id))
        self._core.events.tell(AnswerStarted(conversation.id, fresh.id))

    async def _closed(self, conversation: OpenConversation, last: Node) -> Node:
        """The end of a turn that was stopped among calls, behind the last result, wherever another window has gone
        meanwhile. Raises ChatError and StoreError."""
        nodes = closed(conversation.tree.path(last.id), self._core.timestamp())

        def goes_on(row: Conversation) -> Conversation:
            return replace(row, head=nodes[-1].id) if row.head == last.id else row

        await self._core.conversations.shared.add(conversation, nodes, goes_on, whole=False)
        return nodes[-1]

    async def _begin_further(self, turn: RunningTurn, first: Node) -> bool:
        """Begin the next request for further answers to the same question; whether they could be stored."""
        conversation = turn.conversation
        count, model = turn.further.pop(0)
        fresh = awaited(conversation.tree[first.parent or ""], self._core.clock())
        answers = self._new_versions(conversation, fresh, count, model)
        try:
            await self._core.conversations.shared.add(conversation, answers, lambda row: row, whole=False)
        except (ChatError, StoreError) as error:
            self._core.events.tell(Noticed(str(error), "error"))
            return False
        head = conversation.record.head
        request = AnswerRequest(conversation, turn.request.path, head, turn.task.parameters, model)
        self._prepare(request, answers)
        conversation.alternatives += tuple(answer_run.live for answer_run in request.runs)
        turn.go_on(request)
        self._core.events.tell(AnswerProgressed(conversation.id, first.id))
        return True

    async def _settle_all(self, request: AnswerRequest) -> list[Node]:
        """The answers to one request, with figures and notes, when they have ended and are stored."""
        conversation = request.conversation
        answers = await asyncio.gather(*(answer_run.run() for answer_run in request.runs))
        tracked = request.tracked
        figures, finding = await self._explained_if_possible(tracked, answers[0].figures)
        ahead = self._warm_up.prefilled(conversation.id, (figures and figures.cached_tokens) or 0)
        figures = figures and replace(figures, ahead_tokens=ahead or None)
        answers = with_figures(answers, figures) if len(answers) > 1 else [replace(answers[0], figures=figures)]
        note = answers[0].note
        if tracked is not None and (note is None or note.is_a(NoteKind.LONGEST)):  # which its state tells as well
            answers[0] = replace(answers[0], note=_doubt(finding) or note)
        for answer, answer_run in zip(answers, request.runs, strict=True):
            await self._settle(request, answer, answer_run)
        if finding is not None:
            conversation.findings[answers[0].id] = finding
        came = whole_characters(request.live.text)
        order = sorted(range(len(answers)), key=lambda at: request.runs[at].live.ended_at)
        ended = EndedAnswers(answers, came if came != answers[0].text else None, tuple(order) if order[1:] else ())
        if self._core.tracker.left(conversation, tracked, ended):
            self._saver.save_soon()
        return answers

    async def _settle(self, request: AnswerRequest, answer: Node, answer_run: AnswerRun) -> None:
        """Store an answer as it ended."""
        conversation = request.conversation
        used, now = answer.figures.context_used if answer.figures else None, self._core.timestamp()
        unread = self._core.conversations.looked_at != conversation.id
        refused = answer_run.error is not None and answer_run.error.is_too_long and answer.is_wordless
        refused = refused and conversation.tree[answer.parent or ""].role is Role.USER
        kept = before_refused(conversation.tree, answer, request.before) if refused else answer.id

        def ended(row: Conversation) -> Conversation:
            row = replace(row, updated=max(row.updated, now), unread=unread)
            if row.head != answer.id:
                return row
            if refused:
                return replace(row, head=kept)
            return replace(row, context_used=used) if used is not None or answer.state is State.DONE else row

        try:
            await self._core.conversations.shared.settle(conversation, answer, ended)
        except StoreError as error:
            self._core.events.tell(Noticed(str(error), "error"))

    def _settled(self, conversation: OpenConversation, answer: Node) -> None:
        """The conversation goes on with this answer: whoever waited for it does too."""
        if kind := hold_of(answer):
            self._queue.hold(conversation.id, kind)
        self._questions.forget(conversation.id)
        for observer in self.observers:
            observer.turn_ended(conversation, answer)
        self.send_next(conversation.id)
        if conversation.id not in self._next:
            self._requests.expect_no_more(conversation.id)
        self._core.conversations.list_changed()
        self._core.events.tell(AnswerEnded(conversation.id, answer.id))
        self._core.events.tell(ConversationChanged(conversation.id))

    async def _explained_if_possible(
        self,
        tracked: TrackedTurn | None,
        figures: TurnFigures | None,
    ) -> tuple[TurnFigures | None, Finding | None]:
        """As `_explained`; where that fails the answer is kept with the server's figures."""
        if tracked is None or figures is None:
            return figures, None
        explanation = asyncio.create_task(self._explained(tracked, figures))
        self._explanations.add(explanation)
        await asyncio.wait({explanation})
        self._explanations.discard(explanation)
        if explanation.cancelled():
            return figures, None
        if error := explanation.exception():
            log.error("a turn could not be explained", exc_info=error)
            return figures, None
        return explanation.result()

    async def _explained(self, tracked: TrackedTurn, figures: TurnFigures) -> tuple[TurnFigures, Finding | None]:
        """The figures with the prediction and, where tokens were wasted, the cause."""
        cache = self._core.tracker.playing(tracked)
        if cache is not None:
            figures = await cache.ended(tracked, figures) or figures
        return await self._core.tracker.explained(tracked, cache, figures)

    def _warm_up_looked_at(self) -> None:
        """Prefill what the settled form of an answer lacks in the cache."""
        if self._core.conversations.looked_at:
            self._warm_up.soon(self._core.conversations.looked_at)

    # -- as an occupation of its conversation ----------------------------------------------------------------------

    def busy(self) -> Mapping[str, asyncio.Future[None]]:
        """The conversations whose answer is running or waiting, or whose next message is about to go out."""
        return self._next | {id: task for id, (_, task) in self._running.items()}

    def refuse(self, id: str) -> None:
        """Raises ChatError while an answer runs in a conversation."""
        if id in self._running:
            raise ChatError(ChatProblem.RUNNING)
        if id in self._undecided:
            raise ChatError(ChatProblem.UNDECIDED)

    async def stop(self, id: str) -> None:
        """End the running answer and keep what came; return when it is settled. What waits for it in the queue is
        held."""
        self._queue.hold(id, HoldKind.STOPPED)
        if (sending := self._next.get(id)) is not None:
            await asyncio.wait({sending})
        running = self._running.get(id)
        if running is not None:
            running[0].stop()
            await asyncio.wait({running[1]})

    async def stop_all(self) -> None:
        """End all running answers and keep what came, without an explanation where that takes too long."""
        self._queue.hold_all()
        if self._next:
            _, late = await asyncio.wait(self._next.values(), timeout=QUIT_S)
            for sending in late:
                sending.cancel()
        for turn, _ in self._running.values():
            turn.stop()
        if tasks := {task for _, task in self._running.values()}:
            _, late = await asyncio.wait(tasks, timeout=QUIT_S)
            if late:
                for explanation in self._explanations:
                    explanation.cancel()
                await asyncio.wait(late, timeout=QUIT_S)


def _kind_of(error: ChatError | StoreError) -> HoldKind:
    """What holds a queue whose first message was not sent for this reason."""
    match error:
        case HeldError():
            return error.kind
        case GivenUp():
            return HoldKind.STOPPED
        case TooLongError():
            return HoldKind.TOO_LONG
        case OutsideError():
            return HoldKind.NEEDS_YES
    return HoldKind.NOT_SENT


def _asked(tree: Tree, question: Node, answer: Node | None) -> Node:
    """What an answer follows: its question, or the results of the calls before it."""
    return tree[answer.parent] if answer is not None and answer.parent else question


def _said_nothing(tree: Tree, answer: Node) -> bool:
    """Whether an answer failed without text, or without more than the cut answer that it continued."""
    twin = any(other.digest == answer.digest and other.created < answer.created for other in tree.siblings(answer.id))
    return (answer.is_wordless or twin) and answer.state in (
        State.ERROR,
        State.CANCELLED,
        State.INTERRUPTED,
        State.EMPTY,
    )


def _doubt(finding: Finding | None) -> Statement | None:
    """The note on an answer that may be another conversation's."""
    if finding is None or finding.cause is not Cause.REPORTED_COLD:
        return None
    flag = finding.remedy["flag"] if finding.remedy is not None else None
    return said(NoteKind.REPORTED_COLD, held=finding.evidence["held"], flag=flag)


def _no_continuing(answer: Node | None) -> ChatProblem:
    """Why an answer cannot be continued. None: it is none."""
    if answer is None:
        return ChatProblem.NO_ANSWER
    if answer.note is not None and answer.note.kind == NoteKind.TOOL_CALLS:
        return ChatProblem.CALLED_TOOL
    return {State.STREAMING: ChatProblem.STILL_COMING, State.CONTEXT_FULL: ChatProblem.WINDOW_FULL}.get(
        answer.state, ChatProblem.COMPLETE
    )

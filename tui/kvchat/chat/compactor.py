"""Compacting a conversation when its window fills up: a summary is asked for, and a new branch begins with it.

The request for the summary is the conversation's own messages and one instruction more, so the server reads
hardly anything for it; its answer is no part of the conversation. Until the summary is there nothing has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import Emit, Ended, Waiting
from kvchat.chat.cache.tracked_turn import EndedAnswers, TrackedTurn
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.branches import Branches
from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
from kvchat.chat.conversations.shared import Head, RunningAct
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError, GivenUp
from kvchat.chat.events import CompactionChanged, Noticed, SummaryPrepared, WarmthChanged
from kvchat.chat.turns.answer_run import AnswerRun, run_to_end
from kvchat.chat.turns.turns import Turns
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.branching import awaited
from kvchat.prompt.compaction import (
    BYTES_PER_TOKEN,
    INSTRUCTION_TOKENS,
    CompactionPlan,
    compaction,
    planned,
    repeats_itself,
    request_path,
    turn_sizes,
    turns_of,
    usable,
)
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.prefilled_before import prefilled_before
from kvchat.prompt.request import Parameters
from kvchat.store import HeadMoved
from kvchat.text.notes import note_sentence
from kvchat.text.prices import COMPACTION_STOPPED, compacted_words
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.chat.background.side_requests import SideRequests

REST_SHARE = 0.7
"""How full the window is when a summary is written at rest."""
OFFERED = "summary at rest offered"
"""The setting of the store that says that the user was asked whether they want that."""
RENEWED_AFTER = 0.1
"""Of the window: when the turns since a prepared summary take more, it is written again over them."""
TEMPERATURE = 0.3
"""A summary keeps to the facts; 0 makes small models repeat themselves."""


class CompactionPrice(Struct, frozen=True):
    """What a compaction would do and take, before it is done."""

    plan: CompactionPlan
    window: int | None
    """Tokens that fit; None: not known."""
    summary_seconds: float | None = None
    """To read the instruction and write the summary, at most; None until the speeds are measured; 0: it is prepared."""
    read_seconds: float | None = None
    """To read the new branch once, at most."""


class Compacted(Struct, frozen=True):
    """What a compaction did."""

    turns: int
    """That the summary took the place of."""
    before: int
    """Tokens of the branch that was left."""
    after: int
    """Tokens of the new branch: of the old one what it keeps, and the summary as the server counted it."""
    spent: TurnFigures
    """The figures of the request for the summary."""
    repeats: bool
    """Whether the summary says the same again and again."""


class Summary(Struct, frozen=True):
    """What a branch goes on with."""

    plan: CompactionPlan
    text: str
    tokens: int


class PreparedSummary(Struct, frozen=True):
    """A summary that was written at rest."""

    summary: Summary
    head: str
    """The end of the branch that it was written of."""


class RunningCompaction(Struct):
    """A summary while it is written."""

    conversation: str
    head: str | None
    """The end of the branch that is summarised."""
    replaced: int
    """Turns that the summary is to replace."""
    path: Sequence[Node]
    """What is sent: the branch, and the instruction."""
    live: LiveAnswer
    """Its text so far, and the server's figures."""
    answer_run: AnswerRun
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Compactor:
    """When to compact, for what price, and doing it."""

    def __init__(
        self,
        core: Core,
        warm_up: WarmUp,
        branches: Branches,
        turns: Turns,
        side_requests: SideRequests,
    ) -> None:
        self._core = core
        self._warm_up = warm_up
        self._branches = branches
        self._turns = turns
        self._side_requests = side_requests
        self.running: RunningCompaction | None = None
        """The compaction that runs: one at a time."""
        self._tracked: TrackedTurn | None = None
        """The request for the summary."""
        self._prepared: dict[str, PreparedSummary] = {}
        """By conversation."""
        self._taking: dict[str, asyncio.Future[None]] = {}
        """The conversations that go on with a prepared summary just now, each with the end of that."""
        self._core.conversations.occupations.append(self)

    # -- when

    def price(self, id: str) -> CompactionPrice:
        """What compacting would do and take. Raises ChatError when there is nothing to compact."""
        conversation = self._core.conversations.loaded[id]
        reading = self._core.speeds.tokens_per_second(id)
        if (ready := self.ready_summary(conversation)) is not None:
            after = ready.plan.after
            return CompactionPrice(ready.plan, self._core.servers.window(id), 0.0, after / reading if reading else None)
        return self._price(conversation, reading)

    def _price(self, conversation: OpenConversation, reading: float | None) -> CompactionPrice:
        """Of a compaction whose summary is yet to be written, at `reading` prompt tokens per second."""
        id, path = conversation.id, conversation.path()
        sizes = turn_sizes(path)
        if len(sizes) < 2:
            raise ChatError(ChatProblem.NO_OLDER_TURNS)
        used = conversation.context_used
        if used is None:
            used = sum(sizes) + len(path[0].wire) // BYTES_PER_TOKEN
        elif path[-1].figures is None:  # a last question that did not fit was never counted
            used += sizes[-1]
        window = self._core.servers.window(id)
        plan = planned(sizes, used, window, thinks=any(node.message.reasoning for node in path))
        if plan is None:
            raise ChatError(ChatProblem.NO_ROOM)
        writing = _decode_speed(conversation.figures())
        return CompactionPrice(
            plan,
            window,
            INSTRUCTION_TOKENS / reading + plan.max_tokens / writing if reading and writing else None,
            plan.after / reading if reading else None,
        )

    # -- doing it

    async def compact(self, id: str) -> Compacted | None:
        """Ask for a summary and go on with it on a new branch; `undo` goes back. None: it was stopped, and nothing
        has changed. Raises ChatError when there is nothing to compact or no usable summary came."""
        with self._core.conversations.shared.register_act(id) as act:
            conversation = await self._core.conversations.for_act(id, Head.SETTLED, act)
            try:
                ready = self.ready_summary(conversation)
                done = await (
                    self._summarized(conversation, act) if ready is None else self._take(conversation, ready, act)
                )
            except GivenUp:
                done = None
        await self._show_outcome(conversation, done)
        return done

    async def _summarized(self, conversation: OpenConversation, act: RunningAct) -> Compacted | None:
        """Ask for a summary and go on with it. None: it was stopped. Raises GivenUp too."""
        id = conversation.id
        if self.running is not None:
            raise ChatError(ChatProblem.COMPACTING_ELSEWHERE)
        plan = self._price(conversation, None).plan
        running = self.running = self._prepare_run(conversation, plan)
        self._core.events.tell(CompactionChanged(id))
        try:
            summary = await run_to_end(running.answer_run)
            await self._note(conversation, running.path, summary)
            if summary.state is State.CANCELLED:
                return None
            return await self._put_in_place(
                conversation, self._usable(conversation, plan, summary), act, summary.figures
            )
        finally:
            self.running = None
            self._tracked = None
            running.ended.set_result(None)
            self._core.events.tell(CompactionChanged(id))
            self._turns.send_next(id)

    async def _show_outcome(self, conversation: OpenConversation, done: Compacted | None) -> None:
        """Show how a compaction ended. The conversation is free again while the server counts the new branch, which is
        warmed up while it is looked at."""
        self._core.events.tell(Noticed(_outcome(done)))
        if done is None:
            return
        cache = self._core.servers.link(conversation.id).cache
        if cache is not None:  # how much of the new branch the server holds is known by its tokens alone
            await cache.prompts.prefix(self._core.branch_requests.after(conversation.record, conversation.path()))
            self._core.events.tell(WarmthChanged())
        if self._core.conversations.looked_at == conversation.id:
            self._warm_up.soon(conversation.id, 0.0)

    def _prepare_run(self, conversation: OpenConversation, plan: CompactionPlan) -> RunningCompaction:
        path = request_path(conversation.path(), plan, self._core.timestamp())
        answer = awaited(path[-1], self._core.clock())
        live = LiveAnswer(answer.id, time.monotonic(), read=prefilled_before(conversation.tree, path))

        async def chat(emit: Emit) -> Ended:
            return await self._ask_for_summary(conversation, plan, path, live, emit)

        answer_run = AnswerRun(
            answer,
            path,
            live,
            chat=chat,
            changed=lambda: self._core.events.tell(CompactionChanged(conversation.id)),
        )
        return RunningCompaction(
            conversation.id, conversation.record.head, plan.turns - plan.keep, path, live, answer_run
        )

    async def _ask_for_summary(
        self, conversation: OpenConversation, plan: CompactionPlan, path: Sequence[Node], live: LiveAnswer, emit: Emit
    ) -> Ended:
        """Wait for the lane and the server, then send the one request."""
        record = conversation.record
        link = self._core.servers.link(record.id)

        def began(tracked: TrackedTurn) -> None:
            self._tracked = tracked

        if link.lane.holder:
            emit(Waiting("lane", 0.0))
        async with link.lane.chat(record.id):
            emit(Waiting("connecting", 0.0))
            backend = await link.connector.ready()
            await link.lane.sit()
            emit(Waiting("queued", 0.0))
            live.context_size = self._core.servers.window(record.id)
            live.sent_at = time.monotonic()
            ended = await self._side_requests.of_conversation(
                backend, conversation, path, _parameters(conversation, plan), emit, began
            )
            if ended.error is not None:
                await self._core.servers.is_gone(link, ended.error)
            return ended

    async def _note(self, conversation: OpenConversation, path: Sequence[Node], answer: Node) -> None:
        """What the request for the summary left in the server's cache."""
        cache, tracked = self._core.servers.link(conversation.id).cache, self._tracked
        self._tracked = None
        if cache is not None and tracked is not None:
            await cache.ended(tracked, answer.figures)
            cache.left(
                tracked, EndedAnswers([answer]), self._core.branch_requests.after(conversation.record, [*path, answer])
            )

    def _usable(self, conversation: OpenConversation, plan: CompactionPlan, answer: Node) -> Summary:
        """The summary in an answer. Raises ChatError when it cannot be used."""
        if answer.state in (State.ERROR, State.INTERRUPTED):
            raise ChatError(ChatProblem.NO_SUMMARY, why=note_sentence(answer.note))
        summary = usable(answer.text, answer.state)
        if not summary:
            thought = answer.message.reasoning or answer.text
            raise ChatError(ChatProblem.STILL_THINKING if thought else ChatProblem.EMPTY_SUMMARY)
        length = answer.figures.predicted_tokens if answer.figures is not None else None
        if length is None or answer.message.reasoning or len(summary) < len(answer.text) // 2:
            length = len(summary.encode()) // BYTES_PER_TOKEN
        if length >= plan.replaced:
            raise ChatError(ChatProblem.LONG_SUMMARY, tokens=length, replaced=plan.replaced)
        return Summary(plan, summary, length)

    async def _put_in_place(
        self, conversation: OpenConversation, summary: Summary, act: RunningAct, spent: TurnFigures | None = None
    ) -> Compacted:
        """Go on with the summary. `spent`: on the request for it, while the user waited. Raises GivenUp."""
        await self._go_on(conversation, summary.plan, summary.text, act)
        after = summary.plan.after_with(summary.tokens)
        await self._core.conversations.update(conversation, context_used=after)
        plan = summary.plan
        return Compacted(
            plan.turns - plan.keep, plan.before, after, spent or TurnFigures(), repeats_itself(summary.text)
        )

    async def _go_on(self, conversation: OpenConversation, plan: CompactionPlan, summary: str, act: RunningAct) -> None:
        """Move to the branch with the summary; turns that another kvchat has added meanwhile stay as they are."""
        while True:
            await self._core.conversations.shared.look(conversation)
            await self._core.conversations.shared.settled(conversation, act)
            with self._core.conversations.shared.held(conversation):
                added = sum(node.role is Role.USER for node in conversation.path()) - plan.turns
                branch = compaction(
                    conversation.tree,
                    conversation.record.head or "",
                    summary,
                    plan.keep + added,
                    self._core.timestamp(),
                )
                try:
                    return await self._branches.move(conversation, branch)
                except HeadMoved:
                    continue

    # -- a summary that is written before it is wanted

    def wants_summary(self, conversation: OpenConversation) -> bool:
        """Whether the window is so full that a summary is to be prepared, and none is, or one that leaves out much."""
        share = self._core.servers.window_share(conversation)
        if share is None or share < REST_SHARE:
            return False
        ready, window = self._prepared.get(conversation.id), self._core.servers.window(conversation.id)
        if ready is None or self.ready_summary(conversation) is None:
            return True
        return (conversation.context_used or 0) - ready.summary.plan.before > RENEWED_AFTER * (window or 0)

    def offers_rest(self, conversation: OpenConversation) -> bool:
        """Whether to offer that summaries are written at rest: once, when a window is full enough for the first
        time."""
        share = self._core.servers.window_share(conversation)
        if self._core.settings.cache.summary_at_rest or share is None or share < REST_SHARE:
            return False
        if self._core.setting(OFFERED):
            return False
        self._core.in_background(self._core.keep_setting(OFFERED, "yes"))
        return True

    def request(self, conversation: OpenConversation) -> tuple[CompactionPlan, list[Node], Parameters]:
        """What is sent for a summary at rest of the branch that is shown. Raises ChatError when there is nothing to
        compact, or no room to send all of it: the next turn would be prefilled from where the request ends."""
        plan = self._price(conversation, None).plan
        if plan.send < plan.turns:
            raise ChatError(ChatProblem.NO_ROOM)
        return plan, request_path(conversation.path(), plan, self._core.timestamp()), _parameters(conversation, plan)

    def prepare(self, conversation: OpenConversation, head: str, plan: CompactionPlan, answer: Node) -> None:
        """Keep the summary in an answer for the branch that ended at `head`. Raises ChatError when it is unusable."""
        self._prepared[conversation.id] = PreparedSummary(self._usable(conversation, plan, answer), head)
        self._core.events.tell(SummaryPrepared(conversation.id))

    def ready_summary(self, conversation: OpenConversation) -> Summary | None:
        """The summary that can be put in place now: turns that came since it was written stay as they are. None: there
        is none of this branch."""
        ready, path = self._prepared.get(conversation.id), conversation.path()
        if ready is None or all(known.id != ready.head for known in path):
            return None
        plan, tokens = ready.summary.plan, ready.summary.tokens
        added = len(turns_of(path)) - plan.turns
        used = max(conversation.context_used or 0, plan.before)
        now = replace(plan, turns=plan.turns + added, keep=plan.keep + added, before=used, summary=tokens)
        return replace(ready.summary, plan=now)

    async def _take(self, conversation: OpenConversation, ready: Summary, act: RunningAct) -> Compacted:
        """Go on with a prepared summary. Raises GivenUp."""
        id, ended = conversation.id, asyncio.get_running_loop().create_future()
        self._taking[id] = ended
        try:
            done = await self._put_in_place(conversation, ready, act)
            del self._prepared[id]
            return done
        finally:
            del self._taking[id]
            ended.set_result(None)
            self._core.events.tell(CompactionChanged(id))
            self._turns.send_next(id)

    # -- while it runs the conversation is as busy as with an answer

    def busy(self) -> Mapping[str, asyncio.Future[None]]:
        running = {} if self.running is None else {self.running.conversation: self.running.ended}
        return self._taking | running

    def refuse(self, id: str) -> None:
        if id in self._taking or self._running_in(id):
            raise ChatError(ChatProblem.COMPACTING)

    async def stop_all(self) -> None:
        """End the compaction that runs."""
        if self.running is not None:
            await self.stop(self.running.conversation)

    async def stop(self, id: str) -> None:
        if running := self._running_in(id):
            running.answer_run.stop()
            self._core.conversations.give_up(id)
        if (ended := self.busy().get(id)) is not None:
            await asyncio.wait({ended})

    def _running_in(self, id: str) -> RunningCompaction | None:
        return self.running if self.running is not None and self.running.conversation == id else None


def _parameters(conversation: OpenConversation, plan: CompactionPlan) -> Parameters:
    """The conversation's own, for a summary."""
    return replace(conversation.record.parameters, temperature=TEMPERATURE, max_tokens=plan.max_tokens, stop=())


def _decode_speed(turns: Sequence[TurnFigures]) -> float | None:
    """Tokens per second written, over all turns that say how long they took."""
    timed = [(t.predicted_tokens, t.predicted_ms) for t in turns if t.predicted_tokens and t.predicted_ms]
    return sum(n for n, _ in timed) / sum(ms for _, ms in timed) * 1000 if timed else None


def _outcome(done: Compacted | None) -> str:
    if done is None:
        return COMPACTION_STOPPED
    ms = (done.spent.prompt_ms or 0.0) + (done.spent.predicted_ms or 0.0)
    return compacted_words(done.turns, done.before, done.after, ms, repeats=done.repeats)

"""Following a server's cache: every request of ours is played on a twin, and the server's own words correct it.

The rule: nothing here makes a person wait. What is asked of the server before a request is who it is and what its slots
hold; the prompt's token ids are read beside the answer, and whatever fails leaves the twin without knowledge, never a
chat without an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn, ServerInfo, ServerState, SlotCount
from kvchat.cache.accounting import NOISE, TurnFigures
from kvchat.cache.causes.cause import Finding
from kvchat.cache.causes.evidence import Evidence, Foreign
from kvchat.cache.llamacpp.candidates import Candidates
from kvchat.cache.llamacpp.plan import Plan
from kvchat.cache.llamacpp.shape import Rewind, Shape
from kvchat.cache.llamacpp.twin import Prediction, Twin
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.chat.evidence import Asked, Journal, identity
from kvchat.chat.user_starts import UserStarts
from kvchat.prompt.message import Message, Node, Role, State
from kvchat.prompt.wire import canonical

MARK = "\N{BALLOT BOX WITH CHECK}kv\N{BALLOT BOX WITH CHECK}"
"""Stands for the next question's text, to find where it begins in a rendered prompt."""
LOOK_S = 0.5
BUSY_S = 0.01
STOPPED = (State.CANCELLED, State.INTERRUPTED, State.ERROR)
"""Answers after which the server may have written more than came."""
KEPT_PREFIXES, KEPT_TOKENS = 256, 4_000_000
READ_S, MOST_SLOW = 0.5, 3
"""How long an answer that has ended waits for its prompt's tokens, and how often in all."""
MOST_SAMPLED = 1 << 20

PrefixKey = tuple[tuple[bytes, ...], str, bytes, str]
NEVER: tuple[int, ...] = (-1,)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the slots told."""

    counts: tuple[SlotCount, ...] = ()


@dataclass(slots=True)
class FollowedTurn(Asked):
    """One chat request, from before it is sent until what it left is known."""

    plan: Plan | None = None
    before: Twin | None = None
    """The twin as it was when the request was sent."""
    reading: asyncio.Task[None] | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when what it left in the cache is known, or never will be."""
    finding: Finding | None = None
    processed: int = 0
    """Prompt tokens that the server had read when it was last heard of."""

    @property
    def knows_room(self) -> bool:
        return self.before is not None and self.before.shape.token_bytes > 0 and self.before.shape.ram_bytes != 0

    def kept(self, slot: int | None) -> int | None:
        if slot is None or self.before is None or self.tokens is None or slot >= len(self.before.slots):
            return None
        held = self.before.slots[slot]
        return held.tokens.common(self.tokens) if held is not None else 0


class Following:
    """The cache of one server and model. `changed` is called when what is held may have changed."""

    def __init__(self, access: CacheAccess, server: ServerInfo, twin: Candidates, *, now: Callable[[], float],
                 changed: Callable[[], None], journal: Journal) -> None:
        self.access = access
        self.server = server
        self.twin = twin
        self.plan: Plan | None = None
        """The plan of the last request."""
        self.predictions = self.exact = 0
        self.busy: frozenset[int] = frozenset()
        """Slots that worked for somebody else at the last look."""
        self.heads: dict[str, tuple[str, ...]] = {}
        """By conversation: the digests, in hex, of the messages of which a slot holds a state."""
        self.journal = journal
        self.state = ServerState()
        """The server's last state."""
        self._now = now
        self._changed = changed
        self._prefixes: OrderedDict[PrefixKey, Tokens] = OrderedDict()
        self._kept = 0
        """Tokens in these."""
        self._tasks_seen: tuple[int | None, ...] = ()
        self._last_counts: tuple[int, ...] = NEVER
        self._inherits = False
        """Whether the server held something before it was followed: it may reuse what the twin knows nothing of."""
        self._leaving: asyncio.Task[None] | None = None
        self._works = True
        self._tasks_at_begin: tuple[int | None, ...] = ()
        self._came: Callable[[int], None] | None = None
        """Is told how far the last request came, which was cancelled."""
        self._was_cut = False
        """Whether the last request was ended early: its batch may still be computed."""
        self._current: FollowedTurn | None = None
        """The chat request that is being played, or was played last."""
        self._slow = 0
        self._unheard = False
        """Whether the last request was cancelled before the server was heard of: it may never have begun."""
        self._users = UserStarts(access)

    # -- prompts --------------------------------------------------------------------------------------------------

    @property
    def works(self) -> bool:
        """Whether the server lets itself be followed."""
        return self._works

    def known_prefix(self, turn: ChatTurn) -> Tokens | None:
        """The prefix of the next prompt after `turn`'s messages, if it was read before."""
        return self._prefixes.get(_key(turn))

    async def prefix(self, turn: ChatTurn, begun: str = "") -> Tokens | None:
        """The token ids with which every prompt begins that goes on after `turn`'s messages with a question that
        starts with `begun`; None where the server does not tell."""
        key = _key(turn, begun)
        if (found := self._prefixes.get(key)) is not None:
            self._prefixes.move_to_end(key)
            return found
        if not self._works:
            return None
        question = Message(Role.USER, begun + MARK).wire()
        try:
            text = await self.access.prompt_text(replace(turn, wires=(*turn.wires, question)))
            at = text.rfind(MARK)
            if at < 0:
                return None
            tokens = await self.access.tokens_of(text[:at])
        except BackendError as error:
            self._gave_up(error)
            return None
        tokens = tokens.first(max(0, len(tokens) - 1))  # the last one may merge with what is typed
        self._prefixes[key] = tokens
        self._kept += len(tokens)
        while len(self._prefixes) > KEPT_PREFIXES or self._kept > KEPT_TOKENS:
            self._kept -= len(self._prefixes.popitem(last=False)[1])
        return tokens

    async def prompt(self, turn: ChatTurn) -> Tokens | None:
        """The token ids of the whole prompt of `turn`; None where the server does not tell."""
        try:
            return await self.access.tokens_of(await self.access.prompt_text(turn)) if self._works else None
        except BackendError as error:
            self._gave_up(error)
            return None

    def _gave_up(self, error: BackendError) -> None:
        log.info("the server's cache cannot be followed: %s", error.sentence)
        self._works = error.status not in (404, 405, 501)

    # -- a turn ---------------------------------------------------------------------------------------------------

    async def before(self, turn: ChatTurn, path: Sequence[Node]) -> FollowedTurn:
        """Just before a chat request: what the last one left is settled, and the slots are looked at."""
        if self._current is not None and not self._current.closed.is_set():
            try:
                await asyncio.wait_for(self._current.closed.wait(), LOOK_S)
            except TimeoutError:
                self._current.closed.set()  # what it left stays unknown
        if not self.state.asleep:  # a look would wake it, and there is nothing to see
            await self.look()
        return FollowedTurn(turn, path, server=identity(self.server, turn.model))

    def sent(self, followed: FollowedTurn, slot: int | None = None) -> None:
        """The request is on its way: read its token ids beside it."""
        followed.number = self.journal.next()
        followed.before = self.twin.best.copy()
        self._current = followed
        followed.reading = asyncio.create_task(self._read(followed, slot))

    async def _read(self, followed: FollowedTurn, slot: int | None) -> None:
        if not self._works:
            return
        try:
            followed.rendered = await self.access.prompt_text(followed.turn)
            followed.tokens = await self.access.tokens_of(followed.rendered)
        except BackendError as error:
            self._gave_up(error)
            return
        if not followed.tokens or self._current is not followed:
            return
        users = () if self.twin.rewinds else await self._users.places(followed.turn.model, followed.tokens)
        owner = followed.turn.session_id
        prediction = self.twin.begin(followed.tokens, owner, self._now(), slot, users)
        self._tasks_at_begin = self._tasks_seen
        followed.prediction = prediction
        self.journal.used("conversation", owner, self.server.base_url, prediction, followed.number)

    def plays(self, followed: FollowedTurn) -> bool:
        """Whether this request is the one that is being played."""
        return self._current is followed

    async def ended(self, followed: FollowedTurn, figures: TurnFigures | None) -> TurnFigures | None:
        """The answer is here: its figures with what the twin had predicted."""
        if followed.reading is None:
            return figures
        await self._until_read(followed)
        prediction = followed.prediction
        if figures is None or prediction is None:
            return figures
        cached = figures.cached_tokens
        if cached is not None and cached > prediction.cached and self._inherits:
            return figures
        if cached is not None and followed.tokens is not None:
            self.twin.reported(cached)
            followed.prediction = self.twin.said or prediction
            self.predictions += 1
            self.exact += prediction.cached == cached
        return replace(figures, predicted_cached=prediction.cached)

    def left(self, followed: FollowedTurn, answer: Node, settled: ChatTurn) -> None:
        """After the answer: find out what it left in the cache, in a task of its own."""
        self._leaving = asyncio.create_task(self._leave(followed, answer, settled))

    async def settled(self, seconds: float | None = None) -> None:
        """Return when what the last answer left is known, or after so many seconds."""
        if self._leaving is not None:
            await asyncio.wait({self._leaving}, timeout=seconds)

    async def _until_read(self, followed: FollowedTurn) -> None:
        """Wait a moment for the prompt's tokens; a server that keeps one waiting for them again and again is left
        alone."""
        if followed.reading is None or followed.reading.done():
            return
        await asyncio.wait({followed.reading}, timeout=READ_S)
        if not followed.reading.done():
            followed.reading.cancel()
            self._slow += 1
            self._works = self._works and self._slow < MOST_SLOW

    async def _leave(self, followed: FollowedTurn, answer: Node, settled: ChatTurn) -> None:
        try:
            await self._until_read(followed)
            await self._note_left(followed, answer, settled)
        finally:
            followed.closed.set()
        self._changed()

    async def _note_left(self, followed: FollowedTurn, answer: Node, settled: ChatTurn) -> None:
        figures, prompt = answer.figures, followed.tokens
        predicted = (figures.predicted_tokens or 0) if figures else 0
        slot_tokens = None
        if prompt is not None and followed.prediction is not None and self._current is followed:
            sampled = await self._sampled(prompt, predicted, settled)
            self._was_cut = answer.state in STOPPED
            if predicted:
                self.twin.end(sampled, stopped=answer.state in STOPPED)
            else:
                self.twin.cut(followed.processed or followed.prediction.cached)
                self._unheard = not followed.processed
            self.heads[followed.turn.session_id] = tuple(node.digest.hex() for node in (*followed.path, answer))
            slot_tokens = self._slot_tokens(followed.prediction.slot, counts := await self._counts())
            self._observe(counts, followed.prediction.slot, len(prompt) + max(0, predicted - 1))
        else:
            self._observe(await self._counts(), None)
        self.journal.answered(followed, answer, slot_tokens)

    def _slot_tokens(self, slot: int, counts: Sequence[SlotCount]) -> int | None:
        return counts[slot].tokens if slot < len(counts) else None

    async def _sampled(self, prompt: Tokens, count: int, settled: ChatTurn) -> Tokens:
        """The ids of the sampled tokens, as far as they can be told; unknown ones are unlike all others."""
        prefix = await self.prefix(settled)
        if prefix is not None and prefix.common(prompt) == len(prompt):
            known = prefix.after(len(prompt)).first(count)
        else:
            known = NO_TOKENS
        return known + Tokens.unknown(min(count, MOST_SAMPLED) - len(known))

    # -- looking at the server ------------------------------------------------------------------------------------

    async def look(self) -> Look:
        """Look at the slots and correct the twin."""
        return self._observe(await self._counts())

    async def _counts(self) -> Sequence[SlotCount]:
        if not self._works:
            return ()
        counts: Sequence[SlotCount] = ()
        try:
            async with asyncio.timeout(LOOK_S):
                counts = await self.access.slot_counts()
                while self._finishes(counts):
                    await asyncio.sleep(BUSY_S)
                    counts = await self.access.slot_counts()
        except (BackendError, TimeoutError):
            pass
        return counts

    def _finishes(self, counts: Sequence[SlotCount]) -> bool:
        """Whether the slot used last still computes the batch in which a request of ours was cancelled: nothing else
        begins there before, so that waiting for it costs no time."""
        slot = self.journal.last_slot if self._was_cut else None
        return slot is not None and slot < len(counts) and counts[slot].busy

    def count(self, slot: int) -> int:
        """The tokens that the server last reported for a slot."""
        return self._last_counts[slot] if slot < len(self._last_counts) else 0

    def _observe(self, counts: Sequence[SlotCount], slot: int | None = -1, left: int = 0) -> Look:
        """Correct the twin by what the slots hold. `slot`: where a request of ours ended just now, which left about
        `left` tokens; None: it is not known where; -1: there was none."""
        if not counts:
            return Look()
        first = self._last_counts is NEVER
        if first:
            self._inherits = any(count.tokens for count in counts)
        self._last_counts = tuple(count.tokens for count in counts)
        self.busy = frozenset(slot for slot, count in enumerate(counts) if count.busy)
        tasks = tuple(count.task for count in counts)
        emptied = any(before is not None and (now is None or now < before)
                      for before, now in zip(self._tasks_seen, tasks, strict=False))
        if emptied or (first and not any(task is not None for task in tasks)):
            # only a new process has another name; one that keeps it has slept
            self._lost("slept" if self.state.process and emptied else "restarted")
        elif self._unheard and tasks == self._tasks_at_begin:
            self.twin.never_began()
            self._came = None
        self._unheard, self._tasks_seen = False, tasks
        cut, said = self._came, self.twin.said
        self._came = None
        surprises = self.twin.observe([None if count.busy else count.tokens for count in counts])
        if cut is not None and said is not None and said.slot < len(counts):
            cut(counts[said.slot].tokens)
        for found in () if first or emptied or slot is None else surprises:
            if found.count and found.slot != slot and found.count != left:
                self.journal.saw(self.server.base_url, "foreign", Foreign(found.slot, found.count))
        if surprises:
            self._changed()
        return Look(tuple(counts))

    def noticed(self, state: ServerState) -> None:
        """The server said who it is: see whether it lost what it held."""
        before, self.state = self.state, state
        if state.asleep and not before.asleep:
            self._lost("slept")
        elif before.process and state.process and before.process != state.process:
            self._lost("restarted")

    def _lost(self, what: Literal["restarted", "slept"]) -> None:
        self.journal.saw(self.server.base_url, what)
        self.twin.forget()
        self._tasks_seen = ()
        self._changed()

    def shape(self, evidence: Evidence) -> Shape:
        """What the cache is like, as far as can be told with this turn: one that reused less of an undisturbed slot
        than it holds cannot go back to where the prompts part."""
        shape, said, figures = self.twin.best.shape, evidence.prediction, evidence.figures
        cached = figures.cached_tokens
        if (said is None or cached is None or said.source != "slot" or said.cached <= cached + NOISE
                or evidence.changed_by not in ("edit", "regenerate", "delete", "fork") or not self.twin.may_not_rewind):
            return shape
        return replace(shape, rewind=Rewind.NOWHERE)

    # -- requests beside the chat ---------------------------------------------------------------------------------

    def side_request(self, kind: Literal["warm-up", "side"], owner: str, prompt: Tokens,
                     slot: int | None = None) -> Prediction:
        """A request that reads `prompt` is sent: play it. `twin.end` or `twin.cut` must follow."""
        prediction = self.twin.begin(prompt, owner, self._now(), slot)
        self._tasks_at_begin = self._tasks_seen
        self.journal.used(kind, owner, self.server.base_url, prediction)
        return prediction

    def side_request_cut(self, processed: int | None, came: Callable[[int], None] | None = None) -> None:
        """The side request was cancelled when `processed` tokens were in; None: the server was not heard of. `came`
        is told how far it came when the slots say so: a batch may have been on its way."""
        self.twin.cut(processed or 0)
        self._was_cut = True
        self._unheard = processed is None
        self._came = came


def _options(turn: ChatTurn) -> bytes:
    return canonical(dict(turn.template_options)) if turn.template_options else b""


def _key(turn: ChatTurn, begun: str = "") -> PrefixKey:
    """What a prefix depends on. The wires are the nodes' own bytes, whose hashes are kept, so this costs little."""
    return turn.wires, turn.model, _options(turn), begun

"""Following a server's cache: every request of ours is played on a twin, and the server's own words correct it.

The rule: nothing here makes a person wait. What is asked of the server before a request is one look at its slots; the
prompt's token ids are read beside the answer, and whatever fails leaves the twin without knowledge, never a chat
without an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn, ServerInfo, SlotCount
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.candidates import Candidates
from kvchat.cache.evidence import Evidence, Foreign, LastRead, OwnUse, Sent, ServerIdentity
from kvchat.cache.plan import Plan
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.cache.twin import Prediction, Twin
from kvchat.chat.user_starts import UserStarts
from kvchat.prompt.message import Message, Node, Role, State
from kvchat.prompt.request import wires_of
from kvchat.prompt.wire import canonical

MARK = "\N{BALLOT BOX WITH CHECK}kv\N{BALLOT BOX WITH CHECK}"
"""Stands for the next question's text, to find where it begins in a rendered prompt."""
LOOK_S = 0.5
KEPT_READS = 16
STOPPED = (State.CANCELLED, State.INTERRUPTED, State.ERROR)
"""Answers after which the server may have written more than came."""
KEPT_PREFIXES = 256

NEVER: tuple[int, ...] = (-1,)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Use:
    """A request of ours, in the order in which they were sent."""

    number: int
    kind: str
    conversation: str
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the slots told."""

    counts: tuple[SlotCount, ...] = ()
    foreign: Foreign | None = None
    restarted: bool = False


@dataclass(slots=True)
class FollowedTurn:
    """One chat request, from before it is sent until what it left is known."""

    turn: ChatTurn
    path: Sequence[Node]
    number: int
    plan: Plan | None = None
    look: Look = field(default_factory=Look)
    tokens: Tokens | None = None
    rendered: str = ""
    prediction: Prediction | None = None
    before: Twin | None = None
    """The twin as it was when the request was sent."""
    reading: asyncio.Task[None] | None = None
    processed: int = 0
    """Prompt tokens that the server had read when it was last heard of."""


class Following:
    """The cache of one server and model. `changed` is called when what is held may have changed."""

    def __init__(self, access: CacheAccess, server: ServerInfo, twin: Candidates, *, now: Callable[[], float],
                 changed: Callable[[], None]) -> None:
        self.access = access
        self.server = server
        self.twin = twin
        self.plan: Plan | None = None
        """The plan of the last request."""
        self.predictions = self.exact = 0
        self.heads: dict[str, tuple[str, ...]] = {}
        """By conversation: the digests, in hex, of the messages of which a slot holds a state."""
        self._now = now
        self._changed = changed
        self._prefixes: OrderedDict[bytes, Tokens] = OrderedDict()
        self._reads: OrderedDict[str, tuple[int, LastRead]] = OrderedDict()
        self._uses: list[Use] = []
        self._numbers = 0
        self._tasks_seen: tuple[int | None, ...] = ()
        self._last_counts: tuple[int, ...] = NEVER
        self._inherits = False
        """Whether the server held something before it was followed: it may reuse what the twin knows nothing of."""
        self._leaving: asyncio.Task[None] | None = None
        self._works = True
        self._users = UserStarts(access)

    # -- prompts --------------------------------------------------------------------------------------------------

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
        if len(self._prefixes) > KEPT_PREFIXES:
            self._prefixes.popitem(last=False)
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
        if self._leaving is not None:
            await asyncio.wait({self._leaving}, timeout=LOOK_S)
        self._numbers += 1
        followed = FollowedTurn(turn, path, self._numbers)
        followed.look = await self.look()
        return followed

    def sent(self, followed: FollowedTurn, slot: int | None = None) -> None:
        """The request is on its way: read its token ids beside it."""
        followed.before = self.twin.best.copy()
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
        users = () if self.twin.rewinds else await self._users.places(followed.turn.model, followed.tokens)
        owner = followed.turn.session_id
        prediction = self.twin.begin(followed.tokens, owner, self._now(), slot, users)
        followed.prediction = prediction
        self._uses.append(Use(followed.number, "conversation", owner, prediction.slot))
        del self._uses[:-200]

    async def ended(self, followed: FollowedTurn, figures: TurnFigures | None) -> TurnFigures | None:
        """The answer is here: its figures with what the twin had predicted."""
        if followed.reading is None:
            return figures
        await asyncio.wait({followed.reading}, timeout=2.0)
        prediction = followed.prediction
        if figures is None or prediction is None:
            return figures
        cached = figures.cached_tokens
        if cached is not None and cached > prediction.cached and self._inherits:
            return figures
        if cached is not None and followed.tokens is not None:
            self.twin.reported(cached)
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

    async def _leave(self, followed: FollowedTurn, answer: Node, settled: ChatTurn) -> None:
        figures, prompt = answer.figures, followed.tokens
        predicted = (figures.predicted_tokens or 0) if figures else 0
        sampled, slot_tokens = NO_TOKENS, None
        if prompt is not None and followed.prediction is not None:
            sampled = await self._sampled(prompt, predicted, settled)
            if predicted:
                self.twin.end(sampled, stopped=answer.state in STOPPED)
            else:
                self.twin.cut(followed.processed or followed.prediction.cached)
            self.heads[followed.turn.session_id] = tuple(node.digest.hex() for node in (*followed.path, answer))
            slot_tokens = self._slot_tokens(followed.prediction.slot, counts := await self._counts())
            self._observe(counts)
        if figures is not None:
            self._reads[answer.id] = (followed.number, LastRead(
                self._sent(followed), figures.prompt_tokens, figures.predicted_tokens, sampled or None,
                answer.text, answer.message.reasoning,
                followed.prediction.slot if followed.prediction else None, slot_tokens))
            while len(self._reads) > KEPT_READS:
                self._reads.popitem(last=False)
        self._changed()

    def _slot_tokens(self, slot: int, counts: Sequence[SlotCount]) -> int | None:
        return counts[slot].tokens if slot < len(counts) else None

    async def _sampled(self, prompt: Tokens, count: int, settled: ChatTurn) -> Tokens:
        """The ids of the sampled tokens, as far as they can be told; unknown ones are unlike all others."""
        prefix = await self.prefix(settled)
        if prefix is not None and prefix.common(prompt) == len(prompt):
            known = prefix.after(len(prompt)).first(count)
        else:
            known = NO_TOKENS
        return known + Tokens.unknown(count - len(known))

    # -- looking at the server ------------------------------------------------------------------------------------

    async def look(self) -> Look:
        """Look at the slots and correct the twin."""
        return self._observe(await self._counts())

    async def _counts(self) -> Sequence[SlotCount]:
        if not self._works:
            return ()
        try:
            async with asyncio.timeout(LOOK_S):
                return await self.access.slot_counts()
        except (BackendError, TimeoutError):
            return ()

    def count(self, slot: int) -> int:
        """The tokens that the server last reported for a slot."""
        return self._last_counts[slot] if slot < len(self._last_counts) else 0

    def _observe(self, counts: Sequence[SlotCount]) -> Look:
        if not counts:
            return Look()
        if self._last_counts is NEVER:
            self._inherits = any(count.tokens for count in counts)
        self._last_counts = tuple(count.tokens for count in counts)
        tasks = tuple(count.task for count in counts)
        restarted = any(before is not None and (now is None or now < before)
                        for before, now in zip(self._tasks_seen, tasks, strict=False))
        self._tasks_seen = tasks
        if restarted:
            self.twin.forget()
        surprises = self.twin.observe([count.tokens for count in counts])
        foreign = next((Foreign(found.slot, found.count) for found in surprises if found.count), None)
        if surprises or restarted:
            self._changed()
        return Look(tuple(counts), None if restarted else foreign, restarted)

    # -- evidence -------------------------------------------------------------------------------------------------

    def _sent(self, followed: FollowedTurn) -> Sent:
        return Sent(self.identity, followed.turn.wires, _options(followed.turn), rendered=followed.rendered,
                    tokens=followed.tokens)

    @property
    def identity(self) -> ServerIdentity:
        server = self.server
        return ServerIdentity(server.base_url, server.kind, server.build, server.model, server.embedded)

    def evidence(self, followed: FollowedTurn, figures: TurnFigures, titles: Callable[[str], str]) -> Evidence:
        """All that is known about a turn that is to be explained. `titles`: a conversation's title by its id."""
        owner = followed.turn.session_id
        last = next((self._reads[node.id] for node in reversed(followed.path) if node.id in self._reads), None)
        since = last[0] if last else 0
        uses = tuple(
            OwnUse("warm-up" if use.kind == "warm-up" else "conversation", titles(use.conversation), use.slot,
                   self._kept(followed, use.slot))
            for use in self._uses if since < use.number < followed.number and use.conversation != owner)
        return Evidence(
            figures=figures, now=self._sent(followed), before=last[1] if last else None,
            restarted=followed.look.restarted, foreign=followed.look.foreign, prediction=followed.prediction,
            uses=uses, shape=self.twin.best.shape, counted=len(followed.tokens) if followed.tokens else None,
            can_keep_reasoning=self.server.preserves_reasoning,
        )

    def _kept(self, followed: FollowedTurn, slot: int | None) -> int | None:
        if slot is None or followed.before is None or followed.tokens is None or slot >= len(followed.before.slots):
            return None
        held = followed.before.slots[slot]
        return held.tokens.common(followed.tokens) if held is not None else 0

    # -- requests beside the chat ---------------------------------------------------------------------------------

    def side_request(self, kind: str, owner: str, prompt: Tokens, slot: int | None = None) -> Prediction:
        """A request that reads `prompt` is sent: play it. `twin.end` or `twin.cut` must follow."""
        self._numbers += 1
        prediction = self.twin.begin(prompt, owner, self._now(), slot)
        self._uses.append(Use(self._numbers, kind, owner, prediction.slot))
        return prediction


def _options(turn: ChatTurn) -> bytes:
    return canonical(dict(turn.template_options)) if turn.template_options else b""


def _key(turn: ChatTurn, begun: str = "") -> bytes:
    import hashlib

    key = hashlib.blake2b(_options(turn) + turn.model.encode() + b"\0" + begun.encode("utf-8", "replace"),
                          digest_size=20)
    for wire in turn.wires:
        key.update(b"\0" + wire)
    return key.digest()


def after(turn: ChatTurn, path: Sequence[Node]) -> ChatTurn:
    """The same request about another branch."""
    return replace(turn, wires=wires_of(path))

"""What is known about a turn, put down as it happens: what was sent, what was seen of the server, what the person did.

The rule: every entry has a number, in the order of time over all kvchats (milliseconds since the epoch, or one more
than the last), so that a turn is explained by nothing but what happened between it and the last read on its branch. A
guess is no entry.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import ChatTurn, ServerInfo
from kvchat.backends.kinds import kind_of
from kvchat.cache.accounting import NOISE, TurnFigures
from kvchat.cache.causes.cause import Cause
from kvchat.cache.causes.evidence import NOBODY, Change, Evidence, Foreign, LastRead, OwnUse, Sent, ServerIdentity
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.hypotheses import TOLERANCE
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.wire import canonical

BROKEN_OFF = (State.CANCELLED, State.INTERRUPTED, State.ERROR)
"""Answers after which the server may have written more than came."""
FINISHED = (State.DONE, State.EMPTY)
"""Answers that the model ended itself, by a token that is no part of the text."""
AROUND = 64
"""Characters that a template puts around an answer's reasoning, at the most."""
KEPT_READS = 16
KEPT = 200
KEPT_PLACES = 64
KEPT_LOST = 32
"""Requests of which it is kept what they ran over: the tokens of a state take room."""
BLOCK, BLOCK_TURNS = 16, 3
"""A block is believed from this size on, and when so many reports agree."""


class Use(Struct):
    """A request of ours."""

    number: int
    kind: Literal["conversation", "warm-up", "side"]
    conversation: str
    server: str
    slot: int | None = None
    said: Mapping[Shape | None, Prediction] = field(default_factory=dict)
    """What was predicted of it, by what the server's cache may be like; None: by all that was known in another run."""
    whole: bool = False
    """Whether a warm-up came to its end."""
    own: bool = True
    """Whether this kvchat made it; else another one, or the last."""

    def of(self, shape: Shape | None) -> Prediction | None:
        """What was predicted of it, if the server's cache is of this shape; None: not known."""
        return self.said.get(shape) or self.said.get(None)


class NotedUse(Struct, frozen=True):
    """A request of ours, as the next kvchat is told of it."""

    number: int
    kind: Literal["conversation", "warm-up", "side"]
    conversation: str
    slot: int
    by_prefix: bool = False
    """Whether the server chose the slot because that held a prompt that begins alike."""
    overwritten: tuple[Held, ...] = ()
    pushed_out: tuple[Held, ...] = ()


Sight = Literal["restarted", "slept", "foreign"]
NotedSight = tuple[int, Sight, Foreign | None]
ENDS: Mapping[Sight, Cause] = {"restarted": Cause.RESTARTED, "slept": Cause.UNLOADED}


class Seen(Struct, frozen=True):
    """What a look at a server told."""

    number: int
    server: str
    what: Sight
    foreign: Foreign | None = None


class Done(Struct, frozen=True):
    """An act of the person."""

    number: int
    conversation: str
    change: Change
    message: int | None


class Asked(Struct):
    """One chat request, as far as it is evidence."""

    turn: ChatTurn
    path: Sequence[Node]
    number: int = 0
    server: ServerIdentity = NOBODY
    loading_seen: bool = False
    beside_cancelled: bool = False
    tokens: Tokens | None = None
    rendered: str = ""
    prediction: Prediction | None = None
    history: int | None = None
    """Tokens of the prompt up to the end of the last answer's text; None: not counted."""
    shape: Shape | None = None
    """Of the guess about the server's cache that explains it."""
    before: Simulator | None = None
    """The simulator as it was when the request was sent."""
    pinned: int | None = None
    """The slot that it was sent to."""

    @property
    def extended(self) -> Sequence[Node]:
        """The branch without what this request adds: before its question, or all of it where a reply is continued."""
        return self.path if self.turn.continues else self.path[:-1]

    def branch(self, answer: Node) -> tuple[Node, ...]:
        """The branch with the answer to it, which takes the place of the reply that it goes on with."""
        return *(self.path[:-1] if self.turn.continues else self.path), answer

    def sent(self) -> Sent:
        turn = self.turn
        options = canonical(dict(turn.template_options)) if turn.template_options else b""
        adapters = turn.parameters.extra.get("lora")
        return Sent(
            self.server,
            turn.wires,
            options,
            rendered=self.rendered,
            tokens=self.tokens,
            adapters=canonical(adapters).decode() if adapters else "",
        )

    def kept(self, slot: int | None) -> int | None:
        """Tokens of this prompt that a slot held when it was sent; None: not known."""
        if slot is None or self.before is None or self.tokens is None or slot >= len(self.before.slots):
            return None
        held = self.before.slots[slot]
        return held.tokens.common(self.tokens) if held is not None else 0

    def said(self, use: Use) -> Prediction | None:
        """What was predicted of a request of ours, by the guess that explains this one."""
        return use.of(self.shape)

    def without_parked(self, cached: int) -> Prediction | None:
        """What would have been predicted if the server had lost the parked states of which more than `cached` tokens
        are of use; None: not known."""
        if self.before is None or self.tokens is None:
            return None
        return self.before.without_parked(self.tokens, cached).predict(self.tokens, self.pinned)

    def shared(self, states: Iterable[Held]) -> int:
        """The most tokens that one of some states begins this prompt with."""
        return max((held.tokens.common(self.tokens) for held in states), default=0) if self.tokens else 0

    def drops_reasoning(self) -> bool | None:
        """Whether the template leaves earlier reasoning out; None where that does not show."""
        thoughts = next(
            (
                node.message.reasoning.strip()
                for node in reversed(self.path)
                if node.role is Role.ASSISTANT and node.message.reasoning.strip()
            ),
            "",
        )
        return thoughts not in self.rendered if thoughts and self.rendered else None


class Journal:
    """What happened, in order."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since the epoch."""
        self._now = now
        self._number = 0
        self._reads: OrderedDict[str, tuple[int, LastRead]] = OrderedDict()
        """By answer: the number of its request, and what it left."""
        self._uses: deque[Use] = deque(maxlen=KEPT)
        self._seen: deque[Seen] = deque(maxlen=KEPT)
        self._done: deque[Done] = deque(maxlen=KEPT)
        self._places: OrderedDict[str, tuple[str, int, int | None]] = OrderedDict()
        """By the digest of an answer: its server, the number of its request, and its slot."""
        self._cached: dict[str, deque[int]] = {}
        """By server: the cached tokens of its last answers that could have reused something."""

    def _last(self, server: str) -> Use | None:
        return next((use for use in reversed(self._uses) if use.server == server and use.own), None)

    def next(self) -> int:
        """The number of what happens now."""
        self._number = max(self._number + 1, _number(self._now()))
        return self._number

    # -- putting down ---------------------------------------------------------------------------------------------

    def used(
        self,
        kind: Literal["conversation", "warm-up", "side"],
        conversation: str,
        server: str,
        slot: int,
        said: Mapping[Shape | None, Prediction],
        number: int | None = None,
    ) -> None:
        self._uses.append(Use(number or self.next(), kind, conversation, server, slot, said))
        if len(self._uses) > KEPT_LOST:
            self._uses[-KEPT_LOST - 1].said = {}

    def read_whole(self, server: str) -> None:
        """The last request to a server, a warm-up, came to its end."""
        if (last := self._last(server)) is not None:
            last.whole = True

    def saw(self, server: str, what: Sight, foreign: Foreign | None = None) -> None:
        self._seen.append(Seen(self.next(), server, what, foreign))

    def did(self, conversation: str, change: Change, message: int | None = None) -> None:
        self._done.append(Done(self.next(), conversation, change, message))

    def answered(
        self, asked: Asked, answer: Node, slot_tokens: int | None = None, sampled: Tokens | None = None
    ) -> None:
        """An answer ended; `slot_tokens` are in its slot now. `sampled`: its tokens, as far as their ids are known;
        None: it is not known at all what they are."""
        figures = answer.figures
        if figures is None or figures.prompt_tokens is None:
            return
        sent, begun = asked.sent(), 0
        if asked.turn.continues:
            cut = asked.path[-1].message
            sent, begun = replace(sent, wires=sent.wires[:-1]), len(cut.text) + len(cut.reasoning) + AROUND
        used, size = figures.context_used or 0, figures.context_size
        if size is not None and used < size - NOISE:
            slot_tokens = None  # the window never was full: nothing was shifted out of it
        self._reads[answer.id] = (
            asked.number,
            LastRead(
                sent,
                figures.prompt_tokens,
                figures.predicted_tokens,
                sampled if sampled is not None and sampled.known == len(sampled) else None,
                answer.text,
                answer.message.reasoning,
                begun,
                asked.prediction.slot if asked.prediction else None,
                slot_tokens,
                stopped_by_model(answer.state),
                sampled.known == len(sampled) if sampled is not None else None,
            ),
        )
        while len(self._reads) > KEPT_READS:
            self._reads.popitem(last=False)
        slot = asked.prediction.slot if asked.prediction is not None else None
        self._places[answer.digest.hex()] = asked.server.base_url, asked.number, slot
        while len(self._places) > KEPT_PLACES:
            self._places.popitem(last=False)

    def reported(self, asked: Asked, figures: TurnFigures) -> None:
        """What a server said to have reused."""
        if figures.cached_tokens is not None and figures.new_tokens is not None and not figures.first_read:
            self._cached.setdefault(asked.server.base_url, deque(maxlen=KEPT)).append(figures.cached_tokens)

    # -- from one run to the next -----------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of what happened last."""
        return self._number

    def uses_of(self, server: str, shape: Shape) -> list[NotedUse]:
        """The last requests of ours to a server, by what its cache is like."""
        found = []
        for use in self._uses:
            said = use.of(shape)
            if use.server == server and said is not None:
                found.append(
                    NotedUse(
                        use.number,
                        use.kind,
                        use.conversation,
                        said.slot,
                        said.chosen_by == "prefix",
                        said.overwritten,
                        said.pushed_out,
                    )
                )
        return found

    def reads_of(self, server: str) -> dict[str, tuple[int, int | None]]:
        """By the digest of an answer of a server, in hex: the number of its request, and its slot."""
        return {digest: (number, slot) for digest, (place, number, slot) in self._places.items() if place == server}

    def seen_of(self, server: str) -> list[Seen]:
        """What was seen of a server of late."""
        return [seen for seen in self._seen if seen.server == server][-KEPT_LOST:]

    def recall(
        self,
        server: str,
        number: int,
        uses: Iterable[NotedUse],
        reads: Mapping[str, tuple[int, int | None]],
        seen: Iterable[NotedSight],
    ) -> None:
        """Take over what another kvchat noted of a server."""
        self._number = max(self._number, number)
        used = {use.number for use in self._uses if use.server == server}
        for use in uses:
            said = Prediction(
                0,
                use.slot,
                "nothing",
                0,
                0,
                None,
                "prefix" if use.by_prefix else "least recent",
                None,
                overwritten=use.overwritten,
                pushed_out=use.pushed_out,
            )
            if use.number not in used:
                self._uses.append(
                    Use(use.number, use.kind, use.conversation, server, use.slot, {None: said}, own=False)
                )
        looked = {one.number for one in self._seen if one.server == server}
        self._seen.extend(Seen(at, server, what, foreign) for at, what, foreign in seen if at not in looked)
        self._uses = deque(sorted(self._uses, key=lambda use: use.number), KEPT)
        self._seen = deque(sorted(self._seen, key=lambda one: one.number), KEPT)
        for digest, (at, slot) in reads.items():
            self._places.setdefault(digest, (server, at, slot))

    def identify(self, known: Callable[[Held], Held]) -> None:
        """Put what `known` gives for it in the place of every state that was lost."""
        for use in self._uses:
            use.said = {
                shape: replace(
                    said, overwritten=tuple(map(known, said.overwritten)), pushed_out=tuple(map(known, said.pushed_out))
                )
                for shape, said in use.said.items()
            }

    # -- telling --------------------------------------------------------------------------------------------------

    def ended_since(self, path: Sequence[Node], server: str) -> Cause | None:
        """Why a server holds nothing any more of a branch that it answered on before; None: nothing of it was seen."""
        last = next((node for node in reversed(path) if node.role is Role.ASSISTANT and node.figures is not None), None)
        if last is None:
            return None
        read = self._reads.get(last.id)
        since = read[0] if read is not None else _number(last.created)
        return next(
            (
                ENDS[one.what]
                for one in reversed(self._seen)
                if one.server == server and one.number > since and one.what in ENDS
            ),
            None,
        )

    def evidence(
        self,
        asked: Asked,
        figures: TurnFigures,
        title: Callable[[str], str],
        earlier: Callable[[Node], LastRead | None],
    ) -> Evidence:
        """All that is known about a turn. `title`: of a conversation by its id; `earlier`: what was read for an answer
        before kvchat was started."""
        since, before = self._last_read(asked, earlier)
        owner, server = asked.turn.session_id, asked.server.base_url
        warmed = [
            use.number
            for use in self._uses
            if use.whole and use.conversation == owner and use.server == server and use.number < asked.number
        ]
        since = max([since, *warmed])
        uses = [use for use in self._uses if since < use.number < asked.number and use.server == server]
        seen = [one for one in self._seen if since < one.number < asked.number and one.server == server]
        ended = next((one.what for one in reversed(seen) if one.what != "foreign"), "")
        stayed = before is not None and before.sent.server.base_url in ("", server)
        done = next(
            (one for one in reversed(self._done) if since < one.number < asked.number and one.conversation == owner),
            None,
        )
        prediction = asked.prediction
        return Evidence(
            figures=figures,
            now=asked.sent(),
            before=before,
            restarted=stayed and ended == "restarted",
            slept=stayed and ended == "slept",
            loading_seen=asked.loading_seen,
            beside_cancelled=asked.beside_cancelled,
            changed_by=done.change if done else None,
            changed_message=done.message if done else None,
            counted=len(asked.tokens) if asked.tokens else None,
            history=asked.history,
            drops_reasoning=asked.drops_reasoning(),
            prediction=prediction,
            uses=tuple(own for use in uses if (own := _own(use, asked, title)) is not None),
            foreign=_foreign(seen, before),
            evicted=_evicted(asked, figures, uses) if not ended else None,
            block=self.block(asked.server),
            flags=kind_of(asked.server.kind).flags,
            turns_without_reuse=self._without_reuse(server),
            unkept=_unkept(asked) if not warmed else None,
        )

    def _last_read(self, asked: Asked, earlier: Callable[[Node], LastRead | None]) -> tuple[int, LastRead | None]:
        for node in reversed(asked.path):
            if node.id in self._reads:
                return self._reads[node.id]
            if node.role is Role.ASSISTANT and (found := earlier(node)) is not None:
                asked_at = "", _number(node.created), None
                _, number, slot = self._places.get(node.digest.hex(), asked_at)
                return number, replace(found, slot=slot)
        return 0, None

    def _without_reuse(self, server: str) -> int:
        turns = 0
        for cached in reversed(self._cached.get(server, ())):
            if cached:
                break
            turns += 1
        return turns

    def block(self, server: ServerIdentity) -> int:
        """Tokens of the blocks that the server's cache is made of: what its reports are multiples of, else what is
        usual for its kind; 1 where it keeps every token."""
        reports = [cached for cached in self._cached.get(server.base_url, ()) if cached]
        shared, usual = gcd(*reports), kind_of(server.kind).block
        told = shared >= BLOCK and shared % usual == 0 and len(set(reports)) >= BLOCK_TURNS
        return shared if told else usual


def _number(seconds: float) -> int:
    return int(seconds * 1000)


def stopped_by_model(state: State) -> bool | None:
    """As of `LastRead.stopped`."""
    return None if state in BROKEN_OFF else state in FINISHED


def identity(server: ServerInfo, model: str) -> ServerIdentity:
    return ServerIdentity(server.base_url, server.kind, server.build, model, server.embedded)


def _own(use: Use, asked: Asked, title: Callable[[str], str]) -> OwnUse | None:
    """A use as evidence; None where it served this very branch."""
    kind: Literal["side", "warm-up", "conversation", "branch"] = use.kind
    said = asked.said(use)
    if use.conversation == asked.turn.session_id:
        if use.kind != "conversation" and (said is None or not asked.shared(said.overwritten)):
            return None
        kind = "branch" if use.kind == "conversation" else use.kind
    slot = said.slot if said is not None else use.slot
    return OwnUse(
        kind,
        title(use.conversation) if use.kind == "conversation" else "",
        slot,
        asked.kept(slot),
        asked.shared(said.overwritten) if said is not None else None,
        said.chosen_by == "prefix" if said is not None else None,
    )


def _unkept(asked: Asked) -> TurnFigures | None:
    """As of `Evidence`."""
    last = next((node for node in reversed(asked.extended) if node.role is Role.ASSISTANT), None)
    figures = last.figures if last is not None else None
    return figures if figures is not None and figures.alternative else None


def _foreign(seen: Sequence[Seen], before: LastRead | None) -> Foreign | None:
    """The sign that matters most: in the slot that this branch was in, else the first one."""
    found = [one.foreign for one in seen if one.foreign is not None]
    here = [one for one in found if before is not None and one.slot == before.slot]
    return next(iter([*here, *found]), None)


def _evicted(asked: Asked, figures: TurnFigures, uses: Sequence[Use]) -> int | None:
    """Tokens of this branch that the host cache had no room for: of a state that was pushed out of it, or of a parked
    one that was to be used, where the server did what it does without that one."""
    prediction, cached = asked.prediction, figures.cached_tokens
    if prediction is None or cached is None:
        return None
    if asked.before is not None and not all(held.tokens.known for held in asked.before.parked):
        return None  # another request may have taken it
    pushed = [asked.shared(said.pushed_out) for use in uses if (said := asked.said(use)) is not None]
    gone = max(pushed, default=0) - max(prediction.best, cached)
    if prediction.source == "parked" and prediction.cached > cached and not prediction.allows(cached):
        without = asked.without_parked(cached)
        if without is not None and without.allows(cached, TOLERANCE):
            gone = prediction.cached - cached
    return gone if gone > NOISE else None

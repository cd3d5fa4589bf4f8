"""What is known about a turn, noted as it happens: what was sent, what was seen of the server, what the user did.

Every entry has a number, in the order of time over all kvchats (milliseconds since the epoch, or one more
than the last), so that a turn is explained by nothing but what happened between it and the last read on its branch. A
guess is no entry.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import gcd
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import ServerInfo
from kvchat.backends.kinds import kind_of
from kvchat.cache import Change, Held, Shape, Tokens
from kvchat.cache.causes.evidence import Evidence, Foreign, LastRead, OwnUse, ServerIdentity
from kvchat.cache.causes.server_causes import NEVER
from kvchat.cache.llamacpp.hypotheses import TOLERANCE
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.chat.cache.tracked_turn import BROKEN_OFF, SentRequest
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node, Role, State

FINISHED = (State.DONE, State.EMPTY)
"""Answers that the model ended itself, by a token that is no part of the text."""
AROUND = 64
"""Characters that a template puts around an answer's reasoning, at the most."""
KEPT_READS = 16
KEPT = 200
KEPT_PLACES = 64
KEPT_LOST = 32
"""Requests of which it is kept what they ran over: the tokens of a state take room."""
RECENT_VISITS = 12
"""A conversation that was not among the last so many that a server was used for has ceased to come back."""
BLOCK, BLOCK_TURNS = 16, 3
"""A block is believed from this size on, and when this many reports agree."""


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


Sight = Literal["restarted", "slept", "unloaded", "swapped", "foreign"]
ENDS: Mapping[Sight, Cause] = {
    "restarted": Cause.RESTARTED,
    "slept": Cause.UNLOADED,
    "unloaded": Cause.UNLOADED,
    "swapped": Cause.OTHER_MODEL,
}


class Sighting(Struct, frozen=True):
    """What a look at a server showed."""

    number: int
    server: str
    what: Sight
    foreign: Foreign | None = None
    files: tuple[str, str] | None = None
    """Of a swapped model: its file before, and now."""


class Done(Struct, frozen=True):
    """An act of the user."""

    number: int
    conversation: str
    change: Change
    message: int | None


class Journal:
    """What happened, in order."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since the epoch."""
        self._now = now
        self._number = 0
        self._reads: OrderedDict[str, tuple[int, LastRead]] = OrderedDict()
        """By answer: the number of its request, and what it left."""
        self._uses: deque[Use] = deque(maxlen=KEPT)
        self._seen: deque[Sighting] = deque(maxlen=KEPT)
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

    def replayed(self, number: int, said: Mapping[Shape | None, Prediction]) -> None:
        """The request of this number was played again, as the server turned out to be."""
        for use in self._uses:
            if use.number == number:
                use.said = said

    def read_whole(self, server: str) -> None:
        """The last request to a server, a warm-up, came to its end."""
        if (last := self._last(server)) is not None:
            last.whole = True

    def saw(
        self, server: str, what: Sight, foreign: Foreign | None = None, *, files: tuple[str, str] | None = None
    ) -> None:
        self._seen.append(Sighting(self.next(), server, what, foreign, files))

    def did(self, conversation: str, change: Change, message: int | None = None) -> None:
        self._done.append(Done(self.next(), conversation, change, message))

    def answered(
        self, request: SentRequest, answer: Node, slot_tokens: int | None = None, sampled: Tokens | None = None
    ) -> None:
        """An answer ended; `slot_tokens` are in its slot now. `sampled`: its tokens, as far as their ids are known;
        None: it is not known at all what they are."""
        figures = answer.figures
        if figures is None or figures.prompt_tokens is None:
            return
        sent, begun = request.sent(), 0
        if request.turn.continues:
            cut = request.path[-1].message
            sent, begun = replace(sent, wires=sent.wires[:-1]), len(cut.text) + len(cut.reasoning) + AROUND
        used, size = figures.context_used or 0, figures.context_size
        if size is not None and used < size - NOISE:
            slot_tokens = None  # the window never was full: nothing was shifted out of it
        self._reads[answer.id] = (
            request.number,
            LastRead(
                sent,
                figures.prompt_tokens,
                figures.predicted_tokens,
                sampled if sampled is not None and sampled.known == len(sampled) else None,
                answer.text,
                answer.message.reasoning,
                begun,
                request.prediction.slot if request.prediction else None,
                slot_tokens,
                stopped_by_model(answer.state),
                sampled.known == len(sampled) if sampled is not None else None,
                bool(answer.message.calls),
            ),
        )
        while len(self._reads) > KEPT_READS:
            self._reads.popitem(last=False)
        slot = request.prediction.slot if request.prediction is not None else None
        self._places[answer.digest.hex()] = request.server.base_url, request.number, slot
        while len(self._places) > KEPT_PLACES:
            self._places.popitem(last=False)

    def reported(self, request: SentRequest, figures: TurnFigures) -> None:
        """What a server said to have reused."""
        if figures.cached_tokens is not None and figures.new_tokens is not None and not figures.first_read:
            self._cached.setdefault(request.server.base_url, deque(maxlen=KEPT)).append(figures.cached_tokens)

    # -- from one run to the next -----------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of what happened last."""
        return self._number

    def uses_of(self, server: str, shape: Shape) -> list[tuple[Use, Prediction]]:
        """The last requests of ours to a server, with what was predicted of each if its cache is of this shape."""
        found = ((use, use.of(shape)) for use in self._uses if use.server == server)
        return [(use, said) for use, said in found if said is not None]

    def returns_to(self, server: str) -> Counter[str]:
        """By conversation: how often a server was used for it again, after others, of late."""
        owners = groupby(use.conversation for use in self._uses if use.server == server and use.conversation)
        visits = [owner for owner, _ in owners][-RECENT_VISITS:]
        return Counter(visits) - Counter(set(visits))

    def reads_of(self, server: str) -> dict[str, tuple[int, int | None]]:
        """By the digest of an answer of a server, in hex: the number of its request, and its slot."""
        return {digest: (number, slot) for digest, (place, number, slot) in self._places.items() if place == server}

    def seen_of(self, server: str) -> list[Sighting]:
        """What was seen of a server of late."""
        return [seen for seen in self._seen if seen.server == server][-KEPT_LOST:]

    def recall(
        self,
        server: str,
        number: int,
        uses: Iterable[Use],
        reads: Mapping[str, tuple[int, int | None]],
        seen: Iterable[Sighting],
    ) -> None:
        """Take over what another kvchat noted of a server."""
        self._number = max(self._number, number)
        used = {use.number for use in self._uses if use.server == server}
        looked = {one.number for one in self._seen if one.server == server}
        uses = [*self._uses, *(use for use in uses if use.number not in used)]
        seen = [*self._seen, *(one for one in seen if one.number not in looked)]
        self._uses = deque(sorted(uses, key=lambda use: use.number), KEPT)
        self._seen = deque(sorted(seen, key=lambda one: one.number), KEPT)
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
        request: SentRequest,
        figures: TurnFigures,
        title: Callable[[str], str],
        earlier: Callable[[Node], LastRead | None],
    ) -> Evidence:
        """All that is known about a turn. `title`: of a conversation by its id; `earlier`: what was read for an answer
        before kvchat was started."""
        since, before = self._last_read(request, earlier)
        owner, server = request.turn.session_id, request.server.base_url
        warmed = [
            use.number
            for use in self._uses
            if use.whole and use.conversation == owner and use.server == server and use.number < request.number
        ]
        since = max([since, *warmed, *self._read_again(request, before)])
        uses = [use for use in self._uses if since < use.number < request.number and use.server == server]
        seen = [one for one in self._seen if since < one.number < request.number and one.server == server]
        last = next((one for one in reversed(seen) if one.what != "foreign"), None)
        ended = last.what if last is not None else ""
        stayed = before is not None and before.sent.server.base_url in ("", server)
        done = next(
            (one for one in reversed(self._done) if since < one.number < request.number and one.conversation == owner),
            None,
        )
        prediction = request.prediction
        return Evidence(
            figures=figures,
            now=request.sent(),
            before=before,
            swapped=last.files if stayed and last is not None else None,
            restarted=stayed and ended == "restarted",
            slept=stayed and ended == "slept",
            loading_seen=stayed and ended == "unloaded",
            beside_cancelled=request.beside_cancelled,
            changed_by=done.change if done else None,
            changed_message=done.message if done else None,
            counted=len(request.tokens) if request.tokens else None,
            history=request.history,
            drops_reasoning=request.drops_reasoning(),
            prediction=prediction,
            uses=tuple(own for use in uses if (own := _own(use, request, title)) is not None),
            foreign=_foreign(seen, before),
            denied=request.denied if self._may_reuse(server) else None,
            evicted=_evicted(request, figures, uses) if not ended else None,
            block=self.block(request.server),
            flags=kind_of(request.server.kind).flags,
            turns_without_reuse=self._without_reuse(server),
            unkept=_unkept(request) if not warmed else None,
        )

    def _read_again(self, request: SentRequest, before: LastRead | None) -> Iterator[int]:
        """The requests that have read the messages which a branch shares with `before`, its last answer included, for a
        newer turn of another branch: what happened before them is no cause."""
        if before is None or not before.sent.wires:
            return
        shared = len(before.sent.wires) + 1
        for number, read in self._reads.values():
            wires, is_same = read.sent.wires, read.sent.server.base_url == request.server.base_url
            goes_on = len(wires) > shared and wires[:shared] == request.turn.wires[:shared]
            if is_same and goes_on and number < request.number:
                yield number

    def _last_read(
        self, request: SentRequest, earlier: Callable[[Node], LastRead | None]
    ) -> tuple[int, LastRead | None]:
        for node in reversed(request.path):
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

    def _may_reuse(self, server: str) -> bool:
        """Whether a server is not known for reusing nothing at all."""
        return any(self._cached.get(server, ())) or self._without_reuse(server) < NEVER

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


def _own(use: Use, request: SentRequest, title: Callable[[str], str]) -> OwnUse | None:
    """A use as evidence; None where it served this very branch."""
    kind: Literal["side", "warm-up", "conversation", "branch"] = use.kind
    said = use.of(request.shape)
    if use.conversation == request.turn.session_id:
        if use.kind != "conversation" and (said is None or not request.shared(said.overwritten)):
            return None
        kind = "branch" if use.kind == "conversation" else use.kind
    slot = said.slot if said is not None else use.slot
    return OwnUse(
        kind,
        title(use.conversation) if use.kind == "conversation" else "",
        slot,
        request.kept(slot),
        request.shared(said.overwritten) if said is not None else None,
        said.chosen_by == "prefix" if said is not None else None,
    )


def _unkept(request: SentRequest) -> TurnFigures | None:
    """As of `Evidence`."""
    last = next((node for node in reversed(request.extended) if node.role is Role.ASSISTANT), None)
    figures = last.figures if last is not None else None
    return figures if figures is not None and figures.alternative else None


def _foreign(seen: Sequence[Sighting], before: LastRead | None) -> Foreign | None:
    """The sign that matters most: in the slot that this branch was in, else the first one."""
    found = [one.foreign for one in seen if one.foreign is not None]
    here = [one for one in found if before is not None and one.slot == before.slot]
    return next(iter([*here, *found]), None)


def _evicted(request: SentRequest, figures: TurnFigures, uses: Sequence[Use]) -> int | None:
    """Tokens of this branch that the host cache had no room for: of a state that was pushed out of it, or of a parked
    one that was to be used, where the server did what it does without that one."""
    prediction, cached = request.prediction, figures.cached_tokens
    if prediction is None or cached is None:
        return None
    if request.before is not None and not all(held.tokens.known for held in request.before.parked):
        return None  # another request may have taken it
    pushed = [request.shared(said.pushed_out) for use in uses if (said := use.of(request.shape)) is not None]
    gone = max(pushed, default=0) - max(prediction.best, cached)
    if prediction.source == "parked" and prediction.cached > cached and not prediction.allows(cached):
        without = request.without_parked(cached)
        if without is not None and without.allows(cached, TOLERANCE):
            gone = prediction.cached - cached
    return gone if gone > NOISE else None

"""What was sent to servers and what was seen of them, noted as it happens: by this a request is explained.

Every entry has a number, in the order of time over all programs that note (milliseconds since the epoch, or one more
than the last), so that a request is explained by nothing but what happened between it and the last read before. A
guess is no entry. Servers and owners of prompts are names that the caller gives.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from math import gcd
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.cache.causes.evidence import Evidence, Foreign, LastRead, OwnUse, Sent
from kvchat.cache.causes.server_causes import NEVER
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.hypotheses import TOLERANCE
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.figures.cause import Cause

KEPT = 200
KEPT_LOST = 32
"""Requests of which it is kept what they ran over: the tokens of a state take room."""
RECENT_VISITS = 12
"""A conversation that is not among the last ones of a server, this many, has ceased to come back."""
BLOCK, BLOCK_TURNS = 16, 3
"""A block is believed from this size on, and when this many reports agree."""


class SentPrompt(Struct, frozen=True):
    """A prompt that was sent, as far as it was played."""

    number: int
    owner: str = ""
    tokens: Tokens | None = None
    pinned: int | None = None
    """The slot that it was sent to."""
    before: Simulator | None = None
    """The simulator as it was when the request was sent; None: the server's cache cannot be tracked."""
    prediction: Prediction | None = None
    shape: Shape | None = None
    """Of the guess about the server's cache that explains what it reported."""

    def kept(self, slot: int | None) -> int | None:
        """Tokens of this prompt that a slot held when it was sent; None: not known."""
        if slot is None or self.before is None or self.tokens is None or slot >= len(self.before.slots):
            return None
        held = self.before.slots[slot]
        return held.tokens.common(self.tokens) if held is not None else 0

    def shared(self, states: Iterable[Held]) -> int:
        """The most tokens that one of some states begins this prompt with."""
        return max((held.tokens.common(self.tokens) for held in states), default=0) if self.tokens else 0

    def evicted(self, cached: int | None, uses: Sequence[Use]) -> int | None:
        """Tokens of this prompt that the host cache had no room for: of a state that was pushed out of it by one of
        `uses`, or of a parked one that was to be used, where the server did what it does without that one."""
        prediction, before = self.prediction, self.before
        if prediction is None or cached is None:
            return None
        if before is not None and not all(held.tokens.known for held in before.parked):
            return None  # another request may have taken it
        pushed = [self.shared(said.pushed_out) for use in uses if (said := use.of(self.shape)) is not None]
        gone = max(pushed, default=0) - max(prediction.best, cached)
        if prediction.source == "parked" and prediction.cached > cached and not prediction.allows(cached):
            without = (
                before.without_parked(self.tokens, cached).predict(self.tokens, self.pinned)
                if before is not None and self.tokens is not None
                else None
            )
            if without is not None and without.allows(cached, TOLERANCE):
                gone = prediction.cached - cached
        return gone if gone > NOISE else None


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
    """Whether this program made it; else another one, or its last run."""

    def of(self, shape: Shape | None) -> Prediction | None:
        """What was predicted of it, if the server's cache is of this shape; None: not known."""
        return self.said.get(shape) or self.said.get(None)

    def as_evidence(self, request: SentPrompt, title: Callable[[str], str]) -> OwnUse | None:
        """As evidence on a request; None where it served this very branch. `title`: of a conversation by its id."""
        kind: Literal["side", "warm-up", "conversation", "branch"] = self.kind
        said = self.of(request.shape)
        if self.conversation == request.owner:
            if self.kind != "conversation" and (said is None or not request.shared(said.overwritten)):
                return None
            kind = "branch" if self.kind == "conversation" else self.kind
        slot = said.slot if said is not None else self.slot
        return OwnUse(
            kind,
            title(self.conversation) if self.kind == "conversation" else "",
            slot,
            request.kept(slot),
            request.shared(said.overwritten) if said is not None else None,
            said.chosen_by == "prefix" if said is not None else None,
        )


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


class Journal:
    """What happened, in order."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since the epoch."""
        self.now = now
        self._number = 0
        self._uses: deque[Use] = deque(maxlen=KEPT)
        self._seen: deque[Sighting] = deque(maxlen=KEPT)
        self._cached: dict[str, deque[int]] = {}
        """By server: the cached tokens of its last answers that could have reused something."""

    def _last(self, server: str) -> Use | None:
        return next((use for use in reversed(self._uses) if use.server == server and use.own), None)

    @property
    def number(self) -> int:
        """The number of what happened last."""
        return self._number

    @staticmethod
    def number_at(seconds: float) -> int:
        """The number of what happened at a time, in seconds since the epoch."""
        return int(seconds * 1000)

    def next(self) -> int:
        """The number of what happens now."""
        self._number = max(self._number + 1, self.number_at(self.now()))
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

    def ended(self, server: str) -> None:
        """The last request to a server came to its end."""
        if (last := self._last(server)) is not None:
            last.whole = last.kind == "warm-up"

    def saw(
        self, server: str, what: Sight, foreign: Foreign | None = None, *, files: tuple[str, str] | None = None
    ) -> None:
        self._seen.append(Sighting(self.next(), server, what, foreign, files))

    def reported(self, server: str, figures: TurnFigures) -> None:
        """What a server said to have reused."""
        if figures.cached_tokens is not None and figures.new_tokens is not None and not figures.first_read:
            self._cached.setdefault(server, deque(maxlen=KEPT)).append(figures.cached_tokens)

    # -- from one run to the next -----------------------------------------------------------------------------------

    def uses_of(self, server: str, shape: Shape) -> list[tuple[Use, Prediction]]:
        """The last requests of ours to a server, with what was predicted of each if its cache is of this shape."""
        found = ((use, use.of(shape)) for use in self._uses if use.server == server)
        return [(use, said) for use, said in found if said is not None]

    def seen_of(self, server: str) -> list[Sighting]:
        """What was seen of a server of late."""
        return [seen for seen in self._seen if seen.server == server][-KEPT_LOST:]

    def recall(self, server: str, number: int, uses: Iterable[Use], seen: Iterable[Sighting]) -> None:
        """Take over what another run noted of a server."""
        self._number = max(self._number, number)
        used = {use.number for use in self._uses if use.server == server}
        looked = {one.number for one in self._seen if one.server == server}
        uses = [*self._uses, *(use for use in uses if use.number not in used)]
        seen = [*self._seen, *(one for one in seen if one.number not in looked)]
        self._uses = deque(sorted(uses, key=lambda use: use.number), KEPT)
        self._seen = deque(sorted(seen, key=lambda one: one.number), KEPT)

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

    def returns_to(self, server: str) -> Counter[str]:
        """By conversation: how often a server was used for it again, after others, of late."""
        owners = groupby(use.conversation for use in self._uses if use.server == server and use.conversation)
        visits = [owner for owner, _ in owners][-RECENT_VISITS:]
        return Counter(visits) - Counter(set(visits))

    def returns_for(self, owner: str, server: str) -> dict[str, int]:
        """By owner: how often what a slot holds of it is expected to be of use again, for a request of `owner`, whose
        own states do not count. A state that is not known to be ours counts as much as any."""
        returns = self.returns_to(server)
        return {**returns, "": max(returns.values(), default=0), owner: 0}

    def ended_since(self, number: int, server: str) -> Cause | None:
        """Why a server holds nothing any more of what it held at this number; None: nothing of that was seen."""
        seen = (one for one in reversed(self._seen) if one.server == server and one.number > number)
        return next((ENDS[one.what] for one in seen if one.what in ENDS), None)

    def last_warmed(self, request: SentPrompt, server: str) -> int | None:
        """The number of the last warm-up for a prompt's owner that came to its end; None: there was none."""
        return max(
            (
                use.number
                for use in self._uses
                if use.whole
                and (use.conversation, use.server) == (request.owner, server)
                and use.number < request.number
            ),
            default=None,
        )

    def evidence(
        self,
        request: SentPrompt,
        now: Sent,
        figures: TurnFigures,
        before: LastRead | None,
        since: int,
        title: Callable[[str], str] = str,
        *,
        denied: int | None = None,
        usual_block: int = 1,
    ) -> Evidence:
        """What was noted of a request to the server of `now` since the number `since`, when what it goes on from was
        last read: `before`. `title`: of a conversation by its id. `denied`: as of `Evidence`. `usual_block`: as of
        `block`."""
        server = now.server.base_url
        uses = [use for use in self._uses if since < use.number < request.number and use.server == server]
        seen = [one for one in self._seen if since < one.number < request.number and one.server == server]
        last = next((one for one in reversed(seen) if one.what != "foreign"), None)
        ended = last.what if last is not None else ""
        stayed = before is not None and before.sent.server.base_url in ("", server)
        return Evidence(
            figures=figures,
            now=now,
            before=before,
            swapped=last.files if stayed and last is not None else None,
            restarted=stayed and ended == "restarted",
            slept=stayed and ended == "slept",
            loading_seen=stayed and ended == "unloaded",
            counted=len(request.tokens) if request.tokens else None,
            prediction=request.prediction,
            uses=tuple(own for use in uses if (own := use.as_evidence(request, title)) is not None),
            foreign=_foreign(seen, before),
            denied=denied if self._may_reuse(server) else None,
            evicted=request.evicted(figures.cached_tokens, uses) if not ended else None,
            block=self.block(server, usual_block),
            turns_without_reuse=self._without_reuse(server),
        )

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

    def block(self, server: str, usual: int = 1) -> int:
        """Tokens of the blocks that a server's cache is made of: what its reports are multiples of, else what is
        `usual` for its kind; 1 where it keeps every token."""
        reports = [cached for cached in self._cached.get(server, ()) if cached]
        shared = gcd(*reports)
        agrees = shared >= BLOCK and shared % usual == 0 and len(set(reports)) >= BLOCK_TURNS
        return shared if agrees else usual


def _foreign(seen: Sequence[Sighting], before: LastRead | None) -> Foreign | None:
    """The sign that matters most: in the slot that this branch was in, else the first one."""
    found = [one.foreign for one in seen if one.foreign is not None]
    here = [one for one in found if before is not None and one.slot == before.slot]
    return next(iter([*here, *found]), None)

"""What is known about a turn, put down as it happens: what was sent, what was seen of the server, what the person did.

The rule: every entry has a number, in the order of time, so that a turn is explained by nothing but what happened
between it and the last read on its branch. A guess is no entry.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from kvchat.backends.dialect import ChatTurn, ServerInfo
from kvchat.cache.accounting import NOISE, TurnFigures
from kvchat.cache.causes.evidence import NOBODY, Change, Evidence, Foreign, LastRead, OwnUse, Sent, ServerIdentity
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import Node, Role
from kvchat.prompt.wire import canonical

KEPT_READS = 16
KEPT = 200
BLOCKS = {"vllm": 16}
"""Tokens of a block, by kind of server, where it is known."""
BLOCK, BLOCK_TURNS = 16, 3
"""A block is believed from this size on, and when so many reports agree."""


@dataclass(slots=True)
class Use:
    """A request of ours."""

    number: int
    kind: Literal["conversation", "warm-up", "side"]
    conversation: str
    server: str
    slot: int | None = None
    replaced: str = ""
    """The conversation of which a state was lost by it, without being parked."""
    whole: bool = False
    """Whether a warm-up came to its end."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a server told."""

    number: int
    server: str
    what: Literal["restarted", "slept", "foreign"]
    foreign: Foreign | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """An act of the person."""

    number: int
    conversation: str
    change: Change
    message: int | None


@dataclass(slots=True)
class Asked:
    """One chat request, as far as it is evidence."""

    turn: ChatTurn
    path: Sequence[Node]
    number: int = 0
    server: ServerIdentity = NOBODY
    loading_seen: bool = False
    tokens: Tokens | None = None
    rendered: str = ""
    prediction: Prediction | None = None

    def sent(self) -> Sent:
        turn = self.turn
        options = canonical(dict(turn.template_options)) if turn.template_options else b""
        adapters = turn.parameters.extra.get("lora")
        return Sent(self.server, turn.wires, options, rendered=self.rendered, tokens=self.tokens,
                    adapters=canonical(adapters).decode() if adapters else "")

    def kept(self, slot: int | None) -> int | None:
        """Tokens of this prompt that a slot held when it was sent; None: not known."""
        return None

    @property
    def knows_room(self) -> bool:
        """Whether it is known how much room parked states have."""
        return False

    def drops_reasoning(self) -> bool | None:
        """Whether the template leaves earlier reasoning out; None where that does not show."""
        thoughts = next((node.message.reasoning.strip() for node in reversed(self.path)
                         if node.role is Role.ASSISTANT and node.message.reasoning.strip()), "")
        return thoughts not in self.rendered if thoughts and self.rendered else None


class Journal:
    """What happened, in order."""

    def __init__(self) -> None:
        self._number = 0
        self._reads: OrderedDict[str, tuple[int, LastRead]] = OrderedDict()
        """By answer: the number of its request, and what it left."""
        self._uses: deque[Use] = deque(maxlen=KEPT)
        self._seen: deque[Seen] = deque(maxlen=KEPT)
        self._done: deque[Done] = deque(maxlen=KEPT)
        self._cached: dict[str, deque[int]] = {}
        """By server: the cached tokens of its last answers that could have reused something."""

    def _last(self, server: str) -> Use | None:
        return next((use for use in reversed(self._uses) if use.server == server), None)

    def next(self) -> int:
        """The number of what happens now."""
        self._number += 1
        return self._number

    # -- putting down ---------------------------------------------------------------------------------------------

    def used(self, kind: Literal["conversation", "warm-up", "side"], conversation: str, server: str,
             prediction: Prediction, number: int | None = None) -> None:
        lost = prediction.replaces.owner if prediction.replaces is not None else ""
        self._uses.append(Use(number or self.next(), kind, conversation, server, prediction.slot, lost))

    def read_whole(self, server: str) -> None:
        """The last request to a server, a warm-up, came to its end."""
        if (last := self._last(server)) is not None:
            last.whole = True

    def saw(self, server: str, what: Literal["restarted", "slept", "foreign"], foreign: Foreign | None = None) -> None:
        self._seen.append(Seen(self.next(), server, what, foreign))

    def did(self, conversation: str, change: Change, message: int | None = None) -> None:
        self._done.append(Done(self.next(), conversation, change, message))

    def answered(self, asked: Asked, answer: Node, slot_tokens: int | None = None) -> None:
        """An answer ended; `slot_tokens` are in its slot now."""
        figures = answer.figures
        if figures is None or figures.prompt_tokens is None:
            return
        used, size = figures.context_used or 0, figures.context_size
        if size is not None and used < size - NOISE:
            slot_tokens = None  # the window never was full: nothing was shifted out of it
        self._reads[answer.id] = (asked.number, LastRead(
            asked.sent(), figures.prompt_tokens, figures.predicted_tokens, None, answer.text,
            answer.message.reasoning, asked.prediction.slot if asked.prediction else None, slot_tokens))
        while len(self._reads) > KEPT_READS:
            self._reads.popitem(last=False)

    def reported(self, asked: Asked, figures: TurnFigures) -> None:
        """What a server said to have reused."""
        if figures.cached_tokens is not None and figures.new_tokens is not None and not figures.first_read:
            self._cached.setdefault(asked.server.base_url, deque(maxlen=KEPT)).append(figures.cached_tokens)

    # -- telling --------------------------------------------------------------------------------------------------

    def evidence(self, asked: Asked, figures: TurnFigures, title: Callable[[str], str],
                 earlier: Callable[[Node], LastRead | None]) -> Evidence:
        """All that is known about a turn. `title`: of a conversation by its id; `earlier`: what was read for an answer
        before kvchat was started."""
        since, before = self._last_read(asked, earlier)
        owner, server = asked.turn.session_id, asked.server.base_url
        read_ahead = [use.number for use in self._uses
                      if use.whole and use.conversation == owner and use.server == server and use.number < asked.number]
        since = max([since, *read_ahead])
        uses = [use for use in self._uses if since < use.number < asked.number and use.server == server]
        seen = [one for one in self._seen if since < one.number < asked.number and one.server == server]
        ended = next((one.what for one in reversed(seen) if one.what != "foreign"), "")
        stayed = before is None or before.sent.server.base_url in ("", server)
        done = next((one for one in reversed(self._done)
                     if since < one.number < asked.number and one.conversation == owner), None)
        prediction = asked.prediction
        return Evidence(
            figures=figures, now=asked.sent(), before=before,
            restarted=stayed and ended == "restarted", slept=stayed and ended == "slept",
            loading_seen=asked.loading_seen,
            changed_by=done.change if done else None, changed_message=done.message if done else None,
            counted=len(asked.tokens) if asked.tokens else None, drops_reasoning=asked.drops_reasoning(),
            prediction=prediction, uses=tuple(own for use in uses if (own := _own(use, asked, title)) is not None),
            foreign=_foreign(seen, before), evicted=_evicted(asked, figures, before, uses) if not ended else None,
            block=self.block(asked.server), turns_without_reuse=self._without_reuse(server),
        )

    def _last_read(self, asked: Asked, earlier: Callable[[Node], LastRead | None]) -> tuple[int, LastRead | None]:
        for node in reversed(asked.path):
            if node.id in self._reads:
                return self._reads[node.id]
            if node.role is Role.ASSISTANT and (found := earlier(node)) is not None:
                return 0, found
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
        shared, usual = gcd(*reports), BLOCKS.get(server.kind, 1)
        told = shared >= BLOCK and shared % usual == 0 and len(set(reports)) >= BLOCK_TURNS
        return shared if told else usual


def identity(server: ServerInfo, model: str) -> ServerIdentity:
    return ServerIdentity(server.base_url, server.kind, server.build, model, server.embedded)


def _own(use: Use, asked: Asked, title: Callable[[str], str]) -> OwnUse | None:
    """A use as evidence; None where it served this very branch."""
    kind: Literal["side", "warm-up", "conversation", "branch"] = use.kind
    if use.conversation == asked.turn.session_id:
        if use.kind != "conversation":
            return None
        kind = "branch"
    return OwnUse(kind, title(use.conversation) if use.kind == "conversation" else "", use.slot, asked.kept(use.slot))


def _foreign(seen: Sequence[Seen], before: LastRead | None) -> Foreign | None:
    """The sign that matters most: in the slot that this branch was in, else the first one."""
    found = [one.foreign for one in seen if one.foreign is not None]
    here = [one for one in found if before is not None and one.slot == before.slot]
    return next(iter([*here, *found]), None)


def _evicted(asked: Asked, figures: TurnFigures, before: LastRead | None, uses: Sequence[Use]) -> int | None:
    """Tokens of this branch that the server had no room for: of a parked state that it did not have any more when it
    looked it up, or of one that nobody took the place of and that is nowhere now."""
    prediction, cached = asked.prediction, figures.cached_tokens
    if prediction is None or cached is None:
        return None
    left = before.left if before is not None else None
    taken = not uses or any(use.replaced == asked.turn.session_id for use in uses)
    if asked.knows_room and left is not None and not taken and prediction.best + NOISE < left:
        return left - prediction.best
    if prediction.source != "parked":
        return None
    gone = prediction.cached - cached
    return gone if gone > NOISE else None


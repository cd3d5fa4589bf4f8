"""What is known about a turn, noted as it happens: what `cache.journal` notes of requests and servers, and here what
messages were sent, what came, and what the user did.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import ServerInfo
from kvchat.backends.kinds import kind_of
from kvchat.cache import Change, Evidence, Tokens
from kvchat.cache.tracking import Journal, LastRead, ServerIdentity
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


class Done(Struct, frozen=True):
    """An act of the user."""

    number: int
    conversation: str
    change: Change
    message: int | None


class TurnJournal:
    """What happened, in order: `log` has what needs no more than token ids."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since the epoch."""
        self.log = Journal(now)
        self._reads: OrderedDict[str, tuple[int, LastRead]] = OrderedDict()
        """By answer: the number of its request, and what it left."""
        self._done: deque[Done] = deque(maxlen=KEPT)
        self._places: OrderedDict[str, tuple[str, int, int | None]] = OrderedDict()
        """By the digest of an answer: its server, the number of its request, and its slot."""

    def did(self, conversation: str, change: Change, message: int | None = None) -> None:
        self._done.append(Done(self.log.next(), conversation, change, message))

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
                size,
            ),
        )
        while len(self._reads) > KEPT_READS:
            self._reads.popitem(last=False)
        slot = request.prediction.slot if request.prediction is not None else None
        self._places[answer.digest.hex()] = request.server.base_url, request.number, slot
        while len(self._places) > KEPT_PLACES:
            self._places.popitem(last=False)

    # -- from one run to the next -----------------------------------------------------------------------------------

    def reads_of(self, server: str) -> dict[str, tuple[int, int | None]]:
        """By the digest of an answer of a server, in hex: the number of its request, and its slot."""
        return {digest: (number, slot) for digest, (place, number, slot) in self._places.items() if place == server}

    def recall(self, server: str, reads: Mapping[str, tuple[int, int | None]]) -> None:
        """Take over what another kvchat noted of the answers of a server, as of `reads_of`."""
        for digest, (at, slot) in reads.items():
            self._places.setdefault(digest, (server, at, slot))

    # -- telling --------------------------------------------------------------------------------------------------

    def ended_since(self, path: Sequence[Node], server: str) -> Cause | None:
        """Why a server holds nothing any more of a branch that it answered on before; None: nothing of it was seen."""
        last = next((node for node in reversed(path) if node.role is Role.ASSISTANT and node.figures is not None), None)
        if last is None:
            return None
        read = self._reads.get(last.id)
        return self.log.ended_since(read[0] if read is not None else self.log.number_at(last.created), server)

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
        played, server = request.played, request.server
        warmed = self.log.last_warmed(played, server.base_url)
        last = max([since, warmed or 0, *self._read_again(request, before)])
        is_last_read, since = last == since, last
        done = next(
            (
                one
                for one in reversed(self._done)
                if since < one.number < request.number and one.conversation == played.owner
            ),
            None,
        )
        usual_block = kind_of(server.kind).block
        found = self.log.evidence(
            played, request.sent(), figures, before, since, title, denied=request.denied, usual_block=usual_block
        )
        return replace(
            found,
            during_cancelled=request.during_cancelled,
            changed_by=done.change if done else None,
            changed_message=done.message if done else None,
            history=request.history,
            drops_reasoning=request.drops_reasoning(),
            flags=kind_of(server.kind).flags,
            unkept=_unkept(request) if warmed is None else None,
            windows=_windows(found) if is_last_read else None,
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
                asked_at = "", self.log.number_at(node.created), None
                _, number, slot = self._places.get(node.digest.hex(), asked_at)
                return number, replace(found, slot=slot)
        return 0, None


def stopped_by_model(state: State) -> bool | None:
    """As of `LastRead.stopped`."""
    return None if state in BROKEN_OFF else state in FINISHED


def identity(server: ServerInfo, model: str) -> ServerIdentity:
    return ServerIdentity(server.base_url, server.kind, server.build, model, server.embedded)


def _windows(found: Evidence) -> tuple[int, int] | None:
    """As of `Evidence`. A window that is only told differently, as once a model is loaded, is no other one: the server
    must have been started again, or take its window from the request."""
    before, now = found.before, found.figures.context_size
    if before is None or before.window is None or now is None or before.window == now:
        return None
    then, here = before.sent.server, found.now.server
    is_engine = then.embedded and here.embedded
    is_asked = then.base_url == here.base_url and bool(kind_of(here.kind).flags.asked_window)
    return (before.window, now) if found.restarted or is_engine or is_asked else None


def _unkept(request: SentRequest) -> TurnFigures | None:
    """As of `Evidence`."""
    last = next((node for node in reversed(request.extended) if node.role is Role.ASSISTANT), None)
    figures = last.figures if last is not None else None
    return figures if figures is not None and figures.alternative else None

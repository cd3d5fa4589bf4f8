"""The prompt cache of one server, as its client knows it: what others use of this package.

It knows token ids, what the server says, and figures; nothing of messages, and it asks the server for nothing. Who owns
a prompt, a conversation say, is a name that the caller gives.

In the order in which they are called:

1. `notes.recall`: what another run noted, where there is a note.
2. `before`: the way to send a prompt by which the server prefills least; `price`, what it costs.
3. `sent`: the request goes out and is played on every guess about the server.
4. `heard`: what the server reused tells the guesses apart. `ended`, `cut`: how the request ended.
5. `left`: what the slots then show corrects what is known.
6. `explain`: why it prefilled more than was new. `notes.note`: what is known now, to be stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace

from kvchat.cache.causes.cause import Finding
from kvchat.cache.causes.evidence import GOING_BACK, Evidence, Foreign, LastRead, Sent, ServerIdentity
from kvchat.cache.journal import Journal, SentPrompt
from kvchat.cache.llamacpp.cache_config import Rewind, Shape, writes_checkpoints
from kvchat.cache.llamacpp.hypotheses import Guesses, Hypotheses, guesses
from kvchat.cache.llamacpp.planner import Plan, PlannedWay, Restorable, Way, plan, way_sparing
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.llamacpp.server_state import SlotCount
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.llamacpp.slot_observer import SlotObserver
from kvchat.cache.llamacpp.trust import Trust
from kvchat.cache.notes import CacheNotes
from kvchat.cache.price import Price, price
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.figures.cause import Cause
from kvchat.figures.speed import SpeedFit

NOBODY_FORESEES = frozenset(
    {Cause.OTHER_MODEL, Cause.UNLOADED, Cause.RESTARTED, Cause.OTHER_CLIENT, Cause.CANCELLED, Cause.CACHE_FULL}
    | {Cause.REPORTED_COLD, Cause.OTHER_WINDOW}
)
"""Causes that speak against no prediction."""
NOWHERE = -1
"""No slot: none of ours ended, or it is not known how many tokens one left."""
KEPT_READS = 16


def _checked(prompt: Tokens) -> Tokens:
    """The prompt. Raises TypeError where it is something else, such as a list of ids."""
    if not isinstance(prompt, Tokens):
        raise TypeError(f"A prompt is kvchat.cache.Tokens, not {type(prompt).__name__}.")
    return prompt


class Cache:
    """The prompt cache of one llama.cpp server with one model.

        before ──► sent ──► heard ──► ended ──► left
          the way    what it   what it    what it   what its slots
          to send    reuses    reused     wrote     show then

    Besides, `price` tells what a prompt would prefill, and `explain` why the last one prefilled more than was new. One
    request after another: a server that works on two at a time is not foreseen. Each request is `sent`, `heard` of at
    most once, before or after its end, and ends once: by `ended`, `cut` or `never_began`. What is called out of this
    order raises RuntimeError.

    What a client needs that does more than send prompts is in its parts: `slots` (what else has changed a slot),
    `guesses` (what they have in common), `journal` and `notes` (from one run to the next).
    """

    def __init__(
        self,
        slots: int | None = None,
        context: int | None = None,
        build: str = "",
        *,
        known: Shape | None = None,
        learnt: Shape | None = None,
        model: Shape | None = None,
        server: str = "",
        is_router: bool = False,
        journal: Journal | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`slots`, `context` (tokens that a slot may hold; those of a `Shape` are of all slots together), `build`: as
        the server reports them; a build that has no number counts as tested. What it does not say is guessed, each
        guess played along, the one that predicts best believed. `learnt`: the `best.shape` of another run. `model`:
        what the model's file says of how far back it can go. `known`: all of it, instead of these; nothing is guessed
        then, and what it leaves out is a dense model's default. `server`: its name in the `journal`, which several
        caches may share. `is_router`: a router loads and unloads the model's process. `now`: seconds since the epoch,
        else the machine's; a journal has its own. Raises ValueError where `known` is not given alone, and for a journal
        together with `now`."""
        if known is not None and (slots, context, learnt, model) != (None, None, None, None):
            raise ValueError("`known` is all of the cache: `slots`, `context`, `learnt` and `model` are for guesses.")
        if journal is not None and now is not None:
            raise ValueError("A journal has a clock of its own: give `now` to the journal, or no journal.")
        in_files = writes_checkpoints(build)
        shapes = [known] if known is not None else guesses(slots, learnt, context, model)
        self.build = build
        self.server = server
        self._guesses = Hypotheses([replace(shape, file_checkpoints=in_files) for shape in shapes])
        self.guesses = Guesses(self._guesses)
        """What the server may be like."""
        self.journal = journal if journal is not None else Journal(now or time.time)
        """What was sent to it, and seen of it."""
        self.slots = SlotObserver(server, self._guesses, self.journal, is_router=is_router)
        """What its slots show, and what has changed them other than played requests."""
        self.notes = CacheNotes(server, self._guesses, self.slots, self.journal)
        """What the next run is to know."""
        self.trust = Trust()
        self.predictions = self.exact = 0
        """Requests whose cached tokens were predicted, and those that were predicted to the token."""
        self.last: SentPrompt | None = None
        """The last request, as the guess that explains what was reported of it has it."""
        self._phase: Literal["at rest", "under way", "ended"] = "at rest"
        """Of the last request; at rest: there is none that began."""
        self._figures: TurnFigures | None = None
        """Of the last request; None: not heard of."""
        self._since: tuple[int, LastRead | None] = 0, None
        """What `_reads` had of its owner when it was sent."""
        self._reads: dict[str, tuple[int, LastRead]] = {}
        """By owner, the latest last: the number of its last request that ended, and what that left."""

    @property
    def best(self) -> Simulator:
        """What the server holds, by the guess that has been right most: `slots`, `parked`, `shape`, `predict`."""
        return self._guesses.best

    @property
    def running(self) -> int | None:
        """The slot of the last request, as long as it is not known how that ended."""
        return self._guesses.running

    @property
    def is_sure(self) -> bool:
        """Whether the rules that it is played by are the server's."""
        return self.trust.is_sure(self.build)

    def is_sure_of(self, prompt: Tokens) -> bool:
        """The same, and whether nothing that is still guessed about the server makes a difference to a prompt."""
        return self.is_sure and self._guesses.agree_on(prompt)

    def before(
        self,
        prompt: Tokens,
        owner: str = "",
        *,
        detour: bool = False,
        restorable: Restorable | None = None,
        secured: Mapping[int, int] | None = None,
        idle: bool = False,
    ) -> Plan:
        """The way to send a prompt, or one that begins with it, by which the server prefills least. Changes nothing.
        `detour`: the client can send a tiny request first. `restorable`, `secured`: of snapshots, as of `plan`. `idle`:
        no request waits for it."""
        _checked(prompt)
        planned = partial(
            plan,
            prompt=prompt,
            detour=detour,
            idle=idle,
            busy=self.slots.busy,
            restorable=restorable,
            secured=secured,
            returns=self.journal.returns_for(owner, self.server),
        )
        found = planned(self.best)
        if restorable is not None and not restorable.cost:  # kept: also where only a guess says that it is there
            modest = planned(self._guesses.modest(prompt))
            return modest if modest.chosen.way is Way.RESTORE else found
        return found

    def way_sparing(self, prompt: Tokens, keep: Tokens, *, detour: bool = False) -> PlannedWay | None:
        """The cheapest way to send a prompt that leaves as much of `keep`, a prompt that comes later, as there is now;
        None: there is none. `detour`: as of `before`."""
        return way_sparing(self._guesses.likely, prompt, keep, detour=detour, busy=self.slots.busy)

    def sent(
        self,
        prompt: Tokens,
        owner: str = "",
        *,
        slot: int | None = None,
        users: Sequence[int] = (),
        tip: str = "",
        answers: int = 1,
        kind: Literal["conversation", "warm-up", "side"] = "conversation",
        number: int | None = None,
    ) -> Prediction:
        """A request is sent: what the server will do with it. `slot` pins it. `users`: the tokens at which user
        messages begin, of chat requests. `tip`: as of `Held`. `answers`: how many it asks for. `number`: as of
        `SlotObserver.request_sent`, if that was called. Raises ValueError for a slot below 0."""
        _checked(prompt)
        if slot is not None and slot < 0:
            raise ValueError(f"There is no slot {slot}; None leaves the choice to the server.")
        if self._phase == "under way":
            raise RuntimeError("The request before is under way: call `ended`, `cut` or `never_began` first.")
        if number is None:
            number = self.slots.request_sent()
        before = self.best.copy()
        found = self._guesses.begin(prompt, owner, self.journal.now(), slot, users, tip, answers)
        self.journal.used(kind, owner, self.server, found.slot, self._guesses.all_said, number)
        self.last, self._figures = SentPrompt(number, owner, prompt, slot, before, found), None
        self._phase = "under way"
        self._since = self._reads.get(owner, (0, None))
        return found

    def _end(self) -> None:
        if self._phase != "under way":
            raise RuntimeError("No request is under way: call `sent` first.")
        self._phase = "ended"

    def never_began(self) -> None:
        """The server took the last request not up."""
        self._end()
        self._phase, self.last = "at rest", None
        self._guesses.never_began()

    def batched(self, start: int, ends: Sequence[int]) -> None:
        """How far the last prompt was read after each batch, from `start` on, in tokens: it tells options of the
        server."""
        if self.last is None:
            raise RuntimeError("No request was sent.")
        self._guesses.batched(start, ends)
        self.journal.replayed(self.last.number, self._guesses.all_said)

    def heard(
        self,
        cached: int,
        *,
        slot: int | None = None,
        certain: bool = True,
        roughly: bool = False,
        denied: bool = False,
        counts: bool = True,
    ) -> TurnFigures:
        """What the server reports to have reused for the last request. `slot`: which one answered, where it is known to
        be another than was predicted. `certain`: whether the slots were at rest before. `roughly`: some ids of what is
        held are estimates. `denied`: it is not believed. `counts`: whether it counts as a prediction. The figures: new
        is what the last prompt of its owner and the answer to that do not begin with; predicted is None where the
        server may have held what is not known here."""
        last = self.last
        if last is None or last.prediction is None or last.tokens is None:
            raise RuntimeError("No request was sent.")
        if self._figures is not None:
            raise RuntimeError("What the server reused for this request was heard before.")
        said = last.prediction
        inherited = counts and cached > said.cached and (self.slots.inherits or not certain)
        some_unknown = cached != said.cached and said.allows(cached)  # ids of what was held
        hidden = inherited or (some_unknown and not roughly)
        if not denied:
            self._guesses.reported(cached, proves=not inherited)
            if slot is not None:
                self._guesses.answered_in(slot, cached)
                self.last = replace(last, prediction=replace(said, slot=slot, common=min(said.common, cached)))
        if not (hidden and cached > said.cached) and (proved := self._guesses.proved) is not None:
            self.last = replace(last, shape=proved.shape, before=proved.before, prediction=proved.prediction)
        if counts and not hidden and not roughly:
            self.predictions += 1
            self.exact += said.cached == cached
        before = self._since[1]
        begun = (before.sent.tokens or NO_TOKENS) + (before.sampled or NO_TOKENS) if before is not None else NO_TOKENS
        self._figures = TurnFigures(
            prompt_tokens=len(last.tokens),
            cached_tokens=cached,
            new_tokens=len(last.tokens) - begun.common(last.tokens),
            predicted_cached=None if hidden else said.cached,
            predicted_roughly=(roughly and not hidden) or None,
        )
        return self._figures

    def ended(self, sampled: Tokens, *, stopped: bool = False, tip: str = "", order: Sequence[int] = ()) -> None:
        """The last request is answered. `sampled`: all sampled tokens; the server does not decode the last one.
        `stopped`: by the client, so that the server may have written some more. `tip`, `order`: as of
        `Simulator.end`."""
        self._end()
        self._guesses.end(sampled, stopped=stopped, tip=tip, order=order)
        if (last := self.last) is None or last.tokens is None or last.prediction is None:
            return
        if not stopped:
            self.journal.ended(self.server)
        self._reads.pop(last.owner, None)
        self._reads[last.owner] = (
            last.number,
            LastRead(
                self._sent(last.tokens),
                len(last.tokens),
                len(sampled),
                sampled if sampled.known == len(sampled) else None,
                slot=last.prediction.slot,
                same_tokens=sampled.known == len(sampled) or None,
            ),
        )
        if len(self._reads) > KEPT_READS:
            del self._reads[next(iter(self._reads))]

    def _sent(self, prompt: Tokens) -> Sent:
        return Sent(ServerIdentity(self.server, build=self.build), tokens=prompt)

    def cut(self, processed: int | None, came: Callable[[int], None] | None = None) -> None:
        """The last request was cancelled when `processed` tokens of its prompt were in; None: the server was not heard
        of. `came` gets how far it came when the slots say so: a batch may have been on its way."""
        self._end()
        self._guesses.cut(processed or 0)
        said = self._guesses.said
        there = (said.slot, came) if said is not None and came is not None else None
        self.slots.request_cut(unheard=processed is None, came=there)

    def left(
        self,
        counts: Sequence[SlotCount],
        slot: int | None = NOWHERE,
        tokens: int = NOWHERE,
        *,
        explains: Callable[[int, SlotCount], bool] | None = None,
    ) -> bool:
        """What the server's slots hold by its own word, which corrects what is known; whether that was anything else.
        A server that was started again shows by it, and so does another program, unless `explains` says of a slot that
        it is known who left that there. `slot`: where the last request ended just now, which left about `tokens`; None:
        it is not known where; NOWHERE: none did."""
        if slot not in (None, NOWHERE) and self._phase == "under way":
            raise RuntimeError("The request is under way: call `ended` or `cut` first.")
        if not counts:
            return False
        since, self.slots.looked_at = self.slots.looked_at, self.journal.now()
        surprised, strange = self.slots.observe(counts, slot, tokens)
        for found in strange:
            if explains is None or not explains(found.slot, counts[found.slot]):
                foreign = Foreign(found.slot, found.count, int(since), int(self.slots.looked_at))
                self.journal.saw(self.server, "foreign", foreign)
        return surprised

    def price(self, prompt: Tokens, owner: str = "", speed: SpeedFit | float | None = None) -> Price:
        """What a prompt would make the server prefill, and in how many seconds. `speed`: as fitted, or tokens/s."""
        tokens = self.before(prompt, owner).chosen.tokens
        return price(tokens, speed, start=len(prompt) - tokens, exact=self.is_sure_of(prompt))

    def explain(self, evidence: Evidence | None = None) -> Finding | None:
        """Why a request prefilled more than was new; None: it did not, or hardly. `evidence`: of one with what a client
        knows of it; None: of the last request, by token ids alone, if it was heard of. Asked once for each: rules
        that a prediction was wrong by lose trust."""
        from kvchat.cache.causes.explain import finding_of  # first needed behind the first answer

        found = evidence if evidence is not None else self._evidence()
        if found is None:
            return None
        said, figures = found.prediction, found.figures
        if not self.is_sure:  # by whose rules it was predicted is not known
            uses = tuple(use.unforeseen for use in found.uses)
            found = replace(found, prediction=None, evicted=None, uses=uses)
        found = replace(found, shape=self._shape(found), may_be_full=self._guesses.may_park)
        finding = finding_of(found)
        predicted, cached = figures.predicted_cached, figures.cached_tokens
        if predicted is not None and cached is not None and not figures.predicted_roughly:
            kind = f"{found.changed_by or 'question'}, {said.source if said is not None else ''}"
            excused = finding is not None and finding.cause in NOBODY_FORESEES
            self.trust = self.trust.judged(kind, predicted, cached, excused=excused)
        return finding

    def _evidence(self) -> Evidence | None:
        last, figures = self.last, self._figures
        if last is None or last.tokens is None:
            raise RuntimeError("No request was sent.")
        if figures is None:
            return None
        self.journal.reported(self.server, figures)
        since, before = self._since
        return self.journal.evidence(last, self._sent(last.tokens), figures, before, since)

    def _shape(self, evidence: Evidence) -> Shape:
        """What the cache is like, as far as a turn shows. A model that was never seen to lose anything by it is taken
        for one that goes back to anywhere, until it reuses less of an undisturbed slot than that holds after an act
        that makes it go back."""
        shape, said, cached = self._guesses.proved_shape, evidence.prediction, evidence.figures.cached_tokens
        dense = self._guesses.is_dense
        if dense is None:
            held = said.best_where if said is not None else None
            dense = (
                said is None
                or cached is None
                or said.source != "slot"
                or said.cached <= cached + NOISE
                or held is None
                or (held.kind, held.index) != ("slot", said.slot)
                or evidence.changed_by not in GOING_BACK
            )
        if dense:
            return replace(shape, rewind=Rewind.ANYWHERE)
        return shape if shape.rewind is not Rewind.ANYWHERE else replace(shape, rewind=Rewind.NOWHERE)

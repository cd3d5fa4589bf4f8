"""The cache of one server: every request of ours is played on a simulator, and the server's own words correct it.

Nothing here makes the user wait. Before a request the server is asked who it is and what its slots hold; the prompt's
token ids are read while it answers. Whatever fails leaves the simulator without knowledge, never a chat without an
answer.

In the order in which they are called:

1. `before`: what the last request left is settled, and the slots are looked at.
2. `sent`: the request goes out. `_read` gets its token ids meanwhile and begins it on the simulator.
3. `ended`: its figures, with what the simulator had predicted.
4. `left`: what it left in the cache, found out in a task of its own; `settled` waits for that.
5. `side_request`, `restored`, `probed`, `examined`: whatever else used a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Literal

from msgspec.structs import asdict, replace

from kvchat.backends.dialect import (
    BackendError,
    CacheAccess,
    ChatTurn,
    Emit,
    PromptShower,
    PromptShown,
    ServerInfo,
    Waiting,
)
from kvchat.cache import NOWHERE, Cache, Held, Plan, Prediction, ServerState, SlotCount, Tokens
from kvchat.cache.tracking import TOLERANCE, Look, content_of
from kvchat.chat.cache.cancelled_slots import CancelledSlots
from kvchat.chat.cache.message_offsets import UserStarts
from kvchat.chat.cache.prompt_tokens import PromptTokens
from kvchat.chat.cache.server_notes import ServerNotes
from kvchat.chat.cache.tracked_turn import (
    EndedAnswers,
    PredictedRequest,
    PreparedRequest,
    SentRequest,
    TokenizedRequest,
    TrackedTurn,
)
from kvchat.chat.cache.turn_journal import TurnJournal, identity, stopped_by_model
from kvchat.chat.events import WarmthChanged
from kvchat.chat.ground import Ground
from kvchat.figures.accounting import NOISE, PromptProgress, TurnFigures, new_tokens, reads_back
from kvchat.prompt.message import Node, Role
from kvchat.prompt.prefilled_before import PrefilledBefore

LOOK_S = 0.5
"""A look at the slots that takes longer changes nothing."""
READ_S = 0.5
"""How long an answer that has ended waits for its prompt's tokens."""
AWAKE_S = 60.0
"""A server sleeps after a longer silence than this, if at all: then a look at its slots would wake it."""
RECALL_S = 5.0
"""The same, once, where it also has to be found out what the server holds from the last run."""
MOST_SAMPLED = 1 << 20
KEPT_HEADS = 64
"""Conversations: as many as a server has slots."""


def _prefilled_before(turn: ChatTurn, path: Sequence[Node]) -> ChatTurn:
    """The messages of `turn`, whose branch is `path`, up to the last answer that a server gave on it: what comes
    after that was imported, or is the old text of a new branch, and was never prefilled there."""
    end = next(
        (at for at in range(len(path) - 1, 0, -1) if path[at].role is Role.ASSISTANT and path[at].figures is not None),
        -1,
    )
    end = max(end, turn.known.messages - 1 if turn.known is not None else -1)
    return replace(turn, wires=turn.wires[: end + 1], continues=False)


def _added(request: PreparedRequest, text: str) -> str:
    """What the text of an answer has behind its prompt, of which a cut one is a part already."""
    return text.removeprefix(request.path[-1].text) if request.turn.continues else text


def _has_all(shown: str, request: PreparedRequest) -> bool:
    """Whether the text that a server shows has all messages: but for thoughts, which templates drop."""
    return all(
        node.message.reasoning or content_of(wire).strip() in shown
        for node, wire in zip(request.path, request.turn.wires, strict=False)
    )


class Playback:
    """A request while it is played on the simulator, from when it is sent until what it left is known.

        answering ──► ended, broken off ──► over
            └─────────────────────────────►        the next request does not wait for what it left

    Broken off: the server may compute on for a while. Over: nothing more of it is played.
    """

    def __init__(self, tracked: TrackedTurn, read: Callable[[Playback], Coroutine[None, None, None]]) -> None:
        self.tracked = tracked
        self.phase: Literal["answering", "ended", "broken off", "over"] = "answering"
        self.shown = PromptShown("")
        """The prompt that the server said at the end to have tokenised; an empty text: it said nothing."""
        self.said = ""
        """The text of the answer up to then, where it had no thoughts."""
        self.batches: list[PromptProgress] = []
        """How far the prompt was read after each batch."""
        self.heard = asyncio.Event()
        """Set when `shown` has come, or is not waited for any more."""
        self.closed = asyncio.Event()
        """Set when what it left in the cache is known, or never will be."""
        self.reading = asyncio.create_task(read(self))
        """Gets the tokens of its prompt meanwhile."""

    @property
    def request(self) -> SentRequest:
        return self.tracked.request

    @property
    def processed(self) -> int | None:
        """Prompt tokens that were in when the server was last heard of; None: it never was."""
        return self.batches[-1].processed if self.batches else None


class ServerCache:
    """The cache of one server and model. A chat request enters by four doors: `before`, `sent`, `ended` and `left`."""

    def __init__(
        self, access: CacheAccess, server: ServerInfo, simulated: Cache, journal: TurnJournal, ground: Ground
    ) -> None:
        self.access = access
        self.server = server
        self.simulated = simulated
        """What it holds, by the ids of what is sent."""
        self.slots = simulated.slots
        self.journal = journal
        self._ground = ground
        self.prompts = PromptTokens(access, ground.events)
        self.cancelled = CancelledSlots(access, server, ground, self._freed)
        self.notes: ServerNotes | None = None
        """None: nothing is noted, as of the embedded engine, which ends with kvchat."""
        self.is_brief = False
        """Whether kvchat ends with this request: then nothing is asked that only a later one needs."""
        self.is_looked_at = False
        """Whether the slots were looked at for the request that comes now."""
        self.plan: Plan | None = None
        """The plan of the last request."""
        self.heard_at = 0.0
        """When the server said who it is, or answered, on the monotonic clock."""
        self.heads: dict[str, tuple[str, ...]] = {}
        """By conversation: the digests, in hex, of the messages of which a slot holds a state. Set by `holds`."""
        self._leaving: asyncio.Task[None] | None = None
        self.unfollowed: set[str] = set()
        """Conversations whose last prompt the server gave no tokens of: what it holds of them is unknown."""
        self._current: Playback | None = None
        """The chat request that is being played, or was played last."""
        self._side_prompt = Tokens()
        self._users = UserStarts(access)

    def heard(self) -> None:
        """The server said who it is, or answered."""
        self.heard_at = monotonic()

    def follows(self, model: str) -> bool:
        """Whether a request for this model uses this cache: each model of a router has a server, and a cache, of its
        own."""
        return model in ("", self.server.model)

    # -- its slots --------------------------------------------------------------------------------------------------

    async def look(self) -> Look:
        """Look at the slots and correct the simulator."""
        counts = await self._counts()
        if counts is None:
            self.slots.busy = frozenset(range(len(self.simulated.best.slots)))  # nothing shows one idle
            return Look(late=True)
        self._observe(counts)
        if self.simulated.running is None:
            self._note()
        return Look(tuple(counts))

    async def stays(self) -> bool:
        """Look at the slots of a server that was heard of within `AWAKE_S`: whether they are just as the last request
        left them, so that the same process still answers with the same model."""
        if monotonic() - self.heard_at > AWAKE_S or self.slots.running is not None or self.cancelled.requests:
            return False
        counts = await self._counts() or ()
        if not self.slots.is_as_left(counts):
            return False
        self._observe(counts)
        self.heard()
        return True

    async def _counts(self) -> Sequence[SlotCount] | None:
        """What the slots hold; nothing where the server does not say, None where it does not in time."""
        if not self.prompts.works:
            return ()
        try:
            async with asyncio.timeout(LOOK_S):
                return await self.access.slot_counts()
        except TimeoutError:
            return None
        except BackendError:
            return ()

    def _observe(self, counts: Sequence[SlotCount], slot: int | None = NOWHERE, left: int = NOWHERE) -> None:
        """As of `Cache.left`; another kvchat may have left what a slot holds."""
        if not counts:
            return
        explains = self.notes.explains if self.notes is not None else None
        is_other = self.notes is not None and self.notes.catch_up(counts)
        is_other |= self.simulated.left(counts, slot, left, explains=explains)
        if self.notes is not None:
            self.notes.looked()
        if is_other:
            self._ground.events.tell(WarmthChanged())

    def noticed(self, state: ServerState) -> None:
        """The server said who it is."""
        self.heard()
        if self.slots.noticed(state):
            self._ground.events.tell(WarmthChanged())

    def _freed(self, counts: Sequence[SlotCount]) -> None:
        """Requests that were cancelled have ended: see what they left."""
        self._observe(counts, None)

    def _note(self) -> None:
        if self.notes is not None:
            self.notes.note_down()

    # -- a turn ---------------------------------------------------------------------------------------------------

    async def before(
        self,
        turn: ChatTurn,
        path: Sequence[Node],
        read: PrefilledBefore,
        kind: Literal["conversation", "side"] = "conversation",
        *,
        emit: Emit,
    ) -> PreparedRequest:
        """Just before a chat request: what the last one left is settled, and the slots are looked at. `read`: what was
        read of its branch before. `emit` gets `Waiting` while it waits for the slot of a cancelled request."""
        if self._current is not None and not self._current.closed.is_set():
            try:
                await asyncio.wait_for(self._current.closed.wait(), LOOK_S)
            except TimeoutError:
                self._end_unknown(self._current)
        if self.cancelled.requests and await self._goes_to_a_cancelled_one(turn):
            emit(Waiting("cancelled", 0.0))
            await self.cancelled.free()
            emit(Waiting("prefill", 0.0))
        if not (self.is_looked_at and self.slots.is_seen) and not self.slots.state.asleep:  # a look would wake it
            await self.look()
        self.is_looked_at = False
        return PreparedRequest(
            turn,
            path,
            kind=kind,
            certain=not self.slots.busy,
            asked_before=read.messages == len(path) and path[-1].role is not Role.ASSISTANT,
            server=identity(self.server, turn.model),
            during_cancelled=self.cancelled.requests.computing(),
            history=self.prompts.known_history(before := _prefilled_before(turn, path)),
            goes_on_from_a_call=self.prompts.is_retokenised(before),
        )

    async def _goes_to_a_cancelled_one(self, turn: ChatTurn) -> bool:
        """Whether a turn belongs into a slot in which a cancelled request of ours is still computed."""
        prompt = self.prompts.known_prefix(turn.extended)
        if not prompt:
            try:
                async with asyncio.timeout(LOOK_S):
                    prompt = await self.prompts.prompt(turn)
            except TimeoutError:
                prompt = None
        return self.cancelled.requests.hold_up(self.simulated.best.slot_after_cancel(prompt) if prompt else None)

    def sent(self, prepared: PreparedRequest, slot: int | None = None) -> TrackedTurn:
        """The request is on its way: get its token ids meanwhile."""
        number, before = self.slots.request_sent(), self.simulated.best.copy()
        sent = SentRequest(**asdict(prepared), number=number, pinned=slot, before=before)
        self._current = Playback(TrackedTurn(sent), self._read)
        return self._current.tracked

    def shown(self, tracked: TrackedTurn, shown: PromptShown, said: str) -> None:
        """The server shows the prompt of a request that it has answered with `said`, as far as that is text."""
        if (playback := self._playback(tracked)) is not None:
            playback.shown, playback.said = shown, said
            playback.heard.set()

    def progressed(self, tracked: TrackedTurn, progress: PromptProgress) -> None:
        """The server has read a batch of a prompt."""
        if (playback := self._playback(tracked)) is not None:
            playback.batches.append(progress)

    def _playback(self, tracked: TrackedTurn) -> Playback | None:
        current = self._current
        return current if current is not None and current.tracked is tracked else None

    def _is_open(self, playback: Playback) -> bool:
        return self._current is playback and playback.phase != "over"

    async def _read(self, playback: Playback) -> None:
        tracked, turn = playback.tracked, playback.request.turn
        if not self.prompts.works or turn.has_images:
            return
        try:
            text, altered = await self._text(playback)
            then = _added(tracked.request, playback.said) if self.is_brief else ""
            tokens = await self.access.tokens_of(text, turn.known, then)
        except BackendError as error:
            self.prompts.gave_up(error)
            return
        rendered = text if turn.known is None or not turn.known.messages else ""
        tracked.request = request = tracked.request.tokenized(tokens, rendered, altered=altered)
        if not tokens or not self._is_open(playback):
            return
        if self.notes is not None:
            self.notes.identify_by(tokens, {node.digest.hex() for node in request.extended})
            await self.notes.identify(turn.session_id)
        if not self._is_open(playback):
            return
        users = () if self.simulated.guesses.rewinds else await self._users.places(turn.model, tokens)
        if not self._is_open(playback):
            return
        prediction = self.simulated.sent(
            tokens,
            turn.session_id,
            slot=request.pinned,
            users=users,
            tip=request.extended[-1].digest.hex() if request.extended else "",
            answers=turn.answers,
            kind=request.kind,
            number=request.number,
        )
        tracked.request = predicted = request.predicted(prediction)
        self._note()
        if (history := predicted.history) is None:
            history = await self._history(predicted)
        tracked.request = replace(predicted, history=history, sent_before=self._sent_before(predicted, history))

    async def _text(self, playback: Playback) -> tuple[str, bool]:
        """The text of a prompt: as it goes on from a prefix that was rendered before; where kvchat ends with this
        request, as the server shows it at the end, if that has every message; else as the template makes it. And
        whether the server shows another one than that. Raises BackendError."""
        request = playback.request
        turn = request.turn
        if playback.shown.text and not self.is_brief:
            return playback.shown.text, False
        shows = (
            request.kind == "conversation" and isinstance(self.access, PromptShower) and self.access.shows_prompt(turn)
        )
        if shows and (text := self.prompts.assembled(turn)):
            return text, False
        if shows and self.is_brief:
            self.slots.unplaced = True
            self._note()  # should kvchat be killed meanwhile
            await playback.heard.wait()
            self.slots.unplaced = False
        if playback.shown.text and _has_all(playback.shown.text, request):
            return playback.shown.text, False
        text = await self.access.prompt_text(turn)
        if not (shown := playback.shown).text:
            return text, False
        playback.shown = replace(shown, text=text)
        return text, shown.text != text

    async def _history(self, request: PredictedRequest) -> int | None:
        """The tokens of a prompt that were prefilled before: counted in itself where kvchat ends with it."""
        history = _prefilled_before(request.turn, request.path)
        if not self.is_brief:
            await self.prompts.prefix(history)
            return self.prompts.known_history(history)
        try:
            return await self.prompts.history_in(history, request.rendered, request.tokens)
        except BackendError as error:
            self.prompts.gave_up(error)
            return None

    async def _as_shown(self, playback: Playback) -> None:
        """Play a request again where the server says that its prompt was another one, and its template makes that; else
        something has changed it on the way."""
        await self._until_read(playback)
        request = playback.request
        if not playback.shown.text or not request.rendered or playback.shown.text == request.rendered:
            return
        if not isinstance(request, PredictedRequest) or not self._is_open(playback):
            return
        try:
            playback.shown = replace(playback.shown, text=await self.access.prompt_text(request.turn))
        except BackendError as error:
            self.prompts.gave_up(error)
            return
        if playback.shown.text == request.rendered or not self._is_open(playback):
            return
        self.prompts.was_read_otherwise(request.turn)
        self.simulated.never_began()
        playback.tracked.request = request.withdrawn()
        playback.reading = asyncio.create_task(self._read(playback))

    def _sent_before(self, request: PredictedRequest, history: int | None) -> int | None:
        if request.asked_before:
            return len(request.tokens)
        if history is None:
            return None
        return max(history, self.prompts.shared(request.turn.session_id, request.tokens))

    def plays(self, tracked: TrackedTurn) -> bool:
        """Whether this request is the one that is being played."""
        return self._playback(tracked) is not None

    async def ended(self, tracked: TrackedTurn, figures: TurnFigures | None) -> TurnFigures | None:
        """The answer is here: its figures with what was new, counted in ids, and what the simulator had predicted."""
        self.heard()
        if (playback := self._playback(tracked)) is None:
            return figures
        await self._as_shown(playback)
        await self._until_read(playback)
        request = playback.request
        if playback.shown.text and playback.shown.text == request.rendered:
            self.prompts.was_read(request.turn, playback.shown.text)
        if figures is None or not isinstance(request, PredictedRequest):
            return figures
        if request.sent_before is not None:
            figures = replace(figures, new_tokens=new_tokens(figures.prompt_tokens, request.sent_before))
        prediction, cached = request.prediction, figures.cached_tokens
        if cached is None:
            return replace(figures, predicted_cached=prediction.cached)
        if not self._is_open(playback):  # another request is played by now
            return figures
        self._batched(request, playback.batches)
        denied = not cached and await self._denies(request)  # not believed: it holds what it is to
        slot = None if denied else await self._answered_by(request, cached)
        if not self._is_open(playback):
            return figures
        heard = self.simulated.heard(
            cached,
            slot=slot,
            certain=request.certain,
            roughly=request.goes_on_from_a_call and prediction.most > prediction.cached,
            denied=denied,
        )
        played = self.simulated.last
        assert played is not None and played.prediction is not None
        reported = request.reported(played.prediction, denied=prediction.cached if denied else None)
        if played.shape is not None:
            reported = replace(reported, shape=played.shape, before=played.before)
        tracked.request = reported
        if heard.predicted_cached is None:
            return figures
        return replace(figures, predicted_cached=prediction.cached, predicted_roughly=heard.predicted_roughly)

    async def _denies(self, request: PredictedRequest) -> bool:
        """Whether a server that reports nothing cached answered in the very slot that is sure to have held the prompt's
        beginning, and was not started again meanwhile."""
        prediction = request.prediction
        undisturbed = (
            self.simulated.is_sure and request.certain and not request.during_cancelled and request.turn.answers == 1
        )
        if prediction.cached <= NOISE or not undisturbed:
            return False
        if not self.simulated.guesses.surely_cached(request.tokens, request.pinned):
            return False
        before, counts = self.slots.tasks_at_begin, await self._counts() or ()
        if self.slots.ran_in(counts) != prediction.slot:
            return False
        task, earlier = counts[prediction.slot].task, [task for task in before if task is not None]
        return task is not None and bool(earlier) and task > max(earlier)

    def _batched(self, request: PredictedRequest, batches: Sequence[PromptProgress]) -> None:
        """Play a request with the server options that its reported batches show."""
        ends = [one.processed for one in batches if one.processed > one.cached]
        if ends[-1:] != [len(request.tokens)] or ends != sorted(set(ends)) or self.slots.busy:
            return
        self.simulated.batched(batches[0].cached, ends)

    async def _answered_by(self, request: PredictedRequest, cached: int) -> int | None:
        """The slot that answered, where it is another one than was predicted: where less or more was reused, that may
        be so of the one with a new task. None: it is not."""
        prediction = request.prediction
        if request.altered or abs(prediction.cached - cached) <= TOLERANCE:
            return None
        ran = self.slots.ran_in(await self._counts() or ())
        return ran if request.turn.answers == 1 and ran != prediction.slot else None

    def left(self, tracked: TrackedTurn, ended: EndedAnswers, settled: ChatTurn) -> None:
        """After the answers to a request: find out what it left in the cache, in a task of its own. `settled`: what
        goes on after the first."""
        if (playback := self._playback(tracked)) is None:
            return
        if playback.phase == "answering":
            playback.phase = "broken off" if ended.is_broken_off else "ended"
        self._leaving = asyncio.create_task(self._leave(playback, ended, settled))

    async def settled(self, seconds: float | None = None) -> None:
        """Return when what the last answer left is known, or after `seconds`."""
        if self._leaving is not None:
            await asyncio.wait({self._leaving}, timeout=seconds)

    async def _until_read(self, playback: Playback) -> None:
        """Wait a moment for the prompt's tokens; a server that keeps one waiting for them again and again is left
        alone."""
        playback.heard.set()
        if playback.reading.done():
            return
        recalls = self.notes is not None and not self.notes.is_known
        await asyncio.wait({playback.reading}, timeout=RECALL_S if recalls else READ_S)
        if not playback.reading.done():
            playback.reading.cancel()
            self.prompts.was_slow()

    async def _leave(self, playback: Playback, ended: EndedAnswers, settled: ChatTurn) -> None:
        try:
            await self._until_read(playback)
            await self._note_left(playback, ended, settled)
        finally:
            playback.closed.set()
        self._note()
        self._ground.events.tell(WarmthChanged())

    async def _note_left(self, playback: Playback, ended: EndedAnswers, settled: ChatTurn) -> None:
        request, slot_tokens, sampled = playback.request, None, None
        note = self.unfollowed.discard if isinstance(request, TokenizedRequest) else self.unfollowed.add
        note(request.turn.session_id)
        if isinstance(request, PredictedRequest):
            sampled = await self._sampled(request, ended, settled, is_shown=bool(playback.shown.text))
            if ended.predicted and request.kind == "conversation":
                self.prompts.answered(request.turn, request.tokens, settled)
            if self._is_open(playback):
                playback.phase = "over"
                slot_tokens = await self._play_end(playback, request, ended, sampled)
            else:
                self._observe(await self._counts() or (), None)
        elif self._current is playback:
            self._unplayed(request, ended.first, await self._counts() or ())
        else:
            self._observe(await self._counts() or (), None)
        self.journal.answered(playback.request, ended.first, slot_tokens, sampled)

    async def _play_end(
        self, playback: Playback, request: PredictedRequest, ended: EndedAnswers, sampled: Tokens
    ) -> int | None:
        """Play how a request ended; the tokens that its slot then held, None where they are not known."""
        slot, held = request.prediction.slot, request.held_after(ended.first)
        left = len(request.tokens) + max(0, ended.predicted - 1)
        processed, stopped = playback.processed, ended.is_broken_off
        if ended.predicted:
            tip = held[-1].digest.hex() if held else ""
            self.simulated.ended(sampled, stopped=stopped, tip=tip, order=ended.order)
        else:
            self.simulated.cut(processed)
        if ended.first.figures is not None or processed is not None:  # else it was refused, and the slot is as it was
            self.holds(request.turn.session_id, tuple(node.digest.hex() for node in held))
        for used in (slot, *request.prediction.copies) if stopped else ():
            heard = processed is not None or ended.predicted > 0
            self.cancelled.add(used, len(request.tokens) + ended.predicted, heard=heard)
        if self._is_told(request, playback.shown, left):
            return playback.shown.left
        if not await self.cancelled.free(LOOK_S):
            return None
        counts = await self._counts() or ()
        if (ran := self.slots.ran_in(counts)) is not None and ran != slot:
            playback.tracked.request, slot = replace(request, prediction=replace(request.prediction, slot=ran)), ran
        self._observe(counts, slot, left)
        return counts[slot].tokens if slot < len(counts) else None

    def _is_told(self, request: PredictedRequest, shown: PromptShown, left: int) -> bool:
        """Whether the server itself says that the answer ended in the slot it was played in, which holds `left` tokens:
        where kvchat ends with it, no look is needed."""
        slot = request.prediction.slot
        is_so = self.is_brief and not self.cancelled.requests and request.turn.answers == 1
        return is_so and (shown.slot, shown.left) == (slot, left) and self.slots.is_told(slot, left)

    def _unplayed(self, request: SentRequest, answer: Node, counts: Sequence[SlotCount]) -> None:
        """A request of ours ended whose prompt was not known in time: its slot is the one with a new task."""
        found, owner = self.slots.used_since_look(counts), request.turn.session_id
        self._observe(counts, None)
        new = [slot for slot in found if counts[slot].tokens or request.turn.answers == 1]  # else empty again
        if len(new) == 1 and counts[new[0]].tokens:
            left = Tokens.unknown(counts[new[0]].tokens)
            self.slots.adopted(request.kind, new[0], left, owner, answer.digest.hex(), request.number)
            if request.turn.has_images:  # of its messages all is known but the tokens
                self.holds(owner, tuple(node.digest.hex() for node in request.held_after(answer)))

    def refused(self) -> None:
        """The server refused the request that is being played and evaluated nothing of it: the next one need not wait
        for what it left."""
        playback, self._current = self._current, None
        if playback is not None and playback.request.prediction is not None:
            self.simulated.never_began()

    def _end_unknown(self, playback: Playback) -> None:
        """What a request left stays unknown: the next one does not wait for it, unless its slot may still compute."""
        playback.closed.set()
        request, phase, playback.phase = playback.request, playback.phase, "over"
        if isinstance(request, PredictedRequest) and phase != "over":
            self.simulated.cut(playback.processed or 0)
            if phase == "broken off":
                heard = playback.processed is not None
                self.cancelled.add(request.prediction.slot, len(request.tokens), heard=heard)

    async def _sampled(
        self, request: PredictedRequest, ended: EndedAnswers, settled: ChatTurn, *, is_shown: bool
    ) -> Tokens:
        """The ids of the sampled tokens, as far as they are known; unknown ones are unlike all others. Those of a
        reply that has another number of tokens as history are not known: it is read ahead in that form. What is stored
        in another form than it came in has the tokens of what came."""
        prompt, answer, count = request.tokens, ended.first, ended.predicted
        if request.altered:
            return Tokens.unknown(min(count, MOST_SAMPLED))
        state = answer.state
        if self.is_brief and is_shown and not answer.message.reasoning and not answer.message.calls:
            try:
                prefix = await self.prompts.said_behind(settled, request.rendered, _added(request, answer.text))
            except BackendError as error:
                self.prompts.gave_up(error)
                prefix = None
        else:
            prefix = await self.prompts.prefix(settled)
        history = self.prompts.known_history(settled)
        known = Tokens()
        if prefix is not None and prefix.common(prompt) == len(prompt):
            stopped = stopped_by_model(state)
            differs = (
                history is not None and stopped is not None and not reads_back(count, history - len(prompt), stopped)
            )
            known = Tokens() if differs else prefix.after(len(prompt)).first(count)
            if ended.came is not None and request.turn.known is None:
                printed, known = known, await self._as_it_came(request, ended.came, count, stopped=bool(stopped))
                differs = not known or known != printed
            elif answer.message.calls and history is not None and request.turn.known is None:
                came = await self.prompts.with_calls_as_they_came(settled, request.rendered)
                if came is not None:  # in as many tokens or others
                    longer, differs = len(came) - len(prefix) - 1, True
                    fits = reads_back(count, history + longer - len(prompt), bool(stopped))
                    known = came.after(len(prompt)).first(count) if fits else Tokens()
            if differs and answer.message.calls:
                said = answer.text or answer.message.reasoning
                same = await self.prompts.retokenised(settled, request.rendered, len(prompt), said)
                known = known or (same if ended.came is None else Tokens())  # a text may be printed in other words
        return known + Tokens.unknown(min(count, MOST_SAMPLED) - len(known))

    async def _as_it_came(self, request: PredictedRequest, came: str, count: int, *, stopped: bool) -> Tokens:
        """The ids of the `count` sampled tokens by the text that came; none where it may have come in others."""
        prompt = request.tokens
        whole = await self.prompts.came_behind(request.rendered, came) if request.rendered else None
        if (
            whole is None
            or whole.common(prompt) < len(prompt)
            or not reads_back(count, len(whole) - len(prompt), stopped)
        ):
            return Tokens()
        return whole.after(len(prompt))

    def holds(self, conversation: str, path: tuple[str, ...]) -> None:
        """A slot holds a state of these messages of a conversation, as of `heads`."""
        self.heads.pop(conversation, None)
        self.heads[conversation] = path
        if len(self.heads) > KEPT_HEADS:
            del self.heads[next(iter(self.heads))]

    # -- side requests ---------------------------------------------------------------------------------------------

    def side_request(
        self, kind: Literal["warm-up", "side"], owner: str, prompt: Tokens, slot: int | None = None, tip: str = ""
    ) -> Prediction:
        """A request that reads `prompt` is sent: play it. `Cache.ended` or `side_request_cut` must follow. `tip`: as of
        `Held`."""
        prediction = self.simulated.sent(prompt, owner, slot=slot, tip=tip, kind=kind)
        self._side_prompt = prompt
        self._note()
        return prediction

    async def examined(self) -> None:
        """Requests of ours that were not played, the doctor's, have used the slots: what these hold is seen now."""
        counts = await self._counts() or ()
        self.slots.used(range(len(counts)))
        self._observe(counts, None)
        self._note()

    def restored(self, slot: int, held: Held) -> None:
        """A snapshot of a conversation was put into a slot."""
        self.slots.restored(slot, held)
        self._note()

    def probed(self, slot: int) -> None:
        """A request has asked what a slot holds and left that as it was."""
        self.slots.probed(slot)
        self._note()

    def side_request_cut(self, processed: int | None, came: Callable[[int], None] | None = None) -> None:
        """The side request was cancelled when `processed` tokens were in; None: the server was not heard of. `came`
        gets how far it came when the slots say so: a batch may have been on its way."""
        self.simulated.cut(processed, came)
        if (said := self.simulated.guesses.said) is not None:
            self.cancelled.add(said.slot, len(self._side_prompt), heard=processed is not None)

"""What an examination of a server finds, and what is to be said of it: what was not found out is None, never 0."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct, field

from kvchat.backends.dialect import BackendError, ServerInfo, TemplateFacts
from kvchat.figures.accounting import NOISE, TurnFigures, measured_speed
from kvchat.text.doctor import advice_words, gain, question_words, verdict_sentence
from kvchat.values import Statement


class Severity(StrEnum):
    FINE = "fine"
    NOTE = "note"
    """Worth knowing; costs little, or only in some cases, or cannot be helped."""
    PROBLEM = "problem"


class Topic(StrEnum):
    """What a verdict is about."""

    CONNECTION = "connection"
    KEY = "key"
    LOADING = "loading"
    BUSY = "busy"
    NOT_PROBED = "not probed"
    FIGURES = "cache figures"
    REUSE = "reuse"
    CACHING_OFF = "caching off"
    SIDE_REQUEST = "side request"
    AFFINITY = "session affinity"
    ANSWERS = "answers"
    WINDOW = "window"
    DATE = "template date"
    REASONING = "template reasoning"
    SYSTEM = "template system message"
    PINNING = "pinning"
    SNAPSHOTS = "snapshots"
    SLEEP = "sleep"


class Verdict(Struct, frozen=True):
    """One finding: what is so, what to do about it, and what was measured."""

    topic: Topic
    severity: Severity
    seen: Statement
    """A `Seen`, a fault of the server, or a `NoteKind` that its dialect warned of."""
    remedies: tuple[Statement, ...] = ()
    """Each an `Advice` or a `Remedy`: the flag or setting of that server that changes it; empty where nothing is to be
    done."""
    tokens: int | None = None
    """Tokens that the probe had evaluated once more for this reason."""
    seconds: float | None = None
    """What reading them took."""
    per: str = ""
    """How often that happens: `turn`, `switch`, `day`."""

    @property
    def sentence(self) -> str:
        """What is so."""
        return verdict_sentence(self.seen, self.tokens, self.seconds)

    @property
    def advice(self) -> str:
        """What to do about it."""
        return advice_words(self.remedies)

    @property
    def gain(self) -> str:
        """What following the advice saves; empty where there is none, or nothing was measured."""
        return gain(self.tokens, self.seconds, self.per) if self.remedies and self.per else ""


class Step(StrEnum):
    """A request of the probe."""

    FIRST = "first question"
    """A small one of its own: whether the server answers, and how fast."""
    ONE = "turn 1"
    TWO = "turn 2"
    THREE = "turn 3"
    SIDE = "side request"
    AFTER_SIDE = "turn after it"


BEFORE: dict[Step, Step] = {Step.TWO: Step.ONE, Step.THREE: Step.TWO, Step.AFTER_SIDE: Step.THREE}
BLOCK = 16
"""Tokens of the smallest block that a server caches in; reuse ends at a multiple of it."""
BLOCK_NOISE = 64
SURELY_KEPT, SURELY_LOST = 0.7, 0.3
"""Shares of what was there before, from which on and up to which an estimate tells something."""
SURE_S = 0.3
"""A first token that takes less says nothing of what was prefilled."""


class Kept(StrEnum):
    """How much of the turn before was still there."""

    ALL = "all"
    BUT_ANSWER = "all but the answer"
    PARTLY = "a part"
    LOST = "nothing"


HELD = (Kept.ALL, Kept.BUT_ANSWER)


class ProbeTurn(Struct, frozen=True):
    """One request of the probe and what it cost."""

    step: Step
    figures: TurnFigures
    estimated: bool = False
    """Whether the cached tokens are an estimate."""


class PinProbe(Struct, frozen=True):
    """A prompt pinned to a slot, another one to another slot, and the first one again."""

    tokens: int
    """Of the second prefill of the first prompt that could have been reused."""
    cached: int


class SnapshotProbe(Struct, frozen=True):
    """A slot saved to the server's folder and restored."""

    tokens: int
    size: int
    """Bytes."""
    save_seconds: float
    restore_seconds: float | None = None
    """None: it could not be restored."""


class ReturnWay(StrEnum):
    """From where a state comes back."""

    SLOT = "slot"
    HOST_CACHE = "host cache"
    FILE = "file"
    OTHER_SLOT = "other slot"
    """From a file, into a slot that it was not saved from."""


class Return(Struct, frozen=True):
    """One way tried out."""

    way: ReturnWay
    tokens: int = 0
    """Of the state that came back."""
    ms: float | None = None
    """What that took; None: it does not come back in this way."""
    difference: float | None = None
    """How far its answer is from the one before, in log-probabilities: 0.0: equal bit for bit; None: not known."""


class Examination(Struct):
    """Everything that is found out about one server, written down as it is."""

    url: str
    server: ServerInfo | None = None
    """None: it was not reached."""
    trained_context: int | None = None
    """Tokens that the model was trained for."""
    template: TemplateFacts | None = None
    keeps_reasoning_when_asked: bool | None = None
    date_option: bool | None = None
    """Whether the template option `date_string` fixes the date."""
    asleep: bool | None = None
    held: tuple[int, ...] | None = None
    """Tokens in each slot before the probe."""
    busy: bool = False
    unified: bool | None = None
    """Whether one KV cache serves all slots: an idle slot was emptied when another one was used. That none was proves
    nothing, for idle slots can be left alone."""
    replicas: int | None = None
    """How many different processes answered at this address."""
    turns: list[ProbeTurn] = field(default_factory=list)
    pinned: PinProbe | None = None
    snapshot: SnapshotProbe | None = None
    saves_slots: bool | None = None
    """Whether the server was started with a folder for its slots."""
    returns: list[Return] = field(default_factory=list)
    """What the deep examination saw."""
    spent_tokens: int = 0
    """Evaluated and predicted in the probe; where the server does not say what it reused, all of each prompt."""
    seconds: float = 0.0
    warnings: list[Statement] = field(default_factory=list)
    """What its dialect warned of in the answers: messages that were dropped, a model loaded again."""
    skipped: list[str] = field(default_factory=list)
    """What was left out and why, in words."""
    asks: list[Statement] = field(default_factory=list)
    """What the user has to agree to before the probe, each an `Asks`; empty when it was made, or needs no word."""
    failure: BackendError | None = None
    """Why it ended early."""
    budget: int = 0
    """Tokens of the server's time that the probe may take."""

    def fits(self, tokens: int) -> bool:
        """Whether a request that takes up to `tokens` may be sent."""
        return self.spent_tokens + tokens <= self.budget

    def spend(self, tokens: int) -> None:
        self.spent_tokens += max(0, tokens)

    def turn(self, step: Step) -> TurnFigures | None:
        return next((turn.figures for turn in self.turns if turn.step is step), None)

    @property
    def question(self) -> str:
        """What the user has to agree to, in sentences; empty for nothing."""
        return question_words(self.asks)

    @property
    def window(self) -> int | None:
        return None if self.server is None else self.server.context_size

    @property
    def servers(self) -> int | None:
        """How many servers answer at this address; None for one, or where that is not known."""
        return self.replicas if (self.replicas or 1) > 1 else None

    @property
    def prefill_speed(self) -> float | None:
        """Tokens per second, by the server's own time, or else by the time to the first token of what was new."""
        speed = measured_speed(turn.figures for turn in self.turns)
        if speed is not None:
            return speed
        first = self.turn(Step.ONE) or self.turn(Step.FIRST) or TurnFigures()
        ms, tokens = first.prompt_ms or first.ttft_ms, first.evaluated_tokens or first.prompt_tokens
        return tokens / ms * 1000 if tokens and ms else None

    @property
    def decode_speed(self) -> float | None:
        """Tokens per second."""
        timed = [turn.figures for turn in self.turns if turn.figures.decode_speed]
        tokens = sum(turn.predicted_tokens or 0 for turn in timed)
        ms = sum(turn.predicted_ms or 0 for turn in timed)
        return tokens / ms * 1000 if ms else None

    def seconds_for(self, tokens: int | None) -> float | None:
        """What prefilling `tokens` takes here."""
        speed = self.prefill_speed
        return tokens / speed if tokens and speed else None

    # -- what became of the cache between two turns ---------------------------------------------------------------

    def lost(self, step: Step) -> int | None:
        """Tokens that the turn `step` prefilled again."""
        now = self.turn(step)
        return None if now is None else now.wasted_tokens

    def fate(self, step: Step) -> Kept | None:
        """What the turn `step` found of the one before it; None: not reported."""
        now, before = self.turn(step), self.turn(BEFORE[step])
        if now is None or before is None or now.cached_tokens is None or not before.prompt_tokens:
            return None
        old = before.prompt_tokens if now.new_tokens is None else (now.prompt_tokens or 0) - now.new_tokens
        if any(turn.estimated for turn in self.turns):
            share = now.cached_tokens / max(1, old)
            return Kept.ALL if share >= SURELY_KEPT else Kept.LOST if share <= SURELY_LOST else None
        missing = old - now.cached_tokens
        slack = BLOCK_NOISE if now.cached_tokens and now.cached_tokens % BLOCK == 0 else NOISE
        if missing <= slack:
            return Kept.ALL
        if now.cached_tokens >= before.prompt_tokens - slack:
            return Kept.BUT_ANSWER if missing * 2 > (before.predicted_tokens or 0) else Kept.ALL
        return Kept.LOST if now.cached_tokens * 2 < before.prompt_tokens else Kept.PARTLY

    @property
    def seems_cached(self) -> bool | None:
        """Whether the times to the first token say that the cache works; None where they are too short to tell."""
        first, *later = (
            turn.ttft_ms if (turn := self.turn(step)) is not None else None for step in (Step.ONE, Step.TWO, Step.THREE)
        )
        times = [ms for ms in later if ms]
        if not first or not times or first < SURE_S * 1000:
            return None
        if max(times) < first * 0.5:
            return True
        return False if min(times) > first * 0.9 else None

    @property
    def reuse_seen(self) -> bool:
        """Whether it is known that a conversation is reused: by the server's figures, or by the times."""
        return any(self.fate(step) in HELD for step in BEFORE) or self.seems_cached is True


class DoctorReport(Struct, frozen=True):
    """An examination and what it means."""

    examination: Examination
    verdicts: Sequence[Verdict]

    def of(self, severity: Severity) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.severity is severity]

    @property
    def complete(self) -> bool:
        """Whether the probe was made."""
        found = self.examination
        return bool(found.turns) and not (found.failure or found.question or found.busy)

    @property
    def well(self) -> bool:
        """Whether the server was probed and nothing is wrong."""
        return self.complete and not self.of(Severity.PROBLEM)


def unexamined(url: str, error: BackendError) -> Examination:
    """What is found of a server that could not even be identified."""
    return Examination(without_user(url), failure=error)


def without_user(address: str) -> str:
    """An address to show: without the user and the password that may stand in it."""
    scheme, mark, rest = address.partition("://") if "://" in address else ("", "", address)
    return scheme + mark + rest.rpartition("@")[2]

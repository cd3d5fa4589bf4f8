"""What a turn cost: prompt tokens, how many came from the cache, how many were new, how many were wasted.

Definitions (P prompt tokens, C cached tokens, E = P - C evaluated tokens, N new tokens):

* N is what this turn added: P minus the longest prefix that it shares with a prompt or settled reply of this
  conversation's tree, counted in token ids where they are known; all of P on a first turn, about 0 for another answer
  to a question, all that follows a deleted turn.
* hit ratio = C / P. reuse = C / (P - N): 1.0 is the physical limit, whatever the message's length.
* wasted = max(0, E - N): work a perfect client and server would not have done. llama.cpp never decodes the
  last token it sampled, so a perfect turn shows 1; up to `NOISE` tokens are not worth a word on the screen.
* Figures come from the server. What it does not report is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from kvchat.figures.cause import Cause
from kvchat.figures.speed import SPEED_SAMPLE, SpeedFit, SpeedSample
from kvchat.values import Statement

NOISE = 8
"""Wasted tokens up to here come from the held-back token and a re-tokenised reply's edge: no cause to look for."""


SMALL_BLOCK = 64
"""A block of a cache up to this size is not worth a word."""


class TurnFigures(Struct, frozen=True):
    """The figures of one turn, as reported by the server and measured by the client."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    predicted_tokens: int | None = None
    new_tokens: int | None = None
    """What this turn added to the branch; None when it cannot be known."""
    ttft_ms: float | None = None
    """From the send to the first token, measured by the client."""
    prompt_ms: float | None = None
    """The server's time for the evaluated tokens."""
    predicted_ms: float | None = None
    """The server's time for the predicted tokens."""
    context_size: int | None = None
    """Tokens that fit in the server's window for one conversation."""
    predicted_cached: int | None = None
    """What the simulator of the server's cache said before the answer: compare with `cached_tokens`."""
    cause: str | None = None
    """Why more was evaluated than was new: a value of `Cause`. None where there is nothing to explain."""
    evidence: Statement | None = None
    """What was seen."""
    remedy: Statement | None = None
    """What helps against it."""
    estimated: bool | None = None
    """Whether `cached_tokens` is an estimate, for servers that do not report it."""
    block: int | None = None
    """Tokens of the blocks that the server's cache is made of, where it only keeps whole ones."""
    stopped: bool | None = None
    """Whether the answer was cut off, by the user or a fault; None: not, or not known."""
    begun_tokens: int | None = None
    """Tokens of the answer that stood in the prompt already: it went on with a cut one. None: it did not, or it is not
    known."""
    alternative: int | None = None
    """Its place among the answers to one request, from 0; None: there was but one. Their prompt was prefilled once, and
    the server keeps the state of the first alone."""
    ahead_tokens: int | None = None
    """Of the cached tokens, those that warm-ups prefilled for this question, before it was sent or while it waited.
    None: none."""
    predicted_roughly: bool | None = None
    """Whether `predicted_cached` is an estimate: it goes on from a call that came in other tokens than it is printed
    in."""

    @property
    def noise(self) -> int:
        """Up to this many wasted tokens are not worth a mention: with an estimate, a fifth of the prompt; with a cache
        of whole blocks, the last of them, if they are not large."""
        block = self.block if self.block is not None and self.block <= SMALL_BLOCK else 0
        return max(NOISE, block, (self.prompt_tokens or 0) // 5 if self.estimated else 0)

    @property
    def asked_tokens(self) -> int | None:
        """Tokens up to the end of the question."""
        return None if self.prompt_tokens is None else self.prompt_tokens - (self.begun_tokens or 0)

    @property
    def evaluated_tokens(self) -> int | None:
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_ratio(self) -> float | None:
        if not self.prompt_tokens or self.cached_tokens is None:
            return None
        return self.cached_tokens / self.prompt_tokens

    @property
    def first_read(self) -> bool:
        """Whether there was nothing to reuse: all of the prompt was new."""
        return self.prompt_tokens is not None and self.new_tokens == self.prompt_tokens

    @property
    def reuse(self) -> float | None:
        """C / (P - N), at most 1; None on a first read and when unknown."""
        if self.prompt_tokens is None or self.cached_tokens is None or self.new_tokens is None:
            return None
        old = self.prompt_tokens - self.new_tokens
        return min(1.0, self.cached_tokens / old) if old > 0 else None

    @property
    def wasted_tokens(self) -> int | None:
        evaluated = self.evaluated_tokens
        if evaluated is None or self.new_tokens is None:
            return None
        return max(0, evaluated - self.new_tokens)

    @property
    def notable_waste(self) -> int:
        """Wasted tokens worth a word; 0 where they are not known."""
        wasted = self.wasted_tokens or 0
        return wasted if wasted > self.noise else 0

    @property
    def prefill_speed(self) -> float | None:
        """Evaluated tokens per second."""
        evaluated = self.evaluated_tokens
        return evaluated / self.prompt_ms * 1000 if evaluated and self.prompt_ms else None

    @property
    def timed_tokens(self) -> int:
        """The evaluated tokens that `prompt_ms` is the time of; 0 where it tells no speed: not reported, an estimate
        that was made from a speed, or a further answer to a request, whose prefill the first one counts."""
        tells = self.prompt_ms and not self.estimated and not self.alternative
        return (self.evaluated_tokens or 0) if tells else 0

    @property
    def decode_speed(self) -> float | None:
        """Predicted tokens per second; None for a single token, which was there with the prompt."""
        if not self.predicted_tokens or self.predicted_tokens < 2 or not self.predicted_ms or self.predicted_ms < 1:
            return None
        return self.predicted_tokens / self.predicted_ms * 1000

    @property
    def context_used(self) -> int | None:
        """Tokens in the window after this turn."""
        if self.prompt_tokens is None:
            return None
        return self.prompt_tokens + (self.predicted_tokens or 0)


def new_tokens(prompt_tokens: int | None, shared: int | None) -> int | None:
    """N of a prompt that has `shared` tokens in common with an earlier one of its tree; None: not known."""
    return None if prompt_tokens is None or shared is None else max(0, prompt_tokens - shared)


def reads_back(sampled: int, settled: int, stopped: bool) -> bool:
    """Whether a reply of `sampled` tokens may be history in the very same ones: as such it has `settled` tokens.
    `stopped`: the model ended it by a token that is no part of its text. False: it certainly is other tokens."""
    return sampled == settled + stopped


def measured_speed(turns: Iterable[TurnFigures]) -> float | None:
    """Prefill tokens per second over `turns`: tokens and times are summed, not averaged, and small reads, which tell
    of overhead, count only where there are no larger ones. None without a sample."""
    read = [(turn.timed_tokens, turn.prompt_ms or 0.0) for turn in turns]
    least = max(SPEED_SAMPLE, max((tokens for tokens, _ in read), default=0) // 4)
    tokens = sum(tokens for tokens, _ in read if tokens >= least)
    ms = sum(ms for tokens, ms in read if tokens >= least)
    return tokens / ms * 1000 if ms else None


def samples_of(turns: Iterable[TurnFigures]) -> list[SpeedSample]:
    """The prefills of turns whose server reported tokens and times, in their order: from the cached tokens to the end
    of the prompt, in the seconds that this took. Turns that prefilled nothing, or tell no speed, are left out."""
    return [
        SpeedSample(turn.cached_tokens or 0, turn.prompt_tokens or 0, (turn.prompt_ms or 0.0) / 1000)
        for turn in turns
        if turn.timed_tokens
    ]


class Totals(Struct, frozen=True):
    """Sums over requests whose figures are known, and how many are not."""

    turns: int = 0
    """Requests: each is a turn, or a step of one that calls tools."""
    steps: int = 0
    """Of these, the ones that only called tools, so that their turn went on."""
    unknown: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    evaluated_tokens: int = 0
    new_tokens: int = 0
    wasted_tokens: int = 0
    """Of turns in which they are worth a word: as many as `misses` has causes for."""
    predicted_tokens: int = 0
    kept_tokens: int = 0
    """Of what was not new, the tokens that were cached."""
    seconds_saved: float | None = None
    """What prefilling the cached tokens would have taken; None without a measured speed."""

    @property
    def answers(self) -> int:
        """Turns, however many steps each took."""
        return self.turns - self.steps

    @property
    def are_unknown(self) -> bool:
        """Whether the servers reported too little of every turn: the sums, which are 0 then, say nothing."""
        return self.turns == self.unknown > 0

    @property
    def hit_ratio(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def reuse(self) -> float | None:
        old = self.prompt_tokens - self.new_tokens
        return min(1.0, self.kept_tokens / old) if old > 0 else None


def seconds_saved(turn: TurnFigures, speed: SpeedFit | float | None) -> float | None:
    """What prefilling the cached tokens of a turn would have taken; a stopped turn saves nothing. `speed`: fitted, of
    the server that answered, else tokens/s as `measured_speed` tells; None where neither is known."""
    if turn.stopped or not turn.cached_tokens:
        return 0.0
    if speed is None:
        return None
    return turn.cached_tokens / speed if isinstance(speed, float) else speed.seconds(0, turn.cached_tokens)


def totals(turns: Iterable[TurnFigures], speed: SpeedFit | float | None = None, steps: int = 0) -> Totals:
    """The sums over `turns`. `steps`: how many of them only went on after calls of tools. `speed`: of the server that
    answered, as for `seconds_saved`; None: as measured in the turns themselves."""
    turns = list(turns)
    known = [t for t in turns if t.evaluated_tokens is not None and t.new_tokens is not None]
    measured = speed or measured_speed(turns)
    saved = [seconds for t in known if measured and (seconds := seconds_saved(t, measured)) is not None]
    cached = sum(t.cached_tokens or 0 for t in known)
    return Totals(
        turns=len(turns),
        steps=steps,
        unknown=len(turns) - len(known),
        prompt_tokens=sum(t.prompt_tokens or 0 for t in known),
        cached_tokens=cached,
        evaluated_tokens=sum(t.evaluated_tokens or 0 for t in known),
        new_tokens=sum(t.new_tokens or 0 for t in known),
        wasted_tokens=sum(t.notable_waste for t in known),
        predicted_tokens=sum(t.predicted_tokens or 0 for t in turns),
        kept_tokens=sum(min(t.cached_tokens or 0, (t.prompt_tokens or 0) - (t.new_tokens or 0)) for t in known),
        seconds_saved=sum(saved) if measured else None,
    )


def sum_of(parts: Iterable[Totals]) -> Totals:
    """Totals of different servers together; the time saved is of those whose speed is known."""
    parts = list(parts)
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in (
            "turns",
            "steps",
            "unknown",
            "prompt_tokens",
            "cached_tokens",
            "evaluated_tokens",
            "new_tokens",
            "wasted_tokens",
            "predicted_tokens",
            "kept_tokens",
        )
    }
    saved = [part.seconds_saved for part in parts if part.seconds_saved is not None]
    return Totals(**counts, seconds_saved=sum(saved) if saved else None)


def misses(turns: Iterable[TurnFigures]) -> dict[str, tuple[int, int]]:
    """By cause: turns and wasted tokens. A miss that was never explained counts as unknown."""
    found: dict[str, tuple[int, int]] = {}
    for figures in turns:
        if wasted := figures.notable_waste:
            cause = figures.cause or Cause.UNKNOWN.value
            count, tokens = found.get(cause, (0, 0))
            found[cause] = count + 1, tokens + wasted
    return found


class WarmupTotals(Struct, frozen=True):
    """Tokens that warm-ups prefilled."""

    requests: int = 0
    tokens: int = 0
    seconds: float = 0.0


class SideTotals(Struct, frozen=True):
    """What side requests cost: those of the memory."""

    count: int = 0
    evaluated: int = 0
    """Tokens of prompts that were read, as far as the servers said."""
    predicted: int = 0
    seconds: float = 0.0


class PromptProgress(Struct, frozen=True):
    """How far the server has read the prompt. `total` and `processed` include the cached tokens (llama.cpp)."""

    total: int
    cached: int
    processed: int
    elapsed_ms: float = 0.0
    only_new: bool = False
    """Whether `total` and `processed` leave out the cached tokens, of which the server tells only at the end
    (mlx-lm); `cached` is then 0 and says nothing."""
    shared: int | None = None
    """As of `new_tokens`, where it was counted in ids."""
    cause: Cause | None = None
    """Why more than the new tokens are read, as far as it is known while they are."""
    estimated: bool = False
    """Whether `processed` is what it likely is by now."""

    @property
    def wasted(self) -> int:
        """Tokens to evaluate beyond the new ones, as far as they are worth a word."""
        new = new_tokens(self.total, None if self.only_new else self.shared)
        excess = 0 if new is None else self.total - self.cached - new
        return excess if excess > NOISE else 0

    @property
    def speed(self) -> float | None:
        """Tokens per second of this prefill so far."""
        done = self.processed - self.cached
        return done / self.elapsed_ms * 1000 if done > 0 and self.elapsed_ms > 0 else None

    def seconds_left(self, speed: float | None = None) -> float | None:
        """Seconds until the prompt is prefilled, at its own speed or else at `speed` tokens/s; None where that is not
        known, or should have passed."""
        speed = self.speed or speed
        if self.estimated and self.total - self.processed <= 1:
            return None
        return (self.total - self.processed) / speed if speed else None

    def after(self, seconds: float, speed: float | None) -> PromptProgress:
        """How far it likely is `seconds` after this report: llama.cpp reports once a batch of 2,048 tokens. At its own
        speed or else at `speed` tokens/s; itself where neither is known."""
        speed = self.speed or speed
        likely = min(self.total - 1, self.processed + int((speed or 0.0) * seconds))
        if likely <= self.processed:
            return self
        return replace(self, processed=likely, elapsed_ms=self.elapsed_ms + seconds * 1000, estimated=True)

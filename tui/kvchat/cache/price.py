"""The price of an act before it is done: the tokens the server must read again, and about how long that takes.

A price counts what the act costs on a server that still holds the branch; what is not known is None.
An alternative is named only where it reads fewer tokens, or keeps warm what the act would lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, auto
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kvchat.figures.accounting import TurnFigures
from kvchat.figures.cause import Cause
from kvchat.figures.speed import SpeedFit

Act = Literal[
    "edit",
    "regenerate",
    "continue",
    "alternatives",
    "delete",
    "fork",
    "system",
    "tools",
    "template",
    "model",
    "open",
    "attach",
]

WORTH_ASKING_TOKENS = 256
WORTH_ASKING_SECONDS = 1.0
CORRECTION = 48
"""Tokens of a message that corrects what was said, with the template's tokens around it."""


class PrefillSpan(Struct, frozen=True):
    """Positions in the prompt that are read: from, to."""

    start: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.start


class HeldOfBranch(Struct, frozen=True):
    """What a server holds of a branch before an act."""

    tokens: int
    missing: int | None
    """Tokens that the next turn would prefill a second time; None: all of them."""
    exact: bool


class CheaperWay(StrEnum):
    """What can be done instead of an act."""

    NEW_CONVERSATIONS = auto()
    """Set it for new conversations only."""
    NEXT_MESSAGE = auto()
    """Say it in the next message."""
    DISREGARD = auto()
    """Append a correction, which takes back what is to be deleted."""
    CORRECTION = auto()
    """Append a correction."""
    FORK = auto()


class Alternative(Struct, frozen=True):
    """A cheaper way to the same end."""

    way: CheaperWay
    tokens: int
    seconds: tuple[float, float] | None = None


class Price(Struct, frozen=True):
    """What an act costs. None: not known."""

    tokens: int | None
    seconds: tuple[float, float] | None = None
    """From, to: a range until three turns have measured the server's speed."""
    alternative: Alternative | None = None
    exact: bool = True
    """Whether `tokens` is counted; else it is estimated."""
    losing: tuple[tuple[str, int], ...] = ()
    """The titles of other conversations whose states the server loses by it, with the tokens that it then has to
    prefill of each."""
    cause: Cause | None = None
    """Why the server holds nothing any more of what it had, where that is known."""

    @property
    def worth_asking(self) -> bool:
        """Whether it is large enough to ask the user first."""
        if any(tokens >= WORTH_ASKING_TOKENS for _, tokens in self.losing):
            return True
        if self.tokens is None:
            return False
        longest = self.seconds[1] if self.seconds is not None else 0.0
        return self.tokens >= WORTH_ASKING_TOKENS or longest >= WORTH_ASKING_SECONDS


def price(
    tokens: int | None, speed: SpeedFit | float | None, samples: int = 0, *, start: int = 0, exact: bool = True
) -> Price:
    """The price of reading `tokens` from position `start` on. `speed` may be flat: tokens/s measured on `samples`.
    `exact`: as of `Price`."""
    if tokens is None or not speed:
        return Price(tokens, exact=exact)
    fitted = speed if isinstance(speed, SpeedFit) else SpeedFit(1 / speed, samples=samples)
    return Price(tokens, fitted.range(start, start + tokens), exact=exact)


def price_of_act(
    act: Act,
    turns: Sequence[TurnFigures | None],
    turn: int,
    speed: SpeedFit | None,
    *,
    held: HeldOfBranch | None = None,
    start: int | None = None,
    grows: int = 0,
    is_counted: bool = True,
    spare: bool = False,
) -> Price:
    """The price of `act` on the `turn`-th turn, by the figures of the branch's answers, as of `prefill_span`. `held`:
    None: all that the figures count is held. `start`: where the first changed token is, if not where the figures tell.
    `grows`: tokens by which the act makes the prompt longer. `is_counted`: whether it adds no text that only the
    server can count. `spare`: as of `alternatives`."""
    span = prefill_span(act, turns, turn)
    if span is None:
        return Price(None)
    begins, exact = span.start if start is None else start, act != "edit" and is_counted
    if held is not None and act != "model":  # what the server does not hold before the act is prefilled too
        missing = span.end if held.missing is None else held.missing
        begins = max(0, span.end - missing) if act == "open" else min(begins, held.tokens)
        exact = exact and held.exact
    cheaper = alternatives(act, turns, turn, speed, spare=spare)
    found = price(max(0, span.end + grows) - begins, speed, start=begins, exact=exact)
    return replace(found, alternative=cheaper[0] if cheaper else None)


def prefill_span(act: Act, turns: Sequence[TurnFigures | None], turn: int) -> PrefillSpan | None:
    """What `act` on the `turn`-th turn (0 is the first) makes the server read, as positions. None: not known.

    `turns` are the figures of the branch's answers in order. What is prefilled again is what follows the first
    changed token; the answer that follows is not counted. Edit: the question, on the first turn with the system
    prompt. Regenerate, continue: nothing but the last token. Fork: nothing. Delete: the later turns, which move up.
    System prompt and template: everything. Alternatives: which of them a server still holds, figures do not tell.
    """
    last = _end(turns, len(turns) - 1)
    match act:
        case "fork":
            return PrefillSpan(last or 0, last or 0)
        case "regenerate":
            figures = turns[turn] if 0 <= turn < len(turns) else None
            prompt = max(1, figures.asked_tokens or 1) if figures else 1
            return PrefillSpan(prompt - 1, prompt)
        case "continue":
            end = max(1, _end(turns, turn) or 1)
            return PrefillSpan(end - 1, end)
        case "edit":
            return _question(turns, turn)
        case "delete":
            here, asked = _end(turns, turn) if turn < len(turns) else 0, _question(turns, turn)
            if last is None or here is None:
                return None
            start = asked.start if asked else 0
            return PrefillSpan(start, start + max(0, last - here))
        case "open":
            return None if last is None else PrefillSpan(last, last)
        case "attach" | "alternatives":
            return None
        case "system" | "tools" | "template" | "model":
            return None if last is None else PrefillSpan(0, last)


def alternatives(
    act: Act,
    turns: Sequence[TurnFigures | None],
    turn: int,
    speed: SpeedFit | None = None,
    *,
    spare: bool = False,
) -> tuple[Alternative, ...]:
    """Ways that read fewer tokens than `act`, or lose less, the cheapest first.
    `spare`: the server can hold the branch that is left and the new one too (another slot, parked states, a shared
    prefix cache)."""
    span, last = prefill_span(act, turns, turn), _end(turns, len(turns) - 1)
    if span is None or last is None:
        return ()
    ways = [
        Alternative(way, reads.tokens, _seconds(reads, speed))
        for way, reads in _ways(act, span, last, spare)
        if reads.tokens < span.tokens or (act == "edit" and reads.tokens == span.tokens)
    ]
    return tuple(sorted(ways, key=lambda way: way.tokens))


def _ways(act: Act, span: PrefillSpan, last: int, spare: bool) -> list[tuple[CheaperWay, PrefillSpan]]:
    """The alternatives that make sense at all, with what they read."""
    appended = PrefillSpan(last, last + CORRECTION)
    if act == "template":
        return [(CheaperWay.NEW_CONVERSATIONS, PrefillSpan(last, last))]
    if act == "system":
        return [(CheaperWay.NEXT_MESSAGE, appended)]
    if act == "delete":
        return [(CheaperWay.DISREGARD, appended)]
    if act == "edit":
        ways = [(CheaperWay.CORRECTION, appended)]
        if spare and last - span.end >= WORTH_ASKING_TOKENS:
            ways.append((CheaperWay.FORK, span))
        return ways
    return []


def _seconds(span: PrefillSpan, speed: SpeedFit | None) -> tuple[float, float] | None:
    return speed.range(span.start, span.end) if speed else None


def _end(turns: Sequence[TurnFigures | None], turn: int) -> int | None:
    """Tokens of the branch up to the end of a turn's answer; 0 before the first."""
    if turn < 0:
        return 0
    figures = turns[turn] if turn < len(turns) else None
    return figures.context_used if figures else None


def _question(turns: Sequence[TurnFigures | None], turn: int) -> PrefillSpan | None:
    """Where a turn's question is in its prompt."""
    figures = turns[turn] if 0 <= turn < len(turns) else None
    if figures is None or figures.new_tokens is None:
        return None
    if figures.begun_tokens is not None and figures.asked_tokens is not None:  # the question was new to the cut answer
        start = _end(turns, turn - 1)
        return None if start is None else PrefillSpan(min(start, figures.asked_tokens), figures.asked_tokens)
    prompt = figures.prompt_tokens if figures.prompt_tokens is not None else figures.new_tokens
    return PrefillSpan(prompt - figures.new_tokens, prompt)

"""The price of an act before it is done: the tokens the server must read again, and about how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvchat.cache.accounting import TurnFigures

Act = Literal["edit", "regenerate", "delete", "fork", "system", "template"]

WORTH_ASKING_TOKENS = 256
WORTH_ASKING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Price:
    """What an act costs. None: not known."""

    tokens: int | None
    seconds: tuple[float, float] | None = None
    """From, to: a range until three turns have measured the server's speed."""

    @property
    def worth_asking(self) -> bool:
        """Whether it is large enough to ask the person first."""
        if self.tokens is None:
            return False
        longest = self.seconds[1] if self.seconds is not None else 0.0
        return self.tokens >= WORTH_ASKING_TOKENS or longest >= WORTH_ASKING_SECONDS


def price(tokens: int | None, speed: float | None, samples: int) -> Price:
    """The price of reading `tokens` at `speed` tokens/s measured on `samples` turns."""
    if tokens is None or not speed:
        return Price(tokens)
    seconds = tokens / speed
    return Price(tokens, (seconds, seconds) if samples >= 3 else (seconds * 0.7, seconds * 1.5))


def reread_tokens(act: Act, turns: Sequence[TurnFigures | None], turn: int) -> int | None:
    """Tokens of the branch that `act` on its `turn`-th turn (0 is the first) makes the server read again.

    `turns` are the figures of the branch's answers in order. Edit: the question. Regenerate: nothing but the last
    token. Fork: nothing. Delete: the later turns. System prompt and template: everything.
    """
    ends = [figures.context_used if figures else None for figures in turns]
    last = ends[-1] if ends else 0
    match act:
        case "fork":
            return 0
        case "regenerate":
            return 1
        case "edit":
            figures = turns[turn] if turn < len(turns) else None
            return figures.new_tokens if figures else None
        case "delete":
            here = ends[turn] if turn < len(ends) else 0
            return None if last is None or here is None else max(0, last - here)
        case "system" | "template":
            return last

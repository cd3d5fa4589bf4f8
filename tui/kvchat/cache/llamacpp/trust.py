"""Whether a server follows the rules that predictions are played by: known of a build that the tests have seen, else
shown by the server.

A build is shown to follow them by `ENOUGH` exact predictions in a row over `Trust.KINDS` kinds of act, and as many more
for each wrong one that came before: a rule that differs shows now and then. It may show in one kind of act alone, and
that may be rare: a kind that was wrong must be among the exact ones `AGAIN` times. Two wrong ones of late take it back,
from a tested build as well.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Struct

from kvchat.cache.llamacpp.cache_config import is_tested
from kvchat.cache.llamacpp.hypotheses import MEMORY
from kvchat.figures.accounting import NOISE

ENOUGH = 20
AGAIN = 3
"""Exact predictions of a kind of act that was wrong before."""
DOUBTFUL = 1.5
"""Two wrong predictions of late, as each counts less with every further one."""


class Trust(Struct, frozen=True, forbid_unknown_fields=True):
    """What a server, build and model have shown so far."""

    KINDS: ClassVar[int] = 3
    """Kinds of act over which they show it."""

    exact: dict[str, int] = {}
    """Exact predictions since the last wrong one, by kind of act."""
    wrong: int = 0
    """Wrong ones, as long as it is not shown."""
    failed: frozenset[str] = frozenset()
    """The kinds of act that were."""
    is_shown: bool = False
    doubt: float = 0.0
    """How often predictions were wrong of late."""

    def to_json(self) -> str:
        """What the next run is to know of it: not the doubts of late."""
        return msgspec.json.encode(Trust(self.exact, self.wrong, self.failed, self.is_shown)).decode()

    @classmethod
    def from_json(cls, text: str) -> Trust:
        """The trust in `text`; none where it is not one, or an older kvchat's."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return cls()

    def is_sure(self, build: str) -> bool:
        """Whether a prediction for a server of this build is shown as sure."""
        return self.doubt < DOUBTFUL and (self.is_shown or is_tested(build))

    @property
    def enough(self) -> int:
        """Exact predictions in a row that show it."""
        return ENOUGH * (1 + self.wrong)

    def shown_by(self, build: str) -> tuple[int, int, int] | None:
        """Exact predictions that a build has shown in a row, of how many, and over how many kinds of act; None where it
        need show none."""
        if self.is_shown or is_tested(build):
            return None
        return min(sum(self.exact.values()), self.enough), self.enough, len(self.exact)

    def judged(self, kind: str, predicted: int, cached: int, *, excused: bool) -> Trust:
        """The trust after a request of this kind of act. `predicted`, `cached`: tokens. `excused`: no prediction could
        have known what happened in between."""
        if abs(predicted - cached) > NOISE and not excused:
            doubt = self.doubt * MEMORY + 1
            is_shown = self.is_shown and doubt < DOUBTFUL
            if is_shown:
                return Trust(is_shown=True, doubt=doubt)
            return Trust(wrong=self.wrong + 1, failed=self.failed | {kind}, doubt=doubt)
        exact = self.exact
        if predicted == cached and cached and not self.is_shown:  # that nothing is there shows no rule
            exact = {**exact, kind: exact.get(kind, 0) + 1}
        again = all(exact.get(failed, 0) >= AGAIN for failed in self.failed)
        if self.is_shown or (sum(exact.values()) >= self.enough and len(exact) >= self.KINDS and again):
            return Trust(is_shown=True, doubt=self.doubt * MEMORY)
        return Trust(exact, self.wrong, self.failed, doubt=self.doubt * MEMORY)

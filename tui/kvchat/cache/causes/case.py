"""One turn under examination: its evidence with the figures that are needed again and again, and a suspicion.

A finding's tokens are the turn's wasted tokens.
"""

from __future__ import annotations

from msgspec import Struct

from kvchat.cache.causes.cause import Divergence, Finding
from kvchat.cache.causes.divergence import Parting
from kvchat.cache.causes.evidence import Evidence
from kvchat.cache.causes.remedies import ENGINE_FLAGS, Flags
from kvchat.figures.cause import Cause
from kvchat.values import Statement


class Suspicion(Struct, frozen=True):
    """A cause that the evidence points to."""

    finding: Finding
    convincing: bool = True
    """False: it is named only if nothing later in the order is convincing."""


class Case(Struct, frozen=True):
    """Evidence whose figures are all known."""

    e: Evidence
    prompt: int
    cached: int
    new: int
    wasted: int
    parted: Parting

    @property
    def old(self) -> int:
        """Tokens that were there before this turn."""
        return self.prompt - self.new

    @property
    def flags(self) -> Flags:
        """What the server can be set to."""
        return ENGINE_FLAGS if self.e.now.server.embedded else self.e.flags

    def is_most(self, tokens: int) -> bool:
        """Whether `tokens` are at least half of what was prefilled again."""
        return tokens * 2 >= self.wasted

    def explains(self, common: int | None) -> bool:
        """Whether prompts that part at token `common` explain at least half of what was read again."""
        return common is None or max(0, common - self.cached) * 2 <= self.wasted

    def finding(
        self, cause: Cause, evidence: Statement, remedy: Statement | None = None, where: Divergence | None = None
    ) -> Finding:
        return Finding(cause, self.wasted, evidence, remedy, where)

    def suspect(
        self,
        cause: Cause,
        evidence: Statement,
        remedy: Statement | None = None,
        where: Divergence | None = None,
        *,
        convincing: bool = True,
    ) -> Suspicion:
        return Suspicion(self.finding(cause, evidence, remedy, where), convincing)

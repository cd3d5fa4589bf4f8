"""What the simulator of the server's cache says: of a request before it is sent, and of slots that surprise it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from kvchat.cache.llamacpp.slot_state import Held


class StatePlace(Struct, frozen=True):
    """Where a state is held: `index` into `Simulator.slots` or `Simulator.parked`."""

    kind: Literal["slot", "parked"]
    index: int


class Prediction(Struct, frozen=True):
    """What the server will do with a prompt."""

    cached: int
    """Tokens it reuses: what it reports as cached tokens. Where ids of what is held are not known, it may be more."""
    slot: int
    source: Literal["slot", "parked", "nothing"]
    """Where the cached tokens come from."""
    common: int
    """The longest common prefix with the state that is used, before checkpoints and the last token cut it."""
    best: int
    """The longest common prefix with any state held anywhere before the request."""
    best_where: StatePlace | None
    chosen_by: Literal["prefix", "least recent", "pinned"]
    replaces: Held | None
    """The state that is lost with this request, wholly or its end; None: nothing is, or it is parked."""
    least: int | None = None
    """Tokens it reuses at least, where another client's prompt may begin alike; None: `cached`."""
    most: int = 0
    """Tokens it may reuse where ids of what is held are not known; else `cached`, or 0."""
    overwritten: tuple[Held, ...] = ()
    """States of which the end is nowhere any more after this request, because it ran in their place."""
    pushed_out: tuple[Held, ...] = ()
    """States for which the host cache has no room any more after this request."""
    copies: tuple[int, ...] = ()
    """The slots in which the request's further answers are generated; empty afterwards."""

    def allows(self, cached: int, tolerance: int = 0) -> bool:
        """Whether a server that reports this many cached tokens does what was predicted."""
        least = self.cached if self.least is None else self.least
        known = least - tolerance <= cached <= self.cached + tolerance
        return (
            known or max(self.cached, self.best) < cached <= self.most + tolerance
        )  # more than all that is known to be held


class Mismatch(Struct, frozen=True):
    """A slot that does not hold as many tokens as the simulator thought: another client used it."""

    slot: int
    held: Held | None
    """What the simulator thought."""
    count: int
    """The tokens that the server reports."""

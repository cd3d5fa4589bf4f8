"""What the twin of the server's cache says: of a request before it is sent, and of slots that surprise it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvchat.cache.llamacpp.held import Held


@dataclass(frozen=True, slots=True)
class Place:
    """Where a state is held: `index` into `Twin.slots` or `Twin.parked`."""

    kind: Literal["slot", "parked"]
    index: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the server will do with a prompt."""

    cached: int
    """Tokens it reuses: what it reports as cached tokens."""
    slot: int
    source: Literal["slot", "parked", "nothing"]
    """Where the reused tokens come from."""
    common: int
    """The longest common prefix with the state that is used, before checkpoints and the last token cut it."""
    best: int
    """The longest common prefix with any state held anywhere before the request."""
    best_where: Place | None
    chosen_by: Literal["prefix", "least recent", "pinned"]
    replaces: Held | None
    """The state that is lost with this request, wholly or its end; None: nothing is, or it is parked."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A slot that does not hold as many tokens as the twin thought: another client used it."""

    slot: int
    held: Held | None
    """What the twin thought."""
    count: int
    """The tokens that the server reports."""

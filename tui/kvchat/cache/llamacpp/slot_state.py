"""What the server's cache holds in one place: a slot, or its memory of parked states."""

from __future__ import annotations

from msgspec import Struct, field

from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.checkpoints import Checkpoint, Memory
from kvchat.cache.tokens import Tokens

State = tuple[str, str, int]
"""Conversation, digest of the last message, tokens: what identifies a state."""


class Held(Struct, frozen=True):
    """What a slot or a parked entry holds."""

    tokens: Tokens
    owner: str = ""
    """The conversation's id; empty: not one of ours."""
    at: float = 0.0
    """When it was last used, in seconds since the epoch, as given by the caller."""
    memory: Memory = field(default_factory=Memory)
    """How far back it can go."""
    tip: str = ""
    """The digest, in hex, of the last message of the branch it is of, as far as that is settled; empty: not known."""

    @property
    def state(self) -> State:
        return self.owner, self.tip, len(self.tokens)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return self.memory.checkpoints

    def bytes(self, shape: Shape) -> float:
        """The room it takes when it is parked; 0 when that is not known."""
        if not shape.token_bytes:
            return 0.0
        length = len(self.tokens)
        checkpoints = sum(_share(c.tokens, shape) for c in self.checkpoints)
        return (
            length * shape.token_bytes
            + _share(length, shape) * shape.state_bytes
            + checkpoints * shape.checkpoint_bytes
        )


def _share(tokens: int, shape: Shape) -> float:
    """How much of a sliding window there is; 1 for models that always save the same."""
    return min(1.0, tokens / shape.window) if shape.window else 1.0

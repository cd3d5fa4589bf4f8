"""What kind of cache a server has: the constants that its rules depend on."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import astuple, replace

from kvchat.values import decode, encode


class Rewind(StrEnum):
    """How far back in a conversation the model's cache can go without a checkpoint."""

    ANYWHERE = "anywhere"
    """Dense attention."""
    WINDOW = "window"
    """Sliding-window attention: within the window."""
    NOWHERE = "nowhere"
    """Recurrent or hybrid: not at all."""


TESTED = frozenset({11549})
"""The builds whose rules the tests have seen."""
FIRST = 1000
"""A smaller number is no build: it counts the commits of a shallow clone."""


MOST_CONTEXT = 1 << 30
"""Tokens of a context whose size is not known."""


FILE_CHECKPOINTS = 11549
"""A build that writes checkpoints into the files of slots; 11063 does not."""


def is_tested(build: str) -> bool:
    """Whether a llama.cpp server of this build does what the tests have seen; so does one that tells no number."""
    number = _number(build)
    return number is None or number in TESTED


def writes_checkpoints(build: str) -> bool:
    """Whether the files that a llama.cpp server of this build makes of its slots have their checkpoints."""
    number = _number(build)
    return number is None or number >= FILE_CHECKPOINTS


def _number(build: str) -> int | None:
    """The number of a llama.cpp build; None where it tells none."""
    found = re.match(r"b?(\d{1,9})\b", build)
    return int(found[1]) if found is not None and int(found[1]) >= FIRST else None


class Shape(Struct, frozen=True):
    """A llama.cpp server's cache. The thresholds change between builds; those here are of b11549."""

    slots: int = 1
    unified: bool = False
    """One KV cache for all slots: idle slots are emptied when another one is used."""
    ram_bytes: int | None = 8192 << 20
    """Room for parked states in the host's memory (`--cache-ram`): 0 is none, None unlimited."""
    token_bytes: float = 0.0
    """Bytes of a parked state per token; 0: not known, nothing is pushed out for size."""
    state_bytes: int = 0
    """Bytes of a parked state that do not grow with its length: the sliding window, the recurrent state."""
    checkpoint_bytes: int = 0
    """Bytes of one checkpoint."""
    context: int = 0
    """Tokens of the whole KV cache, all slots together: the limit of all parked states when `ram_bytes` is None.
    0: not known."""
    parks_idle: bool = True
    """Idle slots are parked when another one is used (`--cache-idle-slots`)."""
    similarity: float = 0.1
    """A slot is chosen by its common prefix when that is more than this share of the prompt
    (`--slot-prompt-similarity`); 0: never by that."""
    keep: float = 0.5
    """A slot of which less than this share would survive is parked first, and parked states are looked up."""
    overlap: float = 0.25
    """A parked state is taken when at least this share of it is of use."""
    rewind: Rewind = Rewind.ANYWHERE
    window: int = 0
    """Tokens of the sliding window."""
    whole_window: bool = False
    """Slots hold all positions of a sliding window's layers (`--swa-full`): they go back to anywhere and save no
    checkpoints, but a parked state is the window alone."""
    checkpoints: int = 32
    """Checkpoints kept per slot, for models that cannot rewind (`--ctx-checkpoints`)."""
    checkpoint_step: int = 8192
    """Tokens between the checkpoints of earlier messages (`--checkpoint-min-step`)."""
    file_checkpoints: bool = True
    """A state that comes back from a file has its checkpoints."""
    batch: int = 2048
    """Tokens of one prefill batch (`n_batch`)."""
    micro_batch: int = 512
    """Tokens of one computation (`n_ubatch`)."""

    def to_json(self) -> str:
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Shape | None:
        """The shape in `text`; None if it is not one."""
        try:
            shape = decode(text, cls)
        except (ValueError, RecursionError):
            return None
        numbers = [value for value in astuple(shape) if isinstance(value, (int, float))]
        is_sound = all(0 <= number < 1 << 62 for number in numbers)
        return shape if shape.slots and shape.batch and shape.micro_batch and is_sound else None

    def with_options(self, other: Shape) -> Shape:
        """This with the options of a server with which `other` was learnt, as far as they are not the model's."""
        found = replace(self, similarity=other.similarity, batch=other.batch, micro_batch=other.micro_batch)
        if self.kind != other.kind:
            return found
        return replace(found, whole_window=other.whole_window, checkpoints=other.checkpoints)

    @property
    def kind(self) -> str:
        """What decides how far back the cache can go."""
        return f"{self.rewind} {self.window}"

    @property
    def gives_own_slots(self) -> bool:
        """Whether conversations that begin alike are to have slots of their own: what they take from each other comes
        back from no host cache, or cannot be cut back to what they share."""
        cannot_cut = self.rewind is Rewind.NOWHERE and not self.unified
        return self.slots > 1 and (self.ram_bytes == 0 or cannot_cut)

    @property
    def window_room(self) -> int:
        """Tokens that the sliding-window layers hold per sequence; the oldest are overwritten beyond that."""
        if self.whole_window:
            return self.context or MOST_CONTEXT
        wanted = self.window * (self.slots if self.unified else 1) + self.micro_batch
        return -(-wanted // 256) * 256

"""What a llama.cpp server says of itself, and of its slots."""

from __future__ import annotations

from msgspec import Struct


class SlotCount(Struct, frozen=True):
    """What a server says of a slot. Nothing is known of what the tokens are."""

    tokens: int
    """Tokens in its cache; 0 when it was never used or was emptied."""
    task: int | None = None
    """The number of its last task; None when it never had one. It only grows while the server lives."""
    busy: bool = False


class ServerState(Struct, frozen=True):
    """Which server process and model answer at an address now. Asking does not wake a sleeping model. Empty: it does
    not say."""

    model: str = ""
    build: str = ""
    process: str = ""
    """Something random that stays the same while the server's process lives."""
    asleep: bool = False
    """Whether the model was unloaded, for want of use or, by a router, of room; what was cached is gone."""
    file: str = ""
    """The path of its model file, where the server runs."""

    def has_other_file(self, before: ServerState) -> bool:
        """Whether another model is there than `before`, as far as both tell."""
        return bool(before.file and self.file) and before.file != self.file

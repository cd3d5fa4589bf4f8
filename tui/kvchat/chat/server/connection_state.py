"""The states of the connection to a server: a value for each, with what is known in it."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

Phase = Literal["none", "idle", "connecting", "starting", "ready", "lost", "failed"]
"""The names of the states, as lists and headers show them."""


class Connection(Struct, frozen=True):
    """A state of the way to a server.

        Idle ──► Connecting, Starting ──► Ready ──► Lost, EngineEnded
                     ▲          │           ▲              │
                     │          ▼           │              │   a server that is off is looked for until
                     └── Failed, NotFound ──┴──────────────┘   it is Ready, and a question connects at once

    Each becomes Idle when the server is left.
    """

    phase: ClassVar[Phase]
    sentence: str = ""

    @property
    def is_awaited(self) -> bool:
        """Whether the server is off, and is looked for until it is back."""
        return False

    @property
    def refuses(self) -> bool:
        """Whether nothing listens at its address any more: its process has ended."""
        return False


class Idle(Connection, frozen=True):
    """It is not in use now; the next question connects to it."""

    phase = "idle"


class Connecting(Connection, frozen=True):
    phase = "connecting"
    loading_s: float | None = None
    """How long a server that loads its model was waited for; None: it does not."""


class Starting(Connection, frozen=True):
    """The embedded engine loads its model."""

    phase = "starting"


class Ready(Connection, frozen=True):
    phase = "ready"


class Lost(Connection, frozen=True):
    """A request found no server at its address any more."""

    phase = "lost"
    refuses: bool = False

    @property
    def is_awaited(self) -> bool:
        return True


class EngineEnded(Connection, frozen=True):
    """The embedded engine ended by itself."""

    phase = "lost"
    log: str = ""
    """The end of its log."""


class NotFound(Connection, frozen=True):
    """No server is named, and none was found."""

    phase = "none"
    is_awaited: bool = False


class Failed(Connection, frozen=True):
    """The server, or the engine, could not be used."""

    phase = "failed"
    is_awaited: bool = False
    log: str = ""
    """The end of the embedded engine's log, where it did not start."""

"""The cache as the inspector and `kvchat cache` show it: values only, made by the conversation service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kvchat.cache import Finding, Plan
from kvchat.figures.accounting import SideTotals, Totals, TurnFigures, WarmupTotals
from kvchat.figures.speed import SpeedFit
from kvchat.figures.stats import Day
from kvchat.reports.kept import Keep
from kvchat.reports.warmth import Warmth

if TYPE_CHECKING:
    from kvchat.prompt.lint import PrefixWarning  # its patterns take a while to compile


class KeptState(Struct, frozen=True):
    """A kept state, with what is saved of it."""

    kept: Keep
    title: str
    """Of its conversation, raw."""
    trashed: bool = False
    tokens: int | None = None
    """None: nothing is saved yet."""
    size: int | None = None
    """Bytes on the disk."""
    fits: bool = True
    """Whether the server in use can take it; so where none is in use."""
    complete: bool = False
    """Whether all that is to stay is saved: not so while the last turns wait for the server to be idle."""


class KeptRoom(Struct, frozen=True):
    """All kept states, and the room that they may take."""

    states: tuple[KeptState, ...] = ()
    most: int = 0
    """Bytes."""

    @property
    def size(self) -> int:
        """Bytes that they take."""
        return sum(state.size or 0 for state in self.states)


class MessageCells(Struct, frozen=True):
    """One message of the branch: its tokens, and what the last request did with them. None: not known."""

    node: str
    role: str
    text: str
    """Its first words, raw."""
    tokens: int | None = None
    cached: int | None = None
    new: int | None = None
    wasted: int | None = None


class HeldState(Struct, frozen=True):
    """Something the server's cache holds, as the simulator knows it."""

    where: str
    """`slot 0`, `parked`."""
    owner: str
    """The title of the conversation, raw; empty: not one of ours."""
    tokens: int
    since: float | None = None
    """When it was last used, seconds since the epoch."""
    conversation: str = ""
    """The id of the conversation; empty: not one of ours."""


class TurnReport(Struct, frozen=True):
    """A request of the branch: a turn, or a step of one that calls tools. `figures` has the server's figures and the
    simulator's prediction."""

    question: str
    figures: TurnFigures | None
    finding: Finding | None = None
    goes_on: bool = False
    """Whether it goes on with the turn of the one before, with what a call gave."""


class Holdings(Struct, frozen=True):
    """What the server of a conversation holds now, and how the turns of its branch went."""

    slots: int | None = None
    """None: what they hold is not known."""
    window: int | None = None
    """Tokens that fit in a slot."""
    states: tuple[HeldState, ...] = ()
    turns: tuple[TurnReport, ...] = ()
    """Those that have figures."""
    speed: SpeedFit | None = None


class Ledger(Struct, frozen=True):
    """Sums over a conversation or a week."""

    totals: Totals = field(default_factory=Totals)
    misses: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By cause: how many turns, how many tokens."""
    warmup: WarmupTotals = field(default_factory=WarmupTotals)
    memory: SideTotals = field(default_factory=SideTotals)


class TrunkBeginning(Struct, frozen=True):
    """The files that a conversation begins with, which it shares with others."""

    trunk: str
    """The name of that trunk; empty where it was made again since, or removed."""
    files: tuple[str, ...]
    """Their names."""


class CacheReport(Struct, frozen=True):
    """All that is known of the cache, seen from one conversation."""

    conversation: str
    title: str
    warmth: Warmth
    beginning: TrunkBeginning | None = None
    """None: it begins with no trunk."""
    messages: tuple[MessageCells, ...] = ()
    turns: tuple[TurnReport, ...] = ()
    states: tuple[HeldState, ...] | None = None
    """What the server holds; None: not known."""
    exact: bool = False
    """Whether the simulator works on the server's own token ids, by rules that are the server's; otherwise lengths and
    predictions are estimates."""
    predictions: int = 0
    """Requests whose cached tokens were predicted on this server."""
    exact_predictions: int = 0
    shown: tuple[int, int, int] | None = None
    """As of `Trust.shown_by`."""
    plan: Plan | None = None
    """The plan of the last request."""
    speed: SpeedFit | None = None
    rules: str = ""
    """The server's cache rules as they are known, one sentence."""
    here: Ledger = field(default_factory=Ledger)
    week: Ledger = field(default_factory=Ledger)
    kept: KeptRoom = field(default_factory=KeptRoom)
    """The states that the user keeps, of all conversations."""
    days: tuple[Day, ...] = ()
    """The days of that week, oldest first; none without an answer in it."""
    warnings: tuple[PrefixWarning, ...] = ()
    """What the prefix linter says about the system prompt."""

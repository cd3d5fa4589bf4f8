"""What the sidebar shows, before it is drawn: rows, marks and their words, and the groups by age.

Pure functions of the rows and the time; a row's group depends on local midnights, not on hours passed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from kvchat.prompt.tags import FAVOURITE
from kvchat.reports.warmth import Heat, Warmth
from kvchat.text.cache import HEAT_GLYPHS, HEAT_WORDS, shown_heat, warmth_words
from kvchat.text.messages import queued_words

if TYPE_CHECKING:
    from kvchat.prompt.conversation import Conversation

Mark = Literal["warm", "parked", "cold", "unknown", "streaming"]

MARKS: dict[Heat, Mark] = {Heat.WARM: "warm", Heat.PARKED: "parked", Heat.COLD: "cold", Heat.UNKNOWN: "unknown"}
GLYPHS: dict[Mark, str] = {
    **{mark: HEAT_GLYPHS[heat] for heat, mark in MARKS.items()},
    "streaming": "⠋",
}
NONE_HELD: Mapping[str, int] = {}
WORDS: dict[Mark, str] = {
    **{mark: HEAT_WORDS[heat] for heat, mark in MARKS.items()},
    "streaming": "answering now",
}
"""What each mark means, for tooltips and the help."""

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧"


class SidebarRow(Struct, frozen=True):
    """One conversation in the list."""

    id: str
    title: str
    updated: float
    """Seconds since the epoch."""
    streaming: bool = False
    unread: bool = False
    favourite: bool = False
    held: int = 0
    """Messages in its queue that wait for the user."""
    kept: bool = False


def rows_of(
    conversations: Iterable[Conversation],
    streaming: frozenset[str],
    held: Mapping[str, int] = NONE_HELD,
    kept: Collection[str] = (),
) -> list[SidebarRow]:
    """The rows of the sidebar, in the given order. `streaming`: the ids of conversations that are being answered;
    `held`: of those whose queue waits for the user, with the number of its messages; `kept`: of those whose state the
    user keeps."""
    return [
        SidebarRow(
            c.id, c.title, c.updated, c.id in streaming, c.unread, FAVOURITE in c.tags, held.get(c.id, 0), c.id in kept
        )
        for c in conversations
    ]


def mark_of(warmth: Warmth, streaming: bool = False) -> Mark:
    """The mark of a conversation; that of a running answer comes before how warm it is."""
    return "streaming" if streaming else MARKS[shown_heat(warmth)]


def described(row: SidebarRow, warmth: Warmth, now: float) -> str:
    """The row's tooltip at `now` (seconds since the epoch): its mark with figures, and whatever else is known."""
    known = not row.streaming and warmth.heat is not Heat.UNKNOWN
    words = warmth_words(warmth, now) if known else WORDS[mark_of(warmth, row.streaming)]
    more = (
        f"{queued_words(row.held)}, waiting for you" if row.held else "",
        "kept" if row.kept else "",
        "there is an unread answer" if row.unread else "",
    )
    return "; ".join(filter(None, (words, *more)))


FAVOURITES = "★ Favourites"
"""The group above those by age."""

Line = str | int
"""A line of the list: the name of a group, or the index of a row."""


def grouping(now: float) -> Callable[[float], str]:
    """A function from a time to the name of its group, as seen at `now` (both seconds since the epoch, local days)."""
    today = datetime.fromtimestamp(now).date()

    def starts(day: date) -> float:
        return datetime(day.year, day.month, day.day).timestamp()

    bounds = [
        (starts(today), "Today"),
        (starts(today - timedelta(days=1)), "Yesterday"),
        (starts(today - timedelta(days=7)), "Last week"),
    ]
    month = today.replace(day=1)
    for _ in range(12):
        bounds.append((starts(month), f"{month:%B}"))
        month = (month - timedelta(days=1)).replace(day=1)

    def group(updated: float) -> str:
        return next((name for start, name in bounds if updated >= start), "Older")

    return group


def until_midnight(now: float) -> float:
    """Seconds from `now` to the next local midnight, when the groups change."""
    tomorrow = datetime.fromtimestamp(now).date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day).timestamp() - now


def lines_of(rows: Sequence[SidebarRow], now: float) -> list[Line]:
    """The lines of the list: the rows in their order, favourites first, with a group's name where the group changes.
    `now`: seconds since the epoch."""
    group_of, tomorrow = grouping(now), now + until_midnight(now)
    lines: list[Line] = []
    known, groups = 0.0, list[str]()
    for row in reversed(rows):  # where the clock was wrong, a row is no older than those behind it
        known = max(known, row.updated if row.updated < tomorrow else 0.0)
        groups.append(FAVOURITES if row.favourite else group_of(known or now))
    current = ""
    for index, group in enumerate(reversed(groups)):
        if group != current:
            current = group
            lines.append(group)
        lines.append(index)
    return lines

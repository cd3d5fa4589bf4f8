"""Undo changes of the memory. Pure.

Undo works field by field, and only where the entry still has the value that the change gave it, so that later changes,
above all the user's, are never lost. Changes of one act are undone together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.memory.entry import Act, Change, Entry, MemoryTrouble, Status

BY_ITSELF = frozenset((Act.NOTED, Act.PROPOSED, Act.MERGED, Act.CORRECTED, Act.SUMMARISED))
"""What kvchat does without being asked."""
TOUCHED = frozenset((Act.ADDED, Act.ACCEPTED, Act.EDITED, Act.MOVED))
"""What makes an entry the user's own choice."""
IN_PLACE = frozenset((Act.CORRECTED, Act.SUMMARISED, Act.EDITED, Act.MOVED))
"""By these an entry gives way to a new one of the same moment: a line retyped or moved by hand, too."""
FIELDS = ("kind", "text", "page", "status", "confidence", "conversation", "nodes", "by", "superseded_by", "edited")
ALL = 1 << 30


class Undoing(Struct):
    """Changes that take others back, one after the other, on entries as they then are."""

    entries: dict[str, Entry]
    """As they stand; changed as the plan grows."""
    at: float
    session: str
    can_hold: Callable[[str], bool] = lambda page: True
    """Whether there is, or can be, a page of that name."""
    changes: list[Change] = field(default_factory=list)
    undoes: list[int] = field(default_factory=list)

    def take_back(self, change: Change, why: str = "") -> Change | None:
        """Take one change back, and bring back what the entry had taken the place of; None: it has no effect any more.
        Raises MemoryTrouble when something newer is in its way."""
        now = self.entries[change.after.id]
        after = _before(change, now)
        if after is None:
            return None
        if after.status is Status.LIVE and now.status is not Status.LIVE:
            self._no_double(after)
        done = self._note(now, after, why or f"back before change {change.seq}")
        self.undoes.append(change.seq)
        if change.before is None or change.before.status is Status.PENDING:
            for old in [entry for entry in self.entries.values() if entry.superseded_by == now.id]:
                if old.status is Status.SUPERSEDED:
                    self._note(old, replace(old, status=Status.LIVE, superseded_by=""), together_with(now.id))
        return done

    def undo(self, change: Change, main: Change, companions: Sequence[Change]) -> Change | None:
        """Take one change back as a part of `main`, with what `main` brought back. The change of the entry in question;
        None: it has no effect any more."""
        first, undone = len(self.changes), len(self.undoes)
        try:
            for one in companions:
                self.take_back(one, together_with(main.after.id))
            if self.take_back(main) is None and main is not change:
                if self.take_back(change) is None and main.seq in self.undoes:
                    self.undoes.append(change.seq)
            elif main is not change:
                self.undoes.append(change.seq)
        except MemoryTrouble:
            self._forget(first, undone)
            raise
        return next((done for done in self.changes[first:] if done.after.id == change.after.id), None)

    def _note(self, before: Entry, after: Entry, why: str) -> Change:
        if after.status is Status.LIVE and not self.can_hold(after.page):
            raise MemoryTrouble(
                f"{after.page}, where {after.id} stood, is not there any more, and no page of that "
                "name can be made on every system. Add the memory to another page."
            )
        change = Change(Act.RESTORED, before, after, self.at, self.session, why)
        self.entries[after.id] = after
        self.changes.append(change)
        return change

    def _forget(self, changes: int, undoes: int) -> None:
        """Keep only the first `changes` changes and `undoes` undos of the plan."""
        for change in reversed(self.changes[changes:]):
            if change.before is not None:
                self.entries[change.after.id] = change.before
        del self.changes[changes:], self.undoes[undoes:]

    def _no_double(self, entry: Entry) -> None:
        for other in self.entries.values():
            if other.status is Status.LIVE and other.id != entry.id and other.text == entry.text:
                raise MemoryTrouble(f"This is remembered already, as {other.id}.")


def _before(change: Change, now: Entry) -> Entry | None:
    """The entry without the change; None when the change has no effect on it any more."""
    if change.before is None:
        return None if now.status is Status.DELETED else replace(now, status=Status.DELETED)
    back: dict[str, Any] = {}
    for name in FIELDS:
        old, new, value = (getattr(entry, name) for entry in (change.before, change.after, now))
        if old == new or value == old:
            continue
        if value != new:
            raise MemoryTrouble(
                f"Memory {now.id} has been changed again since change {change.seq}. Undo the newer "
                "change first, or edit the memory."
            )
        back[name] = old
    return replace(now, **back) if back else None


def main_of(change: Change, history: Iterable[Change]) -> Change:
    """The change that this one is a part of: of what gave way to a new entry the one that made that live, as the two
    are not to be live together; of an undo the one that brought this back with it. `history`: the changes of the same
    moment at least."""
    for other in history:
        if other.at != change.at or other.after.id == change.after.id:
            continue
        if change.act in IN_PLACE and other.after.id == change.after.superseded_by and _made_live(other):
            return other
        if change.act is other.act is Act.RESTORED and change.why == together_with(other.after.id):
            return other
    return change


def companions_of(main: Change, history: Iterable[Change]) -> list[Change]:
    """What goes back with the entry: what an undo brought back together with it, and a proposal that the user approved
    by writing it."""
    return [
        other
        for other in history
        if other.at == main.at
        and (
            (main.act is other.act is Act.RESTORED and other.why == together_with(main.after.id))
            or (main.before is None and other.act is Act.ACCEPTED and other.after.superseded_by == main.after.id)
        )
    ]


def _made_live(change: Change) -> bool:
    """Whether the entry was not live before."""
    return change.after.status is Status.LIVE and (change.before is None or change.before.status is not Status.LIVE)


def by_itself(history: Sequence[Change], since: Mapping[str, Sequence[Change]]) -> tuple[list[Change], list[Change]]:
    """Of `history`, newest first: what kvchat did by itself and can take back; and what it leaves, because the user has
    chosen or changed the entry since. `since`: all changes by entry, newest first."""
    taken: list[Change] = []
    left: list[Change] = []
    for change in history:
        if change.act in BY_ITSELF:
            (left if _touched_since(change, since) else taken).append(change)
    return taken, left


def _touched_since(change: Change, since: Mapping[str, Sequence[Change]]) -> bool:
    """Whether the user has chosen or changed the entry, or the one that took its place."""
    later = [other for other in since.get(change.after.id, ()) if other.seq > change.seq]
    if change.after.superseded_by:
        later += [
            other
            for other in since.get(change.after.superseded_by, ())
            if other.seq > change.seq or other.at == change.at
        ]
    return any(other.act in TOUCHED and not other.undone for other in later)


def by_entry(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """The changes of each entry, in their order."""
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(change.after.id, []).append(change)
    return found


def by_moment(changes: Iterable[Change]) -> dict[float, list[Change]]:
    """The changes of each moment, in their order."""
    found: dict[float, list[Change]] = {}
    for change in changes:
        found.setdefault(change.at, []).append(change)
    return found


def left_alone(change: Change) -> str:
    """The sentence about a change that is not taken back."""
    what = f"it or {change.after.superseded_by}" if change.after.superseded_by else "it"
    return f"{change.after.id} was left: you have accepted, edited or moved {what} since it was {change.act.value}."


def together_with(id: str) -> str:
    return f"together with {id}"

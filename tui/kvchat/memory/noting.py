"""What an extraction found, as changes of the memory: deduplicated, placed, noted or proposed. Pure.

The rule: nothing is noted twice, nothing that the person deleted is noted again, and what the person wrote is changed
by no extraction: a correction of it is proposed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kvchat.memory.entry import BY_HAND, BY_YOU, PROFILE, Act, Change, Entry, Fact, Kind, Status, new_id
from kvchat.memory.ledger import Cell
from kvchat.memory.sameness import first_that_says, page_of, says_something

CORRECTS = "corrects "
"""`Change.why` of a proposal begins so, and an id follows, where accepting it takes that entry's place."""
DELETED = "you deleted it"
MOST_NODES = 24
"""Messages that one entry names as its sources."""

_ADDRESS = re.compile(r"\w://|\bwww\.", re.IGNORECASE)
_CORRECTED = re.compile(rf"\A{CORRECTS}([a-z][0-9a-z]{{4,32}})\b")


@dataclass(slots=True)
class Noted:
    """What one extraction changes."""

    changes: list[Change] = field(default_factory=list)
    new: list[Entry] = field(default_factory=list)
    """Entries that were not there, noted or proposed."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Text and reason."""


def noted(facts: Sequence[Fact], cell: Cell, known: Iterable[Entry]) -> Noted:
    """The changes for these facts. `known`: all entries of the state, those that are gone too."""
    work = _Noting(cell, known)
    for fact in facts:
        work.take(fact)
    return work.result


def is_the_persons(entry: Entry) -> bool:
    """Whether the words are the person's: written, asked for or edited by them."""
    return entry.edited or entry.by in (BY_YOU, BY_HAND)


def corrected_by(proposal: Change) -> str:
    """The id of the entry whose place a proposal takes when it is accepted; empty: none."""
    found = _CORRECTED.match(proposal.why)
    return found[1] if found else ""


def with_refused(cell: Cell, result: Noted) -> Cell:
    """The cell with what really came of it."""
    refused = [*json.loads(cell.refused or "[]"), *map(list, result.refused)]
    return replace(cell, noted=len(result.new), refused=json.dumps(refused, ensure_ascii=False))


class _Noting:
    def __init__(self, cell: Cell, known: Iterable[Entry]) -> None:
        self.result = Noted()
        self._cell = cell
        self._entries = {entry.id: entry for entry in known}

    def take(self, fact: Fact) -> None:
        text = " ".join(fact.text.split())
        if not says_something(text):
            self.result.refused.append((text, "there is no word in it"))
            return
        same = self._same(text)
        if same is not None:
            self._said_again(same, fact)
        elif self._is_deleted(text):
            self.result.refused.append((text, DELETED))
        else:
            self._note(replace(fact, text=text))

    def _same(self, text: str) -> Entry | None:
        """The entry that says it already, live or proposed."""
        there = (entry for entry in self._entries.values() if entry.status in (Status.LIVE, Status.PROPOSED))
        return first_that_says(text, there)

    def _is_deleted(self, text: str) -> bool:
        gone = (entry for entry in self._entries.values() if entry.status is Status.DELETED)
        return first_that_says(text, gone) is not None

    def _said_again(self, entry: Entry, fact: Fact) -> None:
        """Better borne out than before, or in more messages; a line of the person's own stays as it is."""
        if is_the_persons(entry):
            return
        nodes = entry.nodes
        if entry.conversation == self._cell.conversation:
            nodes = tuple(dict.fromkeys((*entry.nodes, *fact.nodes)))[-MOST_NODES:]
        confidence = max(entry.confidence or 0.0, fact.confidence)
        after = replace(entry, nodes=nodes, confidence=confidence)
        if after != entry:
            self._change(Act.PROPOSED if entry.status is Status.PROPOSED else Act.NOTED, entry, after, "said again")

    def _note(self, fact: Fact) -> None:
        page = page_of(fact.kind, fact.topic)
        if fact.kind is Kind.IDENTITY:
            page = PROFILE
        old = self._entries.get(fact.replaces) if fact.replaces else None
        if old is not None and old.status not in (Status.LIVE, Status.PROPOSED):
            old = None
        review = fact.review or ("it is about who you are" if page == PROFILE else
                                 "it has an address in it" if _ADDRESS.search(fact.text) else "")
        if old is not None:
            page = old.page if old.kind is fact.kind or old.page == PROFILE else page
            if not review and (is_the_persons(old) or old.page == PROFILE):
                review = "what it corrects is your own line"
        entry = Entry(new_id(), fact.kind, fact.text, page, self._cell.created,
                      Status.PROPOSED if review else Status.LIVE, fact.confidence, self._cell.conversation,
                      fact.nodes[-MOST_NODES:], self._cell.model)
        why = f"{CORRECTS}{old.id}: {review}" if old is not None and review else review
        self._change(Act.PROPOSED if review else Act.NOTED, None, entry, why)
        self.result.new.append(entry)
        if old is not None and (not review or old.status is Status.PROPOSED):
            self._change(Act.CORRECTED, old, replace(old, status=Status.SUPERSEDED, superseded_by=entry.id), "")

    def _change(self, act: Act, before: Entry | None, after: Entry, why: str) -> None:
        self._entries[after.id] = after
        self.result.changes.append(Change(act, before, after, self._cell.created, self._cell.session, why))

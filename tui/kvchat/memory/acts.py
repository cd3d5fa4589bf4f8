"""Build the changes of an act on the memory: the user's, an extraction's, a consolidation's. Pure.

A change starts from the entry as it is now and keeps what was before. Nothing is noted twice, and nothing that the user
deleted is noted again. An extraction never changes what the user wrote: it proposes a correction.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.memory.entry import (
    BY_YOU,
    PROFILE,
    Act,
    Change,
    ChangeReason,
    Entry,
    Fact,
    Kind,
    MemoryTrouble,
    Status,
    Why,
    new_id,
)
from kvchat.memory.ledger import ExtractionRun
from kvchat.memory.similarity import SKILLS, TOPICS, first_that_says, page_of, says_something
from kvchat.text.memory import refusal

# What the user asks for


LONGEST_MEMORY = 4000
"""Characters of one memory."""

_PAGE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")


class Moment(Struct, frozen=True):
    """When, and in which run."""

    at: float
    session: str

    def change(self, act: Act, before: Entry | None, after: Entry, why: str = "") -> Change:
        return Change(act, before, after, self.at, self.session, why)


def page_named(page: str, known: Mapping[str, Entry]) -> str:
    """The page that is meant: `profile`, `profile.md`, `projects`, `topics/projects.md`, or an existing one of any
    name. Raises MemoryTrouble."""
    if any(entry.page == page for entry in known.values()):
        return page
    name = page.strip().removeprefix("./").removesuffix(".md")
    if name == PROFILE.removesuffix(".md"):
        return PROFILE
    folder = SKILLS if name.startswith(SKILLS) else TOPICS
    name = name.removeprefix(folder)
    if not _PAGE.match(name):
        raise MemoryTrouble(
            f"{page} is no page of the memory. Pages are called profile, or by a topic of small "
            "letters, digits and hyphens: home-lab."
        )
    return f"{folder}{name}.md"


def added(
    known: Mapping[str, Entry],
    text: str,
    kind: Kind,
    page: str,
    conversation: str,
    nodes: tuple[str, ...],
    moment: Moment,
) -> list[Change]:
    """The changes that make `text` remembered; of an entry that says it already, if there is one."""
    text = _checked(text)
    page = page_named(page, known) if page else ""
    for status in (Status.LIVE, Status.PENDING):
        same = first_that_says(text, (entry for entry in known.values() if entry.status is status))
        if same is not None:
            after = replace(same, status=Status.LIVE, page=page or same.page)
            return [moment.change(Act.ACCEPTED if status is Status.PENDING else Act.MOVED, same, after)]
    entry = Entry(new_id(), kind, text, page or page_of(kind), moment.at, conversation=conversation, nodes=nodes)
    return [moment.change(Act.ADDED, None, entry)]


def edited(known: Mapping[str, Entry], entry: Entry, text: str, moment: Moment) -> list[Change]:
    """Replace the text; it counts as the user's own words from now on. A text that another entry already has is
    refused."""
    _must_be_there(entry)
    text = _checked(text)
    if text == entry.text:
        return [moment.change(Act.EDITED, entry, entry)]
    others = (other for other in known.values() if other.status is Status.LIVE and other.id != entry.id)
    if (same := first_that_says(text, others)) is not None:
        raise MemoryTrouble(
            f"This is remembered already, as {same.id}. Delete {entry.id} if it is not needed beside it."
        )
    return [moment.change(Act.EDITED, entry, replace(entry, text=text, by=BY_YOU, confidence=None))]


def deleted(entry: Entry, moment: Moment) -> list[Change]:
    _must_be_there(entry)
    return [moment.change(Act.DELETED, entry, replace(entry, status=Status.DELETED))]


def accepted(known: Mapping[str, Entry], entry: Entry, corrects: Entry | None, moment: Moment) -> list[Change]:
    """`corrects`: the entry whose place it takes. One that is remembered already by another line gives way to that."""
    _must_be_there(entry)
    live = (other for other in known.values() if other.status is Status.LIVE and other.id != entry.id)
    if entry.status is Status.PENDING and (same := first_that_says(entry.text, live)) is not None:
        return [moment.change(Act.ACCEPTED, entry, replace(entry, status=Status.SUPERSEDED, superseded_by=same.id))]
    changes = [moment.change(Act.ACCEPTED, entry, replace(entry, status=Status.LIVE))]
    if corrects is not None and entry.status is Status.PENDING:
        changes.append(
            moment.change(Act.CORRECTED, corrects, replace(corrects, status=Status.SUPERSEDED, superseded_by=entry.id))
        )
    return changes


def moved(known: Mapping[str, Entry], entry: Entry, page: str, moment: Moment) -> list[Change]:
    _must_be_there(entry)
    return [moment.change(Act.MOVED, entry, replace(entry, page=page_named(page, known)))]


def holding(changes: Sequence[Change], known: Mapping[str, Entry]) -> list[Change]:
    """Those of a consolidation's changes that can be made: each entry is still as it was, is not the user's own
    wording, and what takes its place is there. A summary is made only if all that it sums up gives way to it."""
    whole = Counter(change.after.superseded_by for change in changes)
    good = [change for change in changes if _holds(change, known)]
    while True:
        count = Counter(change.after.superseded_by for change in good)
        new = {
            change.after.id
            for change in good
            if change.before is None and 0 < count[change.after.id] == whole[change.after.id]
        }
        there = new | {entry.id for entry in known.values() if entry.status is Status.LIVE} - {
            change.after.id for change in good if change.after.status is Status.SUPERSEDED
        }
        left = [
            change
            for change in good
            if (
                change.after.id in new
                if change.before is None
                else change.after.status is Status.LIVE or change.after.superseded_by in there
            )
        ]
        if len(left) == len(good):
            return left
        good = left


def _holds(change: Change, known: Mapping[str, Entry]) -> bool:
    if change.before is None:
        after = change.after
        gone = (entry for entry in known.values() if entry.status is Status.DELETED)
        return (
            after.id not in known
            and after.status is Status.LIVE
            and after.page != PROFILE
            and first_that_says(after.text, gone) is None
        )
    now = known.get(change.before.id)
    if now is None or now != change.before or now.status is not Status.LIVE:
        return False
    if now.is_users_own or (now.page == PROFILE and change.act is not Act.MERGED):
        return False
    return change.after.status is Status.SUPERSEDED or change.after.page == now.page


def _must_be_there(entry: Entry) -> None:
    if entry.status not in (Status.LIVE, Status.PENDING):
        raise MemoryTrouble(
            f"Memory {entry.id} is {entry.status.value}. Bring it back first: `kvchat memory log` "
            "shows the change to undo."
        )


def _checked(text: str) -> str:
    """The text as it can stand in a file. Raises MemoryTrouble."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    text = "\n".join(line for line in lines if line)
    if not says_something(text):
        raise MemoryTrouble("There is nothing to remember: write it in words.")
    if len(text) > LONGEST_MEMORY:
        raise MemoryTrouble(
            f"A memory has at most {LONGEST_MEMORY} characters; this has {len(text)}. Say it more shortly."
        )
    return text


# What an extraction found


CORRECTS = "corrects "
"""`Change.why` of a proposal begins so, and an id follows, where accepting it takes that entry's place."""
MOST_NODES = 24
"""Messages that one entry names as its sources."""

_ADDRESS = re.compile(r"\w://|\bwww\.", re.IGNORECASE)
_CORRECTED = re.compile(rf"\A{CORRECTS}([a-z][0-9a-z]{{4,32}})\b")


class ExtractionChanges(Struct):
    """What one extraction changes."""

    changes: list[Change] = field(default_factory=list)
    new: list[Entry] = field(default_factory=list)
    """Entries that were not there, noted or proposed."""
    refused: list[tuple[str, ChangeReason]] = field(default_factory=list)
    """Text and reason."""


def extraction_changes(facts: Sequence[Fact], run: ExtractionRun, known: Iterable[Entry]) -> ExtractionChanges:
    """The changes for these facts. `known`: all entries of the state, those that are gone too."""
    work = _ChangesBuilder(run, known)
    for fact in facts:
        work.take(fact)
    return work.result


def corrected_by(proposal: Change) -> str:
    """The id of the entry whose place a proposal takes when it is accepted; empty: none."""
    found = _CORRECTED.match(proposal.why)
    return found[1] if found else ""


def with_refused(run: ExtractionRun, result: ExtractionChanges) -> ExtractionRun:
    """The run with what really came of it."""
    refused = [*json.loads(run.refused), *json.loads(refused_as_stored(result.refused))]
    return replace(run, noted=len(result.new), refused=json.dumps(refused, ensure_ascii=False))


def refused_as_stored(refused: Iterable[tuple[str, ChangeReason]]) -> str:
    """`ExtractionRun.refused` of these: each with the words for its reason."""
    return json.dumps([[text, refusal(reason.why, reason.what)] for text, reason in refused], ensure_ascii=False)


class _ChangesBuilder:
    def __init__(self, run: ExtractionRun, known: Iterable[Entry]) -> None:
        self.result = ExtractionChanges()
        self._run = run
        self._entries = {entry.id: entry for entry in known}

    def take(self, fact: Fact) -> None:
        text = fact.text if fact.page else " ".join(fact.text.split())
        if not says_something(text):
            self.result.refused.append((text, ChangeReason(Why.WORDLESS)))
            return
        same = self._same(text)
        if same is not None:
            self._said_again(same, fact)
        elif self._is_deleted(text):
            self.result.refused.append((text, ChangeReason(Why.DELETED)))
        else:
            self._note(replace(fact, text=text))

    def _same(self, text: str) -> Entry | None:
        """The entry that says it already, live or proposed."""
        there = (entry for entry in self._entries.values() if entry.status in (Status.LIVE, Status.PENDING))
        return first_that_says(text, there)

    def _is_deleted(self, text: str) -> bool:
        gone = (entry for entry in self._entries.values() if entry.status is Status.DELETED)
        return first_that_says(text, gone) is not None

    def _said_again(self, entry: Entry, fact: Fact) -> None:
        """Better borne out than before, or in more messages; a line of the user's own stays as it is."""
        if entry.is_users_own:
            return
        nodes = entry.nodes
        if entry.conversation == self._run.conversation:
            nodes = tuple(dict.fromkeys((*entry.nodes, *fact.nodes)))[-MOST_NODES:]
        confidence = max(entry.confidence or 0.0, fact.confidence)
        after = replace(entry, nodes=nodes, confidence=confidence)
        if after != entry:
            self._change(Act.PROPOSED if entry.status is Status.PENDING else Act.NOTED, entry, after, "said again")

    def _note(self, fact: Fact) -> None:
        page = fact.page or page_of(fact.kind, fact.topic)
        if fact.kind is Kind.IDENTITY:
            page = PROFILE
        old = self._entries.get(fact.replaces) if fact.replaces else None
        if old is not None and old.status not in (Status.LIVE, Status.PENDING):
            old = None
        review = fact.review or (
            ChangeReason(Why.OF_PROFILE)
            if page == PROFILE
            else ChangeReason(Why.WITH_ADDRESS)
            if _ADDRESS.search(fact.text)
            else None
        )
        if old is not None:
            page = old.page if old.kind is fact.kind or old.page == PROFILE else page
            if not review and (old.is_users_own or old.page == PROFILE):
                review = ChangeReason(Why.OWN_LINE)
        entry = Entry(
            new_id(),
            fact.kind,
            fact.text,
            page,
            self._run.created,
            Status.PENDING if review else Status.LIVE,
            fact.confidence,
            self._run.conversation,
            fact.nodes[-MOST_NODES:],
            self._run.model,
        )
        why = refusal(review.why, review.what) if review else ""
        if old is not None and review:
            why = f"{CORRECTS}{old.id}: {why}"
        self._change(Act.PROPOSED if review else Act.NOTED, None, entry, why)
        self.result.new.append(entry)
        if old is not None and (not review or old.status is Status.PENDING):
            self._change(Act.CORRECTED, old, replace(old, status=Status.SUPERSEDED, superseded_by=entry.id), "")

    def _change(self, act: Act, before: Entry | None, after: Entry, why: str) -> None:
        self._entries[after.id] = after
        self.result.changes.append(Change(act, before, after, self._run.created, self._run.session, why))

"""What the person asks of the memory, as changes; and which changes of a consolidation still hold. Pure.

The rule: a change is made only of an entry as it is now, and says what was before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvchat.memory.entry import BY_YOU, PROFILE, Act, Change, Entry, Kind, Status, new_id
from kvchat.memory.errors import MemoryTrouble
from kvchat.memory.noting import is_the_persons
from kvchat.memory.sameness import TOPICS, first_that_says, page_of, says_something

LONGEST = 4000
"""Characters of one memory."""

_PAGE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Moment:
    """When, and in which run."""

    at: float
    session: str

    def change(self, act: Act, before: Entry | None, after: Entry, why: str = "") -> Change:
        return Change(act, before, after, self.at, self.session, why)


def page_named(page: str, known: Mapping[str, Entry]) -> str:
    """The page that is meant: `profile`, `profile.md`, `projects`, `topics/projects.md`, or one that there is, whatever
    the person called it. Raises MemoryTrouble."""
    if any(entry.page == page for entry in known.values()):
        return page
    name = page.strip().removeprefix("./").removesuffix(".md")
    if name == PROFILE.removesuffix(".md"):
        return PROFILE
    name = name.removeprefix(TOPICS)
    if not _PAGE.match(name):
        raise MemoryTrouble(f"{page} is no page of the memory. Pages are called profile, or by a topic of small "
                            "letters, digits and hyphens: home-lab.")
    return f"{TOPICS}{name}.md"


def added(known: Mapping[str, Entry], text: str, kind: Kind, page: str, conversation: str, nodes: tuple[str, ...],
          moment: Moment) -> list[Change]:
    """The changes that make `text` remembered; of an entry that says it already, if there is one."""
    text = _checked(text)
    page = page_named(page, known) if page else ""
    for status in (Status.LIVE, Status.PROPOSED):
        same = first_that_says(text, (entry for entry in known.values() if entry.status is status))
        if same is not None:
            after = replace(same, status=Status.LIVE, page=page or same.page)
            return [moment.change(Act.ACCEPTED if status is Status.PROPOSED else Act.MOVED, same, after)]
    entry = Entry(new_id(), kind, text, page or page_of(kind), moment.at, conversation=conversation, nodes=nodes)
    return [moment.change(Act.ADDED, None, entry)]


def edited(known: Mapping[str, Entry], entry: Entry, text: str, moment: Moment) -> list[Change]:
    """Another text, from now on the person's own words. One that another entry says already is refused."""
    _must_be_there(entry)
    text = _checked(text)
    if text == entry.text:
        return [moment.change(Act.EDITED, entry, entry)]
    others = (other for other in known.values() if other.status is Status.LIVE and other.id != entry.id)
    if (same := first_that_says(text, others)) is not None:
        raise MemoryTrouble(f"This is remembered already, as {same.id}. Delete {entry.id} if it is not needed beside "
                            "it.")
    return [moment.change(Act.EDITED, entry, replace(entry, text=text, by=BY_YOU, confidence=None))]


def deleted(entry: Entry, moment: Moment) -> list[Change]:
    _must_be_there(entry)
    return [moment.change(Act.DELETED, entry, replace(entry, status=Status.DELETED))]


def accepted(known: Mapping[str, Entry], entry: Entry, corrects: Entry | None, moment: Moment) -> list[Change]:
    """`corrects`: the entry whose place it takes. One that is remembered already by another line gives way to that."""
    _must_be_there(entry)
    live = (other for other in known.values() if other.status is Status.LIVE and other.id != entry.id)
    if entry.status is Status.PROPOSED and (same := first_that_says(entry.text, live)) is not None:
        return [moment.change(Act.ACCEPTED, entry, replace(entry, status=Status.SUPERSEDED, superseded_by=same.id))]
    changes = [moment.change(Act.ACCEPTED, entry, replace(entry, status=Status.LIVE))]
    if corrects is not None and entry.status is Status.PROPOSED:
        changes.append(moment.change(Act.CORRECTED, corrects,
                                     replace(corrects, status=Status.SUPERSEDED, superseded_by=entry.id)))
    return changes


def moved(known: Mapping[str, Entry], entry: Entry, page: str, moment: Moment) -> list[Change]:
    _must_be_there(entry)
    return [moment.change(Act.MOVED, entry, replace(entry, page=page_named(page, known)))]


def holding(changes: Sequence[Change], known: Mapping[str, Entry]) -> list[Change]:
    """Those of a consolidation's changes that can be made: each entry is still as it was, is not the person's own
    wording, and what takes its place is there. A summary is made only if all that it sums up gives way to it."""
    whole = Counter(change.after.superseded_by for change in changes)
    good = [change for change in changes if _holds(change, known)]
    while True:
        count = Counter(change.after.superseded_by for change in good)
        new = {change.after.id for change in good if change.before is None
               and 0 < count[change.after.id] == whole[change.after.id]}
        there = new | {entry.id for entry in known.values() if entry.status is Status.LIVE} - {
            change.after.id for change in good if change.after.status is Status.SUPERSEDED}
        left = [change for change in good if (change.after.id in new if change.before is None else
                change.after.status is Status.LIVE or change.after.superseded_by in there)]
        if len(left) == len(good):
            return left
        good = left


def _holds(change: Change, known: Mapping[str, Entry]) -> bool:
    if change.before is None:
        after = change.after
        gone = (entry for entry in known.values() if entry.status is Status.DELETED)
        return (after.id not in known and after.status is Status.LIVE and after.page != PROFILE
                and first_that_says(after.text, gone) is None)
    now = known.get(change.before.id)
    if now is None or now != change.before or now.status is not Status.LIVE:
        return False
    if is_the_persons(now) or (now.page == PROFILE and change.act is not Act.MERGED):
        return False
    return change.after.status is Status.SUPERSEDED or change.after.page == now.page


def _must_be_there(entry: Entry) -> None:
    if entry.status not in (Status.LIVE, Status.PROPOSED):
        raise MemoryTrouble(f"Memory {entry.id} is {entry.status.value}. Bring it back first: `kvchat memory log` "
                            "shows the change to undo.")


def _checked(text: str) -> str:
    """The text as it can stand in a file. Raises MemoryTrouble."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    text = "\n".join(line for line in lines if line)
    if not says_something(text):
        raise MemoryTrouble("There is nothing to remember: write it in words.")
    if len(text) > LONGEST:
        raise MemoryTrouble(f"A memory has at most {LONGEST} characters; this has {len(text)}. Say it more shortly.")
    return text

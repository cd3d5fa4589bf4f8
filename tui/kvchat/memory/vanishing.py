"""Lines that are gone from the files, and yet were hardly deleted by the person. Pure.

The rule: when in doubt, a memory is kept. Whole pages that are gone at once are a folder that is not there or is
another one; the newest lines that are gone from a page that was changed in other ways too were unknown to the editor
that saved it. A line deleted again after that stays deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from kvchat.memory.comparing import HAND
from kvchat.memory.entry import PROFILE, Act, Change, Entry, Status
from kvchat.memory.pages.files import TOPICS
from kvchat.memory.pages.page import Page

MANY = 5
"""Memories of two pages or more from which on they are not taken for deleted with them."""
RECENT_SECONDS = 600.0
"""How long after kvchat wrote a line an editor may still have the page without it."""
PUT_BACK = "put back: the page was saved by an editor that did not have this line yet"
NAMED = 3
"""Pages that a sentence names."""


def is_another(gone: Sequence[Entry], stored: Mapping[str, Entry], pages: Mapping[str, Page],
               unread: Collection[str]) -> bool:
    """Whether a folder is not the one in which the lines were that are `gone`: no line in it is known, and no page by
    its name or many lines of several. `unread`: what is there and could not be read. An empty page that had some is
    the person's word that it is."""
    names = {entry.page for entry in gone}
    if not gone or any(_is_empty(pages, name) for name in (PROFILE, *names)):
        return False
    if any(entry.page in unread for entry in stored.values()) or any(
            line.entry.id in stored for page in pages.values() for line in page.entries):
        return False
    return (len(names) > 1 and len(gone) >= MANY) or not any(entry.page in pages for entry in stored.values())


def told_of_another(root: Path, gone: Sequence[Entry]) -> str:
    """The sentence for it."""
    return (f"{root} seems to be another folder: {_them(gone)} should stand there, and none does. Put the pages there, "
            "or set memory.folder back; or, if you deleted them, make one of their pages, an empty one. Until then "
            "nothing is read or written there, and nothing is forgotten.")


def held(gone: Sequence[Entry], waiting: Iterable[Entry], pages: Mapping[str, Page], before: Set[str], *,
         topics: bool) -> frozenset[str]:
    """The pages whose memories are not to be taken for deleted, of those whose lines are `gone`. `waiting`: those that
    are deleted, but for their lines; `before`: the pages that were held until now; `topics`: whether the folder of the
    topics is there. An empty page is the person's word that it was meant; an empty profile, for all of them."""
    if not gone or _is_empty(pages, PROFILE):
        return frozenset()
    lost = [entry for entry in (*gone, *waiting) if entry.page not in pages]
    absent = frozenset(entry.page for entry in lost)
    no_topics = not topics and any(name.startswith(f"{TOPICS}/") for name in absent)
    several = len(absent) > 1 and len(lost) >= MANY
    return absent if no_topics or several else absent & before


def told(root: Path, entries: Sequence[Entry]) -> str:
    """The sentence for memories of pages that are held."""
    names = sorted({entry.page for entry in entries})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (f"{_them(entries)} of {', '.join(names[:NAMED])}{more} cannot be found: these pages are not in {root} any "
            "more. Put them back; or, if you deleted them, make an empty file in the place of each, or use "
            "`kvchat memory delete`. Until then nothing of them is forgotten.")


def _is_empty(pages: Mapping[str, Page], name: str) -> bool:
    return name in pages and not pages[name].text.strip("\ufeff \t\r\n")


def _them(entries: Sequence[Entry]) -> str:
    return "1 memory" if len(entries) == 1 else f"{len(entries)} memories"


def unknown_to_the_editor(changes: Sequence[Change], recent: Sequence[Change], pages: Mapping[str, Page],
                          before: Mapping[str, Page]) -> set[str]:
    """The ids of the deletions among `changes` that an editor made by saving a text from before the lines were
    written. `recent`: the changes of the last RECENT_SECONDS, newest first; `before`: the pages as they were."""
    written: dict[str, float] = {}
    for change in recent:
        if change.why == PUT_BACK:
            written[change.after.id] = 0.0
        elif change.why != HAND and change.after.status is Status.LIVE:
            written.setdefault(change.after.id, change.at)
    found: set[str] = set()
    deleted: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        if change.act is Act.DELETED and change.after.page in pages:
            deleted[change.after.page].add(change.after.id)
    for name, ids in deleted.items():
        page = pages[name]
        seen = max((written.get(line.entry.id, 0.0) for line in page.entries), default=0.0)
        late = {id for id in ids if written.get(id, 0.0) > seen}
        if late and page.entries and (ids - late or _changed_otherwise(name, ids, changes, page, before.get(name))):
            found |= late
    return found


def _changed_otherwise(name: str, ids: Set[str], changes: Iterable[Change], page: Page, before: Page | None) -> bool:
    """Whether the person did more to a page than to take these lines out."""
    for change in changes:
        if change.after.id not in ids and name in (change.after.page, change.before.page if change.before else ""):
            return True
    if before is None:
        return False
    return before.edited(dict.fromkeys(ids)).text.split() != page.text.split()


def put_back(deleted: Change) -> list[Change]:
    """What is stored in the place of that deletion: it, and that it is taken back."""
    assert deleted.before is not None
    return [deleted, replace(deleted, act=Act.RESTORED, before=deleted.after, after=deleted.before, why=PUT_BACK)]

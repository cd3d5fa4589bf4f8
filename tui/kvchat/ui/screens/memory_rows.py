"""A memory in words: its row and its sentences. Pure functions of the entry and the width.

The rule: a text from the memory is data: it is cleaned here, shown as it is, and never read as markup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from textual.content import Content

from kvchat.memory.entry import BY_HAND, BY_YOU, PROFILE, Entry, Kind, Status
from kvchat.sanitize import clean, one_line
from kvchat.text.format import age, counted, moment
from kvchat.ui.screens.filtering import highlighted
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, Part, content, joined, shown
from kvchat.ui.widgets.header_text import model_name

KIND_MARKS: Mapping[Kind, str] = {
    Kind.IDENTITY: "@", Kind.PREFERENCE: "≈", Kind.PROJECT: "■", Kind.PERSON: "&", Kind.DECISION: "✓",
    Kind.SKILL: "↑", Kind.FACT: "•",
}
WIDE = 90
"""Cells of a row from which on the conversation stands in it too."""
DETAIL = 4
"""Lines below the list."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What the rows are told with."""

    now: datetime
    titles: Mapping[str, str] = field(default_factory=dict)
    """The titles of the conversations by their ids."""
    fresh: Collection[str] = ()
    """The ids of what was noted since the person looked last."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Why the person is asked, by the ids of the proposals."""
    query: str = ""

    def ago(self, seconds: float) -> str:
        return age(self.now.timestamp() - seconds)


def page_name(page: str) -> str:
    """`profile` for profile.md, `projects` for topics/projects.md."""
    return one_line(page.rpartition("/")[2].removesuffix(".md"), 40)


def source_name(entry: Entry, telling: Telling) -> str:
    """Where it came from, in two or three words."""
    if entry.conversation:
        return one_line(telling.titles.get(entry.conversation, "a deleted conversation"), 60) or "untitled"
    return "by hand" if entry.by == BY_HAND else "you"


def source_words(entry: Entry, telling: Telling) -> str:
    """`from “lighthouse log”`; empty where no conversation is behind it."""
    if not entry.conversation:
        return ""
    title = telling.titles.get(entry.conversation)
    return "from a deleted conversation" if title is None else f"from “{one_line(title, 40) or 'untitled'}”"


def entry_row(entry: Entry, telling: Telling, width: int) -> Content:
    """Mark and kind, the text, and at the right page, source and age."""
    asks = entry.status is Status.PROPOSED
    mark = content(("?" if asks else KIND_MARKS[entry.kind], ACCENT), (f" {entry.kind:<10}  ", MUTED))
    right: list[Part] = []
    if entry.id in telling.fresh:
        right.append(("new  ", ACCENT))
    if width >= WIDE:
        right.append((f"{shown(source_name(entry, telling), 20):<20}  ", MUTED))
    if width >= 50:
        right.append((f"{shown(page_name(entry.page), 11):<11}", MUTED))
    right.append((f"{telling.ago(entry.created):>7}", MUTED))
    return joined(mark + highlighted(content(shown(entry.text, width)), telling.query), content(*right), width)


def entry_words(entry: Entry, telling: Telling, width: int) -> list[Content]:
    """Where it came from, then its whole text."""
    when, origin = moment(entry.created, telling.now), source_words(entry, telling)
    if entry.by == BY_HAND:
        parts = ["written by hand", when]
    elif entry.by == BY_YOU:
        parts = [f"said by you, {origin}" if origin else "said by you", when]
    else:
        parts = [origin or "from nowhere", when, f"noted by {model_name(entry.by)}"]
    if entry.edited and entry.by != BY_HAND:
        parts.append("edited by you")
    if entry.status is Status.PROPOSED:
        why = one_line(telling.why.get(entry.id, ""), 120)
        parts = [f"asks you first: {why}" if why else "asks you first", *parts]
    else:
        parts.append("in the profile" if entry.page == PROFILE else one_line(entry.page, 60))
    return with_text(" · ".join(parts), entry.text, width)


def with_text(about: str, text: str, width: int, lines: int = DETAIL) -> list[Content]:
    """What is to be known about a text, in at most two lines, and the text."""
    first = [content((line.plain, MUTED)) for line in whole(about, width, 2)]
    return [*first, *whole(text, width, lines - len(first))]


def whole(text: str, width: int, lines: int) -> list[Content]:
    """A text in at most `lines` lines of `width` cells; the last one ends with … when there is more."""
    wrapped = [line.rstrip() for line in Content(clean(text)).wrap(max(1, width))]
    if len(wrapped) <= lines:
        return wrapped
    return [*wrapped[:lines - 1], content(wrapped[lines - 1].plain + "…").truncate(width, ellipsis=True)]


def problems_words(problems: Sequence[str], width: int) -> list[Content]:
    """What is wrong with the files: the first in at most two lines, how many more there are, and one of them."""
    if not problems:
        return []
    lines = [content((line.plain, BAD)) for line in whole(f"! {one_line(problems[0], 400)}", width, 2)]
    if more := len(problems) - 1:
        rest = f"! and {counted(more, 'more problem')}: {one_line(problems[1], 300)}"
        lines.append(content((shown(rest, width), BAD)))
    return lines


def folder_words(folder: Path, home: Path, width: int) -> Content:
    """Where the files are; a long path loses its beginning."""
    path = one_line(f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder))
    words = "The files: "
    room = max(8, width - len(words))
    return content((words + (path if len(path) <= room else "…" + path[-(room - 1):]), MUTED))


EMPTY = (
    "Nothing is remembered yet.",
    "",
    "While you talk, kvchat notes what you say about yourself and your work: what you prefer, your projects, what was "
    "decided. It does so after the answers, when nothing else runs, and puts what belongs to a question in front of "
    "it. It is all kept as Markdown files on this disk that you can read, edit and delete.",
    "",
    "a adds something yourself. o switches memory off in this conversation; memory.enabled = false in the settings "
    "switches it off everywhere.",
)
NOT_FOUND = "Nothing remembered has these words. Esc shows all."
FILTERED = "Nothing of this kind here. f and n change what is shown."

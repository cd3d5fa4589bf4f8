"""A memory, a change and a line of the queue in words. Pure functions of the values and the width.

A text from the memory is data: it is cleaned here, shown as it is, and never read as markup. A failure says why, and
that nothing is lost by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct, field
from textual.content import Content

from kvchat.chat.background.extraction import QueueRow
from kvchat.memory.entry import BY_HAND, BY_YOU, PROFILE, Act, Change, Entry, Kind, Status
from kvchat.sanitize import clean, one_line
from kvchat.text.format import age, counted, home_path, moment
from kvchat.text.memory import job_reason
from kvchat.text.servers import model_name
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import ACCENT, BAD, MUTED, Part, content, highlighted, joined

KIND_MARKS: Mapping[Kind, str] = {
    Kind.IDENTITY: "@",
    Kind.PREFERENCE: "≈",
    Kind.PROJECT: "■",
    Kind.PERSON: "&",
    Kind.DECISION: "✓",
    Kind.SKILL: "↑",
    Kind.FACT: "•",
}
ACTS: Mapping[Act, str] = {
    Act.NOTED: "noted",
    Act.ADDED: "added",
    Act.PROPOSED: "proposed",
    Act.ACCEPTED: "accepted",
    Act.EDITED: "edited",
    Act.MOVED: "moved",
    Act.DELETED: "deleted",
    Act.MERGED: "merged",
    Act.CORRECTED: "corrected",
    Act.SUMMARISED: "shortened",
    Act.RESTORED: "restored",
}
STATES: Mapping[str, tuple[str, str]] = {
    "pending": ("·", MUTED),
    "waiting": ("○", MUTED),
    "running": ("◐", ACCENT),
    "paused": ("!", BAD),
}
TASKS: Mapping[str, str] = {
    "consolidation": "tidying the memory",
    "embedding": "vectors for the search",
    "title": "a title for a conversation",
    "trunk": "a trunk that is prefilled",
    "summary": "a summary for a full window",
    "skills": "procedures that worked in a conversation",
    "episodes": "what was talked about, by topic",
}
"""Work that goes through no conversation."""
WIDE = 90
"""From this many cells on, a row shows the conversation too."""
DETAIL = 4
"""Lines below the list."""


class MemoryRowData(Struct, frozen=True):
    """What the rows are drawn from."""

    now: datetime
    key: Callable[[str], str]
    """The key of an action, as a sentence names it."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """The titles of the conversations by their ids."""
    fresh: Collection[str] = ()
    """The ids of what was noted since the user looked last."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Why the user is asked, by the ids of the proposals."""
    query: str = ""

    def ago(self, seconds: float) -> str:
        return age(self.now.timestamp() - seconds)


def page_name(page: str) -> str:
    """`profile` for profile.md, `projects` for topics/projects.md, `kiln` for skills/kiln.md."""
    return one_line(page.rpartition("/")[2].removesuffix(".md"), 40)


def source_name(entry: Entry, data: MemoryRowData) -> str:
    """Where it came from, in two or three words."""
    if entry.conversation:
        return one_line(data.titles.get(entry.conversation, "a deleted conversation"), 60) or "untitled"
    return "by hand" if entry.by == BY_HAND else "you"


def source_words(entry: Entry, data: MemoryRowData) -> str:
    """`from “lighthouse log”`; empty where no conversation is behind it."""
    if not entry.conversation:
        return ""
    title = data.titles.get(entry.conversation)
    return "from a deleted conversation" if title is None else f"from “{one_line(title, 40) or 'untitled'}”"


def entry_row(entry: Entry, data: MemoryRowData, width: int) -> Content:
    """Mark and kind, the text, and at the right page, source and age."""
    asks = entry.status is Status.PENDING
    kind = "episode" if entry.is_episode else entry.kind
    mark = content(("?" if asks else KIND_MARKS[entry.kind], ACCENT), (f" {kind:<10}  ", MUTED))
    right: list[Part] = []
    if entry.id in data.fresh:
        right.append(("new  ", ACCENT))
    if width >= WIDE:
        right.append((f"{shown(source_name(entry, data), 20):<20}  ", MUTED))
    if width >= 50:
        right.append((f"{shown(page_name(entry.page), 11):<11}", MUTED))
    right.append((f"{data.ago(entry.created):>7}", MUTED))
    return joined(mark + highlighted(content(shown(entry.text, width)), data.query), content(*right), width)


def entry_words(entry: Entry, data: MemoryRowData, width: int) -> list[Content]:
    """Where it came from, then its whole text."""
    when, origin = moment(entry.created, data.now), source_words(entry, data)
    if entry.by == BY_HAND:
        parts = ["written by hand", when]
    elif entry.by == BY_YOU:
        parts = [f"said by you, {origin}" if origin else "said by you", when]
    else:
        parts = [origin or "from nowhere", when, f"noted by {model_name(entry.by)}"]
    if entry.edited and entry.by != BY_HAND:
        parts.append("edited by you")
    if entry.status is Status.PENDING:
        why = one_line(data.why.get(entry.id, ""), 120)
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
    return [*wrapped[: lines - 1], content(wrapped[lines - 1].plain + "…").truncate(width, ellipsis=True)]


def problems_words(problems: Sequence[str], width: int) -> list[Content]:
    """What is wrong with the files: the first in at most two lines, how many more there are, and one of them."""
    if not problems:
        return []
    lines = [content((line.plain, BAD)) for line in whole(f"! {one_line(problems[0], 400)}", width, 2)]
    if more := len(problems) - 1:
        rest = f"! and {counted(more, 'more problem')}: {one_line(problems[1], 300)}"
        lines.append(content((shown(rest, width), BAD)))
    return lines


def folder_words(folder: Path, width: int) -> Content:
    """Where the files are; a long path loses its beginning."""
    path, words = home_path(folder), "The files: "
    room = max(8, width - len(words))
    return content((words + (path if len(path) <= room else "…" + path[-(room - 1) :]), MUTED))


def welcome(key: Callable[[str], str]) -> Sequence[str]:
    """The text shown for an empty memory."""
    return (
        "Nothing is remembered yet.",
        "",
        "While you talk, kvchat notes what you say about yourself and your work: what you prefer, your projects, what "
        "was decided. It does so after the answers, when nothing else runs, and puts what belongs to a question in "
        "front of it. It is all kept as Markdown files on this disk that you can read, edit and delete.",
        "",
        f"{key('manager.add')} adds something yourself. {key('memory.switch')} switches memory off in this "
        "conversation; memory.enabled = false in the settings switches it off everywhere.",
    )


def act_word(change: Change) -> str:
    """What happened, in a word or two."""
    if change.act is Act.RESTORED and change.after.status in (Status.DELETED, Status.SUPERSEDED):
        return "taken back"
    return ACTS[change.act]


def did(changes: Sequence[Change]) -> str:
    """What kvchat did, counted: `5 noted, 1 proposed`."""
    many = Counter(change.act for change in changes)
    return ", ".join(f"{many[act]:,} {word}" for act, word in ACTS.items() if many[act])


def quoted(text: str, limit: int = 60) -> str:
    return f"“{one_line(text, limit)}”"


def undone(change: Change) -> str:
    """What is again as it was, once `change` was undone."""
    text = quoted(change.after.text)
    match change.act:
        case Act.NOTED | Act.ADDED | Act.PROPOSED:
            return f"Not remembered any more: {text}."
        case Act.DELETED:
            return f"Remembered again: {text}."
        case Act.EDITED if change.before is not None:
            return f"As it was: {quoted(change.before.text)}."
        case Act.ACCEPTED:
            return f"Pending approval again: {text}."
        case Act.MOVED if change.before is not None:
            return f"Back in {change.before.page}: {text}."
        case _:
            return f"As it was before: {text}."


def change_row(change: Change, data: MemoryRowData, width: int) -> Content:
    """When, what happened, to which text."""
    tone = MUTED if change.undone else ""
    head = content((f"{moment(change.at, data.now):<17} ", MUTED), f"{act_word(change):<10} ")
    before = change.before
    if change.act is Act.EDITED and before is not None:
        words = f"{one_line(before.text, 60)} → {one_line(change.after.text, 200)}"
    elif change.act is Act.MOVED and before is not None:
        words = f"{one_line(change.after.text, 120)} → {page_name(change.after.page)}"
    else:
        words = one_line(change.after.text, 300)
    text = content((words, tone)) if tone else content(words)
    return joined(head + text, content(("undone", MUTED)) if change.undone else content(), width)


def change_words(change: Change, texts: Mapping[str, str], data: MemoryRowData, width: int) -> list[Content]:
    """A change in sentences; `texts`: the texts of entries by their ids."""
    entry, before = change.after, change.before
    newer = texts.get(entry.superseded_by, "")
    match change.act:
        case Act.EDITED if before is not None:
            said = f"Before: {before.text}"
        case Act.MOVED if before is not None:
            said = f"From {before.page} to {entry.page}."
        case Act.MERGED | Act.CORRECTED | Act.SUMMARISED if newer:
            said = f"In its place: {newer}"
        case _:
            said = ""
    parts = [f"{act_word(change)} {moment(change.at, data.now)}", f"{entry.kind}, {one_line(entry.page, 60)}"]
    if origin := source_words(entry, data):
        parts.append(origin)
    if change.why:
        parts.append(one_line(change.why, 120))
    if change.undone:
        parts.append("undone")
    lines = with_text(" · ".join(parts), entry.text, width, DETAIL - bool(said))
    return [*lines, *whole(one_line(said, 600), width, DETAIL - len(lines))] if said else lines


def state_of(row: QueueRow) -> str:
    """`pending` (no work is planned yet), `waiting`, `running` or `paused`."""
    return "pending" if row.job is None else "running" if row.at_work else str(row.job.state)


def queue_row(row: QueueRow, data: MemoryRowData, width: int) -> Content:
    """Its mark, the conversation, and how things stand."""
    mark, tone = STATES.get(state_of(row), STATES["pending"])
    right = content((_standing(row, data), BAD if state_of(row) == "paused" else MUTED))
    if row.conversation:
        about = data.titles.get(row.conversation, "") or "a conversation"
    else:
        kind = row.job.kind if row.job else ""
        about = TASKS.get(kind, f"the memory itself: {one_line(kind, 40)}")
    return joined(content((mark, tone), f" {shown(about, width)}"), right, width)


def _standing(row: QueueRow, data: MemoryRowData) -> str:
    messages = counted(row.pending, "message") if row.pending else ""
    tries = counted(row.job.attempts, "attempt") if row.job and row.job.attempts else ""
    match state_of(row):
        case "running":
            state = "at it now"
        case "paused":
            state = "parked"
        case _ if not row.on:
            state = "memory is off there"
        case _ if row.job:
            left = max(row.begins, row.job.due) - data.now.timestamp()
            state = f"due in {age(left)}" if left >= 1 else "due in a quiet moment"
        case _:
            state = "not gone through yet"
    return " · ".join(filter(None, (messages, tries, state)))


def queue_words(row: QueueRow, data: MemoryRowData, width: int) -> list[Content]:
    """A line of the queue in sentences."""
    state, retry = state_of(row), data.key("memory.retry")
    messages = counted(row.pending, "message")
    is_, has = ("is", "has") if row.pending == 1 else ("are", "have")
    match state:
        case "running":
            said = f"{messages} {is_} gone through now." if row.pending else "At it now."
        case "paused":
            tries = f" after {counted(row.job.attempts, 'attempt')}" if row.job and row.job.attempts else ""
            said = f"Given up{tries}; nothing is lost. {retry} tries again."
        case _ if not row.on:
            said = f"{messages} {has} not been gone through, and {is_} not while memory is off there."
        case _ if row.pending:
            said = (
                f"{messages} {has} not been gone through yet. That is done in a quiet moment; {retry} asks for it now."
            )
        case _:
            said = "Waits until nothing else runs."
    why, tone = ("Why: ", BAD) if state == "paused" else ("Because: ", MUTED)
    reason = [content((why + one_line(job_reason(row.job.why), 400), tone))] if row.job and row.job.why else []
    return [part for part in (content(said), *reason) for part in part.wrap(max(1, width))][:DETAIL]

"""A change and a line of the queue in words. Pure functions of the values and the width.

The rule: what failed says why, and that nothing is lost by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from textual.content import Content

from kvchat.memory.entry import Act, Change, Status
from kvchat.sanitize import one_line
from kvchat.text.format import age, counted, moment
from kvchat.text.jobs import job_reason
from kvchat.ui.screens.memory_rows import DETAIL, Telling, page_name, source_words, whole, with_text
from kvchat.ui.screens.memory_source import EXTRACTION, QueueLine
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, content, joined, shown

ACTS: Mapping[Act, str] = {
    Act.NOTED: "noted", Act.ADDED: "added", Act.PROPOSED: "proposed", Act.ACCEPTED: "accepted", Act.EDITED: "edited",
    Act.MOVED: "moved", Act.DELETED: "deleted", Act.MERGED: "merged", Act.CORRECTED: "corrected",
    Act.SUMMARISED: "shortened", Act.RESTORED: "restored",
}
STATES: Mapping[str, tuple[str, str]] = {
    "pending": ("·", MUTED), "waiting": ("○", MUTED), "running": ("◐", ACCENT), "parked": ("!", BAD),
}

TASKS: Mapping[str, str] = {"consolidation": "tidying the memory"}
"""Work that is about no conversation."""
NO_QUEUE = "Nothing waits: every message has been gone through."
NO_HISTORY = "Nothing has changed yet. Every change can be undone here."


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
            return f"Waits for your yes again: {text}."
        case Act.MOVED if change.before is not None:
            return f"Back in {change.before.page}: {text}."
        case _:
            return f"As it was before: {text}."


def change_row(change: Change, telling: Telling, width: int) -> Content:
    """When, what happened, to which text."""
    tone = MUTED if change.undone else ""
    head = content((f"{moment(change.at, telling.now):<17} ", MUTED), f"{act_word(change):<10} ")
    before = change.before
    if change.act is Act.EDITED and before is not None:
        words = f"{one_line(before.text, 60)} → {one_line(change.after.text, 200)}"
    elif change.act is Act.MOVED and before is not None:
        words = f"{one_line(change.after.text, 120)} → {page_name(change.after.page)}"
    else:
        words = one_line(change.after.text, 300)
    text = content((words, tone)) if tone else content(words)
    return joined(head + text, content(("undone", MUTED)) if change.undone else content(), width)


def change_words(change: Change, texts: Mapping[str, str], telling: Telling, width: int) -> list[Content]:
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
    parts = [f"{act_word(change)} {moment(change.at, telling.now)}", f"{entry.kind}, {one_line(entry.page, 60)}"]
    if origin := source_words(entry, telling):
        parts.append(origin)
    if change.why:
        parts.append(one_line(change.why, 120))
    if change.undone:
        parts.append("undone")
    lines = with_text(" · ".join(parts), entry.text, width, DETAIL - bool(said))
    return [*lines, *whole(one_line(said, 600), width, DETAIL - len(lines))] if said else lines


# -- the queue


def queue_row(line: QueueLine, telling: Telling, width: int) -> Content:
    """Its mark, the conversation, and how things stand."""
    mark, tone = STATES.get(line.state, STATES["pending"])
    right = content((_standing(line, telling), BAD if line.state == "parked" else MUTED))
    return joined(content((mark, tone), f" {shown(_about(line, telling), width)}"), right, width)


def _about(line: QueueLine, telling: Telling) -> str:
    if line.kind != EXTRACTION:
        return TASKS.get(line.kind, f"the memory itself: {one_line(line.kind, 40)}")
    return telling.titles.get(line.conversation, "") or "a conversation"


def _standing(line: QueueLine, telling: Telling) -> str:
    messages = counted(line.pending, "message") if line.pending else ""
    tries = counted(line.attempts, "attempt") if line.attempts else ""
    match line.state:
        case "running":
            state = "at it now"
        case "parked":
            state = "parked"
        case _ if not line.on:
            state = "memory is off there"
        case "waiting":
            left = (line.due or 0.0) - telling.now.timestamp()
            state = f"due in {age(left)}" if left >= 1 else "due in a quiet moment"
        case _:
            state = "not gone through yet"
    return " · ".join(filter(None, (messages, tries, state)))


def queue_words(line: QueueLine, telling: Telling, width: int) -> list[Content]:
    """A line of the queue in sentences."""
    messages = counted(line.pending, "message")
    is_, has = ("is", "has") if line.pending == 1 else ("are", "have")
    match line.state:
        case "running":
            said = f"{messages} {is_} gone through now." if line.pending else "At it now."
        case "parked":
            tries = f" after {counted(line.attempts, 'attempt')}" if line.attempts else ""
            said = f"Given up{tries}; nothing is lost. r tries again."
        case _ if not line.on:
            said = f"{messages} {has} not been gone through, and {is_} not while memory is off there."
        case _ if line.pending:
            said = f"{messages} {has} not been gone through yet. That is done in a quiet moment; r asks for it now."
        case _:
            said = "Waits until nothing else runs."
    why, tone = ("Why: ", BAD) if line.state == "parked" else ("Because: ", MUTED)
    reason = [content((why + one_line(job_reason(line.why), 400), tone))] if line.why else []
    return [part for part in (content(said), *reason) for part in part.wrap(max(1, width))][:DETAIL]

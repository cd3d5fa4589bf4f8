"""Memories, their changes and their jobs as rows, in words; and places and times as the person writes them.

The rule: a row holds raw texts; the table that prints it makes them safe to show.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from kvchat.memory.entry import Change, Entry, Status
from kvchat.numbers import age, day_time
from kvchat.store.jobs import Job, JobState
from kvchat.terminal import Column
from kvchat.text.jobs import job_reason

ENTRIES = (Column("id"), Column("noted"), Column("page", shrinks=True), Column("memory", shrinks=True))
CHANGES = (Column("no.", right=True), Column("when"), Column("what"), Column("id"), Column("memory", shrinks=True))
PENDING = (Column("pending"), Column("messages", right=True), Column("title", shrinks=True))
JOBS = (Column("work"), Column("about", shrinks=True), Column("state"), Column("tries", right=True), Column("due"),
        Column("why", shrinks=True))
_NONE: Mapping[str, str] = {Status.LIVE: "Nothing is remembered yet.", Status.PROPOSED: "Nothing waits for your yes."}
_DAYS_AGO = {"today": 0, "yesterday": 1}


class UsageError(Exception):
    """The command line does not say what to do; the text is the one sentence for the person."""


def none_of(status: str, *narrowed: str | None) -> str:
    """What is said where no entry of a status is found; `narrowed` are the other conditions."""
    return "There is nothing of that." if any(narrowed) else _NONE.get(status, "There is nothing of that.")


def entry_cells(entry: Entry) -> tuple[str, ...]:
    return entry.id, day_time(entry.created), topic(entry.page), entry.text


def change_cells(change: Change) -> tuple[str, ...]:
    act = f"{change.act}, undone" if change.undone else change.act
    return str(change.seq), day_time(change.at), act, change.after.id, _of_change(change)


def _of_change(change: Change) -> str:
    """The memory of a change, with what it was before, and why."""
    before, after = change.before, change.after
    words = after.text
    if before is not None and before.text != after.text:
        words += f" (was: {before.text})"
    if before is not None and before.page != after.page:
        words += f" (from {before.page})"
    return f"{words} · {change.why}" if change.why else words


def job_cells(job: Job, titles: Mapping[str, str], now: float) -> tuple[str, ...]:
    """`now` is in seconds since the epoch."""
    wait = job.due - now
    due = "" if job.state is not JobState.WAITING else "now" if wait <= 0 else f"in {age(wait)}"
    return job.kind, titles.get(job.subject, job.subject), job.state, str(job.attempts), due, job_reason(job.why)


def topic(page: str) -> str:
    """A page as the person names it: `projects` for `projects`, `projects.md` and `topics/projects.md`."""
    return page.strip().removesuffix(".md").removeprefix("topics/")


def instant(text: str) -> float:
    """A date or an instant in seconds since the epoch; without a zone it is one of this machine. Raises UsageError."""
    try:
        if text in _DAYS_AGO:
            today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
            return (today - timedelta(days=_DAYS_AGO[text])).timestamp()
        return datetime.fromisoformat(text).timestamp() or 1.0  # 0 stands for no time
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text} is no date: write it as 2026-11-21 or 2026-11-21T18:00, or say today or yesterday."
                         ) from None

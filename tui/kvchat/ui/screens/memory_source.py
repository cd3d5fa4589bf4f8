"""What the memory screen asks, and what it was told: the memories, the queue and the history of one look.

The rule: the screen reads one consistent look and acts only through the service; files and tables it never touches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from kvchat.chat.events import ServiceEvent
from kvchat.config import Settings
from kvchat.memory.entry import Act, Change, Entry, Kind, Status
from kvchat.prompt.conversation import Conversation

T = TypeVar("T")
HISTORY = 500
"""Changes that the screen shows."""
HITS = 50
"""What a search asks the index for."""
EXTRACTION = "extraction"
"""The kind of the jobs that go through a conversation."""
BY_ITSELF = frozenset({Act.NOTED, Act.PROPOSED, Act.MERGED, Act.CORRECTED, Act.SUMMARISED})
"""What kvchat does without being asked."""
CHOSEN = frozenset({Act.ADDED, Act.ACCEPTED, Act.EDITED, Act.MOVED})
"""What makes a memory the person's own choice."""
THERE = (Status.LIVE, Status.PROPOSED)
ALL = 1_000_000
"""More changes than a history has."""


class Book(Protocol):
    """The memories: `Memories`."""

    @property
    def folder(self) -> Path: ...
    @property
    def problems(self) -> Sequence[str]: ...
    @property
    def left(self) -> Sequence[str]: ...
    def sync(self) -> bool: ...
    def entries(self, status: Status = Status.LIVE, kind: Kind | None = None) -> Sequence[Entry]: ...
    def add(self, text: str, kind: Kind = Kind.FACT, page: str = "", conversation: str = "") -> Entry: ...
    def edit(self, id: str, text: str) -> Entry: ...
    def delete(self, id: str) -> Change: ...
    def accept(self, id: str) -> Entry: ...
    def move(self, id: str, page: str) -> Entry: ...
    def search(self, query: str, k: int = 20) -> Sequence[tuple[Entry, object]]: ...
    def log(self, limit: int = 50, *, session: str = "", conversation: str = "") -> Sequence[Change]: ...
    def undo(self, seq: int) -> Change: ...
    def undo_all(self, *, session: str = "", conversation: str = "") -> int: ...


class Job(Protocol):
    """Work that waits, is under way or was given up."""

    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def due(self) -> float:
        """Seconds since the epoch."""
    @property
    def attempts(self) -> int: ...
    @property
    def state(self) -> str:
        """`waiting`, `running`, or `parked`: waits for the person."""
    @property
    def why(self) -> str: ...


class QueueRow(Protocol):
    """A conversation with messages that were not gone through yet, or with a job."""

    @property
    def conversation(self) -> str: ...
    @property
    def pending(self) -> int: ...
    @property
    def job(self) -> Job | None: ...
    @property
    def at_work(self) -> bool: ...
    @property
    def on(self) -> bool: ...
    @property
    def begins(self) -> float: ...


class MemoryService(Protocol):
    """The service, as far as this screen asks it: `ChatService`."""

    def with_memories(self, work: Callable[[Book], T]) -> Awaitable[T]: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def has_memory(self) -> bool: ...
    def memory_queue(self) -> Awaitable[Sequence[QueueRow]]: ...
    def jobs(self) -> Sequence[Job]: ...
    def retry_job(self, kind: str, subject: str) -> Awaitable[None]: ...
    def retry_memory(self, id: str) -> Awaitable[None]: ...
    def remember_now(self, id: str) -> Awaitable[None]: ...
    def memory_on(self, id: str) -> bool: ...
    def set_memory(self, id: str, on: bool) -> Awaitable[None]: ...
    def conversations(self) -> Sequence[Conversation]: ...
    def subscribe(self, listener: Callable[[ServiceEvent], None]) -> Callable[[], None]: ...
    def now(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Look:
    """All that the screen shows, as it was at one moment."""

    folder: Path
    proposals: Sequence[Entry] = ()
    """Newest first, as all of these."""
    entries: Sequence[Entry] = ()
    changes: Sequence[Change] = ()
    problems: Sequence[str] = ()
    found: Sequence[str] = ()
    """The ids that the index found for what is searched, best first."""

    @property
    def newest_seq(self) -> int:
        return max((change.seq for change in self.changes), default=0)

    def asked_because(self) -> Mapping[str, str]:
        """Why the person is asked, by the id of the proposal."""
        return {change.after.id: change.why for change in self.changes if change.act is Act.PROPOSED}


def look(book: Book, query: str = "") -> Look:
    """Everything, after the files were looked at."""
    book.sync()
    return Look(book.folder, book.entries(Status.PROPOSED), book.entries(), book.log(HISTORY), tuple(book.problems),
                found(book, query))


def found(book: Book, query: str) -> list[str]:
    """The ids of what the index finds, best first."""
    return [entry.id for entry, _ in book.search(query, k=HITS)] if query.strip() else []


def last_change(changes: Sequence[Change], opened_at: int) -> Change | None:
    """The change that undo is about: what the person did since the change with number `opened_at`, else the newest."""
    left = [change for change in changes if not change.undone and change.act is not Act.RESTORED]
    yours = [change for change in left if change.seq > opened_at and change.act in CHOSEN | {Act.DELETED}]
    return next(iter(yours or left), None)


def taken_back(book: Book, conversation: str = "") -> tuple[list[Change], list[Change]]:
    """What kvchat did by itself in the session in which it did something last, and what it did about a conversation;
    as far as it is in force and the person has not made it their own since. Newest first."""
    everything = book.log(ALL)
    session = next((change.session for change in everything if change.act in BY_ITSELF), "")
    there = {entry.id for status in THERE for entry in book.entries(status)}
    touched = {change.after.id for change in everything if change.act in CHOSEN and not change.undone}
    mine = [change for change in everything
            if change.act in BY_ITSELF and not change.undone and change.after.id not in touched
            and (change.after.status in THERE) is (change.after.id in there)]
    return ([change for change in mine if change.session == session],
            [change for change in mine if conversation and change.after.conversation == conversation])


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A line of the queue."""

    conversation: str = ""
    """Its id; empty: the memory as a whole is meant."""
    pending: int = 0
    """Messages that were not gone through yet."""
    kind: str = EXTRACTION
    subject: str = ""
    state: str = "pending"
    """`pending` (no work is planned yet), `waiting`, `running` or `parked`."""
    attempts: int = 0
    due: float | None = None
    """Seconds since the epoch."""
    why: str = ""
    on: bool = True
    """Whether memory is on for the conversation."""


def queue_lines(rows: Sequence[QueueRow], jobs: Sequence[Job]) -> list[QueueLine]:
    """The conversations, and above them the work on the memory itself."""
    lines = [_line("", 0, job, False, True) for job in jobs if job.kind != EXTRACTION]
    return lines + [_line(row.conversation, row.pending, row.job, row.at_work, row.on, row.begins) for row in rows]


def _line(conversation: str, pending: int, job: Job | None, at_work: bool, on: bool, begins: float = 0.0) -> QueueLine:
    if job is None:
        return QueueLine(conversation, pending, subject=conversation, on=on)
    state = "running" if at_work else str(job.state)
    return QueueLine(conversation, pending, job.kind, job.subject, state, job.attempts,
                     max(begins, job.due), job.why, on)


def why_off(service: MemoryService, conversation: str) -> str:
    """Why a conversation has no memory, in a sentence; empty when it has."""
    if service.memory_on(conversation):
        return ""
    if not service.has_memory:
        return "An incognito run remembers nothing."
    if not service.settings.memory.enabled:
        return "Memory is switched off in the settings: memory.enabled = false."
    if any(known.id == conversation and not known.memory for known in service.conversations()):
        return "Memory is off in this conversation: nothing of it is noted, and nothing is recalled in it."
    return "This conversation goes to a service on the internet; memory.on_cloud = true allows memory there."

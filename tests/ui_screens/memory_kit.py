"""A memory for the tests of its screen: entries in a list, and a service as far as the screen asks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from screens_kit import NOW, T, conversation

from kvchat.chat.errors import ChatError
from kvchat.chat.events import ServiceEvent
from kvchat.config import Settings, changed
from kvchat.memory.entry import BY_HAND, BY_YOU, PROFILE, Act, Change, Entry, Kind, Status
from kvchat.prompt.conversation import Conversation
from kvchat.store.jobs import Job, JobState

R = TypeVar("R")
LAMP, HARBOUR = "1a" * 16, "2b" * 16
"""Two conversations; the first is the open one."""
MODEL = "/models/SmolLM2-135M-Instruct.gguf"


def entry(text: str, kind: Kind = Kind.FACT, *, ago: float = 3600, page: str = "", **more: Any) -> Entry:
    """An entry noted in a conversation, unless `more` says otherwise."""
    values: dict[str, Any] = {"conversation": HARBOUR, "nodes": ("n1", "n2"), "by": MODEL, "confidence": 0.9, **more}
    id = values.pop("id", f"m{abs(hash_of(text)):08x}"[:9])
    return Entry(id, kind, text, page or f"topics/{kind}s.md", T - ago, **values)


def hash_of(text: str) -> int:
    """The same on every machine."""
    return int.from_bytes(text.encode("utf-8", "replace")[-6:], "big") ^ len(text)


def by_you(text: str, kind: Kind = Kind.FACT, **more: Any) -> Entry:
    return entry(text, kind, **{"by": BY_YOU, "conversation": "", "nodes": (), "confidence": None, **more})


SAMPLE = (
    entry("The person keeps a lighthouse on the island of Hvar.", Kind.IDENTITY, ago=300, status=Status.PROPOSED,
          page=PROFILE, conversation=LAMP, nodes=("n9",)),
    entry("See https://example.org/handbook for every question about lamps.", ago=240, status=Status.PROPOSED,
          conversation=LAMP),
    entry("Prefers metric units.", Kind.PREFERENCE, ago=200, conversation=LAMP, nodes=("n4",)),
    entry("The lamp log is kept in a SQLite file, one row for each night.", Kind.PROJECT, ago=4000,
          page="topics/lamp-log.md"),
    entry("Mara, the harbour master, wants the report by the first of each month.", Kind.PERSON, ago=9000),
    entry("Oil is ordered from Split from now on, no longer from Rijeka.", Kind.DECISION, ago=90_000),
    entry("Knows Python well and is learning Rust.", Kind.SKILL, ago=200_000, edited=True),
    by_you("The tax number of the harbour office is 4711.", ago=700_000),
    by_you("Answer in British English.", Kind.PREFERENCE, page=PROFILE, ago=2_000_000, by=BY_HAND),
)


class Book:
    """Entries in a list, with a history. It keeps what `Memories` promises to the screen."""

    def __init__(self, *entries: Entry, folder: Path = Path("/home/mara/notes/memory")) -> None:
        self.all = {one.id: one for one in entries}
        self.folder = folder
        self.left: tuple[str, ...] = ()
        self.problems: tuple[str, ...] = ()
        self.history: list[Change] = []
        self.refuses = ""
        """The sentence with which every change is refused."""
        for one in sorted(entries, key=lambda one: one.created):
            if one.by not in (BY_YOU, BY_HAND):
                act = Act.PROPOSED if one.status is Status.PROPOSED else Act.NOTED
                why = "it says who you are" if one.kind is Kind.IDENTITY else "it has a link"
                self._put(act, one, at=one.created, why=why if act is Act.PROPOSED else "")

    def sync(self) -> bool:
        return False

    def entries(self, status: Status = Status.LIVE, kind: Kind | None = None) -> list[Entry]:
        found = [one for one in self.all.values() if one.status is status and kind in (None, one.kind)]
        return sorted(found, key=lambda one: -one.created)

    def _put(self, act: Act, after: Entry, *, at: float = T, why: str = "") -> Change:
        if self.refuses:
            raise ChatError(self.refuses)
        before = self.all.get(after.id) if act not in (Act.NOTED, Act.PROPOSED) else None
        self.all[after.id] = after
        change = Change(act, before, after, at, "run 1", why, len(self.history) + 1)
        self.history.append(change)
        return change

    def add(self, text: str, kind: Kind = Kind.FACT, page: str = "", conversation: str = "") -> Entry:
        same = next((one for one in self.entries() if one.text == text), None)
        return same or self._put(Act.ADDED, by_you(text, kind, ago=0, page=page, conversation=conversation)).after

    def edit(self, id: str, text: str) -> Entry:
        return self._put(Act.EDITED, replace(self.all[id], text=text)).after

    def delete(self, id: str) -> Change:
        return self._put(Act.DELETED, replace(self.all[id], status=Status.DELETED))

    def accept(self, id: str) -> Entry:
        return self._put(Act.ACCEPTED, replace(self.all[id], status=Status.LIVE)).after

    def move(self, id: str, page: str) -> Entry:
        return self._put(Act.MOVED, replace(self.all[id], page=page)).after

    def search(self, query: str, k: int = 20) -> list[tuple[Entry, object]]:
        """Whole words, the entry with the most of them first."""
        wanted = set(query.lower().split())
        found = [(len(wanted & set(one.text.lower().strip(".").split())), one) for one in self.entries()]
        return [(one, None) for many, one in sorted(found, key=lambda hit: -hit[0]) if many][:k]

    def log(self, limit: int = 50, *, session: str = "", conversation: str = "", entry: str = "") -> list[Change]:
        return [change for change in reversed(self.history)
                if session in ("", change.session) and conversation in ("", change.after.conversation)
                and entry in ("", change.after.id)][:limit]

    def undo(self, seq: int) -> Change:
        change = self.history[seq - 1]
        self.history[seq - 1] = replace(change, undone=True)
        return self._put(Act.RESTORED, change.before or replace(change.after, status=Status.DELETED))

    def undo_all(self, *, session: str = "", conversation: str = "", since: float = 0.0) -> int:
        mine = [change for change in self.log(1000, session=session, conversation=conversation)
                if change.act in (Act.NOTED, Act.PROPOSED) and not change.undone]
        for change in mine:
            self.undo(change.seq)
        return len(mine)


@dataclass(frozen=True)
class Row:
    """A line of the queue, as the service gives it."""

    conversation: str
    pending: int
    job: Job | None = None
    at_work: bool = False
    on: bool = True
    begins: float = 0.0


QUEUE = (
    Row(LAMP, 6, Job("extraction", LAMP, T + 42, why="enough new messages")),
    Row(HARBOUR, 12, Job("extraction", HARBOUR, T, 3, JobState.PARKED, "the answer was no JSON: Expecting value")),
)


class Service:
    """The service, as far as the screen asks it."""

    def __init__(self, book: Any, *, queue: Sequence[Row] = ()) -> None:
        self.book = book
        self.queue = list(queue)
        self.known = [conversation("lighthouse log", id=LAMP), conversation("harbour office", id=HARBOUR, ago=900)]
        self.settings: Settings = Settings()
        self.has_memory = True
        self.asked: list[tuple[str, ...]] = []
        self.listeners: list[Callable[[ServiceEvent], None]] = []
        self.trouble = ""

    async def with_memories(self, work: Callable[[Any], R]) -> R:
        if self.trouble:
            raise ChatError(self.trouble)
        return work(self.book)

    async def memory_queue(self) -> list[Row]:
        return self.queue

    def jobs(self) -> list[Job]:
        return [row.job for row in self.queue if row.job]

    async def retry_job(self, kind: str, subject: str) -> None:
        self.asked.append(("retry", kind, subject))

    async def retry_memory(self, id: str) -> None:
        self.asked.append(("retry", id))
        self.queue = [replace(row, job=None) if row.conversation == id else row for row in self.queue]

    async def remember_now(self, id: str) -> None:
        self.asked.append(("now", id))

    def memory_on(self, id: str) -> bool:
        return self.has_memory and self.settings.memory.enabled and next(c for c in self.known if c.id == id).memory

    async def set_memory(self, id: str, on: bool) -> None:
        self.known = [replace(known, memory=on) if known.id == id else known for known in self.known]

    def switch_off_everywhere(self) -> None:
        self.settings = changed(self.settings, "memory.enabled", False)

    def conversations(self) -> list[Conversation]:
        return self.known

    def subscribe(self, listener: Callable[[ServiceEvent], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def tell(self, event: ServiceEvent) -> None:
        for listener in list(self.listeners):
            listener(event)

    def now(self) -> datetime:
        return NOW


def service(*, queue: Sequence[Row] = QUEUE) -> Service:
    """A memory with a bit of everything."""
    return Service(Book(*SAMPLE), queue=queue)

"""A memory for the tests of its screen: entries in a list, and a service as far as the screen asks it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from screens_kit import NOW, T, TypedTexts, conversation

from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.errors import ChatError
from kvchat.chat.events import EventBus, ServiceEvent
from kvchat.config import Settings, changed
from kvchat.figures.accounting import SideTotals
from kvchat.memory.entry import BY_HAND, BY_YOU, PROFILE, Act, Change, Entry, Kind, Status
from kvchat.prompt.conversation import Conversation
from kvchat.store.jobs import Job, JobState
from kvchat.ui.screens.kit.manager import ManagerScreen
from kvchat.ui.screens.memory.source import MemorySource

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
    entry(
        "The person keeps a lighthouse on the island of Hvar.",
        Kind.IDENTITY,
        ago=300,
        status=Status.PENDING,
        page=PROFILE,
        conversation=LAMP,
        nodes=("n9",),
    ),
    entry(
        "See https://example.org/handbook for every question about lamps.",
        ago=240,
        status=Status.PENDING,
        conversation=LAMP,
    ),
    entry("Prefers metric units.", Kind.PREFERENCE, ago=200, conversation=LAMP, nodes=("n4",)),
    entry(
        "The lamp log is kept in a SQLite file, one row for each night.",
        Kind.PROJECT,
        ago=4000,
        page="topics/lamp-log.md",
    ),
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
                act = Act.PROPOSED if one.status is Status.PENDING else Act.NOTED
                why = "it says who you are" if one.kind is Kind.IDENTITY else "it has a link"
                self._put(act, one, at=one.created, why=why if act is Act.PROPOSED else "")

    def sync(self) -> bool:
        return False

    def entries(self, status: Status = Status.LIVE, kind: Kind | None = None) -> list[Entry]:
        found = [one for one in self.all.values() if one.status is status and kind in (None, one.kind)]
        return sorted(found, key=lambda one: -one.created)

    def _put(self, act: Act, after: Entry, *, at: float = T, why: str = "") -> Change:
        if self.refuses:
            raise ChatError.of(self.refuses)
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
        return [
            change
            for change in reversed(self.history)
            if session in ("", change.session)
            and conversation in ("", change.after.conversation)
            and entry in ("", change.after.id)
        ][:limit]

    def undo(self, seq: int) -> Change:
        change = self.history[seq - 1]
        self.history[seq - 1] = replace(change, undone=True)
        return self._put(Act.RESTORED, change.before or replace(change.after, status=Status.DELETED))

    def undo_all(self, *, session: str = "", conversation: str = "", since: float = 0.0) -> int:
        mine = [
            change
            for change in self.log(1000, session=session, conversation=conversation)
            if change.act in (Act.NOTED, Act.PROPOSED) and not change.undone
        ]
        for change in mine:
            self.undo(change.seq)
        return len(mine)


class Row(Struct, frozen=True):
    """A line of the queue, as the service gives it."""

    conversation: str
    pending: int
    job: Job | None = None
    at_work: bool = False
    on: bool = True
    begins: float = 0.0


QUEUE = (
    Row(LAMP, 6, Job("extraction", LAMP, T + 42, why="enough new messages")),
    Row(HARBOUR, 12, Job("extraction", HARBOUR, T, 3, JobState.PAUSED, "the answer was no JSON: Expecting value")),
)


class Service:
    """The parts of the service that the memory source asks: the real `MemoryService` on a sample book."""

    def __init__(self, book: Any, *, queue: Sequence[Row] = ()) -> None:
        self.book = book
        self.rows = list(queue)
        self.typed = TypedTexts()
        self.known = [conversation("lighthouse log", id=LAMP), conversation("harbour office", id=HARBOUR, ago=900)]
        self.settings: Settings = Settings()
        self.asked: list[tuple[str, ...]] = []
        self.events = EventBus()
        self.trouble = ""
        """The sentence with which the memory cannot be opened."""
        self.spent = SideTotals()
        self.store = SimpleNamespace(side_requests=SimpleNamespace(totals=lambda since: self.spent))
        self.is_demo = False
        self.extraction, self.jobs, self.conversations, self.servers = self, Jobs(self), self, self
        self.clock, self.drafts = lambda: NOW, self.typed
        self.memory = MemoryService(self, self._opened, self._no_vector)  # type: ignore[arg-type]

    def source(self, **options: Any) -> MemorySource:
        return MemorySource(self, LAMP, **options)  # type: ignore[arg-type]

    def screen(self, **options: Any) -> ManagerScreen:
        return ManagerScreen(self.source(**options), self.events)

    def _opened(self) -> Any:
        if self.trouble:
            raise ChatError.of(self.trouble)
        return self.book

    async def _no_vector(self, question: str) -> None:
        return None

    def tell(self, event: ServiceEvent) -> None:
        self.events.tell(event)

    def timestamp(self) -> float:
        return T

    # the queue

    async def queue(self) -> list[Row]:
        return [row for row in self.rows if row.conversation]

    async def retry(self, id: str) -> None:
        self.asked.append(("retry", id))
        self.rows = [replace(row, job=None) if row.conversation == id else row for row in self.rows]

    async def request(self, id: str) -> None:
        self.asked.append(("now", id))

    async def set_memory(self, id: str, on: bool) -> None:
        self.known = [replace(known, memory=on) if known.id == id else known for known in self.known]

    def switch_off_everywhere(self) -> None:
        self.settings = changed(self.settings, "memory.enabled", False)

    # the conversations, and where they go

    def all(self) -> list[Conversation]:
        return self.known

    def record(self, id: str) -> Conversation | None:
        return next((one for one in self.known if one.id == id), None)

    def link(self, id: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(is_demo=True) if self.is_demo else None)

    def is_on_the_internet(self, link: object) -> bool:
        return False


class Jobs:
    """The jobs behind the lines of the queue."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def all(self) -> list[Job]:
        return [row.job for row in self._service.rows if row.job]

    async def retry(self, kind: str, subject: str) -> None:
        self._service.asked.append(("retry", kind, subject))


def service(*, queue: Sequence[Row] = QUEUE) -> Service:
    """A memory with a bit of everything."""
    return Service(Book(*SAMPLE), queue=queue)

"""Work that can wait: durable jobs, done in spare time, one at a time on each server.

A job starts when it is due, its server has rested and the user does not type; whatever else wants the server ends it,
and it goes back to the queue. It never starts because it has waited long enough, and a crash or a quit loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.errors import ChatError
from kvchat.chat.events import CompactionChanged, JobsChanged, ServerChanged, ServiceEvent, WarmthChanged
from kvchat.chat.ground import Ground
from kvchat.chat.server.lane import Lane
from kvchat.store import StoreError
from kvchat.store.jobs import Job, JobState

TRIES = 3
"""Pause a job after this many unusable answers."""
BACK_OFF_S = 30.0
"""Seconds of the first pause after a failure; each further one is twice as long."""
LONGEST_PAUSE_S = 3600.0
CALLED_OFF_S = 1.0
"""Seconds of the pause of a job that was ended by something that goes first."""
ELSEWHERE_S = 30.0
"""Seconds for which a job that another kvchat does is left alone."""
STOP_S = 1.0
SUMMARY = "summary"
"""The kind of job that comes behind all others, and ends with the next key: it is long, and only spares a wait."""
TYPING_S = 2.0
"""Seconds after the last key in which the user counts as typing, however short the rest of the settings is."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class JobResult(Enum):
    """How a job ended."""

    DONE = auto()
    BUSY = auto()
    """The server was in use before it began."""
    CALLED_OFF = auto()
    """Something that goes first ended it."""
    FAILED = auto()
    """The server could not be asked."""
    USELESS = auto()
    """The answer could not be used."""


class Outcome(Struct, frozen=True):
    """How a job ended, and why where it failed."""

    result: JobResult
    why: str = ""


class JobPlace(Struct, frozen=True):
    """Where a job is done, and from when on."""

    lane: Lane
    ready: float
    """Seconds since the epoch."""


class JobHandler(Protocol):
    """What does the jobs of one kind."""

    kind: str

    async def place_of(self, job: Job) -> JobPlace | None:
        """Where and when a job can be done; None: not now, and whatever changes that stirs the runner."""

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        """Do a job."""

    async def retried(self, subject: str) -> None:
        """The user wants a job done that had failed: it is in the queue again."""


class Jobs(ConversationObserver):
    """The queue, and the runner of its jobs. A job whose subject is a conversation goes with it."""

    def __init__(self, ground: Ground) -> None:
        self.enabled = False
        """Whether jobs are done at all: the app sets it."""
        self._store = ground.store
        self._writer = ground.writer
        self._tell = ground.events.tell
        self._handlers: dict[str, JobHandler] = {}
        self._builders: dict[str, Callable[[], object]] = {}
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._at_work: dict[tuple[str, str], tuple[Lane, asyncio.Task[None]]] = {}
        self._awaited: dict[Lane, asyncio.Task[None]] = {}
        self._elsewhere: dict[tuple[str, str], float] = {}
        """Jobs that another kvchat does, until when they are left alone."""
        self.typed_at = 0.0
        self._open = ""
        """The conversation that is looked at, whose jobs go first."""
        self.observers: list[Callable[[Job, JobResult], None]] = []
        """Called with every job that was worked on and how that ended, when the queue has it."""
        ground.events.subscribe(self._heard)

    def register(self, handler: JobHandler) -> None:
        """Have the jobs of a kind done by this handler."""
        self._handlers[handler.kind] = handler

    def register_later(self, kind: str, build: Callable[[], object]) -> None:
        """Have the jobs of a kind done by the handler that `build` makes and registers when there is the first one."""
        self._builders[kind] = build

    def _handler_of(self, kind: str) -> JobHandler | None:
        """None: the kind may be a later version's."""
        if kind not in self._handlers and (build := self._builders.get(kind)) is not None:
            build()
        return self._handlers.get(kind)

    def begin(self) -> None:
        """Do what is due from now on, until `aclose`."""
        if self.enabled and self._runner is None:
            self.typed()  # the user has just come
            self._runner = asyncio.create_task(self._run())

    def all(self) -> list[Job]:
        """The queue, the first due first."""
        return self._store.jobs.all()

    async def begins_at(self, job: Job) -> float | None:
        """When a job can begin at the earliest, in seconds since the epoch; None: it is not known."""
        handler = self._handler_of(job.kind)
        place = await handler.place_of(job) if handler is not None else None
        return max(job.due, place.ready) if place is not None else None

    def at_work(self) -> frozenset[tuple[str, str]]:
        """Kind and subject of the jobs that this kvchat is doing."""
        return frozenset(self._at_work)

    async def queued(self, work: Callable[[], T]) -> T:
        """The result of `work`, a look at the queue or a change of it that the user asked for. Raises ChatError."""
        try:
            return await self._writer.call(work)
        except StoreError as error:
            raise ChatError.of(error) from None

    async def retry(self, kind: str, subject: str) -> None:
        """Try a paused job again. Raises ChatError."""
        await self.queued(lambda: self._store.jobs.retry(kind, subject, time.time()))
        if (handler := self._handler_of(kind)) is not None:
            await handler.retried(subject)
        self.changed()

    def look_again(self) -> None:
        """Another kvchat may have put something into the queue, or given it back."""
        self._elsewhere.clear()
        self.wake()

    def wake(self) -> None:
        """Have the runner see what is due now."""
        self._wake.set()

    def _heard(self, event: ServiceEvent) -> None:
        """What happened may decide when a job can begin."""
        if isinstance(event, WarmthChanged | ServerChanged | CompactionChanged):
            self.wake()

    def typed(self, id: str = "") -> None:
        """The user types: what has not begun waits, and a summary ends."""
        self.typed_at = time.time()
        for (kind, _), (_, task) in self._at_work.items():
            if kind == SUMMARY and not task.cancelling():
                task.cancel()

    def opened(self, id: str, before: str) -> None:
        self._open = id
        self.typed()  # the user is there

    def rested_at(self, quiet_since: float, rest: float) -> float:
        """When a server that is quiet since `quiet_since` has rested for `rest` seconds, as has the keyboard; all in
        seconds, the moments since the epoch."""
        return max(quiet_since + rest, self.typed_at + max(rest, TYPING_S))

    # -- the runner -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                pause = await self.start_due()
            except StoreError as error:
                log.info("the queue could not be read: %s", error)
                pause = BACK_OFF_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def start_due(self) -> float | None:
        """Start what is due; seconds until the next is. None: nothing is, before something changes."""
        pauses: list[float] = []
        jobs = await self._writer.call(self._store.jobs.all)
        for job in sorted(jobs, key=self._order):
            key = job.kind, job.subject
            if job.state is JobState.PAUSED or key in self._at_work:
                continue
            handler = self._handler_of(job.kind)
            place = await handler.place_of(job) if handler is not None else None
            if place is None or self._occupied(place.lane):
                continue
            pause = max(job.due, place.ready, self._elsewhere.get(key, 0.0)) - time.time()
            if pause <= 0:
                task = asyncio.create_task(self._do(job, place.lane))
                self._at_work[key] = place.lane, task
            else:
                pauses.append(pause)
        return min(pauses, default=None)

    def _order(self, job: Job) -> tuple[bool, int, bool, float]:
        """The order of jobs that can begin."""
        return job.kind == SUMMARY, job.attempts, job.subject != self._open, job.due

    def _occupied(self, lane: Lane) -> bool:
        """Whether a lane is in use; then the runner wakes when it is free."""
        if any(lane is other for other, _ in self._at_work.values()) or lane in self._awaited:
            return True
        if lane.is_free and not lane.works_in_background:
            return False
        self._await(lane)
        return True

    def _await(self, lane: Lane) -> None:
        if lane not in self._awaited:
            task = self._awaited[lane] = asyncio.create_task(lane.freed())
            task.add_done_callback(partial(self._is_free, lane))

    def _is_free(self, lane: Lane, task: asyncio.Task[None]) -> None:
        self._awaited.pop(lane, None)
        self._wake.set()

    async def _do(self, job: Job, lane: Lane) -> None:
        jobs = self._store.jobs
        key, outcome = (job.kind, job.subject), Outcome(JobResult.CALLED_OFF)
        try:
            if await self._writer.call(lambda: jobs.claim(*key)) is None:
                self._elsewhere[key] = time.time() + ELSEWHERE_S
                return
            self._elsewhere.pop(key, None)
            self._tell(JobsChanged())
            try:
                outcome = await self._handlers[job.kind].work_on(job, lane)
            except Exception as error:  # the app lives on, whatever a job does
                log.exception("a job failed")
                outcome = Outcome(JobResult.FAILED, f"{type(error).__name__}: {error}")
            finally:
                await self._settle(job, outcome)
            if outcome.result is JobResult.BUSY:
                self._await(lane)
        except StoreError as error:
            log.info("a job could not be noted: %s", error)
        finally:
            del self._at_work[key]
            self.changed()
            for observer in self.observers:
                observer(job, outcome.result)

    async def _settle(self, job: Job, outcome: Outcome) -> None:
        """Note how a job ended."""
        jobs, key, tries = self._store.jobs, (job.kind, job.subject), job.attempts + 1
        pause = min(BACK_OFF_S * 2**job.attempts, LONGEST_PAUSE_S)
        match outcome.result:
            case JobResult.DONE:
                await self._writer.call(lambda: jobs.done(*key))
            case JobResult.BUSY:
                await self._writer.call(lambda: jobs.back(*key, job.due, job.why, job.attempts))
            case JobResult.CALLED_OFF:
                await self._writer.call(
                    lambda: jobs.back(*key, max(job.due, time.time() + CALLED_OFF_S), job.why, job.attempts)
                )
            case JobResult.USELESS if tries >= TRIES:
                await self._writer.call(lambda: jobs.pause(*key, outcome.why))
            case _:
                await self._writer.call(lambda: jobs.back(*key, time.time() + pause, outcome.why, tries))

    async def in_lane(self, lane: Lane, request: Callable[[], Awaitable[T]]) -> tuple[T | None, bool]:
        """The result of a request in the background, None if it did not come to its end; and whether it began."""
        given: T | None = None
        began = False

        async def ask() -> None:
            nonlocal given, began
            began = True
            given = await request()

        done = await lane.in_background(ask())
        return (given if done else None), began

    async def drop(self, kind: str, subject: str) -> None:
        """End a job for good, also while it is being done."""
        running = self._at_work.get((kind, subject))
        if running is not None:
            running[1].cancel()
            await asyncio.wait({running[1]}, timeout=STOP_S)
        await self._writer.call(lambda: self._store.jobs.done(kind, subject))
        self.changed()

    def changed(self) -> None:
        """The queue was changed."""
        self.wake()
        self._tell(JobsChanged())

    async def deleting(self, id: str) -> None:
        for job in await self._writer.call(self._store.jobs.all):
            if job.subject == id:
                await self.drop(job.kind, id)

    async def aclose(self) -> None:
        """End what runs; it goes back to the queue."""
        tasks = {task for _, task in self._at_work.values()} | set(self._awaited.values())
        if self._runner is not None:
            tasks.add(self._runner)
            self._runner = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)

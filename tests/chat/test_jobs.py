"""Jobs in spare time: each once, one at a time on a server, none lost, and none that holds up another server's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from remembering_kit import until

from kvchat.chat.background import jobs
from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.server.lane import Lane
from kvchat.chat.service import ChatService
from kvchat.config import Settings
from kvchat.store import Store
from kvchat.store.jobs import Job, JobState

KIND = "test"
Act = Callable[[Job], Awaitable[Outcome]]


class Handler:
    """Its jobs do what the test says, each on the lane of its subject's first letter."""

    kind = KIND

    def __init__(self, jobs: Jobs, act: Act, lanes: dict[str, Lane], ready: Callable[[], float]) -> None:
        self.jobs, self.act, self.lanes, self.ready = jobs, act, lanes, ready

    async def place_of(self, job: Job) -> JobPlace | None:
        return JobPlace(self.lanes.setdefault(job.subject[:1], Lane()), self.ready())

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        outcome, began = await self.jobs.in_lane(lane, lambda: self.act(job))
        return outcome or Outcome(JobResult.CALLED_OFF if began else JobResult.BUSY)

    async def retried(self, subject: str) -> None:
        """It is due as it is."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(jobs, "BACK_OFF_S", 0.0)


@pytest.fixture
def working(tmp_path):
    """Opens a service on the test's store."""

    @asynccontextmanager
    async def start(act: Act, lanes: dict[str, Lane] | None = None, ready: Callable[[], float] = lambda: 0.0):
        service = ChatService(Store.open(tmp_path / "data"), Settings())
        service.jobs.register(Handler(service.jobs, act, {} if lanes is None else lanes, ready))
        service.jobs.enabled = True
        try:
            yield service
        finally:
            await service.aclose()

    return start


def put(service, *subjects, due=0.0):
    for subject in subjects:
        service.store.jobs.put(KIND, subject, due)


async def test_a_job_that_hangs_holds_up_no_other_server(working):
    done = []

    async def act(job):
        if job.subject == "hangs":
            await asyncio.Event().wait()
        done.append(job.subject)
        return Outcome(JobResult.DONE)

    async with working(act) as service:
        put(service, "hangs", "also here", "by itself")
        service.begin_background()
        await until(service, lambda: service.jobs.at_work() == {(KIND, "hangs")} and len(service.jobs.all()) == 1)
        assert sorted(done) == ["also here", "by itself"]
    with_the_next = Store.open(service.store.database.path.parent)
    assert [(job.subject, job.state, job.attempts) for job in with_the_next.jobs.all()] == [
        ("hangs", JobState.WAITING, 0)
    ]
    with_the_next.close()


async def test_answers_of_no_use_park_a_job_after_three_and_the_person_tries_again(working):
    tries = []

    async def act(job):
        tries.append(job.attempts)
        return Outcome(JobResult.USELESS, "no JSON") if len(tries) < 4 else Outcome(JobResult.DONE)

    async with working(act) as service:
        put(service, "a")
        service.begin_background()
        await until(service, lambda: [job.state for job in service.jobs.all()] == [JobState.PAUSED])
        assert tries == [0, 1, 2]
        assert service.jobs.all()[0].why == "no JSON"
        await service.jobs.retry(KIND, "a")
        await until(service, lambda: service.jobs.all() == [])
        assert len(tries) == 4


async def test_a_job_that_fails_or_raises_is_tried_again_and_never_parked(working):
    tries = []

    async def act(job):
        tries.append(job.attempts)
        if len(tries) % 2:
            raise ValueError("something is wrong in here")
        return Outcome(JobResult.FAILED, "no answer") if len(tries) < 8 else Outcome(JobResult.DONE)

    async with working(act) as service:
        put(service, "a")
        service.begin_background()
        await until(service, lambda: service.jobs.all() == [])
        assert tries == list(range(8))


async def test_a_chat_ends_a_job_and_it_is_done_later_without_counting_as_a_try(working):
    lane, begun, closed = Lane(), asyncio.Queue(), []
    free = asyncio.Event()

    async def act(job):
        begun.put_nowait(job.attempts)
        try:
            await free.wait()
        finally:
            closed.append(job)
        return Outcome(JobResult.DONE)

    async with working(act, {"a": lane}) as service:
        put(service, "a")
        service.begin_background()
        assert await begun.get() == 0
        async with lane.chat("conversation"):
            assert closed
            await until(service, lambda: not service.jobs.at_work())
            assert [job.state for job in service.jobs.all()] == [JobState.WAITING]
            assert begun.empty()
            free.set()
        assert await begun.get() == 0
        await until(service, lambda: service.jobs.all() == [])


async def test_nothing_begins_before_it_is_due_or_its_server_has_rested(working):
    began = []
    quiet = time.time() + 0.3

    async def act(job):
        began.append(time.time())
        return Outcome(JobResult.DONE)

    async with working(act, ready=lambda: quiet) as service:
        put(service, "at once")
        put(service, "later", due=quiet + 0.2)
        service.begin_background()
        await until(service, lambda: service.jobs.all() == [])
    assert began[0] >= quiet and began[1] >= quiet + 0.2


async def test_two_kvchats_do_a_job_once(working):
    done = []

    async def act(job):
        done.append(job.subject)
        await asyncio.sleep(0)
        return Outcome(JobResult.DONE)

    async with working(act) as one, working(act) as other:
        put(one, *"abcdefgh")
        one.begin_background()
        other.begin_background()
        await until(one, lambda: one.jobs.all() == [])
        await until(other, lambda: not other.jobs.at_work() and not one.jobs.at_work())
    assert sorted(done) == list("abcdefgh")


async def test_a_job_that_another_kvchat_does_is_left_alone_until_it_is_done(working):
    hold, tried = asyncio.Event(), 0

    async def act(job):
        await hold.wait()
        return Outcome(JobResult.DONE)

    async with working(act) as one, working(act) as other:
        claim = other.store.jobs.claim

        def counted(*key):
            nonlocal tried
            tried += 1
            return claim(*key)

        other.store.jobs.claim = counted
        put(one, "a")
        one.begin_background()
        await until(one, one.jobs.at_work)
        other.begin_background()
        for _ in range(20):
            other.jobs.wake()
            await asyncio.sleep(0.02)
        hold.set()
    assert 1 <= tried <= 3, f"the store was written to {tried} times for a job that another kvchat does"


@pytest.mark.parametrize("kind", ["extraction", "consolidation", "skills", "episodes", "title", "trunk"])
async def test_a_kind_of_job_is_built_when_there_is_one(tmp_path, monkeypatch, kind):
    built, register = [], Jobs.register
    monkeypatch.setattr(Jobs, "register", lambda self, handler: (built.append(handler.kind), register(self, handler)))
    service = ChatService(Store.open(tmp_path), Settings())
    assert kind not in built
    await service.jobs.retry(kind, "")
    assert kind in built
    await service.aclose()

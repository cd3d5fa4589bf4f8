"""Work that waits survives the end of kvchat and is done by one kvchat at a time."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvchat.store import Store, StoreUnavailable
from kvchat.store.jobs import Job, JobReason, JobRows, JobState


@pytest.fixture
def jobs(folder: Path) -> Iterator[JobRows]:
    ticks = itertools.count()  # the opening takes 0
    store = Store.open(folder, clock=lambda: float(next(ticks)))
    yield store.jobs
    store.close()


@contextmanager
def killed_in_the_end(children: list) -> Iterator[list]:
    """Child processes that wait for ever."""
    try:
        yield children
    finally:
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL


def the(jobs: JobRows) -> Job:
    (job,) = jobs.all()
    return job


def test_a_job_waits_until_it_is_claimed_and_is_gone_when_it_is_done(jobs):
    jobs.put("extract", "a", 10.0, "four new messages")
    waiting = Job("extract", "a", 10.0, 0, JobState.WAITING, "four new messages", 1.0)
    assert jobs.all() == [waiting]
    running = Job("extract", "a", 10.0, 0, JobState.RUNNING, "four new messages", 1.0)
    assert jobs.claim("extract", "a") == running == the(jobs)
    assert jobs.claim("extract", "a") is None
    jobs.done("extract", "a")
    assert jobs.all() == [] and jobs.claim("extract", "a") is None
    jobs.done("extract", "a")
    assert jobs.all() == []


def test_there_is_one_job_for_a_kind_and_a_subject_in_the_order_of_their_time(jobs):
    for kind, subject, due in (("extract", "a", 3.0), ("extract", "b", 1.0), ("consolidate", "a", 2.0)):
        jobs.put(kind, subject, due)
    jobs.put("extract", "a", 0.5)
    assert [(job.kind, job.subject, job.due) for job in jobs.all()] == [
        ("extract", "a", 0.5),
        ("extract", "b", 1.0),
        ("consolidate", "a", 2.0),
    ]
    assert jobs.claim("consolidate", "b") is None
    assert jobs.claim("consolidate", "a").due == 2.0


@pytest.mark.parametrize("due", [5.0, 100.0])
def test_a_waiting_job_put_again_gets_the_new_time_and_reason(jobs, due):
    jobs.put("extract", "a", 10.0, "idle")
    jobs.put("extract", "a", due)
    assert the(jobs) == Job("extract", "a", due, 0, JobState.WAITING, "idle", 1.0)
    jobs.put("extract", "a", due, "left")
    assert the(jobs).why == "left"


def test_a_job_that_the_person_asked_for_is_not_put_off(jobs):
    jobs.put("extract", "a", 100.0, JobReason.RESTS)
    jobs.put("extract", "a", 10.0, JobReason.ASKED)
    for due in (5.0, 100.0):
        jobs.put("extract", "a", due, JobReason.RESTS)
        assert (the(jobs).due, the(jobs).why) == (10.0, JobReason.ASKED)
    jobs.put("extract", "a", 20.0, JobReason.ASKED)
    assert the(jobs).due == 20.0


def test_a_job_in_its_back_off_is_put_no_earlier(jobs):
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    jobs.back("extract", "a", 60.0, "the server did not answer", 2)
    assert the(jobs) == Job("extract", "a", 60.0, 2, JobState.WAITING, "the server did not answer", 1.0)
    for due, expected in ((20.0, 60.0), (90.0, 90.0), (70.0, 70.0), (30.0, 60.0)):
        jobs.put("extract", "a", due)
        assert (the(jobs).due, the(jobs).attempts, the(jobs).why) == (expected, 2, "the server did not answer")
    assert jobs.claim("extract", "a").attempts == 2


def test_a_job_that_went_back_without_a_failed_attempt_has_no_back_off(jobs):
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    jobs.back("extract", "a", 60.0, "you wrote", 0)
    jobs.put("extract", "a", 20.0)
    assert the(jobs).due == 20.0


def test_a_running_job_put_again_waits_once_more_when_it_is_done(jobs):
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    jobs.back("extract", "a", 10.0, "failed", 1)
    jobs.claim("extract", "a")
    jobs.put("extract", "a", 20.0, "more")
    jobs.put("extract", "a", 30.0, "more still")
    assert the(jobs) == Job("extract", "a", 10.0, 1, JobState.RUNNING, "failed", 1.0)
    jobs.done("extract", "a")
    assert the(jobs) == Job("extract", "a", 30.0, 0, JobState.WAITING, "", 1.0)
    jobs.put("extract", "a", 5.0)
    assert the(jobs).due == 5.0
    jobs.claim("extract", "a")
    jobs.done("extract", "a")
    assert jobs.all() == []


def test_what_was_put_before_a_failed_run_is_part_of_the_next_one(jobs):
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    jobs.put("extract", "a", 20.0)
    jobs.back("extract", "a", 60.0, "failed", 1)
    jobs.claim("extract", "a")
    jobs.done("extract", "a")
    assert jobs.all() == []


def test_a_parked_job_waits_for_the_person(jobs):
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    jobs.back("extract", "a", 60.0, "failed", 3)
    jobs.claim("extract", "a")
    jobs.pause("extract", "a", "three unusable answers")
    paused = Job("extract", "a", 60.0, 3, JobState.PAUSED, "three unusable answers", 1.0)
    assert the(jobs) == paused and jobs.claim("extract", "a") is None
    jobs.put("extract", "a", 20.0, "more")
    assert the(jobs) == paused
    jobs.retry("extract", "a", 15.0)
    assert the(jobs) == Job("extract", "a", 15.0, 0, JobState.WAITING, "", 1.0)
    assert jobs.claim("extract", "a")
    jobs.retry("extract", "a", 99.0)
    assert the(jobs).state is JobState.RUNNING and the(jobs).due == 15.0
    jobs.done("extract", "a")
    assert jobs.all() == []


def test_a_job_in_its_back_off_can_be_begun_at_once(jobs):
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    jobs.back("extract", "a", 60.0, "failed", 2)
    jobs.retry("extract", "a", 11.0)
    assert (the(jobs).due, the(jobs).attempts, the(jobs).state) == (11.0, 0, JobState.WAITING)
    jobs.put("extract", "a", 5.0)
    assert the(jobs).due == 5.0


def test_an_empty_queue_takes_every_call(jobs):
    jobs.done("extract", "a")
    jobs.back("extract", "a", 1.0, "", 1)
    jobs.pause("extract", "a", "")
    jobs.retry("extract", "a", 1.0)
    assert jobs.all() == [] and jobs.claim("extract", "a") is None and jobs.recover() == 0


def test_a_store_in_memory_has_a_queue_too():
    store = Store.open(None, clock=lambda: 7.0)
    store.jobs.put("extract", "a", 1.0, "half \ud83d")
    assert store.jobs.claim("extract", "a") == Job("extract", "a", 1.0, 0, JobState.RUNNING, "half �", 7.0)
    assert store.jobs.recover() == 0 and store.jobs.claim("extract", "a") is None
    store.close()
    with pytest.raises(StoreUnavailable):
        store.jobs.all()


def test_what_another_kvchat_runs_is_its_own_to_end(folder, jobs):
    other = Store.open(folder)
    jobs.put("extract", "a", 10.0)
    jobs.claim("extract", "a")
    assert other.jobs.claim("extract", "a") is None
    other.jobs.done("extract", "a")
    other.jobs.back("extract", "a", 99.0, "mine", 5)
    other.jobs.pause("extract", "a", "mine")
    other.jobs.retry("extract", "a", 99.0)
    assert other.jobs.recover() == 0
    assert other.jobs.all() == jobs.all() == [Job("extract", "a", 10.0, 0, JobState.RUNNING, "", 1.0)]
    other.jobs.put("extract", "a", 20.0)
    jobs.done("extract", "a")
    assert other.jobs.claim("extract", "a").due == 20.0 and jobs.claim("extract", "a") is None
    other.close()


def test_a_job_is_free_again_when_the_kvchat_that_ran_it_is_closed(folder, jobs):
    other = Store.open(folder)
    for subject in ("a", "b", "c"):
        jobs.put("extract", subject, 10.0)
        other.jobs.claim("extract", subject)
    other.jobs.back("extract", "c", 50.0, "failed", 2)
    other.jobs.put("extract", "b", 99.0)
    other.close()
    assert jobs.claim("extract", "a").state is JobState.RUNNING
    assert jobs.recover() == 1
    assert [(job.subject, job.state.value, job.due, job.attempts) for job in jobs.all()] == [
        ("a", "running", 10.0, 0),
        ("b", "waiting", 10.0, 0),
        ("c", "waiting", 50.0, 2),
    ]
    jobs.claim("extract", "b")
    jobs.done("extract", "b")
    assert [job.subject for job in jobs.all()] == ["a", "c"]


def test_a_store_that_opens_finds_the_jobs_of_kvchats_that_are_gone_waiting(folder):
    store = Store.open(folder)
    store.jobs.put("extract", "a", 10.0, "idle")
    store.jobs.claim("extract", "a")
    store.close()
    store = Store.open(folder)
    assert the(store.jobs).state is JobState.WAITING and the(store.jobs).why == "idle"
    assert store.notices == []
    store.close()


@pytest.mark.process
def test_a_job_of_a_killed_kvchat_is_free_again(folder, jobs):
    from forked import fork

    def hang(say) -> None:
        store = Store.open(folder)
        for subject in ("a", "b"):
            store.jobs.put("extract", subject, 10.0)
            store.jobs.claim("extract", subject)
        say("claimed")
        signal.pause()

    with killed_in_the_end([fork(hang)]) as (child,):
        assert child.said.readline() == b"claimed\n"
        assert jobs.claim("extract", "a") is None and jobs.recover() == 0
    assert jobs.claim("extract", "a").due == 10.0
    assert jobs.recover() == 1
    assert [job.state.value for job in jobs.all()] == ["running", "waiting"]


def test_of_many_threads_one_has_each_job(jobs):
    subjects = [str(number) for number in range(20)]
    for subject in subjects:
        jobs.put("extract", subject, 10.0)
    gate = threading.Barrier(4)

    def claim(number: int) -> list[str]:
        gate.wait()
        return [subject for subject in subjects[number:] + subjects[:number] if jobs.claim("extract", subject)]

    with ThreadPoolExecutor(4) as threads:
        had = [subject for mine in threads.map(claim, range(4)) for subject in mine]
    assert sorted(had) == sorted(subjects)


@pytest.mark.process
def test_of_many_kvchats_one_has_each_job(folder, jobs):
    from forked import fork

    subjects = [str(number) for number in range(20)]
    for subject in subjects:
        jobs.put("extract", subject, 10.0)
    ready, go = os.pipe()

    def claim(number: int, say) -> None:
        store = Store.open(folder)
        os.close(go)
        say("ready")
        os.read(ready, 1)
        say(" ".join(s for s in subjects[number:] + subjects[:number] if store.jobs.claim("extract", s)))
        signal.pause()

    children = [fork(lambda say, number=number: claim(number, say)) for number in range(4)]
    with killed_in_the_end(children):
        assert [child.said.readline() for child in children] == [b"ready\n"] * 4
        os.close(go)
        had = [subject for child in children for subject in child.said.readline().decode().split()]
        assert sorted(had) == sorted(subjects)
        assert not any(jobs.claim("extract", subject) for subject in subjects)
    os.close(ready)
    assert jobs.recover() == 20 and all(jobs.claim("extract", subject) for subject in subjects)

"""The indexing process: that it does its job, ends when it should, and loses nothing when it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from indexing_kit import OPTIONS, collection, indexed, made

from corpus import corpus
from kvchat.documents.collection import IndexingProgress, IndexingReport, Skipped
from kvchat.documents.indexing import process
from kvchat.documents.indexing.index_lock import alone
from kvchat.documents.indexing.index_run import ELSEWHERE, STOPPED, UNWRITABLE, is_stale
from kvchat.documents.indexing.worker import IndexingJob, parsed_line
from kvchat.index.index import Index
from tries import tries

KILLS = 20


def many(folder: Path, count: int = 400) -> Path:
    """A folder of files that take a while."""
    words = random.Random(1).choices(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"], k=30_000)
    return made(
        folder, {f"{i % 7}/{i}.md": f"# File {i}\n\n" + " ".join(words[i * 70 : i * 70 + 2000]) for i in range(count)}
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "index.db"


def begun(data: Path, root: Path, command: Sequence[str] = process.COMMAND) -> subprocess.Popen[bytes]:
    """The process, with its job, at work."""
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pipesize=4096
    )
    assert child.stdin
    child.stdin.write(IndexingJob(str(data), collection(root), OPTIONS, False).line + b"\n")
    child.stdin.flush()
    return child


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_it_indexes_and_tells_how_far_it_is(data: Path, tmp_path: Path) -> None:
    root = many(tmp_path / "r", 50)
    (root / "link").symlink_to("0")
    told: list[IndexingProgress] = []
    report = await process.indexed(data, collection(root), OPTIONS, told.append)
    assert (report.added, report.trouble) == (50, "") and report.skipped == (Skipped("link", "is a symbolic link"),)
    assert told and told[-1].share == 1.0 and told[-1].collection == "notes"
    index, fresh = Index.open(data), Index.open(None)
    indexed(fresh, root)
    assert index.digest() == fresh.digest()
    index.close()
    assert (await process.indexed(data, collection(root), OPTIONS, told.append)).unchanged == 50


async def test_it_reads_all_anew_when_asked(data: Path, tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "one"})
    await process.indexed(data, collection(root), OPTIONS, lambda _: None)
    told: list[IndexingProgress] = []
    report = await process.indexed(data, collection(root), OPTIONS, told.append, rebuild=True)
    assert report.unchanged == 1 and told[-1].bytes_skipped == 0


async def test_a_cancellation_ends_it_and_keeps_what_is_done(data: Path, tmp_path: Path) -> None:
    root = many(tmp_path / "r")
    pids: list[int] = []
    create = asyncio.create_subprocess_exec

    async def creating(*command: str, **options: object) -> asyncio.subprocess.Process:
        child = await create(*command, **options)  # type: ignore[arg-type]
        pids.append(child.pid)
        return child

    reading = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", creating)
        task = asyncio.create_task(
            process.indexed(
                data, collection(root), OPTIONS, lambda progress: reading.set() if progress.files > 5 else None
            )
        )
        await asyncio.wait_for(reading.wait(), 120)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert has_ended(pids[0])
    index = Index.open(data)
    assert 0 < len(index.docs()) < 400
    index.close()


@pytest.mark.process
async def test_a_process_that_hangs_is_killed_after_a_cancellation(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_S", 0.2)
    pid = tmp_path / "pid"
    monkeypatch.setattr(
        process,
        "COMMAND",
        (
            sys.executable,
            "-c",
            "import os, pathlib, sys, time; "
            f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); print(flush=True); time.sleep(600)",
        ),
    )
    task = asyncio.create_task(process.indexed(data, collection(tmp_path), OPTIONS, lambda _: None))
    for _ in range(400):
        if pid.exists() and pid.read_text():
            break
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert has_ended(int(pid.read_text()))


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL; the machine may have run out of memory"),
        ("import sys; sys.exit('no such module')", "exit code 1: no such module"),
        ("print('not json'); print('{}'); print('[]'); print('{\"report\": 1}')", "exit code 0"),
        ("print('x' * 300000)", "exit code 0"),
    ],
)
async def test_a_process_that_dies_is_a_sentence_in_the_report(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", code))
    report = await process.indexed(data, collection(tmp_path), OPTIONS, lambda _: None)
    assert report.trouble == (
        f"The indexing process ended unexpectedly ({words}). What is done is kept; it goes on from there."
    )


async def test_a_process_that_cannot_be_started_is_a_sentence_in_the_report(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "COMMAND", (str(tmp_path / "nothing"),))
    report = await process.indexed(data, collection(tmp_path), OPTIONS, lambda _: None)
    assert report.trouble == "The indexing process cannot be started: no such file or directory."


async def test_an_index_that_cannot_be_written_is_a_sentence_in_the_report(data: Path, tmp_path: Path) -> None:
    data.mkdir()
    report = await process.indexed(data, collection(made(tmp_path / "r", {"a.md": "x"})), OPTIONS, lambda _: None)
    assert report.trouble == UNWRITABLE


async def test_a_collection_that_another_kvchat_indexes_is_left_to_it(data: Path, tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "x"})
    with alone(data, "notes"):
        assert (await process.indexed(data, collection(root), OPTIONS, lambda _: None)).trouble == ELSEWHERE
    assert (await process.indexed(data, collection(root), OPTIONS, lambda _: None)).added == 1


@pytest.mark.parametrize("how", ["stdin", "sigterm"])
def test_it_ends_at_the_next_file_when_the_app_is_gone(data: Path, tmp_path: Path, how: str) -> None:
    child = begun(data, many(tmp_path / "r"))
    assert child.stdin and child.stdout
    while not json.loads(child.stdout.readline())["progress"]["chunks"]:
        pass
    if how == "stdin":
        child.stdin.close()
    else:
        child.send_signal(signal.SIGTERM)
    said = parsed_line(child.stdout.read().splitlines()[-1])
    assert isinstance(said, IndexingReport) and said.trouble == STOPPED and 0 < said.added < 400
    assert child.wait(120) == 0


@pytest.mark.process
def test_it_ends_even_where_a_file_takes_for_ever(data: Path, tmp_path: Path) -> None:
    code = (
        "from kvchat.documents.indexing import index_run, worker; import time; "
        "index_run.loaded = lambda *_: time.sleep(600); index_run.PROGRESS_S = 0; worker.STOP_S = 0.2; "
        "worker.main()"
    )
    child = subprocess.Popen(
        (sys.executable, "-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin and child.stdout
    child.stdin.write(
        IndexingJob(str(data), collection(made(tmp_path / "r", {"a.md": "x"})), OPTIONS, False).line + b"\n"
    )
    child.stdin.flush()
    while json.loads(child.stdout.readline())["progress"]["path"] != "a.md":
        pass
    child.stdin.close()
    child.stdout.close()
    assert child.wait(120) == -signal.SIGKILL


def test_without_a_job_it_ends(data: Path) -> None:
    done = subprocess.run(process.COMMAND, input=b"", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_leaves_the_processor_to_others(data: Path, tmp_path: Path) -> None:
    child = begun(data, many(tmp_path / "r"))
    assert child.stdin and child.stdout
    child.stdout.readline()
    assert os.getpriority(os.PRIO_PROCESS, child.pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    child.stdin.close()
    child.stdout.close()
    child.wait(120)


@pytest.mark.process
@pytest.mark.parametrize("seed", range(tries("index_kills", KILLS) // KILLS))
def test_killed_at_any_moment_it_goes_on_where_it_was(data: Path, tmp_path: Path, seed: int) -> None:
    count = 800
    root = many(tmp_path / "r", count)
    small_steps = (
        sys.executable,
        "-c",
        "from kvchat.documents.indexing import index_run, worker; "
        "index_run.MOST_CHUNKS = 80; index_run.PROGRESS_S = 0; worker.main()",
    )
    draw = random.Random(7 + seed)
    done: list[int] = []
    for _ in range(KILLS):
        child = begun(data, root, small_steps)
        assert child.stdin and child.stdout
        while json.loads(child.stdout.readline())["progress"]["counting"]:
            pass
        for _ in range(draw.randint(0, 40)):
            child.stdout.readline()
        time.sleep(draw.uniform(0, 0.02))
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
        index = Index.open(data)
        assert index.path == data, "the index file was damaged"
        done.append(len(index.docs()))
        index.close()
    assert done == sorted(done), "something that was done is lost"
    assert len(set(done)) > 3 and done[-1] < count, "it was not killed in the middle"
    index, fresh = Index.open(data), Index.open(None)
    report = indexed(index, root)
    assert (report.unchanged, report.added, report.trouble) == (done[-1], count - done[-1], "")
    indexed(fresh, root)
    assert index.digest() == fresh.digest() and not is_stale(index, collection(root), OPTIONS)
    index.close()


@corpus("line", [b"", b"{", b"1", b"[]", b"{}", b'{"progress": 3}', b'{"report": {"x": 1}}', b"\xff"])
def test_lines_that_mean_nothing_are_passed_over(line: bytes) -> None:
    assert parsed_line(line) is None

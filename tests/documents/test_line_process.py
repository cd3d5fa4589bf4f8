"""A process with a job: what it answers in lines, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from kvchat.apart.lines import LineProcess

pytestmark = pytest.mark.process

OWN = "from kvchat.apart.child import first_line, private_stdout, until_stdin_ends; out = private_stdout(); "


async def started(code: str) -> LineProcess:
    return await LineProcess.start((sys.executable, "-c", OWN + code))


async def answers(process: LineProcess) -> list[bytes]:
    try:
        return [line async for line in process.lines()]
    finally:
        await process.end(10)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize("job", [b"{}", b"x" * 300_000, "größer".encode(), b""])
async def test_it_gets_its_job_and_answers(job: bytes) -> None:
    process = await started("out.write(first_line() + b'\\n' + b'y' * 200_000 + b'\\nz\\n'); out.flush()")
    await process.give(job)
    assert await answers(process) == [job, b"y" * 200_000, b"z"]
    assert process.code == 0


async def test_what_else_it_prints_is_no_answer() -> None:
    heard: list[bytes] = []
    code = OWN + "print('loaded', flush=True); out.write(b'1\\n'); out.flush()"
    process = await LineProcess.start((sys.executable, "-c", code), heard=heard.append)
    assert await answers(process) == [b"1"]
    assert b"".join(heard) == process.errors == b"loaded\n"


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("raise ValueError('no')", 1),
    ],
)
async def test_one_that_ends_without_an_answer_says_how(code: str, ended: int) -> None:
    process = await started(code)
    await process.give(b"a job that nobody reads" * 50_000)
    assert await answers(process) == []
    assert await process.wait() == ended
    assert (b"ValueError: no" in process.errors) == (ended == 1)


async def test_it_ends_with_its_stdin() -> None:
    process = await started("first_line(); out.write(b'1\\n'); out.flush(); until_stdin_ends()")
    await process.give(b"")
    assert await anext(process.lines()) == b"1" and process.code is None
    await process.end(60)
    assert process.code == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_one_that_hangs_is_killed_with_what_it_started(is_cancelled: bool) -> None:
    process = await started(
        "import subprocess, time; child = subprocess.Popen(('sleep', '600')); "
        "out.write(b'%d\\n' % child.pid); out.flush(); time.sleep(600)"
    )
    child = int(await anext(process.lines()))
    ending = asyncio.create_task(process.end(600 if is_cancelled else 0.01))
    if is_cancelled:
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
    else:
        await ending
    assert await process.wait() == -signal.SIGKILL
    async with asyncio.timeout(60):
        while not gone(child):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

"""The engine's life as the app sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gguf_samples import chat_model, write

from engine_fixture import small_model
from kvchat.backends.engine import process
from kvchat.backends.engine.log import EngineError
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.process import Engine, EngineAddress, EngineExit, EngineState
from kvchat.backends.identify import connect
from kvchat.chat.cache.states.snapshots import Snapshots

pytestmark = pytest.mark.engine


@pytest.fixture
def exits() -> list[EngineExit]:
    return []


@pytest.fixture
async def engine(exits: list[EngineExit]) -> AsyncIterator[Engine]:
    engine = Engine(exits.append)
    yield engine
    await engine.stop()


def options(**more: object) -> EngineOptions:
    given: dict[str, object] = {"model": small_model(), "context_size": 512, "threads": 1, **more}
    return EngineOptions(**given)  # type: ignore[arg-type]


def healthy(endpoint: EngineAddress) -> bool:
    with urllib.request.urlopen(endpoint.base_url + "/health", timeout=120) as answer:
        return bool(answer.status == 200)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def failure(engine: Engine, options: EngineOptions) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await engine.start(options)
    assert "\n" not in caught.value.sentence
    assert engine.state is EngineState.FAILED and engine.endpoint is None
    return caught.value


async def test_it_starts_answers_and_stops(engine: Engine, exits: list[EngineExit]) -> None:
    endpoint = await engine.start(options())
    assert engine.state is EngineState.READY and engine.endpoint == endpoint
    assert await asyncio.to_thread(healthy, endpoint)
    assert endpoint.context_size == 512 and len(endpoint.api_key) >= 32
    assert endpoint.api_key not in repr(endpoint)
    await engine.stop()
    await engine.stop()
    assert engine.state is EngineState.STOPPED and engine.endpoint is None
    assert gone(endpoint.pid)
    assert await engine.wait() == 0, "closing its stdin is enough; it is not killed"
    assert not exits


async def test_neither_the_key_nor_the_conversation_is_in_the_log(engine: Engine) -> None:
    endpoint = await engine.start(options())
    body = b'{"messages":[{"role":"user","content":"My secretword is plum."}],"max_tokens":4}'
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {endpoint.api_key}"}
    request = urllib.request.Request(endpoint.base_url + "/v1/chat/completions", body, headers)
    (await asyncio.to_thread(urllib.request.urlopen, request)).close()
    await engine.stop()
    log = "\n".join(engine.tail_of_log(500))
    assert "task 0" in log
    assert "secretword" not in log and endpoint.api_key not in log


async def test_a_killed_engine_is_told_with_the_end_of_its_log(engine: Engine, exits: list[EngineExit]) -> None:
    endpoint = await engine.start(options())
    assert await asyncio.to_thread(healthy, endpoint)
    os.kill(endpoint.pid, signal.SIGKILL)
    assert await engine.wait() == -signal.SIGKILL
    [told] = exits
    assert told.code == -signal.SIGKILL and "ended unexpectedly (SIGKILL" in told.sentence
    assert any("loading model" in line for line in told.log)
    assert engine.state is EngineState.EXITED and engine.endpoint is None
    again = await engine.start(options())
    assert engine.state is EngineState.READY and again.pid != endpoint.pid


async def test_another_start_replaces_the_engine(engine: Engine, exits: list[EngineExit]) -> None:
    first = await engine.start(options())
    second = await engine.start(options(slots=2))
    assert gone(first.pid) and await asyncio.to_thread(healthy, second)
    assert first.api_key != second.api_key and not exits


async def test_a_stop_while_it_loads_ends_the_start(engine: Engine) -> None:
    starting = asyncio.create_task(engine.start(options()))
    await until_spawned(engine)
    await engine.stop()
    with pytest.raises(EngineError, match="stopped while it was starting"):
        await starting
    assert engine.state is EngineState.STOPPED and await engine.wait() is not None


async def test_a_stop_before_there_is_a_process_ends_the_start_too(engine: Engine) -> None:
    starting = asyncio.create_task(engine.start(options()))
    await asyncio.sleep(0)
    assert engine.state is EngineState.STARTING
    await engine.stop()
    with pytest.raises(EngineError, match="stopped while it was starting"):
        await starting
    assert engine.state is EngineState.STOPPED


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("running", [False, True])
async def test_two_starts_at_once_leave_one_engine(engine: Engine, running: bool) -> None:
    if running:
        await engine.start(options())
    first = asyncio.create_task(engine.start(options()))
    await asyncio.sleep(0)
    second = await engine.start(options())
    with pytest.raises(EngineError, match="stopped while it was starting"):
        await first
    assert engine.endpoint == second and await asyncio.to_thread(healthy, second)
    assert children() == {second.pid}


async def test_a_cancelled_start_leaves_no_process(engine: Engine) -> None:
    starting = asyncio.create_task(engine.start(options()))
    await until_spawned(engine)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert engine.state is EngineState.FAILED
    assert await asyncio.wait_for(engine.wait(), 120) != 0


async def test_an_engine_that_hangs_is_killed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.2)
    endpoint = await engine.start(options())
    os.kill(endpoint.pid, signal.SIGSTOP)
    await engine.stop()
    assert gone(endpoint.pid) and await engine.wait() == -signal.SIGKILL


async def test_the_snapshot_folder_is_made_for_the_user_alone(engine: Engine, tmp_path: Path) -> None:
    await engine.start(options(snapshots=tmp_path / "a" / "slots"))
    assert stat.S_IMODE((tmp_path / "a" / "slots").stat().st_mode) == 0o700


async def test_a_file_that_is_no_model_is_said_before_a_process_starts(engine: Engine, tmp_path: Path) -> None:
    assert (await failure(engine, options(model=tmp_path / "no"))).sentence == f"There is no file {tmp_path / 'no'}."
    (tmp_path / "x.gguf").write_text("<!doctype html>")
    told = await failure(engine, options(model=tmp_path / "x.gguf"))
    assert told.sentence == f"{tmp_path / 'x.gguf'} is not a GGUF model file: it begins with '<!doctyp', not GGUF."
    assert await engine.wait() is None


async def test_an_unknown_architecture_is_named(engine: Engine, tmp_path: Path) -> None:
    path = write(tmp_path / "new.gguf", chat_model(general__architecture="new9"), tensors=0)
    told = await failure(engine, options(model=path))
    assert f"does not know the architecture 'new9' of {path}" in told.sentence
    assert any("new9" in line for line in told.log)


async def test_half_a_download_is_called_damaged(engine: Engine, tmp_path: Path) -> None:
    with small_model().open("rb") as whole:
        (tmp_path / "half.gguf").write_bytes(whole.read(3_000_000))
    told = await failure(engine, options(model=tmp_path / "half.gguf"))
    assert told.sentence == f"{tmp_path / 'half.gguf'} is damaged or not completely downloaded: download it again."
    assert told.log


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_too_little_memory_is_said() -> None:
    code = """
import asyncio, resource, sys
from pathlib import Path
from kvchat.backends.engine.log import EngineError
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.process import Engine

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    asyncio.run(Engine().start(EngineOptions(Path(sys.argv[1]), slots=64, threads=1)))
except EngineError as error:
    print(error.sentence)
"""
    run = subprocess.run([sys.executable, "-c", code, str(small_model())], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"There is not enough memory for {small_model()}")


async def test_without_the_engine_it_says_how_to_install_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
    told = await failure(engine, EngineOptions(Path("any.gguf")))
    assert told.sentence == "The embedded engine is not installed. Install it with: pip install 'kvchat[embedded]'"


def children() -> set[int]:
    """The engines that run below this process."""
    tasks = Path("/proc/self/task").glob("*/children")
    pids = {int(pid) for task in tasks for pid in task.read_text().split()}
    return {pid for pid in pids if b"engine.child" in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def until_spawned(engine: Engine) -> None:
    """Wait until the start has a process; it needs about half a second to load."""
    async with asyncio.timeout(120):
        while engine._child is None:  # noqa: ASYNC110  the engine has no reason to announce it
            await asyncio.sleep(0.005)


async def test_an_engine_that_cannot_be_loaded_is_told_in_its_own_words(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('no such symbol')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = await failure(engine, EngineOptions(small_model()))
    assert told.sentence == "The embedded engine cannot be loaded here: no such symbol"


async def test_it_starts_where_the_folder_of_its_snapshots_cannot_be_made(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    folder = tmp_path / "data" / "snapshots"
    endpoint = await engine.start(options(snapshots=folder))
    assert await asyncio.to_thread(healthy, endpoint)
    snapshots, told = Snapshots(folder), list[object]()
    snapshots.notice = told.append
    backend = await connect(endpoint.base_url, api_key=endpoint.api_key, embedded=True)
    await snapshots.use(backend, options(snapshots=folder))
    assert snapshots.why_not and len(told) == 1 and str(tmp_path / "data") in str(told[0])
    await backend.aclose()

"""The server in the child process, spoken to as any client would."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_fixture import COMMAND, RunningServer, running_server, small_model
from kvchat.backends.engine.gguf import read_header
from kvchat.backends.engine.options import EngineOptions

pytestmark = pytest.mark.engine
KEY = "a-key-for-this-test"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PARENT = """
import asyncio, sys
from pathlib import Path
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.process import Engine

async def main():
    engine = Engine()
    start = asyncio.create_task(engine.start(EngineOptions(Path(sys.argv[1]), threads=1)))
    if sys.argv[2] != "loading":
        await start
    while engine._child is None:
        await asyncio.sleep(0.01)
    print(engine._child.process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(slots=2, context=1024, api_key=KEY, batch_size=64) as running:
        yield running


def ask(server: RunningServer, path: str, body: object = None, key: str | None = KEY) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(server.base_url + path, data, headers), timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def asked(server: RunningServer, path: str, body: object = None) -> Any:
    status, data = ask(server, path, body)
    assert status == 200, data
    return json.loads(data)


def question(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


def ends(pid: int) -> bool:
    """Wait until the process `pid`, no child of ours, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 30)[0])
    finally:
        os.close(descriptor)


def test_health_is_open_and_everything_else_needs_the_key(server: RunningServer) -> None:
    assert ask(server, "/health", key=None)[0] == 200
    for path in ("/v1/models", "/models", "/props", "/slots", "/metrics"):
        assert ask(server, path, key=None)[0] == 401, path
        assert ask(server, path, key="wrong")[0] == 401, path
        assert ask(server, path)[0] == 200, path
    assert ask(server, "/v1/chat/completions", question("Hi"), key=None)[0] == 401
    for path in ("/", "/index.html", "/bundle.js"):
        assert ask(server, path, key=None)[0] in (401, 404), path


def test_it_answers_a_chat_and_names_the_model(server: RunningServer) -> None:
    answer = asked(server, "/v1/chat/completions", question("Say hello."))
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["model"] == small_model().stem


def test_each_slot_has_the_context_asked_for(server: RunningServer) -> None:
    props = asked(server, "/props")
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (2, 1024)


def test_the_next_turn_reads_only_what_is_new(server: RunningServer) -> None:
    first = question("Tell me about rivers, lakes and the sea. " * 5)
    reply = asked(server, "/v1/chat/completions", first)["choices"][0]["message"]
    messages = [*first["messages"], reply, {"role": "user", "content": "More."}]  # type: ignore[misc]
    timings = asked(server, "/v1/chat/completions", {**first, "messages": messages})["timings"]
    assert timings["cache_n"] > timings["prompt_n"]


def test_progress_is_reported_per_batch(server: RunningServer) -> None:
    text = " ".join(f"number {i}" for i in range(70))
    _, data = ask(server, "/v1/chat/completions", question(text, stream=True, return_progress=True))
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    seen = [event["prompt_progress"]["processed"] for event in events if "prompt_progress" in event]
    assert len(seen) >= 4 and seen == sorted(seen)


@linux
def test_the_key_is_neither_in_the_command_line_nor_in_the_environment(server: RunningServer) -> None:
    for name in ("cmdline", "environ"):
        assert KEY.encode() not in Path(f"/proc/{server.pid}/{name}").read_bytes()


@linux
def test_it_listens_on_loopback_only(server: RunningServer) -> None:
    port = f"{int(server.base_url.rsplit(':', 1)[1]):04X}"
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/{server.pid}/net/{table}").read_text().splitlines()[1:]
    ]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port}")]
    assert listening == [f"0100007F:{port}"]


def test_ctrl_c_does_not_reach_it(server: RunningServer) -> None:
    os.kill(server.pid, signal.SIGINT)
    assert asked(server, "/v1/chat/completions", question("Still there?"))["choices"]


def test_no_web_page_may_read_its_answers(server: RunningServer) -> None:
    request = urllib.request.Request(server.base_url + "/health", headers={"Origin": "http://example.org"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert not answer.headers["Access-Control-Allow-Origin"]


def test_snapshots_are_saved_in_their_folder_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    with running_server(context=512, snapshots=folder) as server:
        asked(server, "/v1/chat/completions", question("Remember this."))
        saved = asked(server, "/slots/0?action=save", {"filename": "a.bin"})
    assert saved["n_saved"] > 0
    assert [path.name for path in folder.iterdir()] == ["a.bin"]
    assert stat.S_IMODE((folder / "a.bin").stat().st_mode) == 0o600


@linux
@pytest.mark.parametrize("moment", ["ready", "loading", "hanging"])
def test_it_ends_when_its_parent_is_killed(moment: str) -> None:
    command = [sys.executable, "-c", PARENT, str(small_model()), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if moment == "hanging":
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, 0)
        parent.kill()
    assert ends(pid)


def test_it_ends_when_nobody_is_left_to_read_its_answer() -> None:
    line = json.dumps(EngineOptions(small_model(), 512, threads=1).for_child(read_header(small_model()), "")).encode()
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin and child.stdout and child.stderr
        try:
            child.stdin.write(line + b"\n")
            for stream in (child.stdin, child.stdout, child.stderr):
                stream.close()
            assert child.wait(120) == 0
        finally:
            child.kill()


def test_the_child_carries_neither_screen_nor_http_client() -> None:
    code = "import sys, kvchat.backends.engine.child; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"textual", "rich", "httpx", "asyncio", "sqlite3"} & set(loaded)


def test_a_child_without_the_engine_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ModuleNotFoundError('No module named xllamacpp')")
    line = json.dumps(EngineOptions(small_model()).for_child(read_header(small_model()), "")).encode() + b"\n"
    child = subprocess.run(
        COMMAND, input=line, capture_output=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False
    )
    assert json.loads(child.stdout) == {"problem": "NOT_INSTALLED"}


def test_a_child_without_options_ends_in_silence() -> None:
    child = subprocess.run(COMMAND, input=b"", capture_output=True, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (0, b"", b"")

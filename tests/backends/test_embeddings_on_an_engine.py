"""Vectors from real engines: one's own beside a chat's, and a llama-server that was started for them."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine_fixture import RunningServer, running_server, small_model
from kvchat.backends.dialect import BackendError
from kvchat.backends.embeddings import ChatServer, Embeddings
from kvchat.backends.local_embeddings import LocalEmbeddings

pytestmark = pytest.mark.engine

CHUNK = "The lighthouse keeper writes down the wind and the ships of each day. "

SERVER = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path = sys.argv[1]
p.embedding = sys.argv[3] == "embeddings"
p.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
p.n_parallel, p.n_ctx, p.n_batch, p.n_ubatch = 1, 1024, 128, 128
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
server = xllamacpp.Server(p)
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def llama_server(what: str) -> Iterator[str]:
    """A llama-server as anyone would start it, whose batches have 128 tokens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(small_model()), str(port), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin and child.stdout
        try:
            assert child.stdout.readline().strip() == b"up"
            yield f"http://127.0.0.1:{port}"
        finally:
            child.kill()


def are_vectors(found: list[list[float]], count: int) -> bool:
    return (
        len(found) == count
        and len({len(one) for one in found}) == 1
        and all(math.isfinite(number) for one in found for number in one)
        and all(any(one) for one in found)
    )


def cosine(one: list[float], other: list[float]) -> float:
    return sum(map(float.__mul__, one, other)) / (math.hypot(*one) * math.hypot(*other))


class Chat:
    """A conversation with a server; how many tokens it had to read for the last question."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.messages: list[dict[str, str]] = [{"role": "system", "content": f"You answer briefly. {CHUNK * 12}"}]

    def ask(self, text: str) -> tuple[int, int]:
        """The tokens of the prompt that were read, and those that the cache had."""
        self.messages.append({"role": "user", "content": text})
        body = json.dumps({"messages": self.messages, "max_tokens": 4, "temperature": 0}).encode()
        request = urllib.request.Request(
            f"{self.server.base_url}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            found: Any = json.load(answer)
        self.messages.append({"role": "assistant", "content": found["choices"][0]["message"]["content"]})
        return found["timings"]["prompt_n"], found["timings"]["cache_n"]


async def test_an_engine_of_ones_own_gives_vectors_and_leaves_the_chats_cache_alone() -> None:
    source = LocalEmbeddings(small_model())
    with running_server() as server:
        undisturbed, beside = Chat(server), Chat(server)
        undisturbed.messages[0]["content"] += "Be nice."
        beside.messages[0]["content"] += "Be kind."
        undisturbed.ask("What is a cat?")
        expected = undisturbed.ask("And a dog?")
        assert expected[0] < 30 < 150 < expected[1]

        beside.ask("What is a cat?")
        texts = [f"{number} {CHUNK}" for number in range(31)] + [(CHUNK * 40)[:2000]]
        embedding = asyncio.create_task(source.vectors(texts))
        await source.vectors(["it runs"])
        assert await asyncio.to_thread(beside.ask, "And a dog?") == expected, "the chat's cache was lost"
        found = await embedding
        assert are_vectors(found, 32)
        [again] = await source.vectors([texts[3]])
        assert cosine(again, found[3]) > 0.9999 > cosine(found[3], found[31])
    pid = source._engine.endpoint.pid if source._engine.endpoint else 0
    await source.aclose()
    assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_odd_texts_get_vectors_from_an_engine_of_ones_own() -> None:
    source = LocalEmbeddings(small_model())
    try:
        assert are_vectors(await source.vectors(["", " ", "\udc80", "😀" * 20, "<|im_start|>", "漢字" * 50]), 6)
    finally:
        await source.aclose()


async def test_a_server_that_was_started_for_vectors_gives_them_to_texts_of_any_length() -> None:
    with llama_server("embeddings") as url:
        source = Embeddings(url)
        found = await source.vectors(["a cat", CHUNK * 40])
        assert are_vectors(found, 2)
        assert cosine(*await source.vectors(["a cat", "a cat"])) > 0.9999
        refusing = Embeddings(url, chats=lambda: [ChatServer(url, "llama.cpp", "chat")])
        with pytest.raises(BackendError, match="empty its cache"):
            await refusing.vectors(["a cat"])


async def test_a_server_that_was_not_started_for_vectors_is_told_with_what_to_do() -> None:
    with llama_server("chat") as url, pytest.raises(BackendError, match="--embeddings"):
        await Embeddings(url).vectors(["a cat"])


def test_the_engine_for_vectors_is_not_imported_until_it_is_used() -> None:
    code = (
        "import sys, kvchat.cli, kvchat.cli.session, kvchat.config\n"
        "print('kvchat.backends.local_embeddings' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "False"

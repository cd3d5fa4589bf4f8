"""Connections that end before the answer does: what only asks is asked once more, what generates is sent once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from backend_kit import Heard, a_turn, endpoint_of, llamacpp_at
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.dialects.vllm import VllmBackend
from kvchat.backends.embeddings import Embeddings
from kvchat.cache.tokens import Tokens
from toyserver import Answer, ToyServer, Visit, drop, hang, raw, reply, reset, tokens

KEPT = b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nKeep-Alive: timeout=5, max=100\r\nContent-Type: application/json\r\n"
"""How llama-server begins an answer on a connection that it then closes."""
CUTS: dict[str, Answer] = {
    "closed": drop(),
    "reset": reset(),
    "half a head": raw(KEPT[:40]),
    "no body": raw(KEPT + b"Content-Length: 40\r\n\r\n"),
    "half a body": raw(KEPT + b"Content-Length: 4000\r\n\r\n" + b'{"tokens":[1,'),
}


def after(cuts: int, cut: Answer, then: Answer) -> Answer:
    """`cut` so many times, then `then`."""
    left = cuts

    async def answer(visit: Visit) -> None:
        nonlocal left
        left -= 1
        await (cut if left >= 0 else then)(visit)

    return answer


def kept(value: object) -> Answer:
    """A whole answer on a connection that is announced as kept alive, and closed."""
    body = json.dumps(value).encode()
    return raw(KEPT + b"Content-Length: %d\r\n\r\n" % len(body) + body)


Asking = Callable[[ToyServer], Awaitable[Any]]


async def shown(server: ToyServer) -> Any:
    facts = await OllamaBackend(endpoint_of(server))._shown("m")
    return facts.usual


ASKS: dict[str, tuple[str, object, Asking, object]] = {
    "health": ("/health", {"status": "ok"}, lambda server: llamacpp_at(server).alive(), True),
    "properties": ("/props", {"model_alias": "m"}, lambda server: llamacpp_at(server).server_state(), None),
    "slots": ("/slots", [{"n_prompt_tokens": 7}], lambda server: llamacpp_at(server).slot_counts(), None),
    "models": ("/v1/models", {"data": []}, lambda server: llamacpp_at(server).get_json("/v1/models"), None),
    "tokens": ("/tokenize", {"tokens": [1, 2]}, lambda server: llamacpp_at(server).ids_of("x", specials=True), [1, 2]),
    "prompt": ("/apply-template", {"prompt": "<x>"}, lambda server: llamacpp_at(server).prompt_text(a_turn()), "<x>"),
    "vectors": (
        "/v1/embeddings",
        {"data": [{"index": 0, "embedding": [1.0, 0.0]}]},
        lambda server: Embeddings(server.url).vectors(["a"]),
        None,
    ),
    "a model of Ollama's": ("/api/show", {"model_info": {}, "parameters": "num_ctx 512"}, shown, 512),
}


def routed(server: ToyServer, path: str, answer: Answer) -> None:
    """Let POSTs and GETs of `path` be answered so."""
    server.on(path, answer)
    server.on_chat(answer)  # a toy server takes a POST that it does not know for a chat


def arrived(server: ToyServer, path: str) -> int:
    return sum(visit.path == path for visit in server.visits)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("what", ASKS)
async def test_what_only_asks_is_asked_once_more_on_a_new_connection(what: str, cut: str) -> None:
    path, value, asking, expected = ASKS[what]
    async with ToyServer() as server:
        routed(server, path, after(1, CUTS[cut], kept(value)))
        found = await asking(server)
        assert arrived(server, path) == 2
        await server.until_closed()
    assert found == expected if expected is not None else found is not None


@pytest.mark.parametrize("cut", ["closed", "reset", "half a head", "no body"])
@pytest.mark.parametrize("what", ["properties", "slots", "tokens", "prompt", "vectors"])
async def test_a_second_cut_is_told_and_not_asked_a_third_time(what: str, cut: str) -> None:
    path, _, asking, _ = ASKS[what]
    async with ToyServer() as server:
        routed(server, path, CUTS[cut])
        with pytest.raises(BackendError) as raised:
            await asking(server)
        assert raised.value.trouble is Trouble.CUT
        assert arrived(server, path) == 2


async def test_what_was_refused_is_not_asked_again() -> None:
    async with ToyServer() as server:
        server.on("/tokenize", reply(500, {"error": {"message": "boom"}}))
        with pytest.raises(BackendError, match="boom"):
            await llamacpp_at(server).tokens_of("x")
        assert arrived(server, "/tokenize") == 1


async def test_whoever_is_cancelled_while_it_is_asked_again_leaves_no_connection() -> None:
    async with ToyServer() as server:
        server.on("/tokenize", after(1, drop(), hang()))
        task = asyncio.create_task(llamacpp_at(server).tokens_of("x"))
        await server.until(lambda: arrived(server, "/tokenize") == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_closed()


GENERATIONS: dict[str, Asking] = {
    "a chat": lambda server: llamacpp_at(server).chat(a_turn(), Heard()),
    "a warm-up": lambda server: llamacpp_at(server).prefill(Tokens([1, 2, 3]), lambda _: None),
    "a warm-up by one token": lambda server: VllmBackend(endpoint_of(server)).prefill_messages(a_turn()),
    "a chat with Ollama": lambda server: OllamaBackend(endpoint_of(server)).chat(a_turn(), Heard()),
    "a warm-up of Ollama's": lambda server: OllamaBackend(endpoint_of(server)).prefill_messages(a_turn()),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("what", GENERATIONS)
async def test_what_generates_is_sent_once_however_its_connection_ends(what: str, cut: str) -> None:
    async with ToyServer() as server:
        server.on_chat(CUTS[cut])
        try:
            await GENERATIONS[what](server)
        except BackendError:
            pass
        assert server.posts == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["chat", "tokens", "prompt", "slots", "health"]), st.sampled_from([None, None, *CUTS])),
    max_size=8,
)


@settings(deadline=None)
@given(STEPS)
def test_in_any_order_asks_come_through_and_every_generation_is_sent_once(steps: list[tuple[str, str | None]]) -> None:
    """Each step: what goes out, and how the connection ends that is tried first."""
    asyncio.run(played(steps))


async def played(steps: list[tuple[str, str | None]]) -> None:
    async with ToyServer() as server:
        backend = LlamaCppBackend(endpoint_of(server))
        calls: dict[str, tuple[str, Answer, Callable[[], Awaitable[object]]]] = {
            "tokens": ("/tokenize", kept({"tokens": [1]}), lambda: backend.ids_of("x", specials=False)),
            "prompt": ("/apply-template", kept({"prompt": "x"}), lambda: backend.prompt_text(a_turn())),
            "slots": ("/slots", kept([]), backend.slot_counts),
            "health": ("/health", kept({}), backend.alive),
        }
        for what, cut in steps:
            before = len(server.visits)
            if what == "chat":
                server.on_chat(CUTS[cut] if cut else tokens("Hi"))
                ended = await backend.chat(a_turn(), Heard())
                assert (ended.error is None) == (cut is None)
                assert len(server.visits) - before == 1
            else:
                path, good, call = calls[what]
                server.on(path, after(1 if cut else 0, CUTS[cut or "closed"], good))
                assert await call() not in (None, False)
                assert len(server.visits) - before == (2 if cut else 1)

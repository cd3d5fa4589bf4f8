"""What a server says that cannot answer now: whether it loads its model, and whether it is worth the wait."""

from __future__ import annotations

import pytest
from backend_kit import FakeTime, Heard, a_turn, endpoint_of, hurried, openai_at

from corpus import corpus
from kvchat.backends.base import BUSY_S, OneTokenWarmUp
from kvchat.backends.dialect import ServerOptions, Trouble, Waiting
from kvchat.backends.errors import error_of, is_loading
from kvchat.prompt.message import State
from kvchat.text.faults import Fault
from toyserver import ToyServer, error, loading, reply, tokens

LOADS = [
    '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
    '{"error":{"message":"Model is loading, please wait","type":"server_error"}}',
    '{"error":"Model mistral is currently loading","estimated_time":20.0}',
    '{"error":{"message":"","type":"model_loading"}}',
    '{"detail":"The model is being loaded"}',
    "The server is starting up",
    '[{"error":{"message":"Loading model"}}]',
    'event: error\ndata: {"error":{"message":"Loading model"}}\n\n',
]
DOES_NOT = [
    '{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}',
    '{"error":{"code":503,"message":"model qwen failed to load","type":"unavailable_error"}}',
    '{"error":{"code":503,"message":"Error while loading model","type":"unavailable_error"}}',
    '{"error":{"message":"unable to load model, loading aborted","type":"model_loading"}}',
    '{"error":{"message":"No slot: all are processing","type":"unavailable_error"}}',
    '{"error":{"type":"unavailable_error"}}',
    '{"error":"server busy, please try again.  maximum pending requests exceeded"}',
    '{"error":"model is not loaded"}',
    "no available server",
    "<html><title>503 loading</title></html>",
    "",
]


@corpus("body", LOADS)
def test_a_server_that_says_that_it_loads_its_model_does(body: str) -> None:
    assert is_loading(503, body)
    assert not is_loading(500, body) and not is_loading(400, body)


@corpus("body", DOES_NOT)
def test_a_busy_or_failed_server_does_not_load_its_model(body: str) -> None:
    assert not is_loading(503, body)


def test_the_words_of_an_event_are_read() -> None:
    found = error_of('event: error\ndata: {"error":{"message":"boom"}}\n\ndata: [DONE]\n\n')
    assert found is not None and found[0] == "boom"


@pytest.mark.parametrize("body", DOES_NOT[:5])
async def test_what_is_no_loading_is_posted_once_and_told(body: str, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(reply(503, body.encode()))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
    assert server.posts == 1 and ended.state is State.ERROR and ended.error is not None
    assert ended.error.fault is Fault.UNAVAILABLE and ended.error.server_words


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_when_to_come_again_is_waited_for(status: int, heard: Heard) -> None:
    time = FakeTime()
    async with ToyServer() as server:
        server.on_chat(
            reply(status, {"error": {"message": "slow"}}, headers={"Retry-After": "7"}),
            reply(status, {"error": {"message": "slow"}}, headers={"Retry-After": "0"}),
            tokens("Hi"),
        )
        ended = await openai_at(server, time.clock).chat(a_turn(), heard)
    assert (ended.state, heard.text, server.posts) == (State.DONE, "Hi", 3)
    assert [event.phase for event in heard.waiting if event.phase == "busy"] == ["busy", "busy"]
    assert time.seconds >= 8


@pytest.mark.parametrize("header", ["3600", "61", "soon", ""])
async def test_a_server_that_says_nothing_of_use_is_not(header: str, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(reply(429, {"error": {"message": "slow"}}, headers={"Retry-After": header}))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
    assert server.posts == 1 and ended.error is not None and ended.error.fault is Fault.TOO_MANY


async def test_the_wait_for_a_busy_server_has_an_end(heard: Heard) -> None:
    time = FakeTime()
    async with ToyServer() as server:
        server.on_chat(*[reply(429, {"error": "slow"}, headers={"Retry-After": "20"})] * 9)
        ended = await openai_at(server, time.clock).chat(a_turn(), heard)
    assert server.posts == 1 + BUSY_S // 20 and ended.error is not None
    assert ended.error.sentence.endswith("Try again in 20 s.")


async def test_without_credit_nothing_is_waited_for(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(error(429, "You exceeded your current quota", "insufficient_quota"))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
    assert server.posts == 1 and ended.error is not None and ended.error.fault is Fault.NO_CREDIT


async def test_the_wait_for_a_model_has_an_end_where_one_is_set(heard: Heard) -> None:
    time = FakeTime()
    async with ToyServer() as server:
        server.on_chat(*[loading()] * 20)
        options = ServerOptions(wait_seconds=9)
        ended = await OneTokenWarmUp(endpoint_of(server), clock=time.clock, options=options).chat(a_turn(), heard)
    assert ended.error is not None and ended.error.trouble is Trouble.LOADING
    assert time.seconds >= 9
    assert all(isinstance(event, Waiting) and event.seconds < 9 for event in heard.waiting)

"""No duplicate generation: the toy server counts the POSTs over every kind of fault."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from backend_kit import Heard, a_turn, hurried, llamacpp_at

from kvchat.backends.dialect import Trouble
from kvchat.backends.http.transport import ERROR_BODY_LIMIT
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from toyserver import Answer, ToyServer, drop, error, event, loading, raw, reply, reset, sse, tokens

WORD = event({"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": None}]})
FINISH = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
OK = b"HTTP/1.1 200 OK\r\n"

FAULTS: dict[str, tuple[Answer, State, Trouble, str]] = {
    "dropped": (drop(), State.INTERRUPTED, Trouble.CUT, ""),
    "reset before the header": (reset(), State.INTERRUPTED, Trouble.CUT, ""),
    "reset in the answer": (sse([WORD], then="reset", end=False), State.INTERRUPTED, Trouble.CUT, "half"),
    "cut in the answer": (sse([WORD], end=False), State.INTERRUPTED, Trouble.CUT, "half"),
    "clean end without finish": (sse([WORD]), State.INTERRUPTED, Trouble.CUT, "half"),
    "done without finish": (sse([WORD, b"data: [DONE]\n\n"]), State.INTERRUPTED, Trouble.CUT, "half"),
    "error 500": (error(500, "boom"), State.ERROR, Trouble.SERVER_ERROR, ""),
    "web page 502": (
        reply(502, b"<html><h1>502 Bad Gateway</h1></html>", content_type="text/html"),
        State.ERROR,
        Trouble.SERVER_ERROR,
        "",
    ),
    "busy 503": (error(503, "all slots are busy", "overloaded"), State.ERROR, Trouble.SERVER_ERROR, ""),
    "too many 429": (error(429, "slow down"), State.ERROR, Trouble.RATE_LIMITED, ""),
    "bad request 400": (error(400, "no"), State.ERROR, Trouble.REFUSED, ""),
    "wrong key 401": (error(401, "no"), State.ERROR, Trouble.UNAUTHORIZED, ""),
    "redirect": (reply(302, headers={"Location": "http://elsewhere.example/v1"}), State.ERROR, Trouble.REFUSED, ""),
    "garbage": (raw(b"\x00\x01garbage\r\n\r\n"), State.ERROR, Trouble.PROTOCOL, ""),
    "wrong length": (
        raw(OK + b"Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{}"),
        State.INTERRUPTED,
        Trouble.CUT,
        "",
    ),
    "compressed": (
        reply(200, gzip.compress(WORD + FINISH), headers={"Content-Encoding": "gzip"}),
        State.ERROR,
        Trouble.PROTOCOL,
        "",
    ),
    "web page 200": (reply(200, b"<html>hello</html>", content_type="text/html"), State.ERROR, Trouble.PROTOCOL, ""),
    "no JSON": (sse([b"data: oops\n\n"]), State.ERROR, Trouble.PROTOCOL, ""),
    "error in the stream": (
        sse([WORD, event({"error": {"message": "boom", "code": 500}})]),
        State.ERROR,
        Trouble.SERVER_ERROR,
        "half",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_told_after_exactly_one_post_and_keeps_the_text(name: str, heard: Heard) -> None:
    answer, state, trouble, text = FAULTS[name]
    async with ToyServer() as server:
        server.on_chat(answer)
        ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
        await asyncio.sleep(0.02)
        assert server.posts == 1
    assert ended.state is state
    assert ended.error is not None and ended.error.trouble is trouble
    assert heard.text == text
    told = note_sentence(ended.note)
    assert told == ended.error.sentence and told.endswith(".") and told.isprintable()
    assert server.url in note_sentence(ended.note)


def test_there_are_at_least_12_kinds_of_fault() -> None:
    assert len(FAULTS) >= 12


async def test_a_loading_server_gets_one_accepted_post(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(loading(), loading(), tokens("ready"))
        answers = iter([loading()] * 9)
        server.on("/health", lambda visit: next(answers, reply(200, {"status": "ok"}))(visit))
        ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
    assert (ended.state, heard.text) == (State.DONE, "ready")
    assert server.posts == 3
    assert len(heard.waiting) == 11
    assert {(event.phase, event.server_alive) for event in heard.waiting} == {("loading", True)}
    assert server.chats[0].body == server.chats[2].body


async def test_a_server_that_dies_while_it_loads_is_reported_dead(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(loading())
        server.on("/health", drop())
        ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.DEAD
    assert server.posts == 1


async def test_a_server_that_starts_late_gets_one_post(heard: Heard) -> None:
    async with ToyServer() as server:
        late = llamacpp_at(server)
        await server.stop()
        task = asyncio.create_task(late.chat(a_turn(), heard))
        await asyncio.sleep(0.1)
        server._server = await asyncio.start_server(server._handle, "127.0.0.1", server.port)
        ended = await task
        assert (ended.state, server.posts) == (State.DONE, 1)


async def test_an_answer_labelled_as_compressed_is_not_read_at_all(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(reply(200, WORD + FINISH, headers={"Content-Encoding": "gzip"}))
        ended = await llamacpp_at(server).chat(a_turn(), heard)
        assert 'compressed answer ("gzip")' in note_sentence(ended.note) and heard.text == ""
        server.on_chat(reply(200, WORD + FINISH, headers={"Content-Encoding": "identity"}))
        assert (await llamacpp_at(server).chat(a_turn(), heard)).state is State.DONE


async def test_a_server_that_is_not_there_is_told_with_what_to_do(heard: Heard) -> None:
    async with ToyServer() as server:
        pass
    ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.UNREACHABLE and ended.state is State.ERROR
    told = note_sentence(ended.note)
    assert told == (f"No server answers at {server.url} (connection refused). Start it, or choose another (/model).")


async def test_a_second_send_is_byte_for_byte_the_first(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(error(500, "boom"), tokens("a"))
        backend = llamacpp_at(server)
        await backend.chat(a_turn("ünï \U0001f600"), heard)
        await backend.chat(a_turn("ünï \U0001f600"), heard)
        assert server.chats[0].body == server.chats[1].body == backend.body(a_turn("ünï \U0001f600"))


async def test_the_seconds_of_a_rate_limit_are_told(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(reply(429, {"error": "slow"}, headers={"Retry-After": "17"}))
        ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
    assert "in 17 s" in note_sentence(ended.note)


async def test_an_endless_error_body_is_not_read_to_its_end(heard: Heard) -> None:
    sent = 0

    async def endless(visit) -> None:
        nonlocal sent
        await visit.send(b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n")
        while not visit.gone.is_set() and sent < 1000 * ERROR_BODY_LIMIT:
            await visit.send(b"x" * 4096)
            sent += 4096
            await asyncio.sleep(0)

    async with ToyServer() as server:
        server.on_chat(endless)
        ended = await llamacpp_at(server).chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.SERVER_ERROR
    assert sent < 500 * ERROR_BODY_LIMIT


async def test_parameters_that_json_cannot_hold_get_a_sentence_and_no_post(heard: Heard) -> None:
    from kvchat.prompt.request import Parameters

    async with ToyServer() as server:
        turn = a_turn(parameters=Parameters(temperature=float("nan")))
        ended = await llamacpp_at(server).chat(turn, heard)
        assert server.posts == 0
    assert ended.state is State.ERROR and "parameter" in note_sentence(ended.note)


async def test_a_listener_that_fails_ends_the_chat_with_a_sentence_and_a_close() -> None:
    def failing(event: object) -> None:
        raise KeyError("sekrit")

    async with ToyServer() as server:
        server.on_chat(tokens("a", hang_after=1))
        ended = await llamacpp_at(server).chat(a_turn(), failing)
        await server.until_closed()
    assert ended.state is State.ERROR and "sekrit" not in note_sentence(ended.note)

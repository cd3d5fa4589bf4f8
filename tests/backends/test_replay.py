"""Captured answers of a real llama-server, replayed byte for byte, whole and cut off at every event."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from backend_kit import Heard, a_turn, hurried, llamacpp_at

from corpus import corpus
from kvchat.backends.dialect import Trouble
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from toyserver import ToyServer, raw, tokens

WIRE = Path(__file__).parents[1] / "fixtures/wire"
NAMES = sorted(path.stem.removeprefix("llamacpp_") for path in WIRE.glob("*.http"))

STREAMS = {
    "stream_ok": State.LENGTH,
    "stream_length": State.LENGTH,
    "stream_pings_progress": State.LENGTH,
    "stream_emoji_split": State.LENGTH,
    "resume_part2": State.LENGTH,
    "stream_u2028_nel": State.DONE,
    "stream_c1_bidi": State.DONE,
    "stream_esc_osc52": State.DONE,
    "stream_markdown_exfil": State.DONE,
    "overflow_mid_generation": State.CONTEXT_FULL,
    "midstream_error_client0": State.ERROR,
    "midstream_error_client1": State.ERROR,
    "kill9_truncated": State.INTERRUPTED,
    "resume_part1": State.INTERRUPTED,
    "stream_deleted_tail": State.INTERRUPTED,
    "id_slot_99": State.LENGTH,
}
DOCUMENTS = {"200_unknown_model": State.LENGTH, "nul_in_content": State.LENGTH, "unknown_field": State.LENGTH}
NO_ANSWERS = {"200_health", "200_metrics", "200_models", "200_props", "200_slots", "tokenize"}
OTHER_SHAPES = {"404_path", "405_get_chat", "resume_404"}
"""The server has no chat at this path: the other shape of its address is tried."""
LOADING = {"503_loading_chat", "503_loading_health"}
TROUBLES = {"400": Trouble.REFUSED, "401": Trouble.UNAUTHORIZED, "404": Trouble.REFUSED, "500": Trouble.SERVER_ERROR}
CONTEXT_SIZE = {"overflow_mid_generation": 1024}


def captured(name: str) -> bytes:
    return (WIRE / f"llamacpp_{name}.http").read_bytes()


@dataclass
class Seen:
    """What a reader of the raw bytes finds, by a way of its own."""

    text: str = ""
    finish: bool = False
    error: bool = False


def oracle(data: bytes) -> Seen:
    """The words in the complete events of a chunked event stream, cut anywhere."""
    _, found, framed = data.partition(b"\r\n\r\n")
    body = b""
    while found and framed:
        size, newline, rest = framed.partition(b"\r\n")
        if not newline or not int(size, 16):
            break
        body += rest[: int(size, 16)]
        framed = rest[int(size, 16) + 2 :]
    seen = Seen()
    for event in body.split(b"\n\n")[:-1]:
        if event.startswith(b"data: {"):
            value = json.loads(event[6:].decode())
            seen.error |= "error" in value
            for choice in value.get("choices", ()):
                seen.text += choice["delta"].get("content") or ""
                seen.finish |= choice["finish_reason"] is not None
    return seen


def cuts(data: bytes, dice: random.Random) -> list[int]:
    return [dice.randrange(len(data) + 1) for _ in range(dice.randrange(12))]


async def replayed(server: ToyServer, name: str, data: bytes, dice: random.Random):
    server.on_chat(raw(data, cuts(data, dice)), tokens("after"))
    backend = llamacpp_at(server, hurried(), context_size=CONTEXT_SIZE.get(name, 4096))
    heard = Heard()
    return await backend.chat(a_turn(), heard), heard


def test_every_captured_answer_has_its_place_here() -> None:
    errors = {name for name in NAMES if captured(name)[9:12] in (b"400", b"401", b"404", b"500")}
    assert set(NAMES) == STREAMS.keys() | DOCUMENTS.keys() | NO_ANSWERS | LOADING | errors


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_ends_in_its_state_with_all_its_text_in_every_split(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    async with ToyServer() as server:
        for _ in range(20):
            ended, heard = await replayed(server, name, data, dice)
            assert ended.state is STREAMS[name]
            assert heard.text == oracle(data).text != ""
            assert bool(ended.note) == (ended.state is not State.DONE)
    assert server.posts == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_cut_at_any_event_keeps_the_text_before_the_cut(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    edges = [at + 2 for at in range(len(data)) if data.startswith(b"\n\n", at)]
    async with ToyServer() as server:
        for edge in edges:
            seen = oracle(data[:edge])
            ended, heard = await replayed(server, name, data[:edge], dice)
            assert heard.text == seen.text
            if seen.finish:
                assert ended.state in (STREAMS[name], State.LENGTH)
            else:
                assert ended.state is (State.ERROR if seen.error else State.INTERRUPTED)
                assert ended.error is not None and note_sentence(ended.note) == ended.error.sentence
    assert server.posts == len(edges)


@pytest.mark.parametrize("name", ["stream_ok", "stream_u2028_nel", "kill9_truncated"])
async def test_a_stream_cut_at_any_byte_keeps_every_complete_event(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    async with ToyServer() as server:
        for _ in range(40):
            edge = dice.randrange(len(data))
            _, heard = await replayed(server, name, data[:edge], dice)
            assert heard.text == oracle(data[:edge]).text


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_an_answer_that_is_one_json_document_is_read_too(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    message = json.loads(data.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]
    async with ToyServer() as server:
        for _ in range(20):
            ended, heard = await replayed(server, name, data, dice)
            assert (ended.state, heard.text) == (DOCUMENTS[name], message)
            assert heard.reported.prompt_tokens == 33


@pytest.mark.parametrize("name", sorted(NO_ANSWERS))
async def test_what_is_no_chat_answer_is_told_so(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    async with ToyServer() as server:
        for _ in range(5):
            ended, heard = await replayed(server, name, data, dice)
            assert ended.state is State.ERROR and ended.error and ended.error.trouble is Trouble.PROTOCOL
            assert heard.text == ""


@corpus("name", sorted(set(NAMES) - STREAMS.keys() - DOCUMENTS.keys() - NO_ANSWERS - LOADING - OTHER_SHAPES))
async def test_a_captured_error_becomes_one_clean_sentence(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    status = data[9:12].decode()
    async with ToyServer() as server:
        for _ in range(20):
            ended, _ = await replayed(server, name, data, dice)
            assert ended.state is State.ERROR and ended.error is not None
            overflow = "exceed_context" in name
            assert ended.error.trouble is (Trouble.CONTEXT_OVERFLOW if overflow else TROUBLES[status])
            assert ended.error.status == int(status)
            told = note_sentence(ended.note)
            assert told.isprintable() and told.endswith(".") and len(told) < 420
            if overflow:
                assert (ended.error.prompt_tokens, ended.error.context_size) == (3031, 1024)
                assert "3,031 tokens" in note_sentence(ended.note) and "1,024" in note_sentence(ended.note)
        assert server.posts == 20


@pytest.mark.parametrize("name", sorted(OTHER_SHAPES))
async def test_a_path_that_is_not_there_is_tried_without_its_version(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    async with ToyServer() as server:
        ended, heard = await replayed(server, name, data, dice)
    assert (ended.state, heard.text) == (State.DONE, "after")
    first, second = server.chats
    assert first.path == f"/v1{second.path}" and first.body == second.body


@pytest.mark.parametrize("name", sorted(LOADING))
async def test_a_server_that_loads_its_model_is_waited_for(name: str) -> None:
    data, dice = captured(name), random.Random(name)
    async with ToyServer() as server:
        ended, heard = await replayed(server, name, data, dice)
    assert (ended.state, heard.text) == (State.DONE, "after")
    assert [event.phase for event in heard.waiting] == ["loading"]

"""The server of llama-cpp-python: it breaks an answer off for any other request, and says little."""

from __future__ import annotations

import asyncio

import pytest
from backend_kit import Heard, a_turn
from engine_talk import assert_only_new_was_read, recognised_by, replayed, talk_with

from kvchat.backends.dialect import PrefillAccess, Reported, Trouble
from kvchat.backends.dialects.rare import LlamaCppPythonBackend
from kvchat.backends.kinds import Figures
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.llamacpp_python import LlamaCppPythonStandIn


async def test_llama_cpp_python_is_known_by_its_answers_and_nothing_else_is_taken_for_it() -> None:
    assert await recognised_by(LlamaCppPythonBackend) == {"llama-cpp-python"}


async def test_it_tells_its_model_and_what_it_cannot_tell() -> None:
    async with LlamaCppPythonStandIn(model="/models/smol.gguf") as server:
        info = (await talk_with(server, LlamaCppPythonBackend)).backend.info
    assert (info.kind, info.model, info.context_size, info.slots) == ("llama-cpp-python", "/models/smol.gguf", None, 1)
    assert info.figures is Figures.NONE
    assert info.unknown == ("token counts", "cached tokens", "context size", "prompt progress")


async def test_ten_turns_read_only_what_is_new_and_no_figure_is_made_up() -> None:
    async with LlamaCppPythonStandIn() as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=1)
    assert talk.reported == [Reported()] * 10


async def test_a_look_at_its_life_does_not_break_the_answer_off() -> None:
    async with LlamaCppPythonStandIn(hold_after=2) as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        task = asyncio.create_task(talk.backend.chat(a_turn(model="toy"), talk.heard))
        await server.until(lambda: server.posts == 1)
        assert await talk.backend.alive()
        assert {visit.path for visit in server.visits[2:]} == {"/extras/tokenize/count"}
        task.cancel()
        await asyncio.wait({task})


async def test_an_answer_that_another_request_broke_off_says_so_and_keeps_its_text() -> None:
    async with LlamaCppPythonStandIn(say=lambda _: "word " * 2000) as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        other = await talk_with(server, LlamaCppPythonBackend)
        task = asyncio.create_task(talk.ask("Tell me all ."))
        await server.until(lambda: server.posts == 1)
        while not talk.heard.text:  # noqa: ASYNC110 (words have no event)
            await asyncio.sleep(0.001)
        await other.backend.identify()
        ended = await task
    assert ended.state is State.INTERRUPTED and "another request comes" in note_sentence(ended.note)
    assert 0 < len(talk.heard.text.split()) < 2000


async def test_a_server_that_lets_others_wait_ends_the_answer() -> None:
    async with LlamaCppPythonStandIn(interrupts=False, say=lambda _: "word " * 200) as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        task = asyncio.create_task(talk.ask("Tell me all ."))
        await server.until(lambda: server.posts == 1)
        await talk.backend.identify()
        assert (await task).state is State.DONE


async def test_a_prompt_that_is_too_long_is_told_with_its_numbers_though_the_stream_says_nothing() -> None:
    async with LlamaCppPythonStandIn(context_size=64) as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        ended = await talk.ask("word " * 100)
        assert ended.state is State.ERROR and ended.error is not None
        assert (ended.error.trouble, ended.error.context_size) == (Trouble.CONTEXT_OVERFLOW, 64)
        assert [request["stream"] for request in server.asked] == [True, False]
        assert server.asked[1]["max_tokens"] == 1


async def test_a_template_without_a_system_role_is_told_as_that() -> None:
    async with LlamaCppPythonStandIn(refuses_system=True) as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        ended = await talk.ask("One ?")
    assert ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE


async def test_a_stream_that_ends_before_it_began_is_not_taken_for_a_lost_connection() -> None:
    ended, _ = await replayed(LlamaCppPythonBackend, "llama-cpp-python", "error-too-long-stream")
    assert ended.state is State.ERROR and "longer than its window" in note_sentence(ended.note)


async def test_template_options_are_not_sent_where_they_do_nothing() -> None:
    async with LlamaCppPythonStandIn() as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        await talk.ask("One ?", template_options={"enable_thinking": False})
    assert "chat_template_kwargs" not in server.asked[0]
    assert "x-request-id" not in server.chats[0].headers


async def test_reading_ahead_makes_the_question_warm() -> None:
    async with LlamaCppPythonStandIn() as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        assert isinstance(talk.backend, PrefillAccess)
        turn = a_turn("What about roses ?", model="toy", parameters=Parameters(max_tokens=100))
        assert await talk.backend.prefill_messages(turn) == Reported()
        await talk.backend.chat(turn, Heard())
    assert (server.reads[0].predicted, server.reads[1].evaluated) == (1, 1)


async def test_a_stop_closes_the_stream_and_what_was_read_stays() -> None:
    async with LlamaCppPythonStandIn(hold_after=3) as server:
        talk = await talk_with(server, LlamaCppPythonBackend)
        await talk.stopped("Tell me a very long story about all the plants that grow here .", words=3)
        await server.until_closed()
        server.hold_after = None
        await talk.ask("Go on .")
    assert server.reads[1].cached >= server.reads[0].prompt


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("chat-turn-1", State.LENGTH),
        ("chat-turn-2", State.LENGTH),
        ("chat-turn-3", State.LENGTH),
        ("interrupted", State.INTERRUPTED),
    ],
)
async def test_recorded_answers_end_as_they_did_and_have_no_figures(name: str, state: State) -> None:
    ended, heard = await replayed(LlamaCppPythonBackend, "llama-cpp-python", name)
    assert (ended.state, heard.reported) == (state, Reported())

"""SGLang: known by the owner of its models or at its root; whether it reports its cache, it says itself."""

from __future__ import annotations

import asyncio
import json

import pytest
from backend_kit import a_turn
from engine_talk import assert_only_new_was_read, recognised_by, talk_with

from kvchat.backends.dialect import BackendError, PrefillAccess, Trouble
from kvchat.backends.dialects.sglang import SglangBackend
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from standins.sglang import SglangStandIn


async def test_sglang_is_known_by_its_answers_and_nothing_else_is_taken_for_it() -> None:
    assert await recognised_by(SglangBackend) == {"sglang"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'"SGLang is running"', True),
        (b"SGLang is running", True),
        (b'"Ollama is running"', False),
        (b"<p>SGLang is running for mayor</p>", False),
    ],
)
def test_without_owners_its_root_tells_it(text: bytes, expected: bool) -> None:
    assert is_of(SglangBackend.kind, {"/": Response(200, {}, text)}) is expected
    assert not is_of(SglangBackend.kind, {"/": Response(404, {}, text)})


@pytest.mark.parametrize(
    ("cache_report", "figures", "first_unknown"),
    [(True, Figures.AFTER, "slots"), (False, Figures.NONE, "cached tokens")],
)
async def test_it_says_itself_whether_it_reports_its_cache(
    cache_report: bool, figures: Figures, first_unknown: str
) -> None:
    async with SglangStandIn(cache_report=cache_report, context_size=2048) as server:
        info = (await talk_with(server, SglangBackend)).backend.info
    assert (info.kind, info.model, info.context_size, info.build) == ("sglang", "toy", 2048, "0.5.23")
    assert (info.figures, info.unknown[0]) == (figures, first_unknown)


async def test_one_that_tells_nothing_of_itself_is_spoken_to_all_the_same() -> None:
    async with SglangStandIn(tells_of_itself=False, cache_report=True) as server:
        talk = await talk_with(server, SglangBackend)
        await talk.ten_turns()
    assert (talk.backend.info.build, talk.backend.info.figures) == ("", Figures.AFTER)
    assert talk.reported[-1].cached_tokens == server.reads[-1].cached


async def test_ten_turns_read_only_what_is_new_and_a_cold_prompt_says_0() -> None:
    async with SglangStandIn(cache_report=True) as server:
        talk = await talk_with(server, SglangBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=1)
    assert [(r.prompt_tokens, r.cached_tokens, r.predicted_tokens) for r in talk.reported] == [
        (read.prompt, read.cached, read.predicted) for read in server.reads
    ]
    assert talk.reported[0].cached_tokens == 0


async def test_without_the_flag_what_came_from_the_cache_is_unknown() -> None:
    async with SglangStandIn() as server:
        talk = await talk_with(server, SglangBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=1)
    assert [r.cached_tokens for r in talk.reported] == [None] * 10
    assert [r.prompt_tokens for r in talk.reported] == [read.prompt for read in server.reads]


async def test_a_stopped_answer_has_its_figures() -> None:
    async with SglangStandIn(cache_report=True, hold_after=3) as server:
        talk = await talk_with(server, SglangBackend)
        await talk.stopped("Tell me a story .", words=3)
        await server.until_closed()
        assert talk.heard.reported.cached_tokens == 0
        server.hold_after = None
        await talk.ask("Go on .")
    assert talk.heard.reported.cached_tokens == server.reads[1].cached >= server.reads[0].prompt


async def test_the_session_goes_out_alone() -> None:
    async with SglangStandIn() as server:
        talk = await talk_with(server, SglangBackend)
        ended = await talk.ask("One ?", template_options={"enable_thinking": False, "reasoning_effort": "low"})
        body = json.loads(server.chats[0].body)
    assert ended.state is State.DONE
    assert body["session_id"] == talk.session and not body.keys() & {"session_params", "rid", "extra_key", "cache_salt"}
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "reasoning_effort": "low"}


async def test_its_life_is_checked_without_its_health_check_which_a_long_prompt_holds_up() -> None:
    async with SglangStandIn(hold_after=0) as server:
        talk = await talk_with(server, SglangBackend)
        task = asyncio.create_task(talk.backend.chat(a_turn(model="toy"), talk.heard))
        await server.until(lambda: server.posts == 1)
        assert await talk.backend.alive()
        assert not any(visit.path.startswith("/health") for visit in server.visits)
        task.cancel()
        await asyncio.wait({task})


async def test_reading_ahead_makes_the_question_warm() -> None:
    async with SglangStandIn(cache_report=True) as server:
        talk = await talk_with(server, SglangBackend)
        assert isinstance(talk.backend, PrefillAccess)
        read = await talk.backend.prefill_messages(a_turn("What about roses ?", model="toy"))
        assert (read.prompt_tokens, read.cached_tokens, read.predicted_tokens) == (server.reads[0].prompt, 0, 1)
        await talk.backend.chat(a_turn("What about roses ?", model="toy"), talk.heard)
    assert server.reads[1].evaluated == 1


async def test_a_prompt_that_is_too_long_is_told_with_its_numbers() -> None:
    async with SglangStandIn(context_size=16) as server:
        talk = await talk_with(server, SglangBackend)
        ended = await talk.ask("one two three four five six seven eight nine ten")
    assert ended.error is not None and isinstance(ended.error, BackendError)
    assert (ended.error.trouble, ended.error.context_size) == (Trouble.CONTEXT_OVERFLOW, 16)

"""TabbyAPI: what follows from its speeds and times, its keys, and its one loaded model."""

from __future__ import annotations

import pytest
from backend_kit import Heard, a_turn, endpoint_of
from hypothesis import given
from hypothesis import strategies as st

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.answer_figures import timings_of
from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import Trouble
from kvchat.backends.http.stream import Payload
from kvchat.backends.identify import backend_of
from kvchat.backends.kinds import KINDS, Figures, Timings
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.prefix import converse
from standins.tabbyapi import TabbyAPIStandIn

NAMES = KINDS["tabbyapi"].timings or Timings("", "")


async def at(server: TabbyAPIStandIn, api_key: str | None = "tabby-key") -> HttpBackend:
    backend = backend_of(KINDS["tabbyapi"])(endpoint_of(server, api_key=api_key))
    await backend.identify()
    return backend


async def test_its_loaded_model_is_described_with_window_and_slots() -> None:
    async with TabbyAPIStandIn(context_size=8192, slots=6) as server:
        info = (await at(server)).info
        assert (info.kind, info.model, info.context_size, info.slots) == ("tabbyapi", "toy-8b", 8192, 6)
        assert [(model.id, model.loaded) for model in info.listing] == [("toy-8b", True)]
        assert (info.figures, info.unknown) == (Figures.DERIVED, ("version",))


async def test_the_admin_key_shows_the_other_models_and_that_they_are_not_loaded() -> None:
    async with TabbyAPIStandIn() as server:
        info = (await at(server, "tabby-admin")).info
        assert [(model.id, model.loaded, model.context_size) for model in info.listing] == [
            ("other-70b", False, None),
            ("toy-8b", True, 4096),
        ]
        assert info.model == "toy-8b"


async def test_a_cache_smaller_than_the_model_allows_is_the_window() -> None:
    async with TabbyAPIStandIn(context_size=8192) as server:
        server.cache_size = 2048
        assert (await at(server)).info.context_size == 2048


async def test_the_cached_tokens_that_follow_from_speed_and_time_are_exact() -> None:
    async with TabbyAPIStandIn(ms_per_token=2.5) as server:
        turns = await converse(await at(server), server)
        assert [turn.reported.cached_tokens for turn in turns] == [turn.read.cached for turn in turns]
        assert [turn.reported.prompt_tokens for turn in turns] == [turn.read.prompt for turn in turns]
        assert not any(turn.reported.estimated for turn in turns)
        assert turns[0].reported.prompt_ms == pytest.approx(turns[0].read.evaluated * 2.5, abs=5)
        assert turns[0].reported.predicted_ms == 250


async def test_a_reading_too_quick_to_time_leaves_the_cache_unknown() -> None:
    async with TabbyAPIStandIn(ms_per_token=0.01) as server:
        turns = await converse(await at(server), server, 3)
        assert [turn.reported.cached_tokens for turn in turns] == [None] * 3
        assert [turn.reported.prompt_tokens for turn in turns] == [turn.read.prompt for turn in turns]


@given(st.integers(1, 200_000), st.floats(0, 1), st.floats(0.2, 5000))
def test_any_count_comes_back_out_of_the_rounded_speed_and_time(prompt: int, share: float, speed: float) -> None:
    evaluated = max(1, round(prompt * share))
    seconds = round(evaluated / speed, 2)
    rate = round(evaluated / seconds, 2) if seconds else "Indeterminate"
    found = timings_of({"prompt_tokens": prompt, "prompt_time": seconds, "prompt_tokens_per_sec": rate}, NAMES)
    if not seconds:
        assert "cache_n" not in found
    elif seconds < 100:
        assert found["cache_n"] == prompt - evaluated
    else:
        assert found.get("cache_n", 0) == pytest.approx(prompt - evaluated, abs=0.005 * seconds + 1)


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": 10},
        {"prompt_tokens": 10, "prompt_time": 1, "prompt_tokens_per_sec": 99},
        {"prompt_tokens": 10, "prompt_time": None, "prompt_tokens_per_sec": "Indeterminate"},
        {"prompt_tokens": "x", "prompt_time": 1, "prompt_tokens_per_sec": 2},
    ],
)
def test_figures_that_do_not_fit_together_say_nothing_of_the_cache(usage: dict[str, object]) -> None:
    assert not timings_of(usage, NAMES).keys() & {"cache_n", "prompt_n"}


async def test_template_options_and_parameters_go_by_its_own_names(heard: Heard) -> None:
    async with TabbyAPIStandIn() as server:
        backend = await at(server)
        turn = a_turn("Hi", template_options={"enable_thinking": False}, parameters=Parameters(repeat_penalty=1.2))
        assert backend.body(turn) == (
            b'{"model":"toy-8b","stream":true,"stream_options":{"include_usage":true},'
            b'"template_vars":{"enable_thinking":false},"messages":[{"role":"system","content":"Be brief."},'
            b'{"role":"user","content":"Hi"}],"repetition_penalty":1.2}'
        )


async def test_a_model_for_the_admin_only_is_not_told_as_a_wrong_key(heard: Heard) -> None:
    async with TabbyAPIStandIn() as server:
        backend = await at(server)
        server.loads_inline = True
        ended = await backend.chat(a_turn(model="other-70b"), heard)
        assert ended.error is not None
        assert ended.error.trouble is Trouble.REFUSED
        assert "loads another model only for its admin key" in note_sentence(ended.note)


async def test_a_path_to_the_loaded_model_is_the_same_model(heard: Heard) -> None:
    async with TabbyAPIStandIn() as server:
        assert (await (await at(server)).chat(a_turn(model="exl3/toy-8b"), heard)).warnings == ()


async def test_without_a_loaded_model_it_is_known_and_a_question_says_what_to_set(heard: Heard) -> None:
    async with TabbyAPIStandIn() as server:
        server.is_loaded = False
        backend = await at(server)
        assert (backend.info.model, backend.info.context_size, backend.info.slots) == ("", None, None)
        ended = await backend.chat(a_turn(), heard)
        assert "has no model loaded. Name one in its config.yml" in note_sentence(ended.note)


@pytest.mark.parametrize(("seconds", "rate"), [(1e308, 1e308), (1e308, 2.0), (5e-324, 1e308)])
def test_figures_that_cannot_be_leave_the_answer_alone(seconds: float, rate: float, heard: Heard) -> None:
    answer = ChatAnswer("http://box", heard, 4096, timings=NAMES)
    usage = {"prompt_tokens": 50, "completion_tokens": 1, "prompt_time": seconds, "prompt_tokens_per_sec": rate}
    answer.take(Payload({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage}))
    assert answer.ended().state is State.DONE and heard.reported.prompt_tokens == 50
    assert heard.reported.cached_tokens in (None, 50)

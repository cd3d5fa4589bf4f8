"""What the dialects of desktop programs share: each knows its own server among imitators, and compares counts."""

from __future__ import annotations

import json

import pytest
from backend_kit import a_turn, endpoint_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ChatTurn
from kvchat.backends.dialects.jan import JanBackend
from kvchat.backends.dialects.koboldcpp import KoboldCppBackend
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.dialects.lmstudio import LMStudioBackend
from kvchat.backends.dialects.localai import LocalAIBackend
from kvchat.backends.dialects.program import LEAST_NEW, Expected, PrefillTimes, ProgramBackend, PromptCounts
from kvchat.backends.dialects.tabbyapi import TabbyAPIBackend
from kvchat.backends.dialects.textgen import TextGenBackend
from kvchat.backends.http.payload import Response
from kvchat.backends.identify import connect
from standins.jan import JanStandIn
from standins.koboldcpp import KoboldCppStandIn
from standins.lmstudio import LMStudioStandIn
from standins.localai import LocalAIStandIn
from standins.prefix import PrefixCache, WordServer, rendered
from standins.tabbyapi import TabbyAPIStandIn
from standins.textgen import TextGenStandIn
from toyserver import ToyServer

DIALECTS = (KoboldCppBackend, TabbyAPIBackend, LocalAIBackend, LMStudioBackend, TextGenBackend, JanBackend)
STAND_INS = (KoboldCppStandIn, TabbyAPIStandIn, LocalAIStandIn, LMStudioStandIn, TextGenStandIn, JanStandIn)
PATHS = (
    *dict.fromkeys(path for dialect in (*DIALECTS, LlamaCppBackend) for path in dialect.probes),
    "/",
    "/api/tags",
    "/api/version",
    "/running",
    "/slots",
    "/server_info",
    "/version",
    "/health",
)


async def recognised_by(server: ToyServer, **options: str) -> list[type[HttpBackend]]:
    responses = await HttpBackend(endpoint_of(server, **options)).asked(PATHS)
    return [dialect for dialect in (*DIALECTS, LlamaCppBackend) if dialect.recognises(responses)]


@pytest.mark.parametrize(("stand_in", "dialect"), zip(STAND_INS, DIALECTS, strict=True))
async def test_each_server_is_known_by_its_own_dialect_alone(
    stand_in: type[WordServer],
    dialect: type[ProgramBackend],
) -> None:
    async with stand_in() as server:
        assert await recognised_by(server) == [dialect]


@pytest.mark.parametrize(
    ("stand_in", "dialect"), [pair for pair in zip(STAND_INS, DIALECTS, strict=True) if pair[1] is not TextGenBackend]
)
async def test_each_server_is_known_before_it_is_given_a_key(
    stand_in: type[WordServer],
    dialect: type[ProgramBackend],
) -> None:
    async with stand_in(key="secret") as server:
        assert await recognised_by(server) == [dialect]


@pytest.mark.parametrize(("stand_in", "dialect"), zip(STAND_INS, DIALECTS, strict=True))
async def test_a_connection_finds_the_dialect_among_all_there_are(
    stand_in: type[WordServer],
    dialect: type[ProgramBackend],
) -> None:
    async with stand_in(key="secret") as server:
        backend = await connect(server.url, api_key="secret")
        assert type(backend) is dialect
        assert backend.info.kind == dialect.kind.name


async def test_other_servers_are_not_taken_for_any_of_them() -> None:
    for kind in ("llama.cpp", "openai"):
        async with ToyServer(kind) as server:
            assert not set(await recognised_by(server)) & set(DIALECTS)


@given(
    st.dictionaries(
        st.sampled_from(PATHS),
        st.builds(
            Response,
            st.sampled_from((200, 401, 404)),
            st.just({}),
            st.one_of(
                st.binary(max_size=20),
                st.recursive(
                    st.none() | st.integers() | st.text(max_size=5),
                    lambda inner: (
                        st.lists(inner, max_size=3)
                        | st.dictionaries(
                            st.sampled_from(
                                ("software", "name", "models", "data", "endpoints", "info", "title", "key", "owned_by")
                            ),
                            inner,
                            max_size=3,
                        )
                    ),
                    max_leaves=8,
                ).map(lambda value: json.dumps(value).encode()),
            ),
        ),
    )
)
def test_no_answer_of_a_server_breaks_the_search_for_its_kind(responses: dict[str, Response]) -> None:
    for dialect in DIALECTS:
        assert dialect.recognises(responses) in (True, False)


def test_a_turn_has_at_least_the_tokens_of_the_one_it_extends_and_of_its_reply() -> None:
    counts, first = PromptCounts(), a_turn("one")
    assert counts.expected(first) is None
    counts.remember(first, 30, "Yes.", 4)
    question = b'{"role":"user","content":"And?"}'
    later = replace(first, wires=(*first.wires, b'{"role":"assistant","content":"Yes."}', question))
    edited = replace(first, wires=(*first.wires, b'{"role":"assistant","content":"No."}', question))
    found = [counts.expected(turn) for turn in (first, later, edited)]
    assert [each.least for each in found if each] == [30, 34, 30]
    assert found[0] == Expected(30, 30)
    assert found[1] is not None
    assert 34 < found[1].likely < 34 + 30, "a question was added"


@pytest.mark.parametrize(
    "other",
    [
        a_turn("two"),
        a_turn("one", model="other"),
        a_turn("one", template_options={"enable_thinking": False}),
        replace(a_turn("one"), session_id="another"),
    ],
)
def test_nothing_is_known_of_a_turn_that_extends_no_other(other: ChatTurn) -> None:
    counts = PromptCounts()
    counts.remember(a_turn("one"), 30, "Yes.", 4)
    assert counts.expected(other) is None


def test_the_time_of_one_prompt_alone_says_nothing_of_the_cache() -> None:
    times = PrefillTimes()
    assert times.cached(3000, 3000.0, None) is None
    assert times.cached(3100, 60.0, 3) is None, "a few new tokens say more about overhead"


def test_a_cold_prompt_and_new_text_give_the_speed_and_with_it_what_was_cached() -> None:
    times = PrefillTimes()
    assert times.cached(3000, 3000.0, None) is None
    assert times.cached(3500, 520.0, 500) == pytest.approx(2990, abs=30)
    assert times.cached(3600, 3650.0, 60) == pytest.approx(0, abs=60), "everything was read anew"


def test_a_server_that_was_always_warm_is_not_said_to_have_lost_its_cache() -> None:
    times = PrefillTimes()
    assert [times.cached(5000 + 100 * turn, 80.0 + turn, 20) for turn in range(20)] == [None] * 20


def test_times_that_contradict_each_other_tell_nothing() -> None:
    times = PrefillTimes()
    times.cached(3000, 9000.0, None)
    assert times.cached(3500, 520.0, 500) is None, "the machine was busy while it read the first"


@given(st.lists(st.tuples(st.integers(LEAST_NEW, 2000), st.booleans()), min_size=1, max_size=12), st.floats(0.05, 20))
def test_where_an_estimate_is_given_it_is_near_the_truth(turns: list[tuple[int, bool]], speed: float) -> None:
    """Of a server that reads each token in the same time, whether it keeps its cache or loses it."""
    times, held = PrefillTimes(), 0
    for new, is_kept in turns:
        prompt = held + new
        read = new if is_kept else prompt
        cached = times.cached(prompt, read * speed, new)
        assert cached is None or 0 <= cached < prompt
        if cached is not None:
            assert (prompt - cached) <= 2 * read + 1
            assert (prompt - cached) >= min(new, read) / 2 - 1
        held = prompt


def test_the_stand_ins_count_as_a_cache_does() -> None:
    cache = PrefixCache()
    question = [{"role": "user", "content": "one two"}]
    first = rendered(question)
    assert first == ["<user>", "one", "two", "<end>", "<assistant>"]
    assert cache.read(first, ["yes"]).cached == 0
    again = rendered([*question, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}])
    assert (cache.read(again, []).prompt, cache.read(again, []).cached) == (11, 10)
    assert cache.read(rendered([{"role": "user", "content": "two"}]), []).cached == 1

"""What servers that are part of a program share: each is known among imitators, and counts are compared."""

from __future__ import annotations

import json

import pytest
from backend_kit import a_turn, endpoint_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ChatTurn
from kvchat.backends.dialects.program import PromptCounts
from kvchat.backends.http.payload import Response
from kvchat.backends.identify import connect
from kvchat.backends.kinds import KINDS, LLAMACPP, ServerKind
from kvchat.backends.recognition import is_of
from standins.jan import JanStandIn
from standins.koboldcpp import KoboldCppStandIn
from standins.lmstudio import LMStudioStandIn
from standins.localai import LocalAIStandIn
from standins.prefix import PrefixCache, WordServer, rendered
from standins.tabbyapi import TabbyAPIStandIn
from standins.textgen import TextGenStandIn
from toyserver import ToyServer

PROGRAMS = [KINDS[name] for name in ("koboldcpp", "tabbyapi", "localai", "lmstudio", "text-generation-webui", "jan")]
KNOWN = [*PROGRAMS, KINDS[LLAMACPP]]
STAND_INS = (KoboldCppStandIn, TabbyAPIStandIn, LocalAIStandIn, LMStudioStandIn, TextGenStandIn, JanStandIn)
PATHS = (
    *dict.fromkeys(path for kind in KNOWN for path in kind.probes),
    "/",
    "/api/tags",
    "/api/version",
    "/running",
    "/slots",
    "/server_info",
    "/version",
    "/health",
)


async def recognised_by(server: ToyServer, **options: str) -> list[ServerKind]:
    responses = await HttpBackend(endpoint_of(server, **options)).asked(PATHS)
    return [kind for kind in KNOWN if is_of(kind, responses)]


@pytest.mark.parametrize(("stand_in", "kind"), zip(STAND_INS, PROGRAMS, strict=True))
async def test_each_server_is_known_as_its_own_kind_alone(
    stand_in: type[WordServer],
    kind: ServerKind,
) -> None:
    async with stand_in() as server:
        assert await recognised_by(server) == [kind]


@pytest.mark.parametrize(
    ("stand_in", "kind"),
    [pair for pair in zip(STAND_INS, PROGRAMS, strict=True) if pair[1].name != "text-generation-webui"],
)
async def test_each_server_is_known_before_it_is_given_a_key(
    stand_in: type[WordServer],
    kind: ServerKind,
) -> None:
    async with stand_in(key="secret") as server:
        assert await recognised_by(server) == [kind]


@pytest.mark.parametrize(("stand_in", "kind"), zip(STAND_INS, PROGRAMS, strict=True))
async def test_a_connection_finds_the_kind_among_all_there_are(
    stand_in: type[WordServer],
    kind: ServerKind,
) -> None:
    async with stand_in(key="secret") as server:
        backend = await connect(server.url, api_key="secret")
        assert backend.info.kind == kind.name


async def test_other_servers_are_not_taken_for_any_of_them() -> None:
    for kind in ("llama.cpp", "openai"):
        async with ToyServer(kind) as server:
            assert not set(await recognised_by(server)) & set(PROGRAMS)


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
    for kind in KINDS.values():
        assert is_of(kind, responses) in (True, False)


def test_a_turn_has_at_least_the_tokens_of_the_one_it_extends_and_of_its_reply() -> None:
    counts, first = PromptCounts(), a_turn("one")
    assert counts.expected(first) is None
    counts.remember(first, 30, "Yes.", 4)
    question = b'{"role":"user","content":"And?"}'
    later = replace(first, wires=(*first.wires, b'{"role":"assistant","content":"Yes."}', question))
    edited = replace(first, wires=(*first.wires, b'{"role":"assistant","content":"No."}', question))
    found = [counts.expected(turn) for turn in (first, later, edited)]
    assert found[0] == 30 and found[1] is not None and found[2] is not None
    assert 34 < found[1] < 34 + 30, "a question was added"
    assert 30 < found[2] < found[1], "another reply"


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


def test_the_stand_ins_count_as_a_cache_does() -> None:
    cache = PrefixCache()
    question = [{"role": "user", "content": "one two"}]
    first = rendered(question)
    assert first == ["<user>", "one", "two", "<end>", "<assistant>"]
    assert cache.read(first, ["yes"]).cached == 0
    again = rendered([*question, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}])
    assert (cache.read(again, []).prompt, cache.read(again, []).cached) == (11, 10)
    assert cache.read(rendered([{"role": "user", "content": "two"}]), []).cached == 1

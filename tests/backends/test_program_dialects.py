"""What servers that are part of a program share: each is known among imitators, and counts are compared."""

from __future__ import annotations

import json

import pytest
from backend_kit import Heard, a_turn, endpoint_of, hurried
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import BackendError, ChatTurn, Trouble
from kvchat.backends.dialects.program import PromptCounts
from kvchat.backends.http.payload import Response
from kvchat.backends.identify import backend_of, connect
from kvchat.backends.kinds import KINDS, LLAMACPP, ServerKind
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from standins.jan import JanStandIn
from standins.koboldcpp import KoboldCppStandIn
from standins.lmstudio import LMStudioStandIn
from standins.localai import LocalAIStandIn
from standins.prefix import PrefixCache, WordServer, converse, rendered
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


async def at(server: ToyServer, kind: ServerKind, api_key: str | None) -> HttpBackend:
    backend = backend_of(kind)(endpoint_of(server, api_key=api_key), clock=hurried())
    await backend.identify()
    return backend


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


@pytest.mark.parametrize(("stand_in", "kind"), zip(STAND_INS, PROGRAMS, strict=True))
async def test_a_conversation_that_is_only_added_to_is_never_read_twice(
    stand_in: type[WordServer], kind: ServerKind
) -> None:
    async with stand_in(key="secret") as server:
        turns = await converse(await at(server, kind, "secret"), server, words=60)
    assert all(turn.ended.state is State.DONE and not turn.ended.warnings for turn in turns)
    assert [turn.read.evaluated - turn.new for turn in turns[1:]] == [0] * 9
    assert [turn.reported.prompt_tokens for turn in turns] == [turn.read.prompt for turn in turns]
    told = kind.name in ("jan", "tabbyapi")
    assert [turn.reported.cached_tokens for turn in turns] == [turn.read.cached if told else None for turn in turns]
    assert not any(turn.reported.estimated for turn in turns), "where it tells nothing, nothing is guessed"


KEYS = (
    "started with as --password.",
    "in api_tokens.yml.",
    "LOCALAI_API_KEY.",
    "Server Settings > Manage Tokens.",
    "started with as --api-key.",
    "under Settings > Local API Server.",
)


@pytest.mark.parametrize("given_key", [None, "wrong"])
@pytest.mark.parametrize(("stand_in", "kind", "words"), zip(STAND_INS, PROGRAMS, KEYS, strict=True))
async def test_a_missing_or_wrong_key_says_where_keys_are(
    stand_in: type[WordServer], kind: ServerKind, words: str, given_key: str | None
) -> None:
    async with stand_in(key="secret") as server:
        with pytest.raises(BackendError) as caught:
            backend = await at(server, kind, given_key)
            ended = await backend.chat(a_turn(), Heard())  # KoboldCpp tells its models without a key
            raise ended.error or AssertionError("it was answered")
        assert caught.value.trouble is Trouble.UNAUTHORIZED
        assert "server.api_key_env" in caught.value.sentence
        assert caught.value.sentence.endswith(words)
        assert (await (await at(server, kind, "secret")).chat(a_turn(), Heard())).state is State.DONE


@pytest.mark.parametrize(
    ("stand_in", "name", "words"),
    [
        (TabbyAPIStandIn, "tabbyapi", "raise max_seq_len and cache_size in TabbyAPI's config.yml"),
        (LocalAIStandIn, "localai", "raise context_size in the model's YAML file of LocalAI"),
        (LMStudioStandIn, "lmstudio", "load the model with a larger context length in LM Studio"),
        (JanStandIn, "jan", "raise Context Size in the model's settings in Jan"),
    ],
)
async def test_a_full_window_is_told_with_its_numbers_and_its_setting(
    stand_in: type[WordServer], name: str, words: str
) -> None:
    async with stand_in(context_size=64, key="secret") as server:
        ended = await (await at(server, KINDS[name], "secret")).chat(a_turn("word " * 100, model="toy-8b"), Heard())
    assert ended.error is not None and ended.error.trouble is Trouble.CONTEXT_OVERFLOW
    assert (ended.error.prompt_tokens, ended.error.context_size) == (107, 64)
    assert words in note_sentence(ended.note) and "llama-server" not in note_sentence(ended.note)


@pytest.mark.parametrize(
    ("stand_in", "name"), [(TabbyAPIStandIn, "tabbyapi"), (TextGenStandIn, "text-generation-webui")]
)
async def test_that_another_model_answered_is_told(stand_in: type[WordServer], name: str) -> None:
    async with stand_in(key="secret") as server:
        ended = await (await at(server, KINDS[name], "secret")).chat(a_turn(model="other-70b"), Heard())
    (warning,) = map(note_sentence, ended.warnings)
    assert warning.startswith("Another model answered: toy-8b, not other-70b.")


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

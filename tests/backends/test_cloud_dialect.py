"""Services on the internet: what is sent to which, what they refuse, and what their figures mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_kit import Heard, a_turn
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.backends.dialect import BackendError, ChatTurn, HostClass, ServerOptions, Trouble
from kvchat.backends.dialects.cloud import CloudBackend
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.cloud import KEY, CloudStandIn, asked
from toyserver import ToyServer, error, reply

HOSTS = {
    "openai": "api.openai.com",
    "openrouter": "openrouter.ai",
    "deepseek": "api.deepseek.com",
    "moonshot": "api.moonshot.ai",
    "mistral": "api.mistral.ai",
}
SESSION = "0123456789abcdef0123456789abcdef"
LONG = "word " * 1200
LOCAL = {"session_id", "cache_prompt", "return_progress", "timings_per_token", "sse_ping_interval", "id_slot"}


async def _here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def backend_at(server: ToyServer, host: str = "api.openai.com", key: str | None = KEY, **options: Any) -> CloudBackend:
    """A backend for a service that stands at this machine under its own name."""
    options = ServerOptions(locality="cloud", **options)
    endpoint = Endpoint(
        BaseUrl("http", host, server.port),
        ResolvedServer(HostClass.CLOUD, ("127.0.0.1",)),
        key,
        allow_plain_http_key=True,
        resolver=_here,
        options=options,
    )
    return CloudBackend(endpoint, options=options)


def of(service: str, server: CloudStandIn, **options: Any) -> CloudBackend:
    return backend_at(server, HOSTS[service], **options)


async def test_it_is_known_by_where_it_stands_and_never_by_its_answers() -> None:
    listing = Response(200, {"server": "llama.cpp"}, b'{"data":[{"id":"gpt","owned_by":"openai"}]}')
    assert not is_of(CloudBackend.kind, {"/v1/models": listing})
    async with CloudStandIn("openai") as server:
        info = await of("openai", server).identify()
    assert (info.kind, info.host_class, info.takes_local_extras) == ("cloud", HostClass.CLOUD, False)
    assert info.figures is Figures.AFTER


@pytest.mark.parametrize(
    ("service", "model", "size", "unknown"),
    [
        ("openai", "new", None, ("context size", "slots")),
        ("openrouter", "some/talker", 131072, ("slots",)),
        ("mistral", "m-large", 32768, ("slots",)),
    ],
)
async def test_a_model_that_talks_is_chosen_with_its_context_size_where_that_is_told(
    service: str, model: str, size: int | None, unknown: tuple[str, ...]
) -> None:
    async with CloudStandIn(service) as server:
        info = await of(service, server).identify()
    assert (info.model, info.context_size, info.unknown) == (model, size, unknown)
    assert not info.listing[0].chats and info.listing[1].chats


async def test_a_service_without_a_list_of_models_is_used_by_the_models_name(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(404, b"Not Found", content_type="text/plain"))
        backend = backend_at(server)
        assert (await backend.identify()).models == ()
        assert (await backend.chat(a_turn(model="sonar"), heard)).state is State.DONE
        assert asked(server.chats[0])["model"] == "sonar"


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_missing_or_wrong_key_is_told(key: str | None) -> None:
    async with CloudStandIn("openai") as server:
        with pytest.raises(BackendError) as caught:
            await backend_at(server, key=key).identify()
    assert caught.value.trouble is Trouble.UNAUTHORIZED
    assert ("refused the API key" if key else "wants an API key") in caught.value.sentence


@pytest.mark.parametrize(
    ("host", "sent"),
    [
        ("api.openai.com", True),
        ("eu.api.openai.com", True),
        ("openrouter.ai", True),
        ("api.mistral.ai", False),
        ("notopenrouter.ai", False),
        ("api.openai.com.evil.example", False),
        ("generic.example", False),
    ],
)
def test_the_cache_key_goes_only_to_services_that_take_it(host: str, sent: bool) -> None:
    backend = CloudBackend(Endpoint(BaseUrl("https", host, 443), ResolvedServer(HostClass.CLOUD, ("192.0.2.1",))))
    body = json.loads(backend.body(a_turn(model="m")))
    assert body.get("prompt_cache_key") == (SESSION if sent else None)
    assert list(body) == ["model", *["prompt_cache_key"] * sent, "stream", "stream_options", "messages"]
    assert backend.headers(a_turn()) == {"content-type": "application/json"}


def test_the_settings_can_name_other_fields_and_headers_for_the_session() -> None:
    options = ServerOptions(session_fields=("session_id",), session_headers=("x-grok-conv-id",))
    backend = CloudBackend(
        Endpoint(BaseUrl("https", "api.x.ai", 443), ResolvedServer(HostClass.CLOUD, ("192.0.2.1",))), options=options
    )
    assert json.loads(backend.body(a_turn()))["session_id"] == SESSION
    assert backend.headers(a_turn())["x-grok-conv-id"] == SESSION


@settings(deadline=None)
@given(
    st.sampled_from(sorted(HOSTS.values())),
    st.sampled_from(list(HostClass)),
    st.dictionaries(st.sampled_from([*sorted(LOCAL), "messages", "stream", "top_a"]), st.integers()),
)
def test_no_local_field_header_or_template_option_is_ever_sent(
    host: str, host_class: HostClass, extra: dict[str, Any]
) -> None:
    backend = CloudBackend(Endpoint(BaseUrl("https", host, 443), ResolvedServer(host_class, ("192.0.2.1",))))
    turn = a_turn(
        slot=1,
        parameters=Parameters(extra={} if host_class is not HostClass.CLOUD else extra),
        template_options={"enable_thinking": False, "preserve_reasoning": True},
    )
    assert not json.loads(backend.body(turn)).keys() & (LOCAL | {"chat_template_kwargs"})
    assert SESSION not in backend.headers(turn).values()


@pytest.mark.parametrize("service", HOSTS)
async def test_every_service_answers_what_is_sent_to_it(service: str, heard: Heard) -> None:
    async with CloudStandIn(service) as server:
        backend = of(service, server)
        await backend.identify()
        ended = await backend.chat(a_turn(parameters=Parameters(temperature=0.5)), heard)
        assert (ended.state, heard.text) == (State.DONE, "Fine thanks")
        assert server.posts == (2 if service == "mistral" else 1)


async def test_a_strict_service_that_refuses_a_field_gets_it_never_again(heard: Heard) -> None:
    async with CloudStandIn("mistral") as server:
        backend = of("mistral", server)
        await backend.identify()
        for _ in range(2):
            await backend.chat(a_turn(), heard)
        assert ["stream_options" in asked(visit) for visit in server.chats] == [True, False, False]


async def test_a_parameter_that_the_person_set_is_not_left_out_in_silence(heard: Heard) -> None:
    async with CloudStandIn("mistral") as server:
        backend = of("mistral", server)
        await backend.identify()
        ended = await backend.chat(a_turn(parameters=Parameters(seed=7)), heard)
    assert ended.error and ended.error.trouble is Trouble.REFUSED
    told = note_sentence(ended.note)
    assert "seed: Extra inputs are not permitted" in told and "parameters" in told


@pytest.mark.parametrize(("model", "posts"), [("new", 3), ("old", 2)])
async def test_the_largest_length_goes_under_the_name_that_the_model_takes(
    model: str, posts: int, heard: Heard
) -> None:
    async with CloudStandIn("openai") as server:
        backend = of("openai", server)
        await backend.identify()
        for _ in range(2):
            turn = a_turn(model=model, parameters=Parameters(max_tokens=99, temperature=0.5))
            assert (await backend.chat(turn, heard)).state is State.DONE
        names = [
            [name for name in ("max_tokens", "max_completion_tokens") if asked(visit).get(name) == 99]
            for visit in server.chats
        ]
        assert len(names) == posts
        assert names[0] == ["max_tokens"]
        assert names[1:] == [["max_completion_tokens" if model == "new" else "max_tokens"]] * (posts - 1)
        assert {asked(visit)["temperature"] for visit in server.chats} == {0.5}


async def test_a_largest_length_that_is_too_large_is_told_and_not_renamed(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(
            error(
                400,
                "max_tokens or max_completion_tokens is too large: 99. This model supports at most 9.",
                "invalid_request_error",
            )
        )
        ended = await backend_at(server).chat(a_turn(parameters=Parameters(max_tokens=99)), heard)
        assert server.posts == 1
    assert ended.error and ended.error.trouble is Trouble.REFUSED and "too large: 99" in note_sentence(ended.note)


async def test_how_hard_to_think_is_a_field_of_its_own(heard: Heard) -> None:
    async with CloudStandIn("openai") as server:
        backend = of("openai", server)
        await backend.identify()
        await backend.chat(a_turn(template_options={"reasoning_effort": "high", "enable_thinking": True}), heard)
        body = asked(server.chats[0])
        assert body["reasoning_effort"] == "high" and "chat_template_kwargs" not in body


async def talk(backend: CloudBackend, session: str = SESSION) -> list[tuple[int | None, int | None]]:
    """Three turns: the prompt tokens of each, and those that came from the cache."""
    wires, told = a_turn(LONG).wires, []
    for _ in range(3):
        heard = Heard()
        assert (await backend.chat(ChatTurn(wires, session), heard)).state is State.DONE
        told.append((heard.reported.prompt_tokens, heard.reported.cached_tokens))
        reply = json.dumps({"role": "assistant", "content": heard.text}).encode()
        wires = (*wires, reply, b'{"role":"user","content":"And then?"}')
    return told


@pytest.mark.parametrize(("service", "unit"), [("openai", 128), ("openrouter", 1), ("deepseek", 64), ("moonshot", 1)])
async def test_what_came_from_the_cache_is_told_in_every_shape(service: str, unit: int) -> None:
    async with CloudStandIn(service) as server:
        backend = of(service, server)
        await backend.identify()
        told = await talk(backend)
    held = 1207  # the prompt of the first turn; its reply has 2 tokens, and 6 more end it and ask again
    assert told == [(held, 0), (held + 8, (held + 2) // unit * unit), (held + 16, (held + 10) // unit * unit)]


async def test_two_conversations_keep_their_own_caches_where_the_key_is_taken() -> None:
    async with CloudStandIn("openai") as server:
        backend = of("openai", server)
        await backend.identify()
        assert await talk(backend) == await talk(backend, "f" * 32)
        assert set(server.held) == {SESSION, "f" * 32}


async def test_a_service_that_tells_nothing_of_its_cache_leaves_it_unknown(heard: Heard) -> None:
    async with CloudStandIn("openai") as server:
        backend = of("openai", server)
        await backend.identify()
        backend._refused_fields.add("stream_options")
        await backend.chat(a_turn(), heard)
    assert heard.reported.cached_tokens is None and heard.text == "Fine thanks"

"""What goes where: local fields and headers never reach a cloud host, nothing reaches a proxy or a second origin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_kit import Heard, a_turn, endpoint_of, llamacpp_at, openai_at
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.base import HttpBackend, OneTokenWarmUp
from kvchat.backends.dialect import BackendError, HostClass, ServerInfo, ServerOptions
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.identify import connect
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from toyserver import ToyServer, reply, tokens

LOCAL_FIELDS = {"session_id", "cache_prompt", "return_progress", "timings_per_token", "sse_ping_interval", "id_slot"}
SESSION = "0123456789abcdef0123456789abcdef"
EXTRA = st.dictionaries(st.sampled_from([*sorted(LOCAL_FIELDS), "messages", "stream", "top_a"]), st.integers())


def backend_of(dialect: type[HttpBackend], host_class: HostClass, *, extras: bool = True) -> HttpBackend:
    backend = dialect(Endpoint(BaseUrl("https", "host", 443), ResolvedServer(host_class, ("192.0.2.1",))))
    backend._info = ServerInfo(backend.kind, "https://host", host_class, model="m", takes_local_extras=extras)
    return backend


@settings(deadline=None)
@given(st.sampled_from([LlamaCppBackend, OneTokenWarmUp]), st.booleans(), EXTRA)
def test_no_local_field_or_session_header_goes_to_a_cloud_host(
    dialect: type[HttpBackend], extras: bool, extra: dict[str, Any]
) -> None:
    backend = backend_of(dialect, HostClass.CLOUD, extras=extras)
    turn = a_turn(parameters=Parameters(extra=extra))
    assert not json.loads(backend.body(turn)).keys() & LOCAL_FIELDS
    assert SESSION.encode() not in backend.body(turn)
    assert SESSION not in backend.headers(turn).values()


@settings(deadline=None)
@given(st.sampled_from([LlamaCppBackend, OneTokenWarmUp]), st.sampled_from(list(HostClass)), EXTRA)
def test_no_request_pins_a_slot_or_detaches_from_its_connection(
    dialect: type[HttpBackend], host_class: HostClass, extra: dict[str, Any]
) -> None:
    backend = backend_of(dialect, host_class)
    turn = a_turn(parameters=Parameters(extra=extra))
    pairs = json.loads(backend.body(turn), object_pairs_hook=list)
    names = [name for name, _ in pairs]
    assert "id_slot" not in names and len(names) == len(set(names))
    assert not {name.lower() for name in backend.headers(turn)} & {"x-conversation-id", "x-request-id"}


def test_the_body_for_llama_cpp_has_its_fields_in_a_fixed_order_around_the_wires() -> None:
    backend = backend_of(LlamaCppBackend, HostClass.LAN)
    turn = a_turn(
        model="qwen", parameters=Parameters(temperature=0.5, max_tokens=9), template_options={"enable_thinking": False}
    )
    assert backend.body(turn) == (
        b'{"model":"qwen","session_id":"' + SESSION.encode() + b'","stream":true,"cache_prompt":true,'
        b'"return_progress":true,"timings_per_token":true,"sse_ping_interval":10,'
        b'"stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":false},'
        b'"messages":[' + b",".join(turn.wires) + b'],"temperature":0.5,"max_tokens":9}'
    )


def test_a_generic_local_server_gets_the_session_but_no_llama_cpp_field() -> None:
    body = backend_of(OneTokenWarmUp, HostClass.LOOPBACK).body(a_turn())
    assert body == (
        b'{"model":"m","session_id":"' + SESSION.encode() + b'","stream":true,"stream_options":'
        b'{"include_usage":true},"messages":[' + b",".join(a_turn().wires) + b"]}"
    )


async def test_an_authorization_of_the_settings_goes_instead_of_the_key(heard: Heard) -> None:
    options = ServerOptions(headers={"Authorization": "Basic dTpw"})
    async with ToyServer() as server:
        await openai_at(server, api_key="k-1", options=options).chat(a_turn(), heard)
        assert server.chats[0].headers["authorization"] == "Basic dTpw"


@pytest.mark.parametrize("make", [llamacpp_at, openai_at])
async def test_the_bytes_on_the_wire_are_the_body_and_carry_the_session_headers(make: Any, heard: Heard) -> None:
    async with ToyServer() as server:
        backend = make(server, api_key="k-1")
        await backend.chat(a_turn(), heard)
        visit = server.chats[0]
        assert visit.body == backend.body(a_turn())
        assert visit.path == "/v1/chat/completions"
        assert visit.headers["host"] == f"127.0.0.1:{server.port}"
        assert visit.headers["authorization"] == "Bearer k-1"
        assert visit.headers["accept-encoding"] == "identity"
        assert visit.headers["content-type"] == "application/json"
        for name in ("x-session-id", "x-smg-routing-key", "x-litellm-session-id", "x-session-affinity"):
            assert visit.headers[name] == SESSION


async def test_a_cloud_host_sees_nothing_of_the_session_on_the_wire(heard: Heard) -> None:
    async with ToyServer() as server:
        backend = OneTokenWarmUp(endpoint_of(server, HostClass.CLOUD, api_key="k"))
        await backend.chat(a_turn(), heard)
        assert SESSION.encode() not in server.chats[0].head + server.chats[0].body


async def test_a_proxy_in_the_environment_gets_no_byte(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ToyServer() as server, ToyServer() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.lower(), proxy.url)
        backend = await connect(server.url, api_key="k")
        await backend.chat(a_turn(), heard)
        assert heard.text == "Hello" and server.posts == 1
        assert proxy.visits == [] and proxy.open == 0


async def test_a_chosen_proxy_gets_the_request_and_the_host_counts_as_cloud(heard: Heard) -> None:
    async with ToyServer() as proxy:
        proxy.on_chat(tokens("by proxy"))
        place = ResolvedServer(HostClass.CLOUD, ())
        backend = OneTokenWarmUp(Endpoint(BaseUrl("http", "far.example", 80), place, proxy=proxy.url))
        await backend.chat(a_turn(), heard)
        assert heard.text == "by proxy"
        assert proxy.chats[0].path == "http://far.example/v1/chat/completions"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_leaks_nothing_and_shows_its_target(status: int, heard: Heard) -> None:
    async with ToyServer() as server, ToyServer() as other:
        target = f"{other.url}/v1/chat/completions"
        server.on_chat(reply(status, headers={"Location": target}))
        server.on("/props", reply(status, headers={"Location": f"{other.url}/props"}))
        server.on("/v1/models", reply(status, headers={"Location": f"{other.url}/v1/models"}))
        ended = await llamacpp_at(server, api_key="k").chat(a_turn(), heard)
        assert target in note_sentence(ended.note)
        with pytest.raises(BackendError, match="points to another address"):
            await connect(server.url, api_key="k")
        assert other.visits == [] and server.posts == 1


async def test_the_connection_goes_to_the_classified_address_under_the_servers_name(heard: Heard) -> None:
    lookups = []

    async def resolver(host: str, port: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"]

    async with ToyServer() as server:
        backend = await connect(f"http://my-box.example:{server.port}", resolver=resolver)
        count = len(lookups)
        await backend.chat(a_turn(), heard)
        assert server.chats[0].headers["host"] == f"my-box.example:{server.port}"
        assert backend.info.host_class is HostClass.LOOPBACK and heard.text == "Hello"
        assert len(lookups) == count


async def test_localhost_is_tried_on_both_families(heard: Heard) -> None:
    async with ToyServer() as server:
        place = ResolvedServer(HostClass.LOOPBACK, ("::1", "127.0.0.1"))
        backend = OneTokenWarmUp(replace(endpoint_of(server), place=place))
        await backend.chat(a_turn(), heard)
        assert heard.text == "Hello" and server.posts == 1


async def test_the_key_is_in_no_representation_sentence_or_log(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with ToyServer() as server:
        server.on_chat(reply(401, {"error": {"message": "bad"}}))
        backend = llamacpp_at(server, api_key="sekrit-canary")
        ended = await backend.chat(a_turn(), heard)
        assert server.chats[0].headers["authorization"] == "Bearer sekrit-canary"
    seen = caplog.text + repr((ended, backend, vars(backend), backend.info, heard))
    assert "refused the API key (401)" in note_sentence(ended.note)
    assert "sekrit-canary" not in seen

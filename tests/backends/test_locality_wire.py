"""On the wire: no redirect, no rebound name and no setting takes text, key or session to another host."""

from __future__ import annotations

from itertools import cycle

import pytest
from backend_kit import Heard, a_turn
from hypothesis import given, settings
from hypothesis import strategies as st
from locality_kit import greedy, resolving
from msgspec.structs import replace

from kvchat.backends.base import LOCAL_EXTRAS, HttpBackend, OneTokenWarmUp
from kvchat.backends.dialect import BackendError, HostClass, ServerOptions
from kvchat.backends.http.endpoint import ResolvedServer, open_endpoint
from kvchat.backends.http.transport import Exchange
from kvchat.backends.identify import backend_of, connect
from kvchat.backends.recognition import ORDER
from toyserver import ToyServer, reply, tokens

LOOPBACK, LAN, TAILNET, CLOUD = HostClass
SESSION = a_turn().session_id
DIALECTS = tuple(map(backend_of, ORDER))
PROBES = {path for kind in ORDER for path in kind.probes}
SECRET = "content-of-the-conversation"
FEW = settings(deadline=None, max_examples=40)


async def test_a_rebound_name_is_asked_and_answered_without_anything_local(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Hello"))
        resolver = resolving(["127.0.0.1"], ["127.0.0.1"], ["127.0.0.1", "203.0.113.9"])
        backend = await connect(f"http://rebound.example:{server.port}", resolver=resolver)
        assert backend.info.host_class is LOOPBACK and backend.info.takes_local_extras
        await backend.identify()
        assert backend.info.host_class is CLOUD and not backend.info.takes_local_extras
        await backend.chat(a_turn(SECRET), heard)
        visit = server.chats[0]
        assert not visit.json.keys() & LOCAL_EXTRAS and SESSION.encode() not in visit.head + visit.body


async def test_a_rebound_name_gets_no_key_and_no_byte_over_plain_http() -> None:
    async with ToyServer() as server:
        resolver = resolving(["127.0.0.1"], ["127.0.0.1"], ["127.0.0.1", "203.0.113.9"])
        backend = await connect(f"http://rebound.example:{server.port}", resolver=resolver, api_key="hunter2")
        before = len(server.visits)
        with pytest.raises(BackendError, match="unencrypted"):
            await backend.identify()
        assert len(server.visits) == before


async def test_between_two_looks_the_connection_goes_where_the_class_was_found(heard: Heard) -> None:
    async with ToyServer() as server:
        resolver = resolving(["127.0.0.1"], ["127.0.0.1"], ["203.0.113.9"])
        backend = await connect(f"http://rebound.example:{server.port}", resolver=resolver)
        await backend.chat(a_turn(SECRET), heard)
        assert heard.text == "Hello" and server.posts == 1 and backend.info.host_class is LOOPBACK


def targets(server: ToyServer, other: ToyServer, path: str) -> list[str]:
    """Where a redirect may want to lead: another port, another name, another scheme, the same place, nowhere."""
    return [
        f"{other.url}{path}",
        f"http://localhost:{other.port}{path}",
        f"http://0x7f.1:{other.port}{path}",
        f"https://127.0.0.1:{other.port}{path}",
        f"//127.0.0.1:{other.port}{path}",
        f"{server.url}/elsewhere{path}",
        f"http://[::ffff:127.0.0.1]:{other.port}{path}",
        "http://user:pw@203.0.113.9/",
        "/elsewhere",
        "::",
        "",
    ]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.kind.name)
async def test_no_redirect_of_any_kind_takes_text_key_or_session_along(
    dialect: type[HttpBackend], heard: Heard
) -> None:
    async with ToyServer() as server, ToyServer() as other:
        statuses = cycle((301, 302, 303, 307, 308))
        places = targets(server, other, dialect.chat_path)
        options = ServerOptions(headers={"X-Team": "research"})
        endpoint = await open_endpoint(server.url, api_key="hunter2", options=options)
        for number, place in enumerate(places):
            server.on_chat(reply(next(statuses), headers={"Location": place}))
            backend = greedy(dialect, endpoint, options=options)
            await backend.identify()
            ended = await backend.chat(a_turn(SECRET), heard)
            assert ended.error is not None and heard.text == ""
            assert server.posts == number + 1, "sent again after a redirect"
        assert other.visits == [] and other.open == 0
        assert all(not visit.path.startswith("/elsewhere") for visit in server.visits)


async def test_no_redirect_of_a_question_is_followed() -> None:
    async with ToyServer("openai") as server, ToyServer() as other:
        for status, place in zip(cycle((301, 302, 303, 307, 308)), targets(server, other, "/v1/models"), strict=False):
            for path in PROBES:
                server.on(path, reply(status, headers={"Location": place}))
            with pytest.raises(BackendError):
                await connect(server.url, api_key="hunter2")
        assert other.visits == []
        assert all(visit.path in PROBES for visit in server.visits)


TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=8).map(lambda text: f"x-own-{text}".rstrip("-"))
VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
OWN = st.dictionaries(TOKEN, VALUE, max_size=3)
MEDDLING = st.dictionaries(
    st.sampled_from(["Host", "Connection", "Accept-Encoding", "Content-Type", "X-Session-ID"]),
    st.just("evil.example"),
    max_size=3,
)


@FEW
@given(OWN, MEDDLING, st.sampled_from([OneTokenWarmUp, *DIALECTS[:1]]))
async def test_key_and_headers_of_the_settings_go_to_their_own_server_once_and_to_no_other(
    own: dict[str, str], meddling: dict[str, str], dialect: type[HttpBackend]
) -> None:
    async with ToyServer() as server, ToyServer() as other:
        options = ServerOptions(headers={**own, **meddling})
        mine = greedy(dialect, await open_endpoint(server.url, api_key="hunter2", options=options), options=options)
        others = greedy(dialect, await open_endpoint(other.url))
        for backend in (mine, others):
            await backend.get("/health")
            await backend.chat(a_turn(), Heard())
        for visit in server.visits:
            lines = [line.partition(b":")[0].decode().lower() for line in visit.head.split(b"\r\n")[1:] if line]
            assert len(lines) == len(set(lines)), "a header went out twice"
            assert visit.headers["authorization"] == "Bearer hunter2"
            assert {name: visit.headers[name] for name in own} == own
            assert visit.headers["host"] == f"127.0.0.1:{server.port}"
            assert (visit.headers["connection"], visit.headers["accept-encoding"]) == ("close", "identity")
        assert server.chats[0].headers["content-type"] == "application/json"
        assert server.chats[0].headers["x-session-id"] == SESSION
        for visit in other.visits:
            assert "authorization" not in visit.headers and b"evil.example" not in visit.head
            assert not {name for name in visit.headers if name.startswith("x-own-")}


@pytest.mark.parametrize("path", ["@203.0.113.9/", ".evil.example/", ":1/", "v1/models", ""])
async def test_a_path_cannot_become_another_host(path: str) -> None:
    endpoint = await open_endpoint("http://127.0.0.1")
    with pytest.raises(ValueError, match="begins with /"):
        Exchange(endpoint, "GET", path)


async def test_a_server_without_an_address_is_sent_nothing() -> None:
    async with ToyServer() as server:
        endpoint = await open_endpoint(server.url)
        with pytest.raises(BackendError, match="no address"):
            async with Exchange(
                replace(endpoint, place=ResolvedServer(LOOPBACK, ())), "POST", "/v1/x", body=b"{}"
            ) as exchange:
                await exchange.head()
        assert server.visits == []

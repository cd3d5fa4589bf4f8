"""Conversations on servers of their own: each goes to its own, a server that is gone is waited for, and nothing goes
where the person did not send it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kvchat.backends.dialect import Backend, HostClass, ServerInfo
from kvchat.backends.http.endpoint import ResolvedServer
from kvchat.backends.identify import connect
from kvchat.chat.events import Noticed
from kvchat.chat.question import Question
from kvchat.chat.server import connection
from kvchat.chat.server.servers import LAST_SERVER
from kvchat.chat.service import ChatService
from kvchat.config import ServerSettings, Settings
from kvchat.prompt.message import State
from kvchat.reports.warmth import Heat
from kvchat.text.notes import note_sentence
from toyserver import ToyServer, error, hang, reply, tokens

Maker = Callable[..., ChatService]


async def say(service: ChatService, id: str, text: str) -> Any:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    return service.conversations.get(id).path()[-1]  # type: ignore[union-attr]


async def begun(service: ChatService, server: str = "") -> str:
    conversation = await service.new_conversations.create(reuse=False)
    await service.conversations.open(conversation.id)
    if server:
        await service.chooser.use(conversation.id, server)
    return conversation.id


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 (the conditions have no event)
            await asyncio.sleep(0.01)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost server is looked for every few hundredths of a second."""
    monkeypatch.setattr(connection, "AGAIN_S", (0.03,))


async def test_each_conversation_goes_to_its_own_server(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    async with ToyServer("openai", model="other") as other:
        one, two = await begun(service), await begun(service, other.url)
        for id in (one, two, one, two):
            assert (await say(service, id, "Hi")).state is State.DONE
        assert (server.posts, other.posts) == (2, 2)
        assert other.chats[0].json["model"] == "other"
        await service.conversations.open(one)
        assert service.servers.info is not None and service.servers.info.base_url == server.url
        await service.conversations.open(two)
        info = service.servers.info
        assert info is not None and (info.base_url, info.kind) == (other.url, "openai")


async def test_it_is_remembered_over_a_restart_and_new_ones_begin_with_the_last_chosen(make: Maker) -> None:
    async with ToyServer(model="a") as a, ToyServer(model="b") as b:
        service = make("")
        one, two = await begun(service, a.url), await begun(service, b.url)
        again = make("")
        assert (await say(again, one, "Hi")).model == "toy" and a.posts == 1
        assert (await say(again, two, "Hi")).model == "toy" and b.posts == 1
        await say(again, await begun(again), "Hi")
        assert b.posts == 2


async def test_an_answer_on_one_server_does_not_wait_for_one_on_another(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    server.on_chat(hang())
    async with ToyServer() as other:
        one, two = await begun(service), await begun(service, other.url)
        await service.turns.send(one, Question("Hi"))
        await server.until(lambda: server.posts == 1)
        assert (await say(service, two, "Hi")).state is State.DONE
        assert service.conversations.streaming() == {one}
        await service.conversations.stop(one)


def held_up(server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Connecting to the server takes until the second event is set; the first one says that it has begun."""
    begins, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly(base_url: str, **options: Any) -> Backend:
        if base_url == server.url:
            begins.set()
            await goes_on.wait()
        return await connect(base_url, **options)

    monkeypatch.setattr("kvchat.backends.identify.connect", slowly)
    return begins, goes_on


async def test_a_question_goes_to_the_server_that_is_chosen_while_the_one_before_is_connected_to(
    make: Maker, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make(server.url)
    begins, goes_on = held_up(server, monkeypatch)
    async with ToyServer() as other:
        id = await begun(service)
        await service.turns.send(id, Question("Hi"))
        await begins.wait()
        await service.chooser.use(id, other.url)
        goes_on.set()
        await service.conversations.wait(id)
        assert (server.posts, other.posts) == (0, 1)


async def test_a_question_that_is_stopped_while_its_server_is_connected_to_breaks_that_for_no_other(
    make: Maker, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make(server.url)
    begins, goes_on = held_up(server, monkeypatch)
    one, two = await begun(service), await begun(service)
    await service.turns.send(one, Question("Hi"))
    await begins.wait()
    reaching = asyncio.create_task(service.servers.reach(two))
    await asyncio.sleep(0)  # it waits for the same connecting
    await service.conversations.stop(one)
    goes_on.set()
    await asyncio.wait({reaching})
    assert not reaching.cancelled() and reaching.result().base_url == server.url


async def test_the_server_of_the_command_line_takes_every_conversation(make: Maker, server: ToyServer) -> None:
    async with ToyServer() as other:
        id = await begun(make(""), other.url)
        service = make(server.url, one_server=True)
        await say(service, id, "Hi")
        assert (server.posts, other.posts) == (1, 0)


async def test_a_profile_brings_its_model_key_and_headers(
    make: Maker,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORK_KEY", "sekrit")
    service = make("")
    async with ToyServer() as other:
        profile = ServerSettings(base_url=server.url, model="toy", api_key_env="WORK_KEY", headers={"X-Team": "blue"})
        service.core.settings = dataclasses.replace(service.settings, profiles={"work": profile})
        id = await begun(service, "work")
        await say(service, id, "Hi")
        assert {(v.headers.get("authorization"), v.headers.get("x-team")) for v in server.visits} == {
            ("Bearer sekrit", "blue")
        }
        await service.chooser.use(id, other.url)
        await say(service, id, "Hi")
        assert {(v.headers.get("authorization"), v.headers.get("x-team")) for v in other.visits} == {(None, None)}


@pytest.mark.usefixtures("quickly")
async def test_a_server_that_is_gone_is_waited_for_and_the_question_goes_out_once(
    make: Maker,
    server: ToyServer,
) -> None:
    service = make(server.url)
    service.servers.waits = True
    id = await begun(service)
    await say(service, id, "One")
    await server.stop()
    await service.turns.send(id, Question("Two"))
    await until(lambda: service.servers.connection.phase == "lost")
    live = service.conversations.get(id).live  # type: ignore[union-attr]
    assert live is not None and live.waiting is not None
    await until(lambda: live.waiting is not None and live.waiting.phase == "gone")
    await service.conversations.set_draft(id, "what I type meanwhile")
    server.visits.clear()
    await server.start()
    await service.conversations.wait(id)
    assert [visit.json["messages"][-1]["content"].endswith("Two") for visit in server.chats] == [True]
    conversation = service.conversations.get(id)
    assert conversation is not None and conversation.path()[-1].state is State.DONE
    assert (conversation.draft, service.servers.connection.phase) == ("what I type meanwhile", "ready")


def behind_a_proxy(server: ToyServer, status: int) -> Callable[[], None]:
    """The proxy before the server answers every request with `status`, until what is given back is called."""
    answer, page = server._answer_to, reply(status, b"<html>Bad gateway</html>", content_type="text/html")
    server._answer_to = lambda visit: page  # type: ignore[method-assign]
    return lambda: setattr(server, "_answer_to", answer)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_proxy_before_a_server_that_is_gone_is_waited_for_and_shown(
    make: Maker, server: ToyServer, status: int
) -> None:
    service = make(server.url)
    service.servers.waits = True
    id = await begun(service)
    await say(service, id, "One")
    back = behind_a_proxy(server, status)
    await service.turns.send(id, Question("Two"))
    await until(lambda: service.servers.connection.phase == "lost")
    if status == 503:  # it cannot have begun: the question goes out by itself
        await until(lambda: (live := service.conversations.load(id).live) and live.waiting.phase == "gone")
        back()
        await service.conversations.wait(id)
        answer = service.conversations.load(id).path()[-1]
    else:
        await service.conversations.wait(id)
        failed = service.conversations.load(id).path()[-1]
        assert failed.state is State.ERROR and service.servers.connection.is_awaited
        posts = server.posts
        back()
        await until(lambda: service.servers.connection.phase == "ready")
        assert server.posts == posts, "never a second generation"
        await service.turns.regenerate(id, failed.id)
        await service.conversations.wait(id)
        answer = service.conversations.load(id).path()[-1]
    assert (answer.state, answer.text) == (State.DONE, "Hello")


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_question_that_meets_the_proxy_while_it_connects_goes_out_by_itself(
    make: Maker, server: ToyServer, status: int
) -> None:
    id = await begun(first := make(server.url))
    await say(first, id, "One")
    back = behind_a_proxy(server, status)
    service = make(server.url)
    service.servers.waits = True
    await service.turns.send(id, Question("Two"))
    await until(lambda: (live := service.conversations.load(id).live) and live.waiting and live.waiting.phase == "gone")
    assert service.servers.connection.phase == "failed"
    back()
    await service.conversations.wait(id)
    assert service.conversations.load(id).path()[-1].state is State.DONE and server.posts == 2


@pytest.mark.usefixtures("quickly")
async def test_waiting_for_a_server_can_be_stopped(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    service.servers.waits = True
    id = await begun(service)
    await say(service, id, "One")
    await server.stop()
    await service.turns.send(id, Question("Two"))
    await until(lambda: service.servers.connection.phase == "lost")
    await service.conversations.stop(id)
    assert service.conversations.get(id).path()[-1].state is State.CANCELLED  # type: ignore[union-attr]
    assert service.conversations.streaming() == frozenset()


@pytest.mark.usefixtures("quickly")
async def test_a_server_that_starts_after_kvchat_is_found(make: Maker) -> None:
    async with ToyServer() as server:
        await server.stop()
        service = make(server.url)
        service.servers.waits = True
        id = await begun(service)
        await service.turns.send(id, Question("Hi"))
        await until(lambda: service.servers.connection.phase == "failed")
        await server.start()
        await service.conversations.wait(id)
        assert service.conversations.get(id).path()[-1].text == "Hello"  # type: ignore[union-attr]


async def test_without_a_person_a_server_that_is_gone_is_an_error_at_once(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    await say(service, id, "One")
    await server.stop()
    answer = await say(service, id, "Two")
    assert answer.state is State.ERROR and "No server answers" in note_sentence(answer.note)


async def test_a_lost_server_is_looked_for_ever_less_often(
    make: Maker,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 12:
            await asyncio.Event().wait()

    service = make(server.url)
    id = await begun(service)
    await say(service, id, "One")
    await server.stop()
    await say(service, id, "Two")
    watching = service.servers.link(id).connector._watching
    assert watching is not None
    watching.cancel()
    await asyncio.wait({watching})
    monkeypatch.setattr(connection.asyncio, "sleep", wait)
    service.servers.link(id).connector._watch_for(server.url)
    await until_waits(waits, 13)
    assert waits[0] <= 1 and waits == sorted(waits) and waits[-1] >= 15


async def until_waits(waits: list[float], count: int) -> None:
    for _ in range(100_000):
        if len(waits) >= count:
            return
        await asyncio.wait({asyncio.ensure_future(asyncio.to_thread(int))})
    raise AssertionError(waits)


async def test_what_a_server_held_is_gone_with_its_process(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    await say(service, id, "One")
    assert service.tracker.warmth(id).heat is not Heat.COLD
    service.servers.link(id).connector.lost("gone", refuses=True)
    assert service.tracker.warmth(id).heat is Heat.COLD


async def test_what_is_known_of_a_cache_outlives_a_short_loss(
    make: Maker,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "AGAIN_S", (0.03,))
    service = make(server.url)
    id = await begun(service)
    await say(service, id, "One")
    before = service.servers.link(id).info
    service.servers.link(id).connector.lost("gone")
    await until(lambda: service.servers.connection.phase == "ready")
    assert service.servers.link(id).info is before


async def test_a_system_prompt_that_a_template_refuses_goes_into_the_first_question_for_good(
    make: Maker,
    server: ToyServer,
) -> None:
    service = make(server.url)
    notices: list[str] = []
    service.events.subscribe(lambda event: notices.append(event.text) if isinstance(event, Noticed) else None)
    id = await begun(service)
    server.on_chat(error(500, "System role not supported"), tokens("Hello"))
    assert (await say(service, id, "One")).state is State.DONE
    refused, sent = (visit.json["messages"] for visit in server.chats)
    assert refused[0]["role"] == "system" and [m["role"] for m in sent] == ["user"]
    assert sent[0]["content"].startswith(refused[0]["content"]) and sent[0]["content"].endswith("One")
    assert any("system prompt" in text for text in notices)
    await say(make(server.url), id, "Two")
    first, last = server.chats[1].body, server.chats[-1].body
    start = first.index(b'"messages":[')
    end = first.index(b"]", first.index(b"One")) - 1
    assert first[start:end] in last and server.posts == 3


async def test_a_conversation_begun_here_is_asked_about_before_it_goes_to_the_internet(
    make: Maker,
    server: ToyServer,
) -> None:
    service = make(server.url)
    one, two = await begun(service), await begun(service)
    await say(service, one, "A secret")
    assert service.servers.info is not None
    cloud = replace(service.servers.info, base_url="https://api.example.com", host_class=HostClass.CLOUD)
    assert not service.servers.consent.may_send_to(cloud, one)
    await service.servers.consent.allow_sending_to(cloud, two)
    assert service.servers.consent.may_send_to(cloud, two) and service.servers.consent.may_send_to(cloud)
    assert not service.servers.consent.may_send_to(cloud, one) and service.servers.consent.was_begun_nearer(one, cloud)
    await service.servers.consent.allow_sending_to(cloud, one)
    assert service.servers.consent.may_send_to(cloud, one)


@pytest.mark.parametrize("tells", [True, False], ids=["tells what it is", "tells nothing"])
async def test_nothing_is_sent_where_a_servers_name_leads_to_the_internet_just_now(
    make: Maker, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    place = HostClass.LAN

    async def located(*_: object) -> ResolvedServer:
        return ResolvedServer(place, ("127.0.0.1",))

    monkeypatch.setattr("kvchat.backends.http.endpoint.locate", located)
    async with ToyServer() as box:
        url = f"http://box.example:{box.port}"
        service = make(url)
        service.store.set_setting(f"allowed lan {url}", "yes")
        id = await begun(service)
        assert (await say(service, id, "Hi")).state is State.DONE
        place = HostClass.CLOUD
        box.on("/props", reply(200, {"build_info": "b2-toy", "model_alias": "toy"}, server="llama.cpp"))
        if not tells:
            box.on("/v1/models", reply(500, {}))
        answer = await say(service, id, "A secret")
        assert answer.state is State.ERROR and url in note_sentence(answer.note)
        assert box.posts == 1 and all(b"A secret" not in visit.body for visit in box.visits)


async def test_settings_name_the_server_of_new_conversations(make: Maker, server: ToyServer) -> None:
    service = make("")
    service.core.settings = dataclasses.replace(
        Settings(), default_profile="home", profiles={"home": ServerSettings(base_url=server.url)}
    )
    await say(service, await begun(service), "Hi")
    assert server.posts == 1


async def test_a_model_that_a_local_server_passes_on_counts_as_the_internet(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    await service.servers.connect()
    assert service.servers.info is not None
    info = service.servers.info
    passing = replace(info, listing=(replace(info.listing[0], remote="ollama.example"),))
    service.servers.link(id).connector._backend._info = passing  # type: ignore[union-attr]
    assert service.servers.consent.destination(passing, id).host_class is HostClass.CLOUD
    assert not service.servers.consent.may_send_to(passing, id)
    answer = await say(service, id, "A secret")
    assert answer.state is State.ERROR and server.posts == 0
    await service.servers.consent.allow_sending_to(passing, id)
    assert (await say(service, id, "A secret")).state is State.DONE


async def test_who_agreed_to_a_model_that_is_passed_on_is_asked_for_no_new_conversation(
    make: Maker, server: ToyServer
) -> None:
    service = make(server.url)
    one, two = await begun(service), await begun(service)
    passing = await passed_on(service, one)
    await service.servers.consent.allow_sending_to(passing, one)
    for id in (one, two, two):
        assert service.servers.consent.may_send_to(passing, id)
        assert (await say(service, id, "Hi")).state is State.DONE


async def test_a_model_that_is_passed_on_and_chosen_later_needs_a_yes(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    assert (await say(service, id, "Only for here")).state is State.DONE
    passing = await passed_on(service, id, model="far")
    conversation = await service.conversations.open(id)
    await service.conversations.update(conversation, model="far")
    assert (await say(service, id, "A secret")).state is State.ERROR and server.posts == 1
    other = await begun(service)
    await service.servers.consent.allow_sending_to(passing, other)
    assert (await say(service, id, "A secret")).state is State.ERROR and server.posts == 1  # it was begun nearer
    await service.servers.consent.allow_sending_to(passing, id)
    assert (await say(service, id, "A secret")).state is State.DONE


async def passed_on(service: ChatService, id: str, model: str = "") -> ServerInfo:
    """The server of a conversation, from now on one that passes its model on, or one more of this name."""
    await service.servers.connect(id)
    info = service.servers.link(id).info
    assert info is not None
    away = replace(info.listing[0], id=model or info.listing[0].id, remote="https://ollama.example")
    passing = replace(info, listing=(*(info.listing if model else ()), away))
    service.servers.link(id).connector._backend._info = passing  # type: ignore[union-attr]
    return passing


@pytest.mark.usefixtures("quickly")
async def test_a_server_that_was_found_is_kept_though_another_one_answers_when_it_is_gone(
    make: Maker,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ToyServer("openai", model="other") as other:
        monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (server.port, other.port))
        service = make("")
        id = await begun(service)
        await say(service, id, "One")
        assert (server.posts, other.posts) == (1, 0)
        await server.stop()
        assert (await say(service, id, "Two")).state is State.ERROR
        again = make("")
        assert (await say(again, id, "Three")).state is State.ERROR
        await server.start()
        assert (await say(again, id, "Four")).state is State.DONE
        assert (server.posts, other.posts) == (2, 0)


async def test_a_server_that_did_not_answer_is_not_the_one_to_begin_with(make: Maker, server: ToyServer) -> None:
    service = make("")
    id = await begun(service, server.url)
    await service.chooser.use(id, "http://127.0.0.1:9")
    assert service.servers.first() == server.url


@pytest.mark.parametrize("known", ["", "settings", "agreed", "answered", "used last"])
async def test_a_server_elsewhere_is_connected_to_ahead_only_where_the_user_named_or_agreed_to_it(
    make: Maker, server: ToyServer, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    async with ToyServer() as box:
        url = f"http://box.example:{box.port}"

        async def located(*_: object) -> ResolvedServer:
            return ResolvedServer(HostClass.LAN, ("127.0.0.1",))

        service = make(server.url if known != "used last" else "")
        id = (await service.new_conversations.create(reuse=False)).id
        conversation = service.conversations.load(id)
        if known == "answered":
            answer = await say(service, id, "Hi")
            service.store.record_request(answer.id, body_sha256="0" * 64, server=url)
        await service.conversations.update(conversation, server=url)
        service = make(server.url if known != "used last" else "")
        monkeypatch.setattr("kvchat.backends.http.endpoint.locate", located)
        if known == "settings":
            service.core.settings = dataclasses.replace(
                service.settings, profiles={"box": ServerSettings(base_url=url)}
            )
        elif known == "agreed":
            service.store.set_setting(f"allowed lan {url}", "yes")
        elif known == "used last":
            service.store.set_setting(LAST_SERVER, url)
        service.servers.connects_ahead = True
        await service.conversations.open(id)
        await service.servers.meet()
        await until(lambda: service.servers.connection.phase in ("ready", "idle"))
        assert bool(box.visits) is bool(known) and service.servers.connection.phase == ("ready" if known else "idle")
        if not known:
            answer = await say(service, id, "Here?")
            assert answer.state is State.ERROR and "agree" in note_sentence(answer.note) and box.posts == 0

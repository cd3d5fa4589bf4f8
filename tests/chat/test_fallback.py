"""The server used last is off: new conversations begin on what is there, and old ones wait for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine_fixture import small_model
from kvchat.backends.dialect import BackendError
from kvchat.chat.events import FallbackChosen
from kvchat.chat.question import Question
from kvchat.chat.server import connection, fallback
from kvchat.chat.server.connection import Connector
from kvchat.chat.server.link import Link
from kvchat.chat.server.servers import LAST_SERVER
from kvchat.chat.service import ChatService
from kvchat.config import ServerSettings
from kvchat.prompt.message import State
from toyserver import ToyServer

Maker = Callable[..., ChatService]
OFF = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is off is looked for every few hundredths of a second; and there is no engine."""
    monkeypatch.setattr(connection, "AGAIN_S", (0.03,))
    monkeypatch.setattr(fallback, "default_model_file", lambda: None)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the conditions have no event)
            await asyncio.sleep(0.01)


async def settled(service: ChatService) -> None:
    """Until it is known whether the server answers, and nothing is looked for."""
    await until(lambda: service.servers.connection.phase not in ("connecting", "idle"))


def told(service: ChatService) -> list[FallbackChosen]:
    events: list[FallbackChosen] = []
    service.events.subscribe(lambda event: events.append(event) if isinstance(event, FallbackChosen) else None)
    return events


async def said(service: ChatService, id: str, text: str) -> State:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    conversation = service.conversations.get(id)
    assert conversation is not None
    return conversation.path()[-1].state


@pytest.fixture
def begin(make: Maker) -> Maker:
    """A service as the app has it, whose last server is `OFF` unless another one is named."""

    def begin(last: str = OFF, **profiles: str) -> ChatService:
        service = make("")
        service.core.settings = replace(
            service.settings, profiles={name: ServerSettings(base_url=url) for name, url in profiles.items()}
        )
        service.servers.connects_ahead = service.servers.waits = True
        service.store.set_setting(LAST_SERVER, last)
        return service

    return begin


async def test_a_new_conversation_begins_on_another_server_that_was_used_and_says_so_once(
    make: Maker,
    begin: Maker,
) -> None:
    async with ToyServer(model="other") as other:
        await other.stop()
        before = make("")
        old = (await before.new_conversations.create(reuse=False)).id
        await before.chooser.use(old, other.url)
        await other.start()
        assert await said(before, old, "Hi") is State.DONE
        service = begin()
        events = told(service)
        id = (await service.new_conversations.create()).id
        await settled(service)
        assert (service.servers.connection.phase, events) == ("ready", [FallbackChosen(OFF, other.url)])
        assert service.servers.info is not None and service.servers.info.base_url == other.url
        assert await said(service, id, "Hi") is State.DONE
        another = (await service.new_conversations.create()).id
        await settled(service)
        assert another != id and await said(service, another, "Hi") is State.DONE
        assert len(events) == 1 and other.posts == 3
        assert service.store.setting(LAST_SERVER) == OFF, "the next run tries it again"


async def test_a_server_that_was_found_is_the_one_used_last_once_it_answered(
    make: Maker, begin: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ToyServer(model="used") as used, ToyServer(model="other") as other:
        monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (used.port,))
        first = make("")
        await said(first, (await first.new_conversations.create()).id, "Hi")
        monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (other.port, used.port))
        await said(second := make(""), (await second.new_conversations.create(reuse=False)).id, "Hi")
        assert (used.posts, other.posts) == (2, 0), "it is not left for one that stands first"
        await used.stop()
        service = begin(second.store.setting(LAST_SERVER))
        events = told(service)
        await service.new_conversations.create(reuse=False)
        await settled(service)
        assert events == [FallbackChosen(used.url, other.url)]
        await other.stop()
        alone = begin(service.store.setting(LAST_SERVER))
        await alone.new_conversations.create(reuse=False)
        await settled(alone)
        await until(lambda: alone.servers.last_off)
        assert [choice.base_url for choice in alone.chooser.all()][:1] == [used.url]


async def test_a_question_that_was_quicker_goes_out_once_where_the_conversation_begins(begin: Maker) -> None:
    async with ToyServer() as other:
        service = begin(box=other.url)
        id = (await service.new_conversations.create()).id
        assert await said(service, id, "Hi") is State.DONE
        assert other.posts == 1 and service.conversations.get(id).record.server == "box"  # type: ignore[union-attr]


async def test_a_question_does_not_wait_for_a_server_that_another_one_stood_in_for_meanwhile(
    begin: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ToyServer() as other:
        service = begin(box=other.url)
        id = (await service.new_conversations.create()).id
        is_gone = service.servers.is_gone

        async def late(link: Link, error: BackendError, *, was_sent: bool) -> bool:
            found = await is_gone(link, error, was_sent=was_sent)
            await until(lambda: service.conversations.get(id).record.server == "box")  # type: ignore[union-attr]
            await until(lambda: service.servers.fallback.off is None)
            return found

        monkeypatch.setattr(service.servers, "is_gone", late)
        async with asyncio.timeout(20):
            assert await said(service, id, "Hi") is State.DONE
        assert other.posts == 1


async def test_one_server_by_two_names_is_one(begin: Maker) -> None:
    async with ToyServer() as server, ToyServer() as other:
        await server.stop()
        service = begin(server.url, old=f"{server.url}/v1", box=other.url)
        service.servers.links.at("old")  # the address leads to this one from now on
        first = (await service.new_conversations.create()).id
        await settled(service)
        assert await said(service, first, "Hi") is State.DONE
        assert service.servers.first() == "box" and other.posts == 1


async def test_a_server_that_is_found_on_this_machine_does_too(begin: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ToyServer() as found:
        monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (found.port,))
        service = begin()
        events = told(service)
        id = (await service.new_conversations.create()).id
        await settled(service)
        assert [event.used for event in events] == [found.url]
        assert await said(service, id, "Hi") is State.DONE


@pytest.mark.engine
async def test_where_no_server_is_there_the_built_in_engine_is(begin: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "default_model_file", small_model)
    service = begin()
    events = told(service)
    await service.new_conversations.create()
    await until(lambda: service.servers.connection.phase == "ready")
    assert events == [FallbackChosen(OFF, "")]
    assert service.servers.info is not None and service.servers.info.embedded


async def test_where_nothing_is_there_it_waits_for_its_server(begin: Maker) -> None:
    async with ToyServer() as server:
        await server.stop()
        service = begin(server.url)
        events = told(service)
        id = (await service.new_conversations.create()).id
        await settled(service)
        assert service.servers.connection.phase == "failed" and service.servers.connection.is_awaited and not events
        await service.turns.send(id, Question("Hi"))
        await server.start()
        await service.conversations.wait(id)
        assert service.conversations.get(id).path()[-1].state is State.DONE  # type: ignore[union-attr]


async def test_an_old_conversation_stays_where_it_is(begin: Maker) -> None:
    async with ToyServer() as server, ToyServer() as other:
        first = begin(server.url)
        id = (await first.new_conversations.create()).id
        assert await said(first, id, "Hi") is State.DONE
        await server.stop()
        service = begin(server.url, box=other.url)
        await service.conversations.open(id)
        await settled(service)
        assert service.servers.connection.phase == "failed"
        assert service.conversations.loaded[id].record.server == server.url
        new = (await service.new_conversations.create()).id
        await settled(service)
        assert service.conversations.get(new).record.server == "box"  # type: ignore[union-attr]


async def test_a_server_that_ends_while_one_works_is_replaced_for_what_is_begun_then_until_it_is_back(
    begin: Maker,
) -> None:
    async with ToyServer() as server, ToyServer() as other:
        service = begin(server.url, box=other.url)
        id = (await service.new_conversations.create()).id
        assert await said(service, id, "Hi") is State.DONE
        await server.stop()
        await service.turns.send(id, Question("And?"))
        await until(lambda: service.servers.connection.phase == "lost")
        new = (await service.new_conversations.create()).id
        await settled(service)
        assert service.conversations.get(new).record.server == "box"  # type: ignore[union-attr]
        await server.start()
        await service.conversations.wait(id)
        assert service.servers.first() == server.url


@pytest.mark.parametrize("agreed", [False, True])
async def test_a_server_elsewhere_is_asked_only_where_the_person_agreed_to_it(
    begin: Maker,
    monkeypatch: pytest.MonkeyPatch,
    agreed: bool,
) -> None:
    asked: list[str] = []

    async def answers(self: Connector) -> bool:
        asked.append(self.base_url)
        return False

    monkeypatch.setattr(Connector, "answers", answers)
    service = begin(box="http://192.168.77.7:8080/", cloud="https://api.example.com")
    service.store.set_setting("allowed cloud https://api.example.com", "yes")
    if agreed:
        service.store.set_setting("allowed lan http://192.168.77.7:8080", "yes")
    await service.new_conversations.create()
    await settled(service)
    assert asked == (["http://192.168.77.7:8080/"] if agreed else [])


async def test_nothing_begins_by_itself_where_a_text_would_leave_this_machine(begin: Maker) -> None:
    async with ToyServer() as passing:
        service = begin(box=passing.url)
        service.settings.profiles["box"] = replace(  # type: ignore[index]
            service.settings.profiles["box"], locality="cloud"
        )
        await service.new_conversations.create()
        await settled(service)
        assert service.servers.connection.phase == "failed" and passing.posts == 0


@pytest.mark.parametrize("how", ["settings", "command line"])
async def test_a_server_that_was_named_is_waited_for(make: Maker, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async with ToyServer() as other:
        monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (other.port,))
        service = make(OFF, one_server=how == "command line")
        service.servers.connects_ahead = True
        await service.new_conversations.create()
        await settled(service)
        assert service.servers.connection.phase == "failed" and not other.visits


async def test_a_server_that_was_chosen_just_now_is_waited_for(begin: Maker) -> None:
    async with ToyServer() as other:
        service = begin(other.url, box=other.url)
        id = (await service.new_conversations.create()).id
        await service.chooser.use(id, OFF)
        await settled(service)
        assert service.servers.connection.phase == "failed" and service.conversations.get(id).record.server == OFF  # type: ignore[union-attr]


async def test_a_model_file_that_was_used_comes_before_the_one_that_came_along(
    begin: Maker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "mine.gguf"
    file.touch()
    monkeypatch.setattr(fallback, "default_model_file", lambda: tmp_path / "small.gguf")
    service = begin()
    service.servers.connects_ahead = False
    conversation = await service.new_conversations.create(reuse=False)
    await service.conversations.update(conversation, server=str(file))
    assert await service.servers.fallback.find(service.servers.links.at(OFF)) == str(file)
    file.unlink()
    assert await service.servers.fallback.find(service.servers.links.at(OFF)) == ""

"""Conversations on servers of their own under strain: consent, lanes, engines, waiting and quitting."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kvchat.backends.dialect import HostClass
from kvchat.backends.engine import gguf, models, options, process
from kvchat.cache.journal import Journal
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.chat.cache.states.snapshots import Snapshots
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.server import connection
from kvchat.chat.service import ChatService
from kvchat.config import ServerSettings, Settings
from kvchat.prompt.message import Role, State
from kvchat.text.notes import note_sentence
from standins.jan import JanStandIn
from standins.ollama import OllamaStandIn
from standins.ollama_engine import StandInModel
from toyserver import Answer, ToyServer, Visit, error, hang, reply, tokens

pytestmark = pytest.mark.slow

Maker = Callable[..., ChatService]
AWAY = "https://ollama.com:443"


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


async def settles(service: ChatService, id: str, seconds: float = 120) -> bool:
    """Whether the running answer ends by itself; else it is stopped."""
    done = asyncio.create_task(service.conversations.wait(id))
    await asyncio.wait({done}, timeout=seconds)
    ended = done.done()
    await service.conversations.stop(id)
    await done
    return ended


def settled_on(make: Maker, **server: Any) -> ChatService:
    service = make("")
    service.core.settings = dataclasses.replace(Settings(), server=ServerSettings(**server))
    return service


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "AGAIN_S", (0.03,))


# -- consent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["big:latest", "big"])
async def test_a_model_of_the_settings_that_runs_elsewhere_is_asked_about(make: Maker, model: str) -> None:
    async with OllamaStandIn(StandInModel(), StandInModel("big:latest", remote_host=AWAY)) as server:
        service = settled_on(make, base_url=server.url, model=model)
        answer = await say(service, await begun(service), "A secret")
        assert answer.state is State.ERROR and not [v for v in server.visits if v.path == "/api/chat"]


async def test_a_model_named_without_its_tag_that_runs_elsewhere_is_asked_about(make: Maker) -> None:
    async with OllamaStandIn(StandInModel(), StandInModel("big:latest", remote_host=AWAY)) as server:
        service = make(server.url)
        id = await begun(service)
        await service.options.set_model(id, "big")
        assert (await say(service, id, "A secret")).state is State.ERROR


async def test_a_remote_model_of_jan_in_the_settings_is_asked_about(make: Maker) -> None:
    async with JanStandIn(remote=("gpt-4o",)) as server:
        service = settled_on(make, base_url=server.url, model="gpt-4o")
        await say(service, await begun(service), "A secret")
        assert not server.sent_away


async def test_nothing_is_read_ahead_on_a_model_that_runs_elsewhere(make: Maker) -> None:
    async with OllamaStandIn(StandInModel("big:latest", remote_host=AWAY)) as server:
        service = make(server.url)
        id = await begun(service)
        await say(service, id, "Hi")
        service.servers.link(id).shared = None
        before = len(server.visits)
        await service.warm_up.warm(id)
        assert "/api/chat" not in [visit.path for visit in server.visits[before:]]


@pytest.mark.parametrize("how", ["delete", "compact", "system"])
async def test_what_was_said_here_is_still_asked_about_after_the_branch_was_made_anew(
    make: Maker,
    server: ToyServer,
    how: str,
) -> None:
    service = make(server.url)
    one, two = await begun(service), await begun(service)
    await service.conversations.open(one)
    server.on_chat(tokens(*["word "] * 60, prompt=2000))
    for text in "ABC":
        await say(service, one, text * 400)
    assert service.servers.info is not None
    cloud = replace(service.servers.info, base_url="https://api.example.com", host_class=HostClass.CLOUD)
    await service.servers.consent.allow_sending_to(cloud, two)
    if how == "delete":
        first = next(n for n in service.conversations.get(one).path() if n.role is Role.USER)  # type: ignore[union-attr]
        await service.branches.delete_turn(one, first.id)
    elif how == "system":
        await service.branches.set_instructions(one, "Be brief")
    else:
        server.on_chat(tokens(*["short "] * 10, prompt=2000))
        await service.compactor.compact(one)
    assert not service.servers.consent.may_send_to(cloud, one)


async def test_compacting_needs_the_word_for_this_very_conversation(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    one, two = await begun(service), await begun(service)
    await service.conversations.open(one)
    server.on_chat(tokens(*["word "] * 60, prompt=2000))
    for text in "ABC":
        await say(service, one, text * 400)
    assert service.servers.info is not None
    cloud = replace(service.servers.info, base_url="https://api.example.com", host_class=HostClass.CLOUD)
    service.servers.link(one).connector._backend._info = cloud  # type: ignore[union-attr]
    await service.servers.consent.allow_sending_to(cloud, two)
    before = server.posts
    with pytest.raises(ChatError, match="agreed"):
        await service.compactor.compact(one)
    assert server.posts == before


# -- which server, which lane -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["{0}", "http://localhost:{1}", "{0}/v1/"])
async def test_one_server_under_two_names_has_one_lane(make: Maker, server: ToyServer, name: str) -> None:
    service = make(f"{server.url}/v1")
    server.on_chat(hang())
    one, two = await begun(service), await begun(service)
    await service.chooser.use(two, name.format(server.url, server.port))
    await service.turns.send(two, Question("Hi"))
    await server.until(lambda: server.posts == 1)
    await service.turns.send(one, Question("Hi"))
    await asyncio.sleep(0.7)
    posts = server.posts
    await service.conversations.stop(one)
    await service.conversations.stop(two)
    assert posts == 1


async def test_a_server_that_discovery_finds_too_has_one_lane(
    make: Maker,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvchat.backends import discovery
    from kvchat.backends.discovery import FoundServer

    async def discover(*_: object, **__: object) -> list[FoundServer]:
        return [FoundServer(server.url, "llama.cpp", "ready")]

    monkeypatch.setattr(discovery, "discover", discover)
    service = make("")
    one = await begun(service, server.url)
    await say(service, one, "x")
    two = await begun(service)
    await service.chooser.use(two, "")
    server.on_chat(hang())
    await service.turns.send(one, Question("Hi"))
    await server.until(lambda: server.posts == 2)
    await service.turns.send(two, Question("Hi"))
    await asyncio.sleep(0.7)
    posts = server.posts
    await service.conversations.stop(one)
    await service.conversations.stop(two)
    assert posts == 2


async def test_a_profile_that_is_gone_is_named_as_one(make: Maker) -> None:
    service = make("")
    answer = await say(service, await begun(service, "work"), "Hi")
    assert "profile" in note_sentence(answer.note) and "work" in note_sentence(answer.note)


async def test_an_empty_conversation_is_used_again_on_the_server_of_the_settings(
    make: Maker,
    server: ToyServer,
) -> None:
    async with ToyServer(model="other") as other:
        first = make("")
        await first.chooser.use((await first.new_conversations.create()).id, other.url)
        again = make(server.url)
        conversation = await again.new_conversations.create()
        await again.conversations.open(conversation.id)
        await say(again, conversation.id, "Hi")
        assert (server.posts, other.posts) == (1, 0)


async def test_the_server_of_the_command_line_is_not_asked_for_another_ones_model(
    make: Maker,
    server: ToyServer,
) -> None:
    async with ToyServer(model="other") as other:
        first = make("")
        id = await begun(first)
        await first.chooser.use(id, other.url, "other")
        await say(first, id, "Hi")
        assert (await say(make(server.url, one_server=True), id, "Hi")).state is State.DONE


async def test_a_server_chosen_on_the_screen_is_used_though_the_command_line_named_one(
    make: Maker,
    server: ToyServer,
) -> None:
    async with ToyServer("openai", model="other") as other:
        service = make(server.url, one_server=True)
        id = await begun(service)
        await service.chooser.use(id, other.url, "other")
        assert (await say(service, id, "Hi")).state is State.DONE and other.posts == 1


async def test_figures_are_of_the_server_that_answered(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    server.on_chat(tokens("a", "b", delay=0.3, prompt=50))
    await service.turns.send(id, Question("Hi"))
    await server.until(lambda: server.posts == 1)
    async with ToyServer(model="other", context_size=111) as other:
        await service.chooser.use(id, other.url)
        await service.conversations.wait(id)
    assert service.conversations.get(id).path()[-1].figures.context_size == 4096  # type: ignore[union-attr]


def test_a_warm_up_that_came_to_its_end_is_the_one_that_did() -> None:
    journal = Journal()
    journal.used("warm-up", "c1", "A", 3, {})
    journal.used("conversation", "c2", "B", 0, {})
    journal.ended("A")
    assert [use.whole for use in journal._uses] == [True, False]


# -- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quickly")
async def test_a_server_that_comes_back_at_another_address_of_its_name_is_talked_to(
    make: Maker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, where = asyncio.get_running_loop(), ["127.0.0.1"]
    real = loop.getaddrinfo

    async def getaddrinfo(host: str, port: int, **known: Any) -> Any:
        return await real(where[0] if host == "box.test" else host, port, **known)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    async with ToyServer() as server:
        service = make(f"http://box.test:{server.port}")
        service.servers.waits = True
        id = await begun(service)
        await say(service, id, "One")
        await server.stop()
        where[0] = "127.0.0.2"
        server._server = await asyncio.start_server(server._handle, where[0], server.port)
        await service.turns.send(id, Question("Two"))
        assert await settles(service, id)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "http://127.1:8080"},
        {"base_url": "http://169.254.169.254"},
        {"base_url": "https://127.0.0.1:1", "ca_file": "/nowhere.pem"},
    ],
)
async def test_what_waiting_cannot_help_is_an_error_at_once(make: Maker, settings: dict[str, str]) -> None:
    service = settled_on(make, **settings)
    service.servers.waits = True
    id = await begun(service)
    await service.turns.send(id, Question("Hi"))
    assert await settles(service, id)


@pytest.mark.usefixtures("quickly")
async def test_a_server_that_comes_back_and_wants_a_key_is_not_waited_for_any_longer(
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
    for path in ("/props", "/v1/models", "/running", "/health"):
        server.on(path, error(401, "Invalid API Key"))
    await server.start()
    assert await settles(service, id)
    assert "key" in note_sentence(service.conversations.get(id).path()[-1].note)  # type: ignore[union-attr]


@pytest.mark.usefixtures("quickly")
async def test_a_question_that_waits_goes_where_the_conversation_goes_now(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    service.servers.waits = True
    id = await begun(service)
    await say(service, id, "One")
    await server.stop()
    await service.turns.send(id, Question("Two"))
    await until(lambda: service.servers.connection.phase == "lost")
    async with ToyServer(model="other") as other:
        await service.chooser.use(id, other.url)
        assert await settles(service, id) and other.posts == 1


@pytest.mark.usefixtures("quickly")
async def test_a_summary_that_finds_nobody_there_says_that_the_server_is_lost(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    server.on_chat(tokens(*["word "] * 60, prompt=2000))
    for text in "ABC":
        await say(service, id, text * 400)
    await server.stop()
    with pytest.raises(ChatError):
        await service.compactor.compact(id)
    assert service.servers.connection.phase == "lost"


# -- quitting ---------------------------------------------------------------------------------------------------------


async def hung(visit: Visit) -> None:
    await visit.gone.wait()


async def test_quitting_asks_all_servers_at_once(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("ground", "service", "server.servers", "turns.turns"):
        monkeypatch.setattr(f"kvchat.chat.{place}.QUIT_S", 120.0)
    service, servers, _ = await streaming_from(make, 4)
    waits: set[ToyServer] = set()
    all_wait = asyncio.Event()

    def answers_when_all_are_asked(server: ToyServer) -> Answer:
        async def answer(visit: Visit) -> None:
            waits.add(server)
            if len(waits) == len(servers):
                all_wait.set()
            ends = [asyncio.create_task(event.wait()) for event in (all_wait, visit.gone)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not all_wait.is_set():
                waits.discard(server)
            await error(503, "ending")(visit)

        return answer

    for server in servers:
        for path in ASKED:
            server.on(path, answers_when_all_are_asked(server))
    await service.aclose()
    assert all_wait.is_set(), f"only {len(waits)} of {len(servers)} servers were asked"
    for server in servers:
        await server.stop()


async def test_an_answer_is_kept_though_its_server_hangs_while_kvchat_ends(
    make: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("ground", "service", "server.servers", "turns.turns"):
        monkeypatch.setattr(f"kvchat.chat.{place}.QUIT_S", 0.1)
    service, [server], [id] = await streaming_from(make, 1)
    for path in ASKED:
        server.on(path, hung)
    await service.aclose()
    assert service.conversations.get(id).path()[-1].state is State.CANCELLED  # type: ignore[union-attr]
    assert service.conversations.get(id).path()[-1].text == "ab"  # type: ignore[union-attr]
    assert not caplog.records
    await server.stop()


ASKED = ("/slots", "/tokenize", "/apply-template", "/props", "/health")


async def streaming_from(make: Maker, count: int) -> tuple[ChatService, list[ToyServer], list[str]]:
    """So many servers, each in the middle of an answer."""
    servers = [ToyServer(model=str(number)) for number in range(count)]
    service = make("")
    ids = []
    for server in servers:
        await server.start()
        server.on("/slots", reply(200, [{"id": 0, "n_prompt_tokens": 5, "id_task": 1, "is_processing": False}]))
        server.on("/tokenize", reply(200, {"tokens": [1, 2, 3, 4, 5]}))
        server.on("/apply-template", reply(200, {"prompt": "hello \N{BALLOT BOX}kv\N{BALLOT BOX}"}))
        ids.append(id := await begun(service, server.url))
        await say(service, id, "Hi")
        await service.servers.link(id).cache.settled()  # type: ignore[union-attr]
        server.on_chat(tokens("a", "b", "c", hang_after=2))
        await service.turns.send(id, Question("Two"))
    for id in ids:
        held = service.conversations.loaded[id]
        await until(lambda held=held: held.live and held.live.text == "ab")  # type: ignore[misc]
    return service, servers, ids


async def test_no_task_is_left_after_the_end(make: Maker, server: ToyServer) -> None:
    service = make(server.url)
    id = await begun(service)
    await say(service, id, "Hi")

    async def cut(visit: Visit) -> None:
        visit.writer.close()

    server.on_chat(cut)
    server.on("/health", hung)
    await say(service, id, "Hi")
    await service.aclose()
    left = [task for task in asyncio.all_tasks() if "tui/kvchat" in repr(task)]
    assert left == []


# -- the built-in engine ----------------------------------------------------------------------------------------------


class FakeEngine:
    """An engine that is a toy server."""

    alive: list[FakeEngine]
    most = 0
    stop_s = start_s = 0.0

    def __init__(self, on_exit: object = None) -> None:
        self.toy: ToyServer | None = None

    async def start(self, options: Any) -> process.EngineAddress:
        await self.stop()
        await asyncio.sleep(self.start_s)
        self.toy = ToyServer(model=options.model.stem)
        await self.toy.start()
        FakeEngine.alive.append(self)
        FakeEngine.most = max(FakeEngine.most, len(FakeEngine.alive))
        return process.EngineAddress(self.toy.url, "")

    async def stop(self) -> None:
        if self.toy is not None:
            await asyncio.sleep(self.stop_s)
            toy, self.toy = self.toy, None
            if toy is not None:
                await toy.stop()
                FakeEngine.alive.remove(self)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    FakeEngine.alive, FakeEngine.most, FakeEngine.stop_s, FakeEngine.start_s = [], 0, 0.0, 0.0
    shape = Shape(slots=1, unified=False, ram_bytes=1 << 30, rewind=Rewind.ANYWHERE, batch=64, micro_batch=64, window=0)
    monkeypatch.setattr(process, "Engine", FakeEngine)
    monkeypatch.setattr(gguf, "read_header", lambda path: None)
    monkeypatch.setattr(models, "model_at", lambda path: SimpleNamespace(path=path))
    monkeypatch.setattr(options.EngineOptions, "shape", lambda self, header: shape)
    for name in "abc":
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    return [str(tmp_path / f"{name}.gguf") for name in "abc"]


async def test_choosing_a_model_file_here_does_not_cut_an_answer_there(make: Maker, files: list[str]) -> None:
    service = make("")
    one = await begun(service, files[0])
    await say(service, one, "Hi")
    FakeEngine.alive[0].toy.on_chat(tokens("a", "b", "c", hang_after=2))  # type: ignore[union-attr]
    await service.turns.send(one, Question("Two"))
    await until(lambda: service.conversations.get(one).live.text)  # type: ignore[union-attr]
    choosing = asyncio.create_task(begun(service, files[1]))
    await asyncio.sleep(0.5)
    running = one in service.conversations.streaming()
    await service.conversations.stop(one)
    await choosing
    assert running


@pytest.mark.parametrize("goes_on", [False, True], ids=["a new one first", "an old one first"])
async def test_conversations_on_the_engine_s_own_model_are_on_one_engine_in_later_runs_too(
    make: Maker, files: list[str], monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    async def nothing() -> list[Any]:
        return []

    monkeypatch.setattr(connection, "found_here", nothing)
    monkeypatch.setattr(connection, "default_model_file", lambda: Path(files[0]))
    before = make("")
    old = await begun(before)
    await say(before, old, "Hi")
    await before.aclose()
    service = make("")
    assert service.tracker.warmth(old) is not None  # as the list asks
    if goes_on:
        await service.conversations.open(old)
        await say(service, old, "Again")
    new = await begun(service)
    await say(service, new, "One")
    await say(service, new, "Two")
    await service.conversations.open(old)
    await say(service, old, "And again")
    (engine,) = FakeEngine.alive
    assert len(engine.toy.chats) == 3 + goes_on  # type: ignore[union-attr]


async def test_two_files_chosen_at_once_never_run_two_engines(make: Maker, files: list[str]) -> None:
    service = make("")
    two, three = await begun(service, files[1]), await begun(service, files[2])
    one = await begun(service, files[0])
    await say(service, one, "Hi")
    FakeEngine.stop_s, FakeEngine.start_s, FakeEngine.most = 0.2, 0.1, 0
    await asyncio.gather(service.chooser.use(two, files[1], "x"), service.chooser.use(three, files[2], "y"))
    assert (FakeEngine.most, len(FakeEngine.alive)) == (1, 1)


async def slow_save(self: Snapshots, backend: object, held: object = None) -> list[Any]:
    await asyncio.sleep(0.4)
    return []


async def test_an_engine_that_is_let_go_twice_ends_once(
    make: Maker,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Snapshots, "save_on_quit", slow_save)
    service = make("")
    await say(service, await begun(service, files[0]), "Hi")
    two, three = await begun(service), await begun(service)

    async def later() -> None:
        await asyncio.sleep(0.1)
        await service.chooser.use(three, files[2])

    await asyncio.gather(service.chooser.use(two, files[1]), later())  # AttributeError: no attribute 'stop'


async def test_quitting_while_engines_are_swapped_saves_what_the_old_one_held(
    make: Maker,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = []

    async def save(self: Snapshots, backend: object, held: object = None) -> list[Any]:
        await asyncio.sleep(0.4)
        saved.append(backend)
        return []

    monkeypatch.setattr(Snapshots, "save_on_quit", save)
    service = make("")
    await say(service, await begun(service, files[0]), "Hi")
    two = await begun(service)
    swap = asyncio.create_task(service.chooser.use(two, files[1]))
    await asyncio.sleep(0.2)
    await service.aclose()
    await asyncio.wait({swap})
    assert saved and not FakeEngine.alive


async def test_an_engine_that_ended_for_another_model_is_not_said_to_hold_anything(
    make: Maker,
    files: list[str],
) -> None:
    service = make("")
    one = await begun(service, files[0])
    await say(service, one, "Hi")
    await say(service, await begun(service, files[1]), "Hi")
    assert service.servers.link(one).info is None and service.servers.link(one).cache is None


async def test_choosing_the_file_that_runs_already_does_not_load_it_again(
    make: Maker,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvchat.backends import discovery

    async def nothing(*_: object, **__: object) -> list[Any]:
        return []

    monkeypatch.setattr(discovery, "discover", nothing)
    monkeypatch.setattr(connection, "default_model_file", lambda: Path(files[0]))
    service = make("")
    id = await begun(service)
    await say(service, id, "Hi")
    engine = FakeEngine.alive[0]
    await service.chooser.use(id, files[0])
    assert FakeEngine.alive == [engine]


# -- refused fields ---------------------------------------------------------------------------------------------------


async def test_the_doctor_asks_for_the_model_of_the_conversation(make: Maker) -> None:
    async with OllamaStandIn(StandInModel("a:latest"), StandInModel("b:latest")) as server:
        service = make(server.url)
        id = await begun(service)
        await service.options.set_model(id, "b:latest")
        await service.chooser.examined(lambda words: None, True)
        assert {visit.json["model"] for visit in server.visits if visit.path == "/api/chat"} == {"b:latest"}

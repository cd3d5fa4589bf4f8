"""Several servers in the app: found, chosen, lost and won back; and what is said before text leaves this machine."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from app_kit import Drive, Driven

from kvchat.chat.server import connection
from kvchat.config import ServerSettings, Settings, changed
from standins.hub import Hub, running_hub
from toyserver import ToyServer, hang, tokens

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost server is looked for every few hundredths of a second."""
    monkeypatch.setattr(connection, "AGAIN_S", (0.03,))


async def test_what_runs_on_this_machine_is_found_by_the_key_and_each_conversation_keeps_its_own(
    drive: Drive,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ToyServer(model="qwen3-8b") as other, drive() as app:
        monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (other.port,))
        await app.say("one")
        await app.press("ctrl+n")
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.until(lambda: "qwen3-8b" in app.text)
        await app.type("qwen3")
        await app.press("enter")
        await app.closes()
        await app.until(lambda: "qwen3-8b" in app.lines[0])
        await app.say("two")
        assert (server.posts, other.posts) == (1, 1)
        await app.press("ctrl+pagedown")
        await app.until(lambda: app.said[:1] == ["one"] and "qwen3-8b" not in app.lines[0])
        await app.say("three")
        assert (server.posts, other.posts) == (2, 1)


async def test_ready_is_said_as_long_as_the_server_answers(drive: Drive, server: ToyServer) -> None:
    settings = changed(Settings(), "server.base_url", server.url)
    async with drive(settings=settings, connect=False) as app:
        assert "ready" not in app.lines[-2], "it was not asked yet"
        await app.service.servers.connect()
        await app.until(lambda: "ready" in app.lines[-2])
        await server.__aexit__(None, None, None)
        await app.write("anybody?")
        await app.press("enter")
        await app.until(lambda: "is off" in app.lines[0])
        await app.press("escape")
        await app.press("ctrl+n")
        await app.until(lambda: not app.said)
        assert "ready" not in app.lines[-2], "it is off"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", ""])
async def test_ready_is_not_said_where_no_server_is(drive: Drive, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (9,))
    monkeypatch.setattr("kvchat.backends.engine.models.find_models", list)
    async with drive(settings=changed(Settings(), "server.base_url", url), connect=False, ahead=True) as app:
        await app.until(lambda: "off" in app.lines[0] or "no server" in app.lines[0])
        assert "ready" not in app.lines[-2]


async def test_one_conversation_answers_while_another_one_is_asked_on_its_own_server(
    drive: Drive,
    server: ToyServer,
) -> None:
    server.on_chat(hang())
    async with ToyServer(model="elsewhere") as other, drive() as app:
        first = app.conversation.id
        await app.write("slow")
        await app.press("enter")
        await server.until(lambda: server.posts == 1)
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != first)
        await app.service.chooser.use(app.conversation.id, other.url)
        await app.write("quick")
        await app.press("enter")
        await app.until(lambda: app.shown == ["quick", "Hello"] and app.service.conversations.streaming() == {first})
        await app.service.conversations.stop(first)


async def test_a_server_that_is_gone_is_told_and_the_question_goes_out_when_it_is_back(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with drive() as app:
        app.service.servers.waits = True
        await app.say("one")
        await server.stop()
        await app.write("two")
        await app.press("enter")
        await app.until(lambda: "Server offline · sends when it returns" in app.text)
        await app.until(lambda: f"connection lost  127.0.0.1:{server.port} is off" in app.lines[0])
        await app.write("typed meanwhile")
        await server.start()
        await app.until(lambda: app.shown[-2:] == ["two", "Hello"])
        assert app.draft == "typed meanwhile" and "connection lost" not in app.text


async def test_waiting_for_a_server_is_given_up_with_escape(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        app.service.servers.waits = True
        await app.say("one")
        await server.stop()
        await app.write("two")
        await app.press("enter")
        await app.until(lambda: "Server offline · sends when it returns · Esc cancels" in app.text)
        await app.press("escape")
        await app.settled()
        assert app.said[-2:] == ["two", ""] and not app.service.conversations.streaming()


def known(drive: Drive, other: ToyServer) -> AbstractAsyncContextManager[Driven]:
    """The app as it is started, with a profile `box` in the settings."""
    settings = dataclasses.replace(Settings(), profiles={"box": ServerSettings(base_url=other.url)})
    return drive(settings=settings, connect=False, ahead=True)


async def chosen_last(drive: Drive, server: ToyServer, *texts: str) -> str:
    """A conversation on this server, which was chosen by its address, and then ends; the conversation's id."""
    async with drive() as app:
        await app.begin()
        await app.service.chooser.use(app.conversation.id, server.url)
        await app.say(*texts)
        id = app.conversation.id
    await server.stop()
    return id


async def test_when_the_server_used_last_is_off_a_new_conversation_begins_elsewhere_and_says_so(
    drive: Drive,
    server: ToyServer,
) -> None:
    await chosen_last(drive, server, "one")
    async with ToyServer(model="qwen3-8b") as other, known(drive, other) as app:
        await app.until(lambda: "qwen3-8b" in app.lines[0])
        assert app.notices == [f"127.0.0.1:{server.port} is off · using box · Ctrl+L"]
        await app.say("two")
        assert other.posts == 1 and app.said == ["two", "Hello"]
        await app.press("ctrl+n")
        await app.until(lambda: app.said == [])
        await app.say("three")
        assert other.posts == 2 and len(app.notices) == 1


@pytest.mark.parametrize("asked", [False, True])
async def test_an_old_conversation_waits_for_its_server_and_moves_when_the_person_says_so(
    drive: Drive,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
    asked: bool,
) -> None:
    server.on_chat(tokens("Hello", prompt=3200))
    id = await chosen_last(drive, server, "one")
    async with ToyServer(model="qwen3-8b") as other, known(drive, other) as app:
        await app.until(lambda: "qwen3-8b" in app.lines[0])
        await app.open(id)
        await app.until(
            lambda: app.noticed(f"127.0.0.1:{server.port} is off · questions wait · Ctrl+L moves (3.2k to prefill)")
        )
        if asked:
            await app.write("two")
            await app.press("enter")
            await app.until(lambda: "Server offline · sends when it returns · Esc cancels" in app.text)
            assert "Ctrl+L moves" in app.prose
        assert other.posts == 0
        await app.press("ctrl+l")
        await app.opens("ConfirmScreen")
        await app.until(lambda: "prefills 3,201 tokens" in app.prose)
        assert f"127.0.0.1:{server.port} is off" in app.text
        await app.press("n")
        await app.closes()
        assert other.posts == 0 and app.conversation.record.server == server.url
        await app.press("ctrl+l")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.closes()
        await app.until(lambda: "qwen3-8b" in app.lines[0])
        if not asked:
            await app.say("two")
        await app.until(lambda: app.shown[-2:] == ["two", "Hello"])
        assert other.posts == 1 and len(other.chats[0].json["messages"]) == 4


async def test_where_nothing_else_is_there_the_key_shows_the_list(drive: Drive, server: ToyServer) -> None:
    id = await chosen_last(drive, server, "one")
    async with drive(settings=Settings(), connect=False, ahead=True) as app:
        await app.until(lambda: app.noticed("is off · questions wait"))
        await app.open(id)
        await app.press("ctrl+l")
        await app.opens("ModelPicker")


async def test_a_server_on_the_internet_is_marked_and_asked_about_for_a_conversation_begun_here(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with ToyServer("openai", model="big") as cloud, drive() as app:
        profiles = {"cloud": ServerSettings(base_url=cloud.url, locality="cloud")}
        app.service.core.settings = dataclasses.replace(app.service.settings, profiles=profiles)
        await app.say("said at home")
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.type("cloud")
        await app.press("enter")
        await app.until(lambda: "cloud" in app.lines[0])
        await app.write("and this")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        assert "a server on the internet" in app.prose and "what was said on the server before" in app.prose
        await app.press("n")
        await app.closes()
        assert cloud.posts == 0 and app.draft == "and this"
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.shown[-2:] == ["and this", "Hello"])
        (sent,) = cloud.chats
        assert "session_id" not in sent.json and "x-session-id" not in sent.headers


async def test_the_doctor_tells_what_it_found(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.command("/doctor")
        await app.opens("DoctorScreen")
        await app.until(lambda: "llama.cpp" in app.text and app.service.servers.link().lane.is_free)
        assert "Doctor" in app.text and "toy" in app.text
        await app.press("escape")
        await app.closes()


async def test_a_model_is_fetched_after_a_yes_to_its_size_stopped_and_gone_on_with(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = b"GGUF" + bytes(3_000_000)
    with running_hub(Hub({"org/Tiny-GGUF": {"Tiny-Q4_K_M.gguf": model}}, stalls_at=2_500_000)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "600")
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "600")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        async with drive(size=(120, 30)) as app:
            await app.say("one")
            await app.press("ctrl+l")
            await app.opens("ModelPicker")
            assert "Qwen/Qwen3-4B-GGUF" in app.text
            await app.type("org/Tiny-GGUF")
            await app.press("enter")
            await app.opens("ConfirmScreen")
            await app.until(lambda: "Fetch 3.0 MB" in app.text and f"{hub.url}/org/Tiny-GGUF" in app.text)
            assert not hub.ranges()
            await app.press("n")
            await app.closes()
            await app.write("/model org/Tiny-GGUF:Q4_K_M")
            await app.press("enter")
            await app.opens("ConfirmScreen")
            await app.press("y")
            await app.closes()
            await app.until(lambda: "fetching Tiny-GGUF · " in app.text)
            parts = tmp_path / "hub/models--org--Tiny-GGUF/blobs"
            await app.until(lambda: any(part.stat().st_size == 2**21 for part in parts.glob("*")))
            await app.press("ctrl+l")
            await app.opens("ModelPicker")
            await app.type("stops")
            await app.press("enter")
            await app.opens("ConfirmScreen")
            await app.press("s")
            await app.closes()
            await app.until(lambda: "fetching" not in app.text)
            hub.stalls_at = None
            await app.write("/model org/Tiny-GGUF")
            await app.press("enter")
            await app.opens("ConfirmScreen")
            await app.press("y")
            await app.closes()
            await app.until(lambda: app.noticed("Tiny-Q4_K_M.gguf is here · Ctrl+L chooses it"))
            assert hub.ranges() == ["", f"bytes={2**21}-"]
            [fetched] = (tmp_path / "hub").glob("**/Tiny-Q4_K_M.gguf")
            assert fetched.read_bytes() == model


async def test_what_cannot_be_fetched_is_said(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.engine.hub.find_spec", lambda _: None)
    async with drive() as app:
        await app.write("/model org/Tiny-GGUF")
        await app.press("enter")
        await app.until(lambda: app.noticed("Fetching models needs one more package: pip install 'kvchat[pull]'"))

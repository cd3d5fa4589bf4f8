"""Several servers in the app: found, chosen, lost and won back; and what is said before text leaves this machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from app_kit import Drive

from kvchat.chat import connection
from kvchat.config import ServerSettings
from toyserver import ToyServer, hang


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost server is looked for every few hundredths of a second."""
    monkeypatch.setattr(connection, "AGAIN_S", (0.03,))


async def test_what_runs_on_this_machine_is_found_by_the_key_and_each_conversation_keeps_its_own(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ToyServer(model="qwen3-8b") as other, drive() as app:
        monkeypatch.setattr("kvchat.backends.kinds.PORTS", (other.port,))
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


async def test_one_conversation_answers_while_another_one_is_asked_on_its_own_server(
    drive: Drive, server: ToyServer,
) -> None:
    server.on_chat(hang())
    async with ToyServer(model="elsewhere") as other, drive() as app:
        first = app.conversation.id
        await app.write("slow")
        await app.press("enter")
        await server.until(lambda: server.posts == 1)
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != first)
        await app.service.use_server(app.conversation.id, other.url)
        await app.write("quick")
        await app.press("enter")
        await app.until(lambda: app.shown == ["quick", "Hello"] and app.service.streaming() == {first})
        await app.service.stop(first)


async def test_a_server_that_is_gone_is_told_and_the_question_goes_out_when_it_is_back(
    drive: Drive, server: ToyServer,
) -> None:
    async with drive() as app:
        app.service.waits_for_servers = True
        await app.say("one")
        await server.stop()
        await app.write("two")
        await app.press("enter")
        await app.until(lambda: "the server is gone" in app.text and "connection lost" in app.lines[0])
        await app.write("typed meanwhile")
        await server.start()
        await app.until(lambda: app.shown[-2:] == ["two", "Hello"])
        assert app.draft == "typed meanwhile" and "connection lost" not in app.text


async def test_waiting_for_a_server_is_given_up_with_escape(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        app.service.waits_for_servers = True
        await app.say("one")
        await server.stop()
        await app.write("two")
        await app.press("enter")
        await app.until(lambda: "the server is gone" in app.text)
        await app.press("escape")
        await app.settled()
        assert app.said[-2:] == ["two", ""] and not app.service.streaming()


async def test_a_server_on_the_internet_is_marked_and_asked_about_for_a_conversation_begun_here(
    drive: Drive, server: ToyServer,
) -> None:
    async with ToyServer("openai", model="big") as cloud, drive() as app:
        profiles = {"cloud": ServerSettings(base_url=cloud.url, locality="cloud")}
        app.service.settings = app.service._links._settings = replace(app.service.settings, profiles=profiles)
        await app.say("said at home")
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.type("cloud")
        await app.press("enter")
        await app.until(lambda: "cloud" in app.lines[0])
        await app.write("and this")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        assert "a server on the internet" in app.prose and "what was said there goes along" in app.prose
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
        await app.until(lambda: "llama.cpp" in app.text and app.service._link().lane.is_free)
        assert "Doctor" in app.text and "toy" in app.text
        await app.press("escape")
        await app.closes()

"""Continuing a cut answer with keys: where `c` continues and where it is a letter, and what is on the screen."""

from __future__ import annotations

import pytest
from app_kit import Drive, messages

from kvchat.prompt.message import State
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow


async def test_the_key_goes_on_and_the_cut_one_is_a_version_beside_it(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Once", " upon", finish="length"))
    async with drive() as app:
        await app.begin("a story")
        assert "▲ Cut at max tokens (2) · Tab, then c continue · r retry" in app.text
        old = app.path[-1]
        server.on_chat(tokens(" a time", hang_after=1))
        await app.press("tab")
        assert "▲ Cut at max tokens (2) · c continue · r retry" in app.text
        await app.press("c")
        await app.until(lambda: "Once upon a time" in app.text)
        assert "2/2" in app.text
        assert "c continue" not in app.text
        await app.press("escape", "escape")  # back first, as the footer says
        await app.until(lambda: app.path[-1].state is State.CANCELLED)
        await app.settled()
        assert app.shown == ["a story", "Once upon a time"]
        assert "■ Stopped · Tab, then c continue" in app.text
        server.on_chat(tokens(" there was."))
        await app.select(-1)
        await app.press("c")
        await app.until(lambda: app.shown[-1] == "Once upon a time there was.")
        await app.settled()
        assert "3/3" in app.text
        assert app.conversation.tree[old.id] == old
        await app.say("and then?")
        assert messages(server.chats[-1]).startswith(messages(server.chats[0]))


async def test_the_letter_begins_a_message_where_nothing_is_cut(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin("whole", "again")
        for at in (-1, 0):
            await app.select(at)
            await app.press("c")
            await app.until(lambda: app.draft == "c")
            app.chat.composer.replace_text("")
        server.on_chat(tokens("Half", finish="length"))
        await app.grow("one more")
        app.chat.composer.focus()
        await app.press("c")
        assert (app.draft, server.posts) == ("c", 3)
        app.chat.composer.replace_text("")
        await app.select(-1)
        await app.press("up", "c")
        await app.until(lambda: app.draft == "c")
        assert server.posts == 3, "what is marked is not cut"
        app.chat.composer.replace_text("")
        await app.select(-1)
        await app.press("c")
        await app.until(lambda: server.posts == 4)
        assert app.draft == ""


async def test_the_command_takes_the_last_answer_and_says_why_not(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Half", finish="length"))
    async with drive() as app:
        await app.command("/continue")
        await app.until(lambda: app.noticed("There is no answer to continue yet."))
        await app.begin("one")
        await app.select(0)
        server.on_chat(tokens(" done"))
        await app.command("/continue")
        await app.until(lambda: app.shown == ["one", "Half done"])
        await app.settled()
        await app.command("/continue")
        await app.until(lambda: app.noticed("This answer is complete."))
        assert server.posts == 2


async def test_what_came_of_another_kind_of_server_is_told(drive: Drive) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(tokens("Half", finish="length"))
        async with drive(server=server) as app:
            await app.begin("one")
            assert "▲ Cut at max tokens (1) · Tab, then c send “Continue.” · r retry" in app.text
            server.on_chat(tokens("done", prompt=60))
            await app.focus_transcript()
            assert "c continue" not in app.text
            await app.press("c")
            await app.until(lambda: app.said == ["one", "Half", "Continue.", "done"])
            assert app.noticed("This kind of server (OpenAI-compatible) cannot continue an answer")


@pytest.mark.parametrize(("kind", "words"), [("openai", "c send “Continue.”"), ("llama.cpp", "c continue")])
async def test_what_an_answer_of_before_offers_is_known_once_its_server_is(drive: Drive, kind: str, words: str) -> None:
    async with ToyServer(kind) as server:
        server.on_chat(tokens("Half", finish="length"))
        async with drive(server=server) as app:
            await app.begin("one")
            id = app.conversation.id
        async with drive(server=server, conversation=id) as app:
            await app.until(lambda: f"Tab, then {words} · r retry" in app.text)

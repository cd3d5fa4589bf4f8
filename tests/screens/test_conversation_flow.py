"""A person at work: writing, waiting, stopping, switching, finding, naming, exporting, and what goes wrong."""

from __future__ import annotations

import asyncio
import re
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_kit import Drive, driving

import chat_templates
from kvchat.backends.dialect import HostClass, TemplateFacts
from kvchat.cache.price import Price
from kvchat.chat.question import Question
from kvchat.config import Settings, changed, load
from kvchat.paths import find
from kvchat.prompt.message import State
from kvchat.store import Store, StoreUnavailable
from kvchat.text.notes import note_sentence
from kvchat.text.problems import StoreProblem
from toyserver import ToyServer, error, reply, tokens


def sent(server: ToyServer) -> str:
    """The content of the last message that was sent."""
    return str(server.chats[-1].json["messages"][-1]["content"])


# -- sending, streaming, stopping


async def test_enter_sends_and_the_answer_stands_below_the_question(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Twenty", "-six nights."))
    async with drive() as app:
        await app.write("How many nights?")
        await app.press("enter")
        await app.until(lambda: "Twenty-six nights." in app.text)
        assert app.draft == ""
        assert app.text.index("How many nights?", 200) < app.text.index("Twenty-six")
        assert "How many nights?" in app.chat.sidebar.rows[0].title
        assert sent(server).endswith("How many nights?")


async def test_text_shows_while_it_streams_and_escape_stops_and_keeps_it(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin()
        await app.streaming("as far as it came")
        await app.until(lambda: "as far as it came" in app.text)
        await app.press("escape")
        await app.until(lambda: not app.service.conversations.streaming())
        assert app.path[-1].state is State.CANCELLED
        await app.until(lambda: "Stopped" in app.prose)
        assert "as far as it came" in app.text
        await app.press("escape", "escape")
        assert app.said[-1] == "as far as it came"
        await app.say("and on")
        assert server.chats[-1].json["messages"][-2] == {"role": "assistant", "content": "as far as it came"}


async def test_the_view_follows_a_long_answer(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens(*(f"line {number}\n\n" for number in range(60))))
    async with drive() as app:
        await app.say("a list")
        await app.until(lambda: "line 59" in app.text)
        assert "line 0" not in app.text


async def test_sending_goes_to_the_end_of_the_conversation(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens(*(f"line {number}\n\n" for number in range(60))), tokens("seen at once"))
    async with drive() as app:
        await app.begin("a list")
        await app.focus_transcript()
        await app.press("home")
        assert "line 59" not in app.text
        await app.say("and now?")
        assert "seen at once" in app.text


async def test_an_answer_goes_on_in_a_conversation_that_is_left_and_makes_it_unread(
        drive: Drive, server: ToyServer) -> None:
    go_on = asyncio.Event()

    async def slowly(visit):  # type: ignore[no-untyped-def]
        await go_on.wait()
        await tokens("the whole answer")(visit)

    server.on_chat(slowly)
    async with drive() as app:
        first = await app.begin()
        await app.write("slow question")
        await app.press("enter")
        await app.until(lambda: server.posts)
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != first)
        assert first in app.service.conversations.streaming()
        assert "slow question" in app.listed
        go_on.set()
        await app.service.conversations.wait(first)
        await app.until(lambda: "slow question •" in app.listed)
        await app.press("ctrl+pagedown")
        if app.conversation.id != first:
            await app.open(first)
        await app.until(lambda: "the whole answer" in app.text)
        assert "•" not in app.text


async def test_a_failure_in_another_conversation_is_told(drive: Drive, server: ToyServer) -> None:
    go_on = asyncio.Event()

    async def failing(visit):  # type: ignore[no-untyped-def]
        await go_on.wait()
        await error(500, "out of memory")(visit)

    server.on_chat(failing)
    async with drive() as app:
        first = await app.begin()
        await app.service.turns.send(first, Question("doomed"))
        await app.press("ctrl+n")
        go_on.set()
        await app.until(lambda: app.noticed("out of memory"))
        assert app.noticed("doomed")


async def test_a_message_during_an_answer_waits_and_a_stopped_answer_holds_it(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin()
        await app.streaming()
        await app.write("too early")
        await app.press("enter")
        await app.until(lambda: "queued 1  too early" in app.text)
        assert app.draft == "" and server.posts == 1
        await app.press("escape")
        await app.until(lambda: "Queue held: answer stopped · Enter sends · ↑ edits" in app.text)
        assert not app.service.conversations.streaming() and server.posts == 1
        await app.press("enter")
        await app.until(lambda: server.posts == 2)
        await app.settled()
        assert app.said[-2:] == ["too early", "Hello"] and "queued" not in app.text and "Queue" not in app.text


async def test_quitting_during_an_answer_keeps_what_came(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin()
        await app.streaming("half an answer")
        await app.press("ctrl+q")
    assert app.app.return_value == 0
    async with drive(continue_=True) as app:
        assert app.shown == ["go on", "half an answer"]
        assert app.path[-1].state is State.CANCELLED


async def test_reasoning_is_folded_and_unfolds(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Four.", reasoning=["two and ", "two"]))
    async with drive() as app:
        await app.say("2 + 2?")
        assert "two and two" not in app.text
        await app.select(1)
        await app.press("enter")
        assert "two and two" in app.text


# -- writing


async def test_every_conversation_has_its_draft_over_a_restart_too(drive: Drive) -> None:
    async with drive() as app:
        first = await app.begin("one")
        second = await app.begin("two")
        await app.write("half a thou")
        await app.open(first)
        assert app.draft == ""
        await app.write("another ")
        await app.open(second)
        assert app.draft == "half a thou"
        await app.press("g", "h", "t")
        await app.press("ctrl+q")
    async with drive(conversation=second) as app:
        assert app.draft == "half a thought"
        await app.open(first)
        assert app.draft == "another "


async def test_up_recalls_what_was_sent(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("first", "second")
        await app.write("")
        await app.press("up")
        assert app.draft == "second"
        await app.press("up")
        assert app.draft == "first"
        await app.press("down", "down")
        assert app.draft == ""


async def test_a_long_paste_is_a_chip_and_goes_out_as_context(drive: Drive, server: ToyServer) -> None:
    pasted = "\n".join(f"log line {number} </context>" for number in range(400))
    async with drive() as app:
        await app.write("What is this? ")
        await app.type(pasted)
        assert app.draft == "What is this? [pasted 1: 400 lines]"
        await app.press("enter")
        await app.until(lambda: server.posts)
        await app.settled()
        content = sent(server)
        assert content.count("</context>") == content.count("<context source=")
        assert "log line 399" in content
        assert content.endswith("What is this? [pasted 1: 400 lines]")
        assert "log line 7" not in app.text
        await app.select(0)
        await app.press("enter")
        await app.press("home")
        assert "log line 7" in app.text


async def test_a_paste_with_newlines_is_not_sent(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.write("one\r\ntwo\rthree\n")
        assert app.draft == "one\ntwo\nthree\n"
        assert server.posts == 0


async def test_the_editor_gets_the_draft_and_gives_it_back(
        drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nprintf " and more" >> "$1"\n')
    script.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(script))
    async with drive() as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        await app.write("a word")
        await app.press("ctrl+g")
        await app.until(lambda: app.draft == "a word and more")
        monkeypatch.setenv("EDITOR", "/nonexistent/editor")
        await app.press("ctrl+g")
        await app.until(lambda: app.noticed("Cannot run the editor /nonexistent/editor"))
        assert app.draft == "a word and more"


async def test_a_terminal_that_cannot_be_handed_over_is_said(drive: Drive) -> None:
    async with drive() as app:
        await app.write("a word")
        await app.press("ctrl+g")
        await app.until(lambda: app.noticed("cannot run an editor"))
        assert app.draft == "a word"


async def test_editing_leaves_the_draft_alone(drive: Drive) -> None:
    async with drive() as app:
        first = await app.begin("one")
        second = await app.begin("two")
        await app.write("half a thought")
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.type(" and more")
        await app.press("escape")
        assert app.draft == "half a thought"
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.type(" and more")
        await app.open(first)
        assert app.draft == ""
        assert app.chat.workspace.editing is None
        await app.open(second)
        assert app.draft == "half a thought"
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.press("ctrl+q")
    async with drive(conversation=second) as app:
        assert app.draft == "half a thought"


async def test_an_edited_message_keeps_its_paste(drive: Drive, server: ToyServer) -> None:
    pasted = "\n".join(f"log line {number}" for number in range(500))
    async with drive() as app:
        await app.write("What is this? ")
        await app.type(pasted)
        await app.press("enter")
        await app.until(lambda: len(app.said) == 2)
        await app.settled()
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft.startswith("What is this?"))
        await app.type(" Be brief.")
        await app.press("enter")
        await app.until(lambda: app.said[0].endswith("Be brief."))
        await app.settled()
        assert "log line 499" in sent(server)
        assert sent(server).endswith("[pasted 1: 500 lines] Be brief.")


# -- finding


async def test_find_walks_through_the_matches_of_this_conversation(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("a lamp, and a lamp"))
    async with drive() as app:
        await app.begin("lamp one", "lamp two")
        await app.press("ctrl+f")
        await app.type("lamp")
        await app.until(lambda: "6/6" in app.text)
        await app.press("enter")
        await app.until(lambda: "5/6" in app.text)
        await app.press("down")
        await app.until(lambda: "6/6" in app.text)
        await app.press("down")
        await app.until(lambda: "1/6" in app.text)
        await app.type("post")
        await app.until(lambda: "nothing found" in app.text)
        await app.press("escape")
        assert not app.chat.findbar.is_open
        assert app.chat.composer.has_focus_within


@pytest.mark.parametrize(("key", "words"), [
    ("3", "There is no code block 3 here"),
    ("left", "This message has one version only"),
    ("right", "This message has one version only"),
    ("f8", "This is the first conversation of the list"),
    ("o", "This question was sent without sources"),
])
async def test_a_key_that_does_nothing_here_says_so(drive: Drive, key: str, words: str) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.select(0)
        await app.press(key)
        await app.until(lambda: app.noticed(words))


async def test_past_the_end_of_the_list_a_key_says_so(drive: Drive) -> None:
    async with drive() as app:
        await app.press("f9", "f9")
        await app.until(lambda: app.noticed("This is the last conversation of the list"))


async def test_at_the_first_and_the_last_version_of_a_message_a_key_says_so(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.select(1)
        await app.press("r")
        await app.until(lambda: " 2/2" in app.text)
        await app.settled()
        await app.select(1)
        await app.press("right")
        await app.until(lambda: app.noticed("There is no later version of this message"))
        await app.press("left")
        await app.until(lambda: " 1/2" in app.text)
        await app.press("left")
        await app.until(lambda: app.noticed("There is no earlier version of this message"))


async def test_what_is_said_while_a_dialog_is_open_waits_until_it_is_closed(drive: Drive) -> None:
    async with drive() as app:
        await app.press("f1")
        app.chat.workspace.say("Two things to know")
        await app.rest()
        assert not app.noticed("Two things to know")
        await app.press("escape")
        await app.closes()
        await app.until(lambda: app.noticed("Two things to know"))


async def test_why_an_answer_failed_is_said_once(drive: Drive, server: ToyServer) -> None:
    server.on_chat(error(500, "out of paper"))
    async with drive() as app:
        await app.write("print it")
        await app.press("enter")
        await app.until(lambda: "out of paper" in app.text)
        await app.settled()
        assert app.text.count("out of paper") == 1
        assert not app.noticed("out of paper")


async def test_search_finds_a_message_on_another_branch_and_goes_there(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("the lighthouse"), tokens("the harbour"), tokens("Hello"))
    async with drive() as app:
        first = await app.begin("where?")
        await app.service.turns.regenerate(first, app.path[-1].id)
        await app.settled()
        await app.begin("something else")
        await app.press("ctrl+r")
        await app.opens("SearchScreen")
        await app.type("lighthouse")
        await app.until(lambda: "1 message" in app.text)
        await app.press("enter")
        await app.until(lambda: app.shown == ["where?", "the lighthouse"])
        assert app.conversation.id == first
        await app.until(lambda: app.selected == "the lighthouse")


# -- conversations


async def test_a_deleted_conversation_comes_back_by_undo(drive: Drive) -> None:
    async with drive() as app:
        kept = await app.begin("kept")
        gone = await app.begin("gone", "really")
        await app.press("f10")
        await app.until(lambda: app.conversation.id == kept and "gone" not in app.text)
        await app.press("ctrl+underscore")
        await app.until(lambda: app.conversation.id == gone and app.shown)
        assert app.shown == ["gone", "Hello", "really", "Hello"]


async def test_deleting_the_last_conversation_leaves_an_empty_one(drive: Drive) -> None:
    async with drive() as app:
        await app.say("only one")
        await app.press("f10")
        await app.until(lambda: app.said == [])
        await app.press("f10")
        await app.until(lambda: app.noticed("nothing to delete"))


async def test_export_by_key_writes_the_file_and_asks_before_it_replaces_one(drive: Drive, tmp_path: Path) -> None:
    target = tmp_path / "talk.md"
    async with drive() as app:
        await app.begin("the lighthouse")
        for text in ("written", "there already", "again"):
            if text == "there already":
                target.write_text("mine")
            await app.press("f4")
            await app.opens("ExportScreen")
            app.app.screen.query_one("Input").focus()
            await app.press("end", "ctrl+u")
            await app.type(str(target))
            await app.press("enter")
            if text == "written":
                await app.closes()
                await app.until(target.exists)
                assert "the lighthouse" in target.read_text()
            else:
                await app.until(lambda: "is there already" in app.prose)
                assert target.read_text() == "mine"
                await app.press("escape" if text == "there already" else "enter")
                await app.closes()
        await app.until(lambda: "the lighthouse" in target.read_text())
        assert app.noticed("Exported to")


async def test_an_export_that_fails_is_said(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.command(f"/export {tmp_path}/no/such/folder/x.md")
        await app.until(lambda: app.notices)
        assert app.noticed("no/such/folder")
        await app.command("/export ~nobody-here/x.md")
        await app.until(lambda: app.noticed("~nobody-here/x.md"))
        await app.command(f"/export {tmp_path}/x.pdf")
        await app.until(lambda: app.noticed("pdf"))


async def test_renaming_shows_in_the_list(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("f12")
        await app.opens("RenameScreen")
        await app.type("The lighthouse log")
        await app.press("enter")
        await app.until(lambda: "The lighthouse log" in app.text)
        await app.say("more")
        assert app.conversation.record.title == "The lighthouse log"


# -- options


async def test_a_system_prompt_that_costs_is_priced_first(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Hello", prompt=3000, prompt_ms=9000))
    async with drive() as app:
        await app.begin("one")
        before = app.conversation.instructions
        await app.command("/system Be terse.")
        await app.opens("ConfirmScreen")
        assert re.search(r"(2,9|3,0)\d\d tokens", app.prose)
        await app.press("escape")
        await app.closes()
        assert app.conversation.instructions == before
        await app.command("/system Be terse.")
        await app.opens("ConfirmScreen")
        await app.press("enter")
        await app.until(lambda: app.conversation.instructions == "Be terse.")


async def test_the_system_prompt_screen_changes_it(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.run("system")
        await app.opens("SystemPromptScreen")
        await app.press("f7")
        await app.type("Answer in rhymes.")
        await app.press("ctrl+s")
        await app.closes()
        await app.until(lambda: app.conversation.instructions == "Answer in rhymes.")
        await app.say("hi")
        assert server.chats[-1].json["messages"][0]["content"].startswith("Answer in rhymes.")


async def test_parameters_are_sent_from_then_on(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("ctrl+o")
        await app.opens("ParametersScreen")
        await app.type("0.25")
        await app.press("enter")
        await app.closes()
        await app.say("two")
        assert server.chats[-1].json["temperature"] == 0.25
        assert "temperature" not in server.chats[0].json


async def test_a_model_is_chosen_from_the_list_of_the_server(drive: Drive, server: ToyServer) -> None:
    from toyserver import reply

    names = ["toy", "bigger-toy"]
    server.on("/v1/models", reply(200, {"object": "list", "data": [
        {"id": name, "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}} for name in names]}))
    async with drive() as app:
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.until(lambda: "bigger-toy" in app.text)
        await app.type("bigger")
        await app.press("enter")
        await app.closes()
        await app.until(lambda: app.conversation.record.model == "bigger-toy")
        await app.say("hi")
        assert server.chats[-1].json["model"] == "bigger-toy"


async def test_another_server_is_used_by_its_address(drive: Drive, server: ToyServer) -> None:
    async with ToyServer(model="elsewhere") as other, drive() as app:
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.type(other.url)
        await app.press("enter")
        await app.until(lambda: "elsewhere" in app.lines[0])
        await app.say("hi")
        assert (server.posts, other.posts) == (0, 1)


def templated(server: ToyServer, template: str) -> None:
    """Have the server tell this chat template."""
    server.on("/props", reply(200, {
        "default_generation_settings": {"n_ctx": 4096}, "total_slots": 1, "model_alias": "toy", "build_info": "b1-toy",
        "chat_template": template}, server="llama.cpp"))


async def test_a_model_without_a_thinking_switch_says_so_and_nothing_changes(drive: Drive, server: ToyServer) -> None:
    templated(server, chat_templates.CHATML)
    async with drive() as app:
        await app.begin("one")
        app.service.prices.estimate = lambda *_: Price(8120, (34.0, 36.0))  # type: ignore[method-assign]
        before = app.conversation.record
        await app.press("ctrl+t")
        await app.until(lambda: app.notices)
        await app.command("/thinking high")
        await app.until(lambda: len(app.notices) == 2)
        assert app.notices == ["This model has no thinking switch.", "This model has no thinking effort."]
        assert app.conversation.record == before and app.front == "ChatScreen"


@pytest.mark.parametrize(("facts", "command", "words", "options"), [
    (TemplateFacts(switches_thinking=False, takes_effort=True), "/thinking on",
     "This model has no thinking switch. It takes /thinking low, medium or high.", {}),
    (TemplateFacts(switches_thinking=True, takes_effort=False), "/thinking low",
     "This model has no thinking effort. It thinks, or not: /thinking on or off.", {}),
    (TemplateFacts(switches_thinking=False, takes_effort=True), "/thinking low", "Thinking at low effort",
     {"reasoning_effort": "low"}),
    (TemplateFacts(switches_thinking=True), "/thinking off", "Thinking off", {"enable_thinking": False})])
async def test_what_a_template_takes_is_what_is_set(
    drive: Drive, facts: TemplateFacts, command: str, words: str, options: dict[str, object],
) -> None:
    async with drive() as app:
        link = app.service.servers.link()
        link.template = facts
        await app.command(command)
        await app.until(lambda: app.notices == [words])
        assert app.conversation.record.template_options == options


async def test_the_first_press_switches_thinking_on(drive: Drive, server: ToyServer) -> None:
    templated(server, chat_templates.SWITCHED)
    async with drive() as app:
        await app.press("ctrl+t")
        await app.until(lambda: app.notices == ["Thinking on"])
        assert app.conversation.record.template_options == {"enable_thinking": True}


async def test_thinking_goes_through_its_three_states(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        states = []
        for _ in range(3):
            said = len(app.notices)
            await app.press("ctrl+t")
            await app.until(lambda said=said: len(app.notices) > said)
            states.append(app.conversation.record.template_options.get("enable_thinking"))
        assert states == [True, False, None]
        assert app.notices[0] == "Thinking on, if this model has the switch"


# -- the server


async def test_a_server_error_stands_in_the_conversation_and_r_tries_again(drive: Drive, server: ToyServer) -> None:
    server.on_chat(error(500, "the GPU fell off"), tokens("It is back."))
    async with drive() as app:
        await app.say("hello?")
        assert "the GPU fell off" in app.prose
        assert app.path[-1].state is State.ERROR
        await app.focus_transcript()
        await app.press("r")
        await app.until(lambda: app.shown == ["hello?", "It is back."])
        await app.settled()
        assert "the GPU fell off" not in app.prose
        assert server.posts == 2


async def test_a_stream_that_is_cut_keeps_its_text_and_says_so(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("up to he", finish=None))
    async with drive() as app:
        await app.say("hello?")
        assert "up to he" in app.text
        assert app.path[-1].state is State.INTERRUPTED
        assert note_sentence(app.path[-1].note).split()[0] in app.prose


async def test_a_server_that_is_gone_is_said_and_found_again(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin("one")
        port = server.port
        await server.stop()
        await app.write("two")
        await app.press("enter")
        await app.until(lambda: f"127.0.0.1:{port}" in app.prose)
        await app.settled()
        assert app.path[-1].state is State.ERROR
        server._server = await asyncio.start_server(server._handle, "127.0.0.1", port, limit=1 << 24)
        await app.focus_transcript()
        await app.press("r")
        await app.until(lambda: app.shown[-1] == "Hello")


async def test_an_engine_that_dies_is_told_with_its_log_and_the_ways_out(drive: Drive, server: ToyServer) -> None:
    from kvchat.chat.server.connection import Connection

    async with drive() as app:
        await app.begin("one")
        for key, front in (("m", "ModelPicker"), ("r", "ChatScreen")):
            lost = Connection("lost", f"The engine ended ({key}).", "ggml: out of memory")
            app.service.servers.link().connector._say(lost)
            await app.opens("EngineTroubleScreen")
            assert "ggml: out of memory" in app.text
            await app.press(key)
            await app.opens(front)
            await app.press("escape")
            await app.closes()
        await app.until(lambda: app.service.servers.connection.phase == "ready")
        await app.say("two")
        assert app.shown[-1] == "Hello"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.fixture
def nothing_found(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    """A machine without a server and without a model file."""
    monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (closed_port,))
    monkeypatch.setattr("kvchat.backends.engine.models.find_models", list)


@pytest.mark.usefixtures("nothing_found")
async def test_the_first_run_says_what_to_do_and_an_address_ends_it(drive: Drive, server: ToyServer) -> None:
    async with drive(server=None) as app:
        await app.until(lambda: "No model server answered on this machine" in app.text)
        assert "llama.cpp 8080" in app.text
        assert "no model file found" in app.prose
        await app.press("shift+tab")
        app.chat.query_one("WelcomePanel").focus()
        await app.press("3")
        assert "llama-server -m MODEL.gguf --port 8080" in app.text
        await app.press("2")
        await app.opens("ModelPicker")
        await app.type(server.url)
        await app.press("enter")
        await app.until(lambda: "No model server answered" not in app.text)
        await app.say("hi")
        assert app.shown == ["hi", "Hello"]


@pytest.mark.usefixtures("nothing_found")
async def test_a_message_without_a_server_is_kept_and_answered_later(drive: Drive, server: ToyServer) -> None:
    async with drive(server=None) as app:
        await app.until(lambda: "No model server answered" in app.text)
        await app.write("anyone there?")
        await app.press("enter")
        await app.until(lambda: app.said == ["anyone there?", ""])
        await app.settled()
        assert app.path[-1].state is State.ERROR
        assert "anyone there?" in app.text
        assert "/model" in app.prose
    async with drive(continue_=True) as app:
        await app.focus_transcript()
        await app.press("r")
        await app.until(lambda: app.shown == ["anyone there?", "Hello"])


async def test_another_machine_is_asked_about_once(
        drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.http.endpoint.classify", lambda _address: HostClass.LAN)
    async with drive() as app:
        assert app.service.servers.info is not None and app.service.servers.info.host_class == "lan"
        await app.write("a secret")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        assert "another machine of this network" in app.prose
        await app.press("n")
        await app.closes()
        assert (server.posts, app.said, app.draft) == (0, [], "a secret")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.shown == ["a secret", "Hello"])
        await app.settled()
        await app.say("more")
    async with drive() as app:
        await app.say("and after a restart")
        assert server.posts == 3


async def test_nothing_leaves_before_the_place_of_the_server_is_known(
        drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.http.endpoint.classify", lambda _address: HostClass.LAN)
    async with drive(settings=changed(Settings(), "server.base_url", server.url), connect=False) as app:
        await app.write("typed before it was connected")
        app.service.servers.link().connector._backend = None
        await app.press("enter")
        await app.until(lambda: app.said or app.front == "ConfirmScreen")
        if app.front == "ConfirmScreen":
            await app.press("n")
            await app.closes()
        await app.settled()
        assert server.posts == 0


async def test_acts_on_branches_ask_before_they_leave_this_machine_too(
        drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with drive() as app:
        id = await app.begin("said here")
    monkeypatch.setattr("kvchat.backends.http.endpoint.classify", lambda _address: HostClass.CLOUD)
    async with drive(conversation=id) as app:
        await app.select(1)
        await app.press("r")
        await app.opens("ConfirmScreen")
        await app.press("n")
        await app.closes()
        await app.press("e")
        await app.until(lambda: app.draft == "said here")
        await app.type("!")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("escape")
        await app.closes()
        assert app.draft == "said here!"
        assert (server.posts, app.said) == (1, ["said here", "Hello"])


# -- settings, themes, the disk


async def test_what_is_wrong_in_the_settings_is_said_and_the_app_runs(drive: Drive) -> None:
    config = find().config
    config.parent.mkdir(parents=True)
    config.write_text('theme = "no-such-theme"\nenter_sends = "maybe"\n[keys]\nnew = "f4"\n')
    (config.parent / "themes").mkdir()
    (config.parent / "themes" / "broken.toml").write_text("name = [")
    settings, problems = load(config)
    async with drive(settings=settings, notices=map(str, problems)) as app:
        await app.until(lambda: len(app.notices) >= 4)
        for words in ("no-such-theme", "enter_sends", "broken.toml", "keys.new"):
            assert app.noticed(words), words
        assert app.app.theme == "kvchat-night"
        await app.say("hi")
        assert app.shown == ["hi", "Hello"]


async def test_changed_keys_work_and_stand_in_the_footer(drive: Drive) -> None:
    config = find().config
    config.parent.mkdir(parents=True)
    config.write_text('[keys]\nexport = "alt+y, alt+x"\nhelp = "f11"\n"transcript.copy" = "c"\n')
    settings, problems = load(config)
    async with drive(settings=settings, notices=map(str, problems)) as app:
        assert app.notices == []
        assert "Alt+Y export" in app.lines[-1]
        assert "F11 help" in app.lines[-1]
        await app.press("f4")
        assert app.front == "ChatScreen"
        await app.press("alt+y")
        await app.opens("ExportScreen")
        await app.press("escape")
        await app.press("f11")
        await app.opens("HelpScreen")
        await app.type("export")
        assert "Alt+Y, Alt+X" in app.text
        await app.press("escape")
        await app.begin("one")
        await app.select(0)
        await app.press("c")
        await app.until(lambda: app.noticed("Message copied to"))
        assert app.app.clipboard == "one"


async def test_enter_may_make_new_lines(drive: Drive, server: ToyServer) -> None:
    config = find().config
    config.parent.mkdir(parents=True)
    config.write_text("enter_sends = false\n")
    settings, _ = load(config)
    async with drive(settings=settings) as app:
        await app.write("a")
        await app.press("enter", "b")
        assert (app.draft, server.posts) == ("a\nb", 0)
        await app.press("ctrl+j")
        await app.until(lambda: app.said[:1] == ["a\nb"])


async def test_a_disk_that_refuses_is_told_until_it_works_again(
        drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Store.add

    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    async with drive() as app:
        monkeypatch.setattr(Store, "add", full)
        await app.say("kept in memory")
        assert app.shown == ["kept in memory", "Hello"]
        assert "its disk is full" in app.prose
        assert "stay in memory; kvchat retries" in app.prose
        monkeypatch.setattr(Store, "add", real)
        await app.service.keeper.flush()
        await app.until(lambda: "its disk is full" not in app.text)
        id = app.conversation.id
    async with drive(conversation=id) as app:
        assert app.shown == ["kept in memory", "Hello"]


async def test_a_chosen_theme_is_kept(drive: Drive) -> None:
    config = find().config
    async with drive() as app:
        await app.run("theme")
        await app.opens("CommandPalette")
        await app.type("kvchat-day")
        await app.until(lambda: "kvchat-day" in app.text)
        await app.press("enter")
        await app.until(lambda: app.app.theme == "kvchat-day")
        await app.until(config.exists)
        assert tomllib.loads(config.read_text())["theme"] == "kvchat-day"
    settings, problems = load(config)
    assert not problems
    async with drive(settings=settings) as app:
        assert app.app.theme == "kvchat-day"


async def test_settings_that_cannot_be_written_are_said(drive: Drive) -> None:
    config = find().config
    config.parent.parent.mkdir(parents=True, exist_ok=True)
    config.parent.write_text("a file where the folder should be")
    async with drive() as app:
        await app.command("/theme kvchat-day")
        await app.until(lambda: app.notices)
        assert app.noticed("config")
        assert app.app.theme == "kvchat-day"


async def test_every_theme_of_ours_draws_the_conversation(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\n> quoted, *soft*\n"))
    async with drive() as app:
        await app.begin("show everything")
        names = [name for name in app.app.available_themes if name.startswith("kvchat")]
        assert len(names) >= 6
        seen = set()
        for name in names:
            app.app.theme = name
            await app.rest()
            assert "x = 1" in app.text
            assert "show everything" in app.text
            seen.add(app.app.export_screenshot().replace(name, ""))
        assert len(seen) == len(names)


async def test_the_mouse_opens_conversations_and_presses_the_keys_of_the_footer(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("older")
        await app.begin("newer")
        row = next(at for at, line in enumerate(app.lines) if " older" in line)
        await app.pilot.click(offset=(5, row))
        await app.until(lambda: app.shown == ["older", "Hello"])
        await app.pilot.click(offset=(app.lines[-1].index("F4"), len(app.lines) - 1))
        await app.opens("ExportScreen")


async def test_the_list_gives_way_in_a_narrow_terminal(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        await app.begin("one")

        async def resized(columns: int, *, listed: bool) -> None:
            await app.pilot.resize_terminal(columns, 30)
            await app.until(lambda: app.chat.size.width == columns)
            await app.until(lambda: (app.chat.sidebar.display and " one" in app.listed) is listed)
            assert app.app.screen.focused is not None

        await app.focus_sidebar()
        await resized(80, listed=False)
        await app.press("f3")
        assert app.chat.sidebar.display and " one" in app.listed
        await resized(120, listed=True)
        await app.press("f3")
        await resized(80, listed=False)
        await resized(120, listed=False)


# -- beginnings


async def test_the_app_begins_with_an_empty_conversation_and_makes_no_second_one(drive: Drive) -> None:
    for _ in range(2):
        async with drive() as app:
            assert app.said == []
            assert app.chat.composer.has_focus_within
            assert len(app.service.conversations.all()) == 1


async def test_going_on_with_the_latest_conversation(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("older")
        await app.begin("newer")
    async with drive(continue_=True) as app:
        assert app.shown == ["newer", "Hello"]


async def test_an_unknown_conversation_is_said(drive: Drive) -> None:
    async with drive(conversation="ffff") as app:
        await app.until(lambda: app.noticed("ffff"))
        assert app.said == []


async def test_an_incognito_conversation_writes_nothing(tmp_path: Path, server: ToyServer) -> None:
    async with driving(None, server) as app:
        await app.say("a secret")
        assert app.shown == ["a secret", "Hello"]
    assert not any(b"a secret" in content for content in contents_below(tmp_path))


def contents_below(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]


async def test_what_one_kvchat_says_another_one_lists(drive: Drive) -> None:
    async with drive() as one, drive() as other:
        await one.begin("said in the first")
        other.service.refresh()
        await other.until(lambda: "said in the first" in other.text)
        id = one.conversation.id
        await other.open(id)
        assert other.shown == ["said in the first", "Hello"]


async def test_what_was_typed_a_moment_ago_stays_when_the_open_conversation_is_chosen_again(drive: Drive) -> None:
    async with drive() as app:
        id = await app.begin("one")
        await app.write("typed a moment ago")
        await app.open(id)
        assert app.draft == "typed a moment ago"

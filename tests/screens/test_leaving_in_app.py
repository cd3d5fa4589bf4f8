"""What is under way when another conversation is opened, or while the user's editor is open: it stays where it was begun,
and nothing that is written is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from app_kit import Drive, Driven
from test_queue_in_app import STOPPED, items, queue_up, streaming
from test_sending_in_app import QUESTION, enter, held, line, reading
from test_too_long_in_app import REFUSED, talk
from test_too_long_in_app import held as answered_late

from kvchat.cache import Price
from kvchat.chat.errors import ChatError
from kvchat.commands.actions import BY_ID
from kvchat.config import Settings
from kvchat.prompt.drafts import Draft
from toyserver import ToyServer

PRICED = ("transcript.delete", "transcript.regenerate", "transcript.edit", "thinking", "system")
ARGUMENTS = {"thinking": ["on"], "system": ["be brief"]}
NOT_MET = SimpleNamespace(info=None)
SLOW_PROGRAM = """
import json, sys, time
time.sleep(60)
"""


class Gate:
    """Holds calls back until it is opened."""

    def __init__(self) -> None:
        self.opened, self.reached = asyncio.Event(), asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.opened.wait()


def connecting(app: Driven, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The server is one that was not met, and is connected to as long as the gate is shut."""
    servers, gate = app.service.servers, Gate()
    connect = servers.connect

    async def slow(id: str = "") -> None:
        await gate.passed()
        await connect(id)

    monkeypatch.setattr(servers, "may_meet", lambda id="": False)
    monkeypatch.setattr(servers, "connect", slow)
    return gate


@pytest.mark.parametrize("action", PRICED)
async def test_a_price_that_comes_after_the_conversation_was_left_asks_nothing(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    async with drive() as app:
        other = await app.begin("second")
        await app.begin("first", "more")
        gate, exact = Gate(), app.service.prices.exact

        async def slow(*args: object, **more: object) -> Price:
            await gate.passed()
            return await exact(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(app.service.prices, "exact", slow)
        monkeypatch.setattr(Price, "worth_asking", property(lambda self: True))
        await app.select(0)
        await app.chat.do(BY_ID[action], *ARGUMENTS.get(action, []))
        await app.until(gate.reached.is_set)
        await app.open(other)
        gate.opened.set()
        await app.rest()
        assert (app.front, app.conversation.id, app.said[0]) == ("ChatScreen", other, "second")
        assert app.chat.workspace.editing is None


@pytest.mark.parametrize(
    ("action", "questions", "answers"), [("transcript.regenerate", 1, 2), ("transcript.edit", 2, 1)]
)
async def test_an_answer_is_asked_for_where_it_was_asked_for(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, action: str, questions: int, answers: int
) -> None:
    async with drive() as app:
        other = await app.begin("second")
        home = await app.begin("first")
        gate, root = connecting(app, monkeypatch), app.path[0].parent
        await app.select(-1)
        await app.chat.do(BY_ID[action])
        if action == "transcript.edit":
            await app.until(lambda: app.chat.workspace.editing is not None)
            await app.write(" again")
            await app.press("enter")
        await app.until(gate.reached.is_set)
        await app.open(other)
        gate.opened.set()
        tree = app.service.conversations.load(home).tree
        await app.until(
            lambda: len(asked := tree.children(root)) == questions and len(tree.children(asked[-1].id)) == answers
        )
        assert not [notice for notice in app.notices if "another window" in notice]


async def test_a_model_that_was_looked_for_on_a_slow_disk_is_not_given_to_another(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with drive() as app:
        other = await app.begin("second")
        await app.begin("first")
        (file := tmp_path / "m.gguf").write_bytes(b"GGUF")
        chooser, gate, used = app.service.chooser, Gate(), list[str]()

        async def files_at(_: Path) -> list[SimpleNamespace]:
            await gate.passed()
            return [SimpleNamespace(path=file)]

        async def use(id: str, *_: object) -> None:
            used.append(id)

        monkeypatch.setattr(chooser, "files_at", files_at)
        monkeypatch.setattr(chooser, "use", use)
        await app.command(f"/model {file}")
        await app.until(gate.reached.is_set)
        await app.open(other)
        gate.opened.set()
        await app.rest()
        assert (app.front, used) == ("ChatScreen", [])


@pytest.mark.parametrize("words", ["", "2 and why?"])
async def test_several_answers_are_not_asked_for_in_another_conversation(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    async with drive() as app:
        other = await app.begin("second")
        await app.write("a draft")
        home = await app.begin("first")
        servers, gate = app.service.servers, Gate()
        link, reach = servers.link, servers.reach

        async def slow(id: str = "", *, name: str = "") -> object:
            await gate.passed()
            return await reach(id, name=name)

        def unmet(id: str = "") -> object:
            return SimpleNamespace(info=None) if id == home and not gate.reached.is_set() else link(id)

        if words:
            await app.write(f"/alternatives {words}")
        monkeypatch.setattr(servers, "reach", slow)
        monkeypatch.setattr(servers, "link", unmet)
        await (app.press("enter") if words else app.run("alternatives"))
        await app.until(gate.reached.is_set)
        await app.open(other)
        gate.opened.set()
        await app.until(lambda: any("another conversation is open" in notice for notice in app.notices))
        assert (app.draft, app.said[-2]) == ("a draft", "second")
        await app.open(home)
        assert app.draft == (f"/alternatives {words}" if words else "")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("outside", [False, True])
async def test_what_is_written_while_several_answers_wait_for_a_server_stays(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: bool, outside: bool
) -> None:
    go = editor(tmp_path, monkeypatch)
    async with drive() as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        await app.begin("first")
        servers, gate = app.service.servers, Gate()
        link, reach = servers.link, servers.reach

        async def slow(id: str = "", *, name: str = "") -> object:
            await gate.passed()
            if fails:
                raise ChatError.of("No server.")
            return await reach(id, name=name)

        await app.write("/alternatives 2 and why?")
        monkeypatch.setattr(servers, "reach", slow)
        monkeypatch.setattr(servers, "link", lambda id="": link(id) if gate.reached.is_set() else NOT_MET)
        await app.press("enter")
        await app.until(gate.reached.is_set)
        if outside:
            await app.press("ctrl+g")
        else:
            await app.write("written outside")
        gate.opened.set()
        go.touch()
        if fails:
            await app.until(lambda: "and why?" in app.draft and "written outside" in app.draft)
        else:
            await app.until(lambda: "and why?" in app.said or app.front == "AlternativesScreen")
            await app.until(lambda: app.chat.composer.text == "written outside")


async def test_several_answers_beside_an_edit_leave_the_words(drive: Drive) -> None:
    async with drive() as app:
        await app.say("Hello")
        app.chat.drafts.begin_edit(app.path[0].id)
        app.chat.composer.replace_text("")
        await app.command("/alternatives 2 a long question")
        await app.until(lambda: bool(app.draft))
        assert app.draft == "/alternatives 2 a long question"


@pytest.mark.process
async def test_a_program_that_lists_its_tools_for_a_new_conversation_holds_no_key(drive: Drive, tmp_path: Path) -> None:
    script, file = tmp_path / "slow.py", tmp_path / "servers.json"
    script.write_text(SLOW_PROGRAM)
    file.write_text(json.dumps({"mcpServers": {"box": {"command": sys.executable, "args": [str(script)]}}}))
    async with drive(settings=Settings(mcp_file=str(file))) as app:
        await app.say("Hello")
        home = app.conversation.id
        for server in app.service.mcp.configured().values():
            await app.service.mcp.agree(server)
        await app.command("/new box")
        await app.until(lambda: app.conversation.id != home)
        await app.press("f1")
        await app.opens("HelpScreen")
        await app.press("escape")
        await app.closes()
        await app.press("escape")
        await app.rest()
        await app.say("Which?")
        assert (app.conversation.id != home, app.said[0]) == (True, "Which?")


@pytest.mark.parametrize("command", ["/new", "/new files"])
async def test_keys_right_behind_new_go_to_the_new_conversation(drive: Drive, command: str) -> None:
    async with drive() as app:
        await app.say("Hello")
        home = app.conversation
        await app.write(f"{command} ")
        for key in ("enter", *"secret", "enter"):
            app.app.simulate_key(key)
        await app.until(lambda: app.conversation.id != home.id and app.said[:1] == ["secret"])
        assert len(home.path()) == 3


async def test_documents_are_searched_for_where_that_was_asked(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        other = await app.begin("second")
        home = await app.begin("first")
        async with held(app) as free:
            await app.command("/documents always handbook")
            await app.open(other)
            free.set()
        record = app.service.conversations.load(home)
        await app.until(lambda: record.record.collections == ("handbook",))
        assert not app.conversation.record.collections


async def test_a_draft_behind_an_edit_that_is_sent_while_the_editor_is_open_stays(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = editor(tmp_path, monkeypatch)
    async with drive() as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        await app.say("Hello", "More")
        await app.write("what waits behind")
        gate = connecting(app, monkeypatch)
        app.chat.drafts.begin_edit(app.path[0].id)
        await app.write(" in other words")
        await app.press("enter")
        await app.until(gate.reached.is_set)
        await app.press("ctrl+g")
        gate.opened.set()
        await app.until(lambda: app.said[0] == "Hello in other words")
        go.touch()
        await app.until(lambda: not app.chat.workspace.outgoing)
        await app.until(lambda: app.draft == "what waits behind\n\nwritten outside")


async def test_what_is_written_behind_one_edit_stays_through_another(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive() as app:
        await app.say("Hello", "More")
        gate, first = connecting(app, monkeypatch), app.path[0].id
        app.chat.drafts.begin_edit(app.path[2].id)
        await app.write(" in other words")
        await app.press("enter")
        await app.until(gate.reached.is_set)
        await app.write("typed since")
        app.chat.drafts.begin_edit(first)
        gate.opened.set()
        await app.until(lambda: not app.chat.workspace.outgoing)
        await app.settled()
        await app.press("escape")
        await app.until(lambda: app.draft == "typed since")


async def test_what_is_written_behind_an_edit_on_its_way_is_there_again(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        await app.say("Hello")
        home = app.conversation.id
        app.chat.drafts.begin_edit(app.path[0].id)
        async with held(app) as free:
            await enter(app, f" {QUESTION}")
            await app.until(lambda: "searching…" in line(app))
            await app.write("typed since")
            away = await app.begin()
            await app.open(home)
            assert app.draft == "typed since"
            await app.open(away)
            free.set()
            await app.until(lambda: not app.chat.workspace.outgoing)
        await app.settled()
        await app.open(home)
        assert (app.said[0], app.draft) == (f"Hello {QUESTION}", "typed since")


@pytest.mark.parametrize("fails", [False, True])
async def test_esc_loses_no_edit_that_is_on_its_way(drive: Drive, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    async with drive() as app:
        await app.say("Hello", "More")
        gate = connecting(app, monkeypatch)
        app.chat.drafts.begin_edit(app.path[0].id)
        await app.write(" in other words")
        await app.press("enter")
        await app.until(gate.reached.is_set)
        await app.press("escape")
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.chat.workspace.editing is not None)
        assert app.draft == ""
        await app.press("escape")
        if fails:

            async def refused(*_: object, **__: object) -> None:
                raise ChatError.of("It is refused.")

            monkeypatch.setattr(app.service.turns, "edit", refused)
        gate.opened.set()
        await app.until(lambda: not app.chat.workspace.outgoing)
        await app.settled()
        edits = [edit.draft.text for edit in app.service.drafts.of(app.conversation).edits]
        assert (app.said[0], edits) == (("Hello", ["Hello in other words"]) if fails else ("Hello in other words", []))


def editor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's editor, which writes and ends when this file is there."""
    go, script = folder / "go", folder / "editor.sh"
    script.write_text(f'#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.05; done\nprintf "written outside" > "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))
    monkeypatch.setenv("VISUAL", str(script))
    return go


async def test_a_message_that_comes_back_waits_for_the_editor(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = editor(tmp_path, monkeypatch)
    async with reading(drive, tmp_path) as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        text = f"see @{tmp_path}/handbook/ here"
        async with held(app) as free:
            await enter(app, text)
            await app.press("ctrl+g")
            free.set()
        go.touch()
        await app.until(lambda: not app.chat.workspace.outgoing)
        await app.until(lambda: text in app.draft)
        assert app.draft.split("\n\n") == [text, "written outside"]


async def test_a_refused_edit_waits_for_the_editor(
    drive: Drive, server: ToyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = editor(tmp_path, monkeypatch)
    async with talk(drive, server) as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        server.on_chat(answered_late(release := asyncio.Event(), REFUSED))
        app.chat.drafts.begin_edit(app.path[2].id, Draft("edited far too long"))
        await app.press("enter")
        await app.until(lambda: server.posts == 4 and app.chat.workspace.editing is None)
        await app.write("next:")
        await app.press("ctrl+g")
        release.set()
        await app.until(lambda: not app.service.conversations.streaming())
        go.touch()
        await app.until(lambda: app.chat.workspace.editing is not None)
        assert app.draft == "edited far too long"
        await app.press("escape")
        assert app.draft == "written outside"


async def test_a_message_of_the_queue_keeps_its_place_through_an_edit(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        await _take_the_first(app)
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.chat.workspace.editing is not None)
        await app.press("enter")  # unchanged
        await app.until(lambda: app.draft == "one")
        await app.press("enter")
        await app.until(lambda: len(items(app)) == 2)
        assert [item.question.text for item in items(app)] == ["one", "two"]


async def _take_the_first(app: Driven) -> None:
    await app.run("queue")
    await app.opens("QueueScreen")
    await app.press("e")
    await app.closes()
    await app.until(lambda: app.draft == "one")


@pytest.mark.parametrize("command", ["/documents always handbook", "/documents add /tmp"])
async def test_documents_that_are_being_read_hold_no_key(drive: Drive, tmp_path: Path, command: str) -> None:
    async with reading(drive, tmp_path) as app, held(app) as free:
        await app.command(command)
        await app.press("f1")
        await app.opens("HelpScreen")
        free.set()


async def test_an_edit_stays_where_no_other_conversation_can_be_opened(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive() as app:
        await app.begin("second")
        home = await app.begin("first")
        app.chat.drafts.begin_edit(app.path[0].id)
        await app.write(" and more")

        async def gone(_: str) -> None:
            raise ChatError.of("There is no such conversation.")

        monkeypatch.setattr(app.service.conversations, "open", gone)
        await app.press("ctrl+pagedown")
        await app.until(lambda: any("no such conversation" in notice for notice in app.notices))
        assert (app.conversation.id, app.draft) == (home, "first and more")


@pytest.mark.parametrize("editing", [False, True])
async def test_what_is_written_until_another_conversation_is_open_stays(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, editing: bool
) -> None:
    async with drive() as app:
        other = await app.begin("second")
        home = await app.begin("first")
        if editing:
            app.chat.drafts.begin_edit(app.path[0].id)
        gate, opened = Gate(), app.service.conversations.open

        async def slow(id: str) -> object:
            await gate.passed()
            return await opened(id)

        monkeypatch.setattr(app.service.conversations, "open", slow)
        app.app.simulate_key("ctrl+pagedown")
        await gate.reached.wait()  # the screen rests when it is opened
        app.chat.composer.replace_text("written late")
        gate.opened.set()
        await app.until(lambda: app.conversation.id == other)
        monkeypatch.setattr(app.service.conversations, "open", opened)
        await app.open(home)
        assert app.draft == "written late"


async def test_undo_of_a_fork_brings_its_origin_back(drive: Drive) -> None:
    async with drive() as app:
        home = await app.begin("first")
        await app.begin("second")
        await app.open(home)
        await app.command("/fork")
        await app.until(lambda: app.conversation.id != home)
        fork = app.conversation.id
        await app.open(home)
        await app.run("delete")
        await app.until(lambda: app.conversation.id != home)
        await app.open(fork)
        await app.run("undo")
        await app.until(lambda: app.conversation.id == home)
        assert app.conversation.record.trashed is None


async def test_a_key_that_begins_like_alt_f_leaves_it_a_word(drive: Drive) -> None:
    async with drive(settings=Settings(keys={"panel": "alt+f1"})) as app:
        await app.write("one two three")
        await app.press("home", "alt+f")
        await app.write("X")
        assert app.draft == "oneX two three"

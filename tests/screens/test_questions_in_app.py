"""Questions that open by themselves are not answered by what is being typed, and take nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from app_kit import Drive, Driven
from textual import events
from textual.keys import _character_to_key

from kvchat.chat.question import Question
from kvchat.config import Settings
from kvchat.ui.controllers.questions import Questions
from kvchat.ui.screens.kit.confirm import ConfirmScreen, QuestionWords
from toyserver import ToyServer, calls, tokens

READ = '{"path": "a.txt"}'
SENTENCES = ["so what a cat eats each day", "yes yes yes they do, surely", "any can", "no, c and a", "1 2 3"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("The lamp turns once in ten seconds.\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """How long nothing is to be typed before a question opens by itself; a day: it never does."""
    return lambda seconds: monkeypatch.setattr(Questions, "quiet_s", seconds)


DAY = 86_400.0


def read(server: ToyServer) -> bool:
    """Whether the file went to the model."""
    return any("The lamp" in str(chat.json) for chat in server.chats)


def waits(app: Driven) -> bool:
    return bool(app.chat.question_line.display)


async def type_out(app: Driven, text: str) -> None:
    for letter in text:
        app.app.post_message(events.Key(_character_to_key(letter), letter))
        await app.rest()


async def writing(app: Driven, server: ToyServer, begun: str) -> None:
    """A call is asked for while the draft holds `begun`."""
    app.chat.composer.type(begun)
    await app.service.turns.send(app.conversation.id, _question())
    await app.until(lambda: app.service.tools.waiting and waits(app))


async def begun(app: Driven) -> None:
    await app.command("/tools files")
    await app.until(lambda: app.conversation.tools)


@pytest.mark.parametrize("sentence", SENTENCES)
async def test_a_sentence_that_is_being_written_answers_nothing(drive: Drive, server: ToyServer, sentence: str) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60), tokens("Fine.", prompt=90))
    async with drive() as app:
        await begun(app)
        await writing(app, server, sentence[0])
        await type_out(app, sentence[1:])
        assert app.draft == sentence and waits(app) and app.front == "ChatScreen"
        await app.press("enter")
        await app.until(lambda: app.service.queue.of(app.conversation.id))
        assert app.draft == "" and waits(app) and "tab answers" in app.prose.casefold()
        await type_out(app, sentence)
        assert app.draft == sentence and not read(server), "who wrote past it is writing"
        await app.press("tab")
        await app.opens("ConfirmScreen")
        await app.press("n")
        await app.closes()
        assert app.draft == sentence and not read(server)


@pytest.mark.parametrize("way", ["tab", "up", "down", "click"])
async def test_the_user_goes_to_the_question_and_answers_it(drive: Drive, server: ToyServer, way: str) -> None:
    server.on_chat(calls(READ), tokens("Ten.", prompt=60))
    async with drive() as app:
        await begun(app)
        await writing(app, server, "look")
        await app.until(lambda: "Let the model read a.txt?" in app.prose)
        if way == "click":
            await app.pilot.click("QuestionLine")
        else:
            await app.press(way)
        await app.opens("ConfirmScreen")
        await app.press("enter")
        await app.until(lambda: read(server))
        await app.settled()
        assert app.draft == "look" and not waits(app)


async def test_a_paste_and_editing_keys_go_to_the_draft(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    async with drive() as app:
        await begun(app)
        await writing(app, server, "look")
        await app.type(" y\nc")
        await app.press("backspace", "left", "a", "ctrl+j", "end")
        assert app.draft.splitlines() == ["look y", "a", ""] or not read(server)
        assert not read(server) and waits(app)
        await app.press("escape")
        await app.until(lambda: not app.service.tools.waiting)
        assert not read(server) and app.draft


async def test_with_an_empty_draft_it_opens_after_a_pause_only(
    drive: Drive, server: ToyServer, pauses: Callable[[float], None]
) -> None:
    server.on_chat(calls(READ), tokens("Ten.", prompt=60))
    async with drive() as app:
        await begun(app)
        pauses(DAY)
        await writing(app, server, "")
        await app.press("pageup")
        assert app.front == "ChatScreen" and waits(app)
        pauses(0.0)
        await app.press("pagedown")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: read(server))


async def test_who_begins_to_write_on_an_open_question_goes_on_writing(
    drive: Drive, server: ToyServer, pauses: Callable[[float], None]
) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    async with drive() as app:
        await begun(app)
        await app.service.turns.send(app.conversation.id, _question())
        await app.opens("ConfirmScreen")
        await type_out(app, "hey yes")
        assert app.draft == "hey yes" and waits(app) and app.front == "ChatScreen"
        await app.press("tab")
        await app.opens("ConfirmScreen")
        app.app.post_message(events.Paste("any\nc"))
        await app.closes()
        await app.rest()
        assert app.draft == "hey yesany\nc" and not read(server)


async def test_a_letter_that_begins_a_word_is_no_answer(
    drive: Drive, server: ToyServer, pauses: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    monkeypatch.setattr(ConfirmScreen, "alone_s", DAY)
    async with drive() as app:
        await begun(app)
        await app.service.turns.send(app.conversation.id, _question())
        await app.opens("ConfirmScreen")
        await app.press("a", "n", "y")
        assert app.draft == "any" and not read(server) and waits(app)


@pytest.mark.parametrize("key", ["left", "backspace", "delete", "home"])
async def test_a_letter_or_enter_right_behind_another_key_is_no_answer(
    drive: Drive, server: ToyServer, pauses: Callable[[float], None], key: str
) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    async with drive() as app:
        await begun(app)
        await app.service.turns.send(app.conversation.id, _question())
        await app.opens("ConfirmScreen")
        pauses(DAY)
        await app.press(key, "enter")
        assert app.front == "ConfirmScreen" and not read(server)
        await app.press(key, "y")
        assert app.draft == "y" and not read(server) and waits(app)


async def test_who_read_the_whole_question_answers_at_once(
    drive: Drive, server: ToyServer, pauses: Callable[[float], None]
) -> None:
    server.on_chat(calls(READ), tokens("Ten.", prompt=60))
    async with drive() as app:
        await begun(app)
        await app.service.turns.send(app.conversation.id, _question())
        await app.opens("ConfirmScreen")
        pauses(DAY)
        await app.press("pagedown", "pageup", "y")
        await app.until(lambda: read(server))


async def test_the_line_of_a_program_is_what_waits_for_a_word(
    drive: Drive, server: ToyServer, folder: Path, pauses: Callable[[float], None]
) -> None:
    file = folder / "mcp.json"
    file.write_text('{"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--utc"]}}}')
    async with drive(settings=Settings(mcp_file=str(file))) as app:
        pauses(DAY)
        await app.command("/tools time")
        await app.until(lambda: waits(app))
        assert "mcp-server-time --utc" in app.prose and "Start this program?" in app.prose
        await app.press("tab")
        await app.opens("ConfirmScreen")
        await app.press("n")
        await app.closes()


async def test_a_question_waits_behind_another_dialog_and_goes_with_its_call(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    async with drive() as app:
        await begun(app)
        await app.run("settings")
        await app.opens("SettingsScreen")
        await app.service.turns.send(app.conversation.id, _question())
        await app.until(lambda: app.service.tools.waiting)
        await app.rest()
        assert app.front == "SettingsScreen"
        await app.press("escape")
        await app.opens("ConfirmScreen")
        await app.service.conversations.stop(app.conversation.id)
        await app.closes()
        assert not waits(app) and not read(server)


async def test_it_waits_while_another_conversation_is_open(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("Ten.", prompt=60))
    async with drive() as app:
        await begun(app)
        here = app.conversation.id
        await writing(app, server, "look")
        await app.run("new")
        await app.until(lambda: app.conversation.id != here)
        assert not waits(app) and app.draft == ""
        await app.open(here)
        assert waits(app) and app.draft == "look"
        await app.press("tab")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: read(server))


@pytest.mark.parametrize("size", [(80, 24), (80, 12), (40, 10)])
async def test_code_of_any_length_is_read_and_answered(drive: Drive, server: ToyServer, size: tuple[int, int]) -> None:
    code = "\\n".join(f"row_{n:02} = {n}" for n in range(40))
    server.on_chat(calls(f'{{"code": "{code}"}}', name="run_python"), tokens("I may not.", prompt=60))
    async with drive(size=size) as app:
        await app.command("/tools python")
        await app.until(lambda: app.conversation.tools)
        await app.service.turns.send(app.conversation.id, _question())
        await app.opens("ConfirmScreen")
        words, seen = app.app.screen.query_one(QuestionWords), set[str]()
        while len(seen) < 40:
            first = f"row_{words.scroll_offset.y:02} ="
            await app.until(lambda first=first: first in next((line for line in app.lines if "row_" in line), ""))
            before = len(seen)
            seen |= {line.split("=")[0].strip(" │") for line in app.lines if "row_" in line}
            assert len(seen) > before and "No, and go on" in app.prose
            await app.press("pagedown")
        await app.press("n")
        await app.until(lambda: app.said[-1] == "I may not.")


async def test_an_answer_that_left_the_screen_with_a_resize_is_none(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    async with drive() as app:
        await begun(app)
        await app.service.turns.send(app.conversation.id, _question())
        await app.opens("ConfirmScreen")
        await app.pilot.resize_terminal(80, 3)
        await app.until(lambda: app.app.screen.size.height == 3)
        await app.press("a", "c")
        assert not read(server)
        await app.pilot.resize_terminal(80, 24)
        await app.rest()
        await app.until(lambda: app.service.tools.waiting)


def _question() -> Question:
    return Question("What does it say?")


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
@pytest.mark.parametrize("act", ["question", "edit"])
async def test_a_message_about_which_something_is_asked_comes_back(
    drive: Drive, folder: Path, pauses: Callable[[float], None], act: str, key: str
) -> None:
    (folder.parent / "other.txt").write_text("other\n")
    async with drive() as app:
        await app.begin("one")
        pauses(DAY)
        if act == "edit":
            app.chat.drafts.begin_edit(app.path[0].id)
            await app.rest()
            app.chat.composer.replace_text("")
        said = app.said
        await app.write(f"see @{folder.parent}/other.txt ?")
        await app.press("enter")
        await app.until(lambda: waits(app))
        assert app.draft == ""
        await app.press(key)
        await app.until(lambda: app.draft == f"see @{folder.parent}/other.txt ?")
        assert not waits(app) and app.said == said and not app.noticed("Nothing is running")


async def test_a_program_that_waits_for_a_word_is_not_started_after_the_key_that_stops(
    drive: Drive, folder: Path, pauses: Callable[[float], None]
) -> None:
    file = folder / "mcp.json"
    file.write_text('{"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--utc"]}}}')
    async with drive(settings=Settings(mcp_file=str(file))) as app:
        pauses(DAY)
        await app.command("/tools time")
        await app.until(lambda: waits(app))
        await app.press("ctrl+c")
        await app.until(lambda: not waits(app))
        assert app.front == "ChatScreen" and not app.noticed("Nothing is running")

"""A person at work: sending, waiting, stopping, writing, beginning, and what goes wrong."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from app_kit import Drive, driving

from engine_fixture import small_model
from kvchat.backends.dialect import HostClass
from kvchat.chat.events import StorageChanged
from kvchat.chat.question import Question
from kvchat.config import Settings, changed
from kvchat.prompt.message import State
from kvchat.store import Store, StoreUnavailable
from kvchat.text.notes import note_sentence
from kvchat.text.problems import StoreProblem
from kvchat.ui.widgets.empty import tips
from toyserver import ToyServer, error, tokens


def sent(server: ToyServer) -> str:
    """The content of the last message that was sent."""
    return str(server.chats[-1].json["messages"][-1]["content"])


@pytest.mark.parametrize(("size", "list_shown"), [((200, 30), True), ((200, 30), False), ((140, 30), False)])
async def test_in_a_wide_terminal_the_field_stays_under_the_text(
    drive: Drive, size: tuple[int, int], list_shown: bool
) -> None:
    """Beside the empty screen, and under what is wrong with the disk, it stands where it stands under a conversation."""
    async with drive(size=size) as app:
        await app.begin("one")
        if not list_shown:
            await app.run("sidebar")

        def column() -> int:
            return next(line for line in reversed(app.lines) if "›" in line).index("›")

        text = next(line for line in app.lines if "You " in line).index("You ")
        assert column() == text
        app.service.events.tell(StorageChanged("The disk is full."))
        await app.until(lambda: "The disk is full." in app.text)
        assert column() == text
        await app.run("new")
        await app.until(lambda: app.said == [])
        assert column() == text


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
    drive: Drive, server: ToyServer
) -> None:
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


async def test_why_an_answer_failed_is_said_once(drive: Drive, server: ToyServer) -> None:
    server.on_chat(error(500, "out of paper"))
    async with drive() as app:
        await app.write("print it")
        await app.press("enter")
        await app.until(lambda: "out of paper" in app.text)
        await app.settled()
        assert app.text.count("out of paper") == 1
        assert not app.noticed("out of paper")


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
        id = app.conversation.id
        await app.run("new")
        await app.until(lambda: app.said == [] and "ready" not in app.lines[-2])
        await app.open(id)
        server._server = await asyncio.start_server(server._handle, "127.0.0.1", port, limit=1 << 24)
        await app.focus_transcript()
        await app.press("r")
        await app.until(lambda: app.shown[-1] == "Hello")


async def test_an_engine_that_dies_is_told_with_its_log_and_the_ways_out(drive: Drive, server: ToyServer) -> None:
    from kvchat.chat.server.connection_state import EngineEnded

    async with drive() as app:
        await app.begin("one")
        for key, front in (("m", "ModelPicker"), ("r", "ChatScreen")):
            ended = EngineEnded(f"The engine ended ({key}).", "ggml: out of memory")
            app.service.servers.link().connector._say(ended)
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
        assert "llama.cpp 9931 or 8080" in app.text
        assert "ready" not in app.lines[-2]
        assert "none on this disk yet: takes the path of a .gguf" in app.prose
        await app.press("shift+tab")
        app.chat.query_one("WelcomePanel").focus()
        await app.press("3")
        assert "llama-server -m MODEL.gguf" in app.text
        await app.press("2")
        await app.opens("ModelPicker")
        await app.type(server.url)
        await app.press("enter")
        await app.until(lambda: "No model server answered" not in app.text and "ready" in app.lines[-2])
        await app.say("hi")
        assert app.shown == ["hi", "Hello"]


@pytest.mark.engine
@pytest.mark.usefixtures("nothing_found")
async def test_a_path_sent_alone_on_the_first_run_starts_that_model(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "my models/Tiny Q4.gguf"
    model.parent.mkdir()
    model.symlink_to(small_model())
    monkeypatch.setattr("kvchat.backends.engine.models.BUNDLED", "no_such_package")
    (tmp_path / "page.gguf").write_text("<html>")
    async with drive(server=None) as app:
        await app.until(lambda: "No model server answered on this machine" in app.text)
        await app.write(f"{tmp_path}/page.gguf")
        await app.press("enter")
        await app.until(lambda: app.noticed("page.gguf is not a GGUF model file"))
        assert "No model server answered on this machine" in app.text
        await app.write(f"'{model}'")
        await app.press("enter")
        await app.until(lambda: "Tiny Q4" in app.lines[0] and app.service.servers.connection.phase == "ready")


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
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# -- settings, themes, the disk


async def test_a_disk_that_refuses_is_told_until_it_works_again(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
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
        await app.service.writer.flush()
        await app.until(lambda: "its disk is full" not in app.text)
        id = app.conversation.id
    async with drive(conversation=id) as app:
        assert app.shown == ["kept in memory", "Hello"]


# -- beginnings


async def test_the_app_begins_with_an_empty_conversation_and_makes_no_second_one(drive: Drive) -> None:
    for _ in range(2):
        async with drive() as app:
            assert app.said == []
            assert app.chat.composer.has_focus_within
            assert len(app.service.conversations.all()) == 1


async def test_how_to_bring_conversations_over_stays_on_the_page_until_it_is_done(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (data := tmp_path / "data").mkdir()
    with closing(sqlite3.connect(data / "kvchat.db")) as old, old:
        old.execute("CREATE TABLE conversation(id TEXT, title TEXT)")
        old.execute("INSERT INTO conversation VALUES (?, 'of then')", ("a" * 32,))
        old.execute("PRAGMA application_id = 0x6B766368")
        old.execute("PRAGMA user_version = 15")
    for _ in range(2):
        async with drive() as app:
            await app.until(lambda: "Conversations of a kvchat before 0.2 are set aside." in app.text)
            (place,) = (data / "quarantine").iterdir()
            for command in (
                f"cd ~/data/quarantine/{place.name}",
                "kvchat --data-dir . export --all -f json -o chats.json",
                "kvchat --data-dir ../.. import chats.json",
            ):
                assert command in app.text, "each in one line"
            here = await app.begin("one more")
            assert "before 0.2" not in app.text
    with closing(sqlite3.connect(place / "kvchat.db")) as old, old:
        old.execute("UPDATE conversation SET id = ?", (here,))  # as if it had been imported
    async with drive() as app:
        await app.until(lambda: "Recent" in app.text)
        assert "before 0.2" not in app.text


@pytest.mark.parametrize("height", range(15, 20))
async def test_the_tips_of_the_empty_screen_are_whole_or_not_there(drive: Drive, height: int) -> None:
    async with drive(size=(80, height)) as app:
        await app.begin("one")
        await app.run("new")
        assert len({tip in app.prose for tip in tips(app.chat.workspace.key_of, 1)}) == 1


@pytest.mark.parametrize("width", [40, 60, 80])
async def test_the_first_steps_are_read_to_their_ends(drive: Drive, width: int) -> None:
    async with drive(size=(width, 30)) as app:
        await app.until(lambda: "@ attaches a file" in app.text)
        assert "A green line next to a message: the server need not read it again." in app.prose


async def test_the_empty_screen_says_how_one_leaves(drive: Drive) -> None:
    async with drive(size=(80, 24)) as app:
        for number in range(4):
            await app.until(lambda: "Ctrl+Q quits" in app.text)
            await app.begin(f"talk {number}")
            assert "Ctrl+Q quits" not in app.text
            await app.press("ctrl+n")


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


async def test_continuing_opens_the_conversation_with_what_was_written_last(drive: Drive) -> None:
    async with drive() as app:
        older = await app.begin("first")
        await app.begin("second")
        await app.chat.conversations.open(older)
        await app.write("a draft")
        await app.until(lambda: "a draft" in app.service.store.draft(older))
    async with drive(continue_=True) as app:
        assert app.conversation.id == older and app.chat.composer.text == "a draft"
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != older)
        new = app.conversation.id
        await app.write("of a new one")
        await app.until(lambda: "of a new one" in app.service.store.draft(new))
    async with drive(continue_=True) as app:
        assert app.conversation.id == new and app.chat.composer.text == "of a new one"
        await app.chat.conversations.open(older)
        await app.until(lambda: app.chat.composer.text == "a draft")
        await app.press("ctrl+c")
        await app.say("third")
    async with drive(continue_=True) as app:
        assert app.conversation.id == older, "what was said last came after all that was written"
        await app.chat.conversations.open(new)
        await app.write(" and more")
        await app.until(lambda: "and more" in app.service.store.draft(new))
        await app.service.conversations.delete(new)
    async with drive(continue_=True) as app:
        assert app.conversation.id == older, "what is in the trash is not continued"

"""What a person misread at first sight: estimates, notices, hints, marks, and keys that were typed too early."""

from __future__ import annotations

from datetime import timedelta

import pytest
from app_kit import Clock, Drive
from test_cache_in_app import LARGE, costs, holds
from test_early_keys import typed
from test_queue_in_app import queue_up, streaming

from kvchat.chat.events import WarmthChanged
from kvchat.prompt.message import State
from kvchat.reports.warmth import Heat, Warmth
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow


async def test_what_was_typed_before_a_price_was_shown_answers_nothing(drive: Drive) -> None:
    async with drive(size=(100, 30)) as app:
        await app.begin("one", "two")
        costs(app, LARGE)
        await app.select(2)
        typed(app.app, "e", "y", "n", "f")
        await app.until(lambda: app.draft == "ynf")
        assert app.front == "ChatScreen" and app.chat.workspace.editing is None
        app.chat.composer.replace_text("")
        await app.select(2)
        typed(app.app, "e", "enter")
        await app.opens("ConfirmScreen")
        await app.rest()
        assert app.front == "ConfirmScreen" and app.chat.workspace.editing is None
        await app.press("y")
        await app.closes()
        await app.until(lambda: app.draft == "two")
        assert app.chat.workspace.editing is not None


async def test_an_estimate_has_its_sign_until_the_tokens_are_known(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        first = await app.begin("one")
        second = await app.begin("two")
        known = {first: Warmth(Heat.PARKED, 300, 412, exact=False), second: Warmth(Heat.PARKED, 300, 99, exact=False)}
        holds(app, known)
        await app.rest()
        assert "partly warm: ~99 tokens" in app.lines[-2]
        known[first] = Warmth(Heat.PARKED, 300, 405)
        app.service.events.tell(WarmthChanged())
        await app.rest()
        await app.press("ctrl+s")
        await app.opens("ConversationPicker")
        assert "◐ 405 to prefill" in app.text and "◐ ~99 to prefill" in app.text


async def test_the_list_says_what_is_on_the_screen_and_counts_the_turns_of_its_branch(drive: Drive) -> None:
    async with drive(size=(100, 30)) as app:
        id = await app.begin("one", "two", "three")
        await app.service.branches.delete_turn(id, app.path[-1].id)
        assert (app.conversation.record.turns, len(app.said)) == (3, 4)
        assert app.service.store.branch_turns(id) == 2, "as for one that is not loaded"
        await app.begin("else")
        await app.press("ctrl+s")
        await app.opens("ConversationPicker")
        row, here = (next(line for line in app.lines if " turn" in line and title in line) for title in ("one", "else"))
        assert "2 turns" in row and "on screen" not in row
        assert "1 turn" in here and "on screen" in here
        assert app.service.store.fewer_turns() == {id: 2}, "as kvchat list has it"


async def test_a_held_queue_is_told_in_the_list(drive: Drive, server: ToyServer) -> None:
    async with drive(size=(120, 30)) as app:
        await streaming(app, server)
        await queue_up(app, "one")
        assert "1 queued" not in app.listed
        await app.press("escape")
        await app.until(lambda: "1 queued" in app.listed)
        await app.press("ctrl+n")
        await app.until(lambda: app.said == [])
        assert "1 queued" in app.listed
        await app.press("ctrl+s")
        await app.opens("ConversationPicker")
        assert "first  1 queued" in app.text


async def test_a_tag_is_completed_and_a_change_of_tags_is_undone(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.command("/tag work weather")
        await app.until(lambda: app.conversation.record.tags == ("weather", "work"))
        await app.begin("two")
        await app.write("/tag we")
        assert "/tag weather" in app.text
        await app.press("tab")
        assert app.draft == "/tag weather "
        await app.press("enter")
        await app.until(lambda: app.conversation.record.tags == ("weather",))
        await app.write("/tag new")
        await app.press("enter")
        await app.until(lambda: app.conversation.record.tags == ("new", "weather"))
        await app.run("undo")
        await app.until(lambda: app.conversation.record.tags == ("weather",))
        assert app.noticed("The tags are as they were")
        await app.run("undo")
        await app.until(lambda: app.conversation.record.tags == ())
        await app.run("undo")
        await app.until(lambda: app.noticed("Nothing to undo"))


async def test_a_message_sent_after_a_tag_is_not_undone_by_it(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.command("/tag work")
        await app.until(lambda: app.conversation.record.tags == ("work",))
        await app.grow("two")
        await app.run("undo")
        assert app.conversation.record.tags == ("work",) and app.noticed("Nothing to undo")


async def test_undo_in_a_fork_takes_back_the_fork_and_then_the_tag_before_it(drive: Drive) -> None:
    async with drive() as app:
        origin = await app.begin("one", "two")
        await app.command("/tag work")
        await app.until(lambda: app.conversation.record.tags == ("work",))
        await app.run("transcript.fork")
        await app.until(lambda: app.conversation.id != origin)
        fork = app.conversation.id
        await app.command("/undo")
        await app.until(lambda: app.conversation.id == origin)
        assert app.conversation.record.tags == ("work",) and app.noticed("the fork is in the trash")
        assert fork not in [one.id for one in app.service.conversations.all()]
        await app.command("/undo")
        await app.until(lambda: app.conversation.record.tags == ())


async def test_a_fork_that_went_on_is_not_undone_and_its_origin_stays_as_it_is(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        origin = await app.begin("one")
        await app.command("/tag work")
        await app.until(lambda: app.conversation.record.tags == ("work",))
        await app.run("transcript.fork")
        await app.until(lambda: app.conversation.id != origin)
        await app.grow("two")
        await app.command("/undo")
        await app.until(lambda: app.noticed("Nothing to undo"))
        assert app.said[::2] == ["one", "two"]
        assert app.service.conversations.find(origin).tags == ("work",)
        server.on_chat(tokens("Another"))
        await app.command("/regenerate")
        await app.settled()
        await app.until(lambda: app.said[-1] == "Another")
        await app.command("/undo")
        await app.until(lambda: app.said[-1] == "Hello")


async def test_undo_in_another_conversation_takes_back_nothing_of_the_one_before(
    drive: Drive, server: ToyServer
) -> None:
    async with drive() as app:
        other = await app.begin("other")
        tagged = await app.begin("one")
        await app.command("/tag work")
        await app.until(lambda: app.conversation.record.tags == ("work",))
        await app.open(other)
        await app.command("/undo")
        await app.until(lambda: app.noticed("Nothing to undo"))
        assert app.service.conversations.find(tagged).tags == ("work",)
        await app.open(tagged)
        await app.command("/undo")
        await app.until(lambda: app.conversation.record.tags == ())


async def test_after_a_deletion_undo_takes_back_what_was_done_since_on_the_screen_first(
    drive: Drive, server: ToyServer
) -> None:
    async with drive() as app:
        kept = await app.begin("kept")
        gone = await app.begin("gone")
        await app.press("f10")
        await app.until(lambda: app.conversation.id == kept)
        server.on_chat(tokens("Another"))
        await app.command("/regenerate")
        await app.until(lambda: app.said[-1] == "Another")
        await app.settled()
        await app.press("ctrl+underscore")
        await app.until(lambda: app.said[-1] == "Hello")
        assert app.conversation.id == kept
        await app.press("ctrl+underscore")
        await app.until(lambda: app.conversation.id == gone)


@pytest.mark.parametrize("act", ["/favourite", "/tag work", "/archive"])
async def test_a_deletion_is_undone_after_what_was_done_since(drive: Drive, act: str) -> None:
    async with drive() as app:
        kept = await app.begin("kept")
        gone = await app.begin("gone")
        await app.press("f10")
        await app.until(lambda: app.conversation.id == kept)
        await app.command(act)
        await app.until(lambda: app.conversation.record.tags)
        await app.press("ctrl+underscore")
        await app.until(lambda: not app.conversation.record.tags)
        assert app.conversation.id == kept
        await app.press("ctrl+underscore")
        await app.until(lambda: app.conversation.id == gone)


async def test_a_fork_at_a_question_is_undone_too(drive: Drive) -> None:
    async with drive() as app:
        origin = await app.begin("one", "two")
        await app.select(0)
        await app.press("f")
        await app.until(lambda: app.conversation.id != origin and app.draft == "one")
        await app.press("ctrl+underscore")
        await app.until(lambda: app.conversation.id == origin)
        assert app.said[::2] == ["one", "two"]


async def test_hints_are_for_what_the_message_has(drive: Drive, server: ToyServer) -> None:
    async with drive(size=(120, 30)) as app:
        await app.begin("plain")
        server.on_chat(tokens("```py\nx = 1\n```", finish="stop"))
        await app.grow("code")
        await app.focus_transcript()
        await app.select(-1)
        assert "1 copy code" in app.lines[-1] and "o source" not in app.lines[-1]
        await app.press("up", "up")
        assert "copy code" not in app.lines[-1] and "e edit" in app.lines[-1]


async def test_a_letter_continues_the_marked_answer_and_the_command_the_last_one(
    drive: Drive, server: ToyServer
) -> None:
    server.on_chat(tokens("Once", " upon", finish="length"))
    async with drive(size=(120, 30)) as app:
        await app.begin("a story")
        await app.select(0)
        assert "c continue" not in app.lines[-1]
        await app.press("down")
        assert "c continue" in app.lines[-1]
        await app.press("up")
        server.on_chat(tokens(" a time."))
        await app.command("/continue")
        await app.until(lambda: app.shown[-1] == "Once upon a time." and app.path[-1].state is State.DONE)


async def test_the_filter_of_the_help_takes_words_as_they_are_written(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        await app.press("f1")
        await app.opens("HelpScreen")
        await app.type("xprt")
        await app.until(lambda: "Nothing of this name." in app.text)
        await app.press("ctrl+u")
        await app.type("export")
        await app.until(lambda: "/export" in app.text)


async def test_a_notice_hides_neither_the_servers_name_nor_the_conversation(drive: Drive) -> None:
    async with drive(size=(80, 24), toasts=True) as app:
        await app.begin("one")
        before = app.lines[:-1]
        app.chat.workspace.say("Moved to trash · Ctrl+Z brings it back", "warning")
        await app.until(lambda: "Moved to trash" in app.lines[-1])
        assert app.lines[:-1] == before
        await app.press("f2")
        await app.opens("InspectorScreen")
        assert "Moved to trash" not in app.text, "nor of a dialog"


async def test_the_built_in_engine_is_named_by_no_address(drive: Drive, server: ToyServer) -> None:
    from kvchat.backends.dialect import BackendError
    from kvchat.backends.identify import connect

    backend = await connect(server.url, embedded=True)
    async with drive() as app:
        await app.begin("one")
    await server.__aexit__(None, None, None)
    with pytest.raises(BackendError) as failed:
        await backend.identify()
    assert failed.value.sentence.startswith("The built-in engine ")
    assert "127.0.0.1" not in failed.value.sentence


async def test_how_long_something_is_idle_grows_while_it_is_looked_at(
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.ui.screens.inspector.AGES", 0.05)
    async with drive(size=(120, 40)) as app:
        id = await app.begin("one")
        holds(app, {id: Warmth(Heat.WARM, 3843, 1, clock().timestamp() - 60)})
        await app.press("f2")
        await app.opens("InspectorScreen")
        await app.until(lambda: "1 min ago" in app.text)
        clock.now += timedelta(minutes=4)
        await app.until(lambda: "5 min ago" in app.text)
        assert "prediction" in app.text
        for label in ("session", "prefix", "rules"):
            assert not any(line.strip("│ ").startswith(f"{label} ") for line in app.lines)

"""The queue on the screen: what is sent while an answer streams waits over the composer, and is the person's to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_kit import Drive, Driven

from kvchat.config import Settings, changed
from kvchat.prompt.drafts import PASTE, Draft
from kvchat.ui.controllers.queue import GONE
from toyserver import Answer, ToyServer, drop, error, tokens
from two_windows_kit import Slow, history

pytestmark = pytest.mark.slow

SIZE = (80, 24)
STOPPED = "Queue held: answer stopped · Enter sends · ↑ edits"


async def queue_up(app: Driven, *messages: str) -> None:
    for text in messages:
        await app.write(text)
        await app.press("enter")
        await app.until(lambda text=text: text in [item.question.text for item in items(app)])
    await app.rest()


def items(app: Driven):  # type: ignore[no-untyped-def]
    return app.service.queue.of(app.conversation.id)


def shown(app: Driven) -> list[str]:
    """The lines over the composer."""
    lines = app.chat.queue_lines
    _, top, _, height = lines.region
    return [line.strip() for line in app.lines[top + 1 : top + height]] if lines.display else []


async def streaming(app: Driven, server: ToyServer) -> Slow:
    """A conversation whose answer streams until it is let go."""
    slow = Slow()
    server.on_chat(slow)
    await app.begin()
    await app.write("first")
    await app.press("enter")
    await app.until(lambda: app.conversation.live is not None and app.conversation.live.text == slow.first)
    server.on_chat(tokens("Yes."))
    return slow


async def test_messages_wait_over_the_composer_and_go_out_in_their_order(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        await queue_up(app, "And the oil?", "And\nthe wick?")
        assert shown(app) == ["queued 1  And the oil?", shown(app)[1]]
        assert shown(app)[1].startswith("queued 2  And the wick?") and shown(app)[1].endswith("↑ edits")
        assert app.draft == "" and app.said == ["first", ""]
        slow.go.set()
        await app.until(lambda: len(app.said) == 6)
        await app.settled()
        assert app.said == ["first", "half and whole", "And the oil?", "Yes.", "And\nthe wick?", "Yes."]
        assert shown(app) == [] and app.notices == []


async def test_more_than_fit_are_counted(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, *(f"message {number}" for number in range(1, 6)))
        assert shown(app)[:2] == ["queued 1  message 1", "queued 2  message 2"]
        assert shown(app)[2].startswith("… and 3 more") and len(shown(app)) == 3


async def test_up_takes_the_last_one_back_and_enter_puts_it_at_its_place(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.press("up")
        await app.until(lambda: app.draft == "two")
        assert len(shown(app)) == 1
        await app.press("up")
        assert app.draft == "two", "only an empty composer takes one back"
        await app.press("end")
        await app.write(" and more")
        await app.press("enter")
        await app.until(lambda: len(items(app)) == 2)
        await app.run("queue")
        await app.opens("QueueScreen")
        await app.press("e")
        await app.closes()
        await app.until(lambda: app.draft == "one")
        await app.write("!")
        await app.press("enter")
        await app.until(lambda: [item.question.text for item in items(app)] == ["one!", "two and more"])
        slow.go.set()
        await app.until(lambda: len(app.said) == 6)
        await app.settled()
        assert app.said[2::2] == ["one!", "two and more"]


async def test_a_stopped_answer_holds_the_queue_until_enter_sends(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        await app.press("escape")
        await app.until(lambda: shown(app) == [STOPPED, "queued 1  one", "queued 2  two"])
        assert server.posts == 1
        await queue_up(app, "something else")
        assert shown(app) == [STOPPED, "queued 1  one", "queued 2  two", "queued 3  something else"]
        assert server.posts == 1
        await app.press("enter")
        await app.until(lambda: len(app.said) == 8)
        await app.settled()
        assert app.said[2::2] == ["one", "two", "something else"] and shown(app) == []


async def test_an_edit_of_a_held_message_stays_in_the_queue(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        await app.press("up")
        await app.until(lambda: app.draft == "two")
        await app.write("!")
        await app.press("enter")
        await app.until(lambda: shown(app) == [STOPPED, "queued 1  one", "queued 2  two!"])
        assert server.posts == 1


async def test_a_failed_answer_says_so_over_the_queue(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        server.on_chat(error(500, "out of memory"))
        await queue_up(app, "one", "two")
        slow.go.set()
        await app.until(lambda: "Queue held: answer failed · Enter sends · ↑ edits" in app.text)
        await app.until(lambda: shown(app)[1:] == ["queued 1  two"])


@pytest.mark.parametrize(
    ("held_by", "words"),
    [
        (error(500, "out of memory"), "answer failed"),
        (tokens("Ye", finish=None), "answer interrupted"),
        (drop(), "answer interrupted"),
    ],
)
async def test_what_is_sent_after_a_held_message_stays_behind_it(
    drive: Drive, server: ToyServer, held_by: Answer, words: str
) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        await queue_up(app, "one", "two")
        server.on_chat(held_by)
        slow.go.set()
        await app.until(lambda: f"Queue held: {words}" in app.text)
        server.on_chat(tokens("Yes."))
        await queue_up(app, "three")
        assert [item.question.text for item in items(app)] == ["two", "three"]
        await app.command("/alternatives 2 four")
        assert app.noticed("/queue lists them") and app.draft == "/alternatives 2 four"
        await app.press("ctrl+c")
        await app.press("enter")
        await app.until(lambda: shown(app) == [])
        await app.settled()
        assert app.said[2::2] == ["one", "two", "three"]


async def test_what_is_kept_from_earlier_is_not_overtaken(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        id = app.conversation.id
    async with drive(size=SIZE, conversation=id) as app:
        await queue_up(app, "two")
        assert shown(app)[0].startswith("Queue held") and server.posts == 1
        await app.press("enter")
        await app.until(lambda: shown(app) == [])
        await app.settled()
        assert app.said[2::2] == ["one", "two"]


async def test_answers_cut_at_max_tokens_leave_none_of_many_questions_behind(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        asked = [f"question {number}" for number in range(1, 13)]
        await queue_up(app, *asked)
        server.on_chat(tokens("Ye", finish="length"))
        slow.go.set()
        await app.until(lambda: len(app.said) == 26)
        await app.settled()
        assert app.said[2::2] == asked and shown(app) == []


async def test_the_list_moves_drops_and_sends(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one", "two", "three", "four")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        await app.press("shift+f7")
        await app.opens("QueueScreen")
        assert "Queue held: answer stopped" in app.text
        await app.press("shift+down", "down", "d", "end", "K")
        await app.until(lambda: [item.question.text for item in items(app)] == ["two", "four", "one"])
        await app.press("up", "s")
        await app.closes()
        await app.until(lambda: len(app.said) == 8)
        await app.settled()
        assert app.said[2::2] == ["two", "four", "one"]


async def test_the_list_follows_what_is_sent_meanwhile(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.command("/queue")
        await app.opens("QueueScreen")
        assert "1  one" in app.text and "2  two" in app.text
        slow.go.set()
        await app.until(lambda: "Nothing waits here." in app.text)
        await app.press("d", "enter", "s", "shift+up", "escape")
        await app.closes()
        await app.settled()
        assert app.said[2::2] == ["one", "two"]


async def test_the_message_that_is_to_be_sent_while_an_answer_runs_comes_first(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        await queue_up(app, "one", "two", "three")
        await app.run("queue")
        await app.opens("QueueScreen")
        await app.press("end", "s")
        await app.closes()
        await app.until(lambda: [item.question.text for item in items(app)] == ["three", "one", "two"])
        slow.go.set()
        await app.until(lambda: len(app.said) == 8)
        await app.settled()
        assert app.said[2::2] == ["three", "one", "two"]


async def test_what_is_edited_in_the_transcript_has_enter_and_up_for_itself(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        app.chat.drafts.begin_edit(app.path[0].id, Draft())
        await app.rest()
        await app.press("enter", "up")
        assert server.posts == 1 and len(items(app)) == 1 and app.draft == ""


async def test_the_queue_stays_with_its_conversation_and_goes_on_there(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        home = app.conversation.id
        await queue_up(app, "one", "two")
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != home)
        assert shown(app) == []
        await app.open(home)
        assert len(shown(app)) == 2
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != home)
        slow.go.set()
        await app.service.conversations.wait(home)
        await app.open(home)
        assert app.said[2::2] == ["one", "two"] and shown(app) == []


async def test_it_survives_the_end_of_kvchat_and_waits_for_the_person(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.press("ctrl+q")
    async with drive(size=SIZE, continue_=True) as app:
        await app.until(lambda: shown(app) == [STOPPED, "queued 1  one", "queued 2  two"])
        assert server.posts == 1
        await app.press("enter")
        await app.until(lambda: len(app.said) == 6)
        await app.settled()
        assert app.said[2::2] == ["one", "two"]


async def test_a_paste_in_a_queued_message_comes_back_as_it_was(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        long = "line\n" * 2000
        await app.paste(long)
        label = app.draft
        await app.press("enter")
        await app.until(lambda: items(app))
        await app.press("up")
        await app.until(lambda: app.draft == label)
        await app.press("enter")
        await app.until(lambda: items(app))
        slow.go.set()
        await app.until(lambda: len(app.said) == 4)
        await app.settled()
        (block,) = [block for block in app.path[2].message.blocks if block.kind == PASTE]
        assert block.text == long


async def test_a_message_that_goes_out_while_it_is_edited_is_said(
    drive: Drive,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one")
        app.service.store.queue.drop(items(app)[0].id)  # as another window does that sends it
        await app.press("up")
        await app.until(lambda: app.noticed(GONE))
        assert app.draft == "" and shown(app) == []


async def test_a_held_message_that_another_window_has_sent_is_not_sent_again(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await streaming(app, server)
        await queue_up(app, "one", "two")
        await app.press("escape")
        await app.until(lambda: STOPPED in app.text)
        app.service.store.queue.drop(items(app)[0].id)
        await app.press("enter")
        await app.until(lambda: app.noticed("not in the queue any more"))
        await app.until(lambda: shown(app) == [STOPPED, "queued 1  two"])
        assert server.posts == 1


async def test_where_enter_makes_a_new_line_the_other_key_is_named(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE, settings=changed(Settings(), "enter_sends", False)) as app:
        await app.begin()
        await app.streaming()
        await app.write("one")
        await app.press("ctrl+j")
        await app.until(lambda: items(app))
        await app.press("escape")
        await app.until(lambda: "Queue held: answer stopped · Ctrl+J sends · ↑ edits" in app.text)
        await app.press("ctrl+j")
        await app.until(lambda: app.said[-2:] == ["one", "Hello"])


async def test_a_file_from_outside_is_asked_for_when_the_person_sends(
    drive: Drive,
    server: ToyServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "plan.txt").write_text("plan\n")
    monkeypatch.chdir(tmp_path / "work")
    async with drive(size=SIZE) as app:
        slow = await streaming(app, server)
        await app.write("see @../plan.txt now")
        await app.press("enter")
        await app.until(lambda: items(app))
        slow.go.set()
        await app.until(lambda: "Queue held: needs your yes · Enter sends · ↑ edits" in app.text)
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("n")
        await app.closes()
        await app.settled()
        assert len(items(app)) == 1 and server.posts == 1
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: server.posts == 2)
        await app.settled()
        assert "plan" in server.chats[-1].json["messages"][-1]["content"] and items(app) == ()
        assert history(server.chats[-1])[:2] == ["first", "half and whole"]

"""Several answers on the screen: beside each other while they come, chosen with a key, stopped with Esc."""

from __future__ import annotations

import asyncio

import pytest
from app_kit import Drive, Driven
from textual import events
from textual.keys import _character_to_key

from kvchat.chat.events import AnswerProgressed
from kvchat.prompt.message import State
from toyserver import ToyServer, several, tokens

pytestmark = pytest.mark.slow

WIDE = (120, 24)
LONG = "word " * 400


async def shown(app: Driven, *words: str) -> None:
    await app.opens("AlternativesScreen")
    await app.until(lambda: all(word in app.text for word in words))


async def decided(app: Driven) -> None:
    await app.until(lambda: app.service.turns.is_undecided(app.conversation.id))
    await app.rest()


async def test_they_stream_in_columns_and_a_digit_takes_one(drive: Drive) -> None:
    async with ToyServer(slots=4) as server:
        server.on_chat(several(["Yes, ", "surely."], ["No."], ["Perhaps ", "so."], hang_after=4))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("/alternatives 3 Will it rain?")
            await shown(app, "Yes,", "No.", "Perhaps")
            row = next(line for line in app.lines if "Yes," in line)
            assert row.index("Yes,") < row.index("No.") < row.index("Perhaps"), "side by side"
            assert "esc stop all" in app.text
            await app.press("escape")
            await decided(app)
            await app.until(lambda: "3 · stopped" in app.text)
            await app.press("3")
            await app.closes()
            await app.until(lambda: app.said == ["Will it rain?", "Perhaps "])
            await app.until(lambda: "3/3" in app.text)
            await app.select(-1)
            await app.press("left")
            await app.until(lambda: app.said[-1] == "No.")
            assert [visit.json["n"] for visit in server.chats] == [3]


@pytest.mark.parametrize("written", ["1 more thing", "so 2 of them", "2", "22 nights"])
async def test_who_writes_on_after_sending_chooses_nothing(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    async with ToyServer(slots=2) as server:
        server.on_chat(several(["One."], ["Two."]))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            monkeypatch.setattr("kvchat.ui.controllers.questions.Questions.quiet_s", 86_400.0)
            await app.command("/alternatives 2 Will it rain?")
            await shown(app, "One.", "Two.")
            await decided(app)
            for letter in written:
                app.app.post_message(events.Key(_character_to_key(letter), letter))
            await app.press("enter")
            assert app.front == "AlternativesScreen" and app.draft == written
            await app.until(lambda: f"your draft: {written}" in app.text)
            monkeypatch.setattr("kvchat.ui.controllers.questions.Questions.quiet_s", 0.0)
            await app.press("2")
            await app.closes()
            await app.until(lambda: app.said == ["Will it rain?", "Two."])
            assert app.draft == written


async def test_a_narrow_terminal_shows_one_at_a_time(drive: Drive) -> None:
    async with ToyServer(slots=4) as server:
        server.on_chat(several(["First."], ["Second."], ["Third."]))
        async with drive(size=(80, 24), server=server) as app:
            await app.begin()
            await app.command("/alternatives 3 Will it rain?")
            await shown(app, "First.")
            assert "Second." not in app.text
            await app.press("right")
            await app.until(lambda: "Second." in app.text)
            await app.press("left", "left")
            await app.until(lambda: "Third." in app.text)
            await decided(app)
            await app.press("enter")
            await app.closes()
            await app.until(lambda: app.said == ["Will it rain?", "Third."])


async def test_what_is_written_is_asked_and_without_it_the_last_question_again(drive: Drive) -> None:
    async with ToyServer(slots=2) as server:
        server.on_chat(several(["One."], ["Two."]))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.write("What is written")
            await app.press("shift+f8")
            await shown(app, "One.", "Two.")
            await decided(app)
            assert "your draft" not in app.text and "esc keep answer 1" in app.text
            await app.press("escape")
            await app.closes()
            await app.until(lambda: app.said == ["What is written", "One."])
            assert app.draft == ""
            server.on_chat(several(["Three."], ["Four."]))
            await app.press("shift+f8")
            await shown(app, "Three.", "Four.")
            await decided(app)
            await app.press("2")
            await app.closes()
            await app.until(lambda: app.said == ["What is written", "Four."])
            await app.until(lambda: "4/4" in app.text)


async def test_one_that_is_chosen_while_it_comes_is_waited_for_and_no_other(drive: Drive) -> None:
    async with ToyServer(slots=2) as server:
        server.on_chat(several(["a", "b", "c", "d"], ["Well", "."], turns=(0, 1, 0, 1), hang_after=3))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("/alternatives 2 Why?")
            await shown(app, "ab", "Well")
            await app.press("2")
            await app.until(lambda: "2 chosen" in app.text)
            assert app.front == "AlternativesScreen", "it has not ended"
            await app.press("escape")
            await app.closes()
            await app.until(lambda: app.said[-1] == "Well")
        server.on_chat(several(["a", "b", "c", "d"], ["Well", "."], turns=(0, 1, 0, 1), hang_after=4))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("/alternatives 2 Why?")
            await shown(app, "Well.")
            await app.press("2")
            await app.closes()
            await app.until(lambda: app.said[-1] == "Well.")
            assert app.conversation.tree.siblings(app.path[-1].id)[0].state is State.CANCELLED


async def test_other_servers_answer_one_after_the_other_and_models_by_their_names(drive: Drive) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(tokens("One."), tokens("Two.", hang_after=1))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("/alternatives 2 Why?")
            await shown(app, "One.", "Two.")
            await app.press("1")
            await app.closes()
            await app.until(lambda: app.said == ["Why?", "One."])
            await app.command("/alternatives toy nothing")
            await app.until(lambda: app.noticed("This server has no model nothing."))
            assert app.draft == "/alternatives toy nothing"
            app.chat.composer.replace_text("")
            await app.command("/alternatives 20 Why?")
            await app.until(lambda: app.noticed("Ask for 2 to 9 answers, not 20."))
            assert app.draft == "/alternatives 20 Why?"
            assert server.posts == 2


async def test_a_price_worth_a_question_is_asked_first(drive: Drive) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(tokens("One."), tokens("Two."))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.write(LONG)
            await app.press("shift+f8")
            await app.opens("ConfirmScreen")
            assert "Ask for several answers?" in app.text
            await app.press("n")
            await app.until(lambda: app.draft.startswith("word word"))
            assert server.posts == 0
            await app.press("shift+f8")
            await app.opens("ConfirmScreen")
            await app.press("y")
            await shown(app, "One.", "Two.")
            await decided(app)
            await app.press("1")
            await app.closes()
            await app.until(lambda: app.said[-1] == "One.")


async def test_what_is_told_while_the_screen_goes_does_not_reach_it(drive: Drive) -> None:
    async with ToyServer(slots=4) as server:
        server.on_chat(several(["Yes."], ["No."]))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("/alternatives 2 Will it rain?")
            await shown(app, "Yes.", "No.")
            await decided(app)
            screen = app.app.screen
            app.app.simulate_key("1")
            while screen.is_attached:
                app.service.events.tell(AnswerProgressed(app.conversation.id, app.path[-1].id))
                await asyncio.sleep(0)
            await app.closes()
            await app.until(lambda: app.said[-1] == "Yes.")


async def test_the_answer_that_was_waited_for_closes_the_palette_too(drive: Drive) -> None:
    async with ToyServer(slots=4) as server:
        server.on_chat(several(["Yes", "."], ["No", "."], hang_after=2))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("/alternatives 2 Will it rain?")
            await shown(app, "Yes")
            await app.press("1")
            await app.press("ctrl+p")
            await app.opens("PaletteScreen")
            await app.service.turns.stop(app.conversation.id)
            await app.closes()
            await app.until(lambda: app.said[-1] == "Yes")
            await app.press("ctrl+p")
            await app.opens("PaletteScreen")


async def test_a_question_that_is_refused_comes_back_with_its_command(drive: Drive) -> None:
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Well", hang_after=1))
        async with drive(size=WIDE, server=server) as app:
            await app.begin()
            await app.command("First?")
            await app.until(lambda: app.conversation.live is not None)
            await app.command("/alternatives 2 Will it rain?")
            await app.until(lambda: app.noticed("still running"))
            await app.until(lambda: app.draft == "/alternatives 2 Will it rain?")
            assert not app.service.queue.of(app.conversation.id), "it is no message of the queue"

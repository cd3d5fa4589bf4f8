"""Letters act among the messages, where the user went by a key and the footer says so; what they change is marked on
the screen. Everywhere else letters are words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from app_kit import Drive, Driven
from test_cache_in_app import LARGE, costs
from textual import events
from textual.keys import _character_to_key

from kvchat.cache.price import Price
from kvchat.ui.widgets.sidebar import Sidebar
from kvchat.ui.widgets.transcript.widget import Transcript
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow

SIZE = (100, 30)
TALL = "\n\n".join(f"line {number}" for number in range(20))
CODE = "```\nx = 1\n```"
SENTENCES = ["do you know", "run it again", "every day", "fork that, drop this"]


async def type_out(app: Driven, text: str) -> None:
    for letter in text:
        app.app.post_message(events.Key(_character_to_key(letter), letter))
        await app.rest()


def state(app: Driven) -> tuple[object, ...]:
    """What letters could have changed."""
    return (app.conversation.id, app.conversation.record.head, app.chat.workspace.editing, app.front)


async def talk(app: Driven, server: ToyServer, answer: str = "Hello") -> None:
    server.on_chat(tokens(answer))
    await app.begin("one", "two", "three", "four")
    await app.rest()


def row_of(app: Driven, words: str) -> int:
    """The row of the transcript that has these words."""
    return next(y for y, line in enumerate(app.transcript_rows) if words in line)


# -- the mark


async def test_tab_begins_at_the_last_message_and_shows_it(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server, TALL)
        await app.press("pageup", "pageup", "pageup")
        assert "line 19" not in app.text and app.selected is None, "looking back marks nothing"
        await app.press("tab")
        assert app.selected == TALL and "line 19" in app.text and "y copy" in app.lines[-1]


async def test_esc_forgets_the_mark(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        await app.press("tab", "up", "up", "up", "y", "escape")
        assert app.selected is None and app.chat.composer.has_focus_within
        await app.press("tab")
        assert app.chat.transcript.selected == app.path[-1].id


@pytest.mark.parametrize("command", ["/regenerate", "/copy", "/drop", "/edit", "/fork"])
async def test_a_command_after_a_new_question_means_the_last_answer(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    copied: list[str] = []
    monkeypatch.setattr("kvchat.ui.controllers.messages.copy", lambda app, text: copied.append(text) or "here")
    async with drive(size=SIZE) as app:
        await talk(app, server)
        await app.press("tab", "up", "up", "up", "y")
        await type_out(app, "x")  # no command here: it is a word of the next message
        assert app.draft == "x" and app.selected == "three"
        await app.press("enter")
        await app.until(lambda: len(app.said) == 10)
        await app.settled()
        assert app.selected is None
        server.on_chat(tokens("Another"))
        copied.clear()
        before = app.conversation
        await app.command(command)
        await app.settled()
        match command:
            case "/regenerate":
                await app.until(
                    lambda: (
                        app.said
                        == [*["one", "Hello", "two", "Hello", "three", "Hello"], *["four", "Hello", "x", "Another"]]
                    )
                )
            case "/copy":
                assert copied == ["Hello"]
            case "/drop":
                await app.until(lambda: app.said[-2:] == ["four", "Hello"] and len(app.said) == 8)
            case "/edit":
                await app.until(lambda: app.draft == "x")
            case "/fork":
                await app.until(lambda: app.conversation is not before and len(app.said) == 10)


async def test_a_command_means_the_message_that_is_marked_on_the_screen(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        await app.press("tab", "up", "up", "up")
        await app.command("/drop")
        await app.until(lambda: app.said[::2] == ["one", "two", "four"])


@pytest.mark.parametrize("way", ["wheel", "page", "find"])
async def test_a_command_does_not_mean_a_mark_that_left_the_screen(drive: Drive, server: ToyServer, way: str) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server, TALL)
        await app.press("tab", "home")
        assert app.selected == "one"
        await type_out(app, "x")
        await app.press("backspace")
        if way == "wheel":
            app.chat.transcript.scroll_end(animate=False)
            await app.rest()
        elif way == "page":
            await app.press(*["pagedown"] * 8)
        else:
            await app.command("/find four")
            await app.press("escape")
        assert "one" not in app.transcript_rows
        await app.command("/drop")
        await app.until(lambda: app.said[::2] == ["one", "two", "three"])


@pytest.mark.parametrize("letter", ["d", "r", "e", "f", "y"])
async def test_a_letter_shows_a_mark_that_left_the_screen_and_does_nothing_yet(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    copied: list[str] = []
    monkeypatch.setattr("kvchat.ui.controllers.messages.copy", lambda app, text: copied.append(text) or "here")
    async with drive(size=SIZE) as app:
        await talk(app, server, TALL)
        await app.press("tab", "home")
        app.chat.transcript.scroll_end(animate=False)
        await app.rest()
        before = state(app)
        await app.press(letter)
        assert state(app) == before and not copied and app.selected == "one" and "one" in app.transcript_rows


@pytest.mark.parametrize("letter", ["d", "r", "e"])
async def test_a_box_that_asks_quotes_the_turn(drive: Drive, server: ToyServer, letter: str) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        costs(app, LARGE)
        await app.press("tab", "up", "up", "up", letter)
        await app.opens("ConfirmScreen")
        assert "“three”" in app.text


async def test_several_answers_again_quote_the_turn(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)

        async def price(*_: object) -> Price:
            return LARGE

        monkeypatch.setattr(app.service.prices, "of_several", price)
        await app.run("alternatives")
        await app.opens("ConfirmScreen")
        assert "“four”" in app.text


# -- who types is writing


async def _click_copy(app: Driven) -> None:
    width = app.chat.transcript.text_width
    await app.pilot.click(Transcript, offset=(width - 1, row_of(app, "copy")))
    await app.until(lambda: app.noticed("Code block 1 copied"))


async def _click_message(app: Driven) -> None:
    await app.pilot.click(Transcript, offset=(4, row_of(app, "three")))
    assert app.selected == "three"


async def _click_list(app: Driven) -> None:
    await app.pilot.click(Sidebar, offset=(3, app.chat.sidebar.size.height - 2))


async def _search_hit(app: Driven) -> None:
    await app.press("ctrl+r")
    await app.opens("SearchScreen")
    await app.type("two")
    await app.until(lambda: "1" in app.text and "two" in app.text)
    await app.rest()
    await app.press("enter")
    await app.closes()
    await app.until(lambda: app.selected == "two")


async def _find_hit(app: Driven) -> None:
    await app.command("/find two")
    await app.press("enter", "escape")


WAYS: list[Callable[[Driven], Awaitable[None]]] = [_click_copy, _click_message, _click_list, _search_hit, _find_hit]


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_who_types_after_a_click_or_a_hit_is_writing(
    drive: Drive, server: ToyServer, way: Callable[[Driven], Awaitable[None]], sentence: str
) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server, CODE)
        costs(app, LARGE)
        before = state(app)
        await way(app)
        await app.rest()
        assert "d delete" not in app.lines[-1]
        await type_out(app, sentence)
        assert app.draft == sentence and state(app) == before


@pytest.mark.parametrize("key", ["tab", "shift+up"])
async def test_letters_act_after_a_key_and_the_footer_says_so(drive: Drive, server: ToyServer, key: str) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        assert "d delete" not in app.lines[-1]
        await app.press(key)
        assert "d delete" in app.lines[-1] and app.chat.transcript.selected == app.path[-1].id
        await app.press("d")
        await app.until(lambda: app.said[::2] == ["one", "two", "three"])


@pytest.mark.parametrize("sentence", ["do you know", "dying", "ey, you there", "ready when you are"])
async def test_a_box_opened_by_a_word_is_not_answered_by_it(drive: Drive, server: ToyServer, sentence: str) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        costs(app, LARGE)
        before = state(app)
        await app.press("tab")
        for letter in sentence:
            app.app.post_message(events.Key(_character_to_key(letter), letter))
        await app.until(lambda: app.draft == sentence[1:] and app.front == "ChatScreen")
        assert state(app) == before


async def test_a_box_opened_by_a_letter_is_answered_by_one(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        costs(app, LARGE)
        await app.write("a draft")
        await app.press("tab", "d")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.said[::2] == ["one", "two", "three"])
        assert app.draft == "a draft"


# -- Esc


async def test_esc_goes_back_first_where_the_footer_says_so_and_then_stops(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        await app.streaming()
        await app.press("tab")
        assert "Esc back" in app.lines[-1]
        await app.press("escape")
        assert app.service.conversations.streaming() and app.chat.composer.has_focus_within
        await app.press("escape")
        await app.until(lambda: not app.service.conversations.streaming())


async def test_esc_goes_back_and_keeps_the_edit_that_was_begun(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        await app.command("/edit")
        await app.until(lambda: app.draft == "four")
        await type_out(app, "!")
        await app.press("tab")
        assert "Esc back" in app.lines[-1]
        await app.press("escape")
        assert app.draft == "four!" and app.chat.workspace.editing is not None
        await app.press("escape")
        assert app.draft == "" and app.chat.workspace.editing is None


async def test_esc_goes_back_from_the_messages_and_ends_the_search_after_them(drive: Drive, server: ToyServer) -> None:
    async with drive(size=SIZE) as app:
        await talk(app, server)
        await app.streaming()
        await app.command("/find two")
        assert app.chat.findbar.is_open
        await app.focus_transcript()
        assert "Esc back" in app.lines[-1]
        await app.press("escape")
        assert app.chat.composer.has_focus_within and app.service.conversations.streaming() and app.selected is None
        await app.press("escape")
        await app.until(lambda: not app.service.conversations.streaming())

"""The list of all conversations."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from screens_kit import NOW, conversation, showing

from kvchat.ui.screens.conversations import ConversationPicker, ConversationRowData, tags_screen
from kvchat.ui.screens.kit.rows import RowList

DAY = 86400
CONVERSATIONS = [
    conversation("lighthouse log", id="a", turns=7),
    conversation("Rust lifetimes", id="b", ago=DAY, turns=412, unread=True),
    conversation("tax notes", id="c", ago=9 * DAY),
    conversation("rusty bicycle", id="d", ago=400 * DAY, turns=0),
]


DATA = ConversationRowData(NOW)


def picker(data: ConversationRowData = DATA, *, current: str | None = None) -> ConversationPicker:
    return ConversationPicker(CONVERSATIONS, data, current=current)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], ("open", "a")),
        (["down", "enter"], ("open", "b")),
        (["pagedown", "enter"], ("open", "d")),
        (["down", "delete"], ("delete", "b")),
        (["down", "f12"], ("rename", "b")),
        (["down", "tab"], ("menu", "b")),
        (["ctrl+n"], ("new", None)),
        (["escape"], None),
    ],
)
async def test_keys_open_delete_and_begin(keys: list[str], answer: object) -> None:
    async with showing(picker()) as shown:
        await shown.press(*keys)
        assert shown.answers == [answer]


async def test_the_cursor_begins_on_the_open_conversation() -> None:
    async with showing(picker(current="c")) as shown:
        assert "tax notes  on screen" in shown.cursor_line


async def test_typing_filters_by_words_in_any_order() -> None:
    async with showing(picker()) as shown:
        await shown.type("life rust")
        assert "Rust lifetimes" in shown.cursor_line
        assert "rusty bicycle" not in shown.text and "tax" not in shown.text
        await shown.press("enter")
        assert shown.answers == [("open", "b")]


async def test_parts_of_words_find_a_title_and_letters_in_order_do_not() -> None:
    async with showing(picker()) as shown:
        await shown.type("ghth")
        assert "lighthouse log" in shown.cursor_line
        await shown.press("ctrl+u")
        await shown.type("lghs")
        assert "No title matches" in shown.text


async def test_a_filter_without_a_match_opens_and_deletes_nothing() -> None:
    async with showing(picker()) as shown:
        await shown.type("qqq")
        assert "No title matches. Ctrl+R searches" in shown.text
        await shown.press("enter", "delete")
        assert shown.answers == []
        await shown.press("ctrl+u")
        assert "tax notes" in shown.text
        await shown.type("lamp oil")
        await shown.press("ctrl+r")
        assert shown.answers == [("search", "lamp oil")]


async def test_delete_inside_the_filter_text_edits_the_text() -> None:
    async with showing(picker()) as shown:
        await shown.type("xtax")
        await shown.press("home", "delete")
        assert shown.answers == []
        assert "tax notes" in shown.cursor_line


async def test_a_row_tells_mark_title_turns_and_day() -> None:
    marks = {"a": "warm", "b": "parked", "c": "unknown", "d": "unknown"}
    states = {"a": "warm", "b": "412 to prefill", "c": "", "d": ""}
    async with showing(
        picker(replace(DATA, mark=marks.__getitem__, state=states.__getitem__, queued={"a": "2 queued"})),
        size=(120, 30),
    ) as shown:
        first = shown.line("lighthouse log")
        assert "lighthouse log  2 queued" in first
        assert first.index("lighthouse log") < first.index("● warm") < first.index("7 turns") < first.index("today 14")
        rust = shown.line("Rust lifetimes  new answer")
        assert rust.index("◐ 412 to prefill") == first.index("● warm")
        assert "yesterday 14:30" in shown.line("Rust lifetimes")
        assert "empty" in shown.line("rusty bicycle") and "17 Oct 2025" in shown.line("rusty bicycle")
        assert "· " in shown.line("tax notes")


TAGGED = [
    conversation("lighthouse log", id="a"),
    conversation("Rust lifetimes", id="b", ago=DAY, tags=("favourite", "work")),
    conversation("tax notes", id="c", ago=9 * DAY, tags=("archive", "money")),
    conversation("rusty bicycle", id="d", ago=400 * DAY, tags=("workshop",)),
]


def row_of(shown: object, words: str) -> int:
    return next(y for y, line in enumerate(shown.lines) if words in line)  # type: ignore[attr-defined]


async def test_favourites_stand_first_and_the_archived_come_with_a_filter() -> None:
    async with showing(ConversationPicker(TAGGED, DATA)) as shown:
        assert "★ Rust lifetimes  #work" in shown.cursor_line
        assert row_of(shown, "Rust") < row_of(shown, "lighthouse") < row_of(shown, "rusty")
        assert "tax notes" not in shown.text
        await shown.type("tax")
        assert "tax notes  archived  #money" in shown.cursor_line


@pytest.mark.parametrize(
    ("filter", "titles"),
    [
        ("tag:work", {"Rust lifetimes"}),
        ("tag:WORK li", {"Rust lifetimes"}),
        ("tag:wo", {"Rust lifetimes", "rusty bicycle"}),
        ("tag:archive", {"tax notes"}),
        ("tag:work tag:money", set()),
        ("tag:work tax", set()),
        ("tag:", {"Rust lifetimes", "tax notes", "rusty bicycle"}),
    ],
)
async def test_a_filter_keeps_to_a_tag(filter: str, titles: set[str]) -> None:
    async with showing(ConversationPicker(TAGGED, DATA)) as shown:
        await shown.type(filter)
        assert {one.title for one in TAGGED if one.title in shown.text} == titles
        assert titles or "No conversation with this tag matches." in shown.text


async def test_it_begins_where_it_was_left() -> None:
    async with showing(ConversationPicker(TAGGED, DATA, query="r", at="d", row=0)) as shown:
        assert "rusty bicycle" in shown.cursor_line
    async with showing(ConversationPicker(TAGGED, DATA, at="gone", row=2)) as shown:
        assert "rusty bicycle" in shown.cursor_line


async def test_where_all_is_archived_it_says_how_to_see_it() -> None:
    async with showing(ConversationPicker([TAGGED[2]], DATA)) as shown:
        assert "tag:archive shows them" in shown.text


async def test_the_tags_of_a_conversation_are_written_in_a_line() -> None:
    async with showing(
        tags_screen("Bees", ("favourite", "home", "old"), ["favourite", "home", "old", "work"])
    ) as shown:
        assert "home old" in shown.text and "Tags there are: #home #old #work" in shown.text
        await shown.type("more")
        assert "home old more" in shown.text, "what is there stays"
        await shown.press("ctrl+u")
        await shown.type('home, a"b')
        await shown.press("enter")
        assert "cannot be a tag" in shown.text and shown.answers == []
        await shown.press("ctrl+u")
        await shown.type("Home #work")
        await shown.press("enter")
        assert shown.answers == [(frozenset({"work"}), frozenset({"old"}))]


async def test_the_mark_under_the_mouse_is_told_in_words() -> None:
    async with showing(picker(replace(DATA, mark=lambda id: "warm" if id == "a" else "unknown"))) as shown:
        row = next(y for y, line in enumerate(shown.lines) if "lighthouse" in line)
        await shown.pilot.hover(offset=(20, row))
        assert "still in the server's cache" in str(shown.app.screen.query_one(RowList).tooltip)


async def test_ten_thousand_conversations_are_one_widget_that_scrolls_to_the_last() -> None:
    many = [conversation(f"number {i}", id=str(i), ago=i) for i in range(10_000)]
    async with showing(ConversationPicker(many, DATA)) as shown:
        assert len(list(shown.app.screen.walk_children())) < 12
        await shown.press("ctrl+end")
        assert "number 9999" in shown.cursor_line
        await shown.type("number 7777")
        assert "number 7777" in shown.cursor_line
        await shown.press("enter")
        assert shown.answers == [("open", "7777")]


async def test_an_empty_list_says_so() -> None:
    async with showing(ConversationPicker([], DATA)) as shown:
        assert "No conversations yet" in shown.text
        await shown.press("enter", "down", "delete")
        assert shown.answers == []


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (200, 60)])
async def test_the_frame_fits_the_terminal(size: tuple[int, int]) -> None:
    async with showing(picker(), size=size) as shown:
        top, bottom = shown.line("╭"), shown.line("╰")
        assert "Conversations" in top and "enter open" in bottom
        assert len(top) <= size[0] and len(top.strip()) <= 96
        assert "lighthouse" in shown.text

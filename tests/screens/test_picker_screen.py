"""The list of all conversations."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace
from screens_kit import NOW, Seen, Shown, answered, conversation, showing, triples, under_cursor

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


def nothing() -> ConversationPicker:
    return ConversationPicker([], DATA)


async def test_keys_open_delete_and_begin_and_what_is_typed_filters() -> None:
    await triples(
        (picker, "enter", answered(("open", "a"))),
        (picker, "down enter", answered(("open", "b"))),
        (picker, "pagedown enter", answered(("open", "d"))),
        (picker, "down delete", answered(("delete", "b"))),
        (picker, "down f12", answered(("rename", "b"))),
        (picker, "down tab", answered(("menu", "b"))),
        (picker, "ctrl+n", answered(("new", None))),
        (picker, "escape", answered(None)),
        (partial(picker, current="c"), "", under_cursor("tax notes  on screen")),
        # Words in any order; parts of words find a title, and letters in order do not.
        (picker, "'life rust'", under_cursor("Rust lifetimes", "rusty bicycle", "tax")),
        (picker, "'life rust' enter", answered(("open", "b"))),
        (picker, "'ghth'", under_cursor("lighthouse log")),
        (picker, "'lghs'", "No title matches"),
        # Without a match nothing is opened or deleted.
        (picker, "'qqq'", "No title matches. Ctrl+R searches"),
        (picker, "'qqq' enter delete", answered()),
        (picker, "'qqq' ctrl+u", "tax notes"),
        (picker, "'lamp oil' ctrl+r", answered(("search", "lamp oil"))),
        # Delete inside the text edits the text.
        (picker, "'xtax' home delete", answered()),
        (picker, "'xtax' home delete", under_cursor("tax notes")),
        (nothing, "", "No conversations yet"),
        (nothing, "enter down delete", answered()),
    )


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


def only(*titles: str) -> Seen:
    def check(shown: Shown) -> None:
        assert {one.title for one in TAGGED if one.title in shown.text} == set(titles)
        assert titles or "No conversation with this tag matches." in shown.text

    return check


async def test_a_filter_keeps_to_a_tag() -> None:
    tagged = partial(ConversationPicker, TAGGED, DATA)
    await triples(
        (tagged, "'tag:work'", only("Rust lifetimes")),
        (tagged, "'tag:WORK li'", only("Rust lifetimes")),
        (tagged, "'tag:wo'", only("Rust lifetimes", "rusty bicycle")),
        (tagged, "'tag:archive'", only("tax notes")),
        (tagged, "'tag:work tag:money'", only()),
        (tagged, "'tag:work tax'", only()),
        (tagged, "'tag:'", only("Rust lifetimes", "tax notes", "rusty bicycle")),
        (partial(tagged, query="r", at="d", row=0), "", under_cursor("rusty bicycle")),  # where it was left
        (partial(tagged, at="gone", row=2), "", under_cursor("rusty bicycle")),
        (partial(ConversationPicker, [TAGGED[2]], DATA), "", "tag:archive shows them"),
    )


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


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (200, 60)])
async def test_the_frame_fits_the_terminal(size: tuple[int, int]) -> None:
    async with showing(picker(), size=size) as shown:
        top, bottom = shown.line("╭"), shown.line("╰")
        assert "Conversations" in top and "enter open" in bottom
        assert len(top) <= size[0] and len(top.strip()) <= 96
        assert "lighthouse" in shown.text

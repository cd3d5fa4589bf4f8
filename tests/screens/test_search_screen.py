"""Searching all conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from screens_kit import NOW, Shown, T, showing

from kvchat.prompt.conversation import SearchHit
from kvchat.ui.screens.conversations import Found, SearchScreen, snippet
from kvchat.ui.screens.kit import filter_list
from kvchat.ui.screens.kit.filter_list import PAUSE_SECONDS

HITS = [
    SearchHit("c1", "n1", "lighthouse log", "user", "How often did the \x02lamp\x03 turn?", T),
    SearchHit("c2", "n2", "sourdough", "assistant", "Put it under a \x02lamp\x03.", T - 86400),
    SearchHit("c1", "n3", "lighthouse log", "assistant", "The \x02lamp\x03 turned twice.", T - 60),
]


class Library:
    """Answers searches and remembers them."""

    def __init__(self, hits: Sequence[SearchHit] = HITS) -> None:
        self.hits = hits
        self.asked: list[tuple[str, bool]] = []

    async def search(self, query: str, limit: int = 50, ranked: bool = False) -> Sequence[SearchHit]:
        self.asked.append((query, ranked))
        return self.hits


async def settle(shown: Shown, pause: float = PAUSE_SECONDS) -> None:
    await asyncio.sleep(pause * 2)
    await shown.app.workers.wait_for_complete()
    await shown.pilot.pause()


async def test_results_come_while_one_types_and_stand_under_their_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_list, "PAUSE_SECONDS", 2.0)  # longer than a busy machine takes to type
    library = Library()
    async with showing(SearchScreen(library, now=NOW)) as shown:
        await shown.type("lamp")
        await settle(shown, 2.0)
        assert library.asked == [("lamp", False)], "one search for one pause"
        lines = [line.strip(" │▌") for line in shown.lines]
        at = next(i for i, line in enumerate(lines) if line.startswith("lighthouse log"))
        assert lines[at].endswith("today 14:30")
        assert lines[at + 1] == "you     How often did the lamp turn?"
        assert lines[at + 2] == "answer  The lamp turned twice."
        assert "yesterday" in shown.line("sourdough")
        assert "3 messages" in shown.line("╭")


async def test_enter_opens_the_message_under_the_cursor_and_titles_are_passed_over() -> None:
    async with showing(SearchScreen(Library(), query="lamp", now=NOW)) as shown:
        await settle(shown)
        assert "How often" in shown.cursor_line
        await shown.press("down", "down")
        assert "Put it under" in shown.cursor_line
        await shown.press("enter")
        assert shown.answers == [Found("c2", "n2", "lamp")]


async def test_the_order_can_be_by_relevance() -> None:
    library = Library()
    async with showing(SearchScreen(library, query="lamp", now=NOW)) as shown:
        await settle(shown)
        await shown.press("ctrl+r")
        await settle(shown)
        assert library.asked == [("lamp", False), ("lamp", True)]
        assert "^R newest first" in shown.line("╰")


async def test_a_late_answer_to_an_older_query_is_not_shown() -> None:
    gate = asyncio.Event()

    async def search(query: str, limit: int = 50, ranked: bool = False) -> Sequence[SearchHit]:
        if query == "old":
            await gate.wait()
            return [SearchHit("c", "n", "an old title", "user", "old", T)]
        return HITS

    async with showing(SearchScreen(SimpleNamespace(search=search), query="old", now=NOW)) as shown:
        await shown.press("ctrl+u")
        await shown.type("new")
        await settle(shown)
        gate.set()
        await settle(shown)
        assert "an old title" not in shown.text and "sourdough" in shown.text


async def test_an_emptied_query_shows_no_results_and_searches_nothing() -> None:
    library = Library()
    async with showing(SearchScreen(library, query="lamp", now=NOW)) as shown:
        await settle(shown)
        await shown.press("ctrl+u")
        await settle(shown)
        assert "sourdough" not in shown.text and "Type a word" in shown.text
        assert library.asked == [("lamp", False)]
        await shown.press("enter")
        assert shown.answers == []


async def test_nothing_found_and_a_failed_search_are_said() -> None:
    async def broken(query: str, limit: int = 50, ranked: bool = False) -> Sequence[SearchHit]:
        raise OSError("the index is gone")

    async with showing(SearchScreen(Library([]), query="x", now=NOW)) as shown:
        await settle(shown)
        assert "Nothing found." in shown.text
    async with showing(SearchScreen(SimpleNamespace(search=broken), query="x", now=NOW)) as shown:
        await settle(shown)
        assert "The search did not work: the index is gone." in shown.text
        await shown.press("escape")
        assert shown.answers == [None]


@pytest.mark.parametrize(
    ("raw", "plain", "marked"),
    [
        ("the \x02lamp\x03 turns", "the lamp turns", ["lamp"]),
        ("\x02lamp\x03s and \x02lamp\x03", "lamps and lamp", ["lamp", "lamp"]),
        ("a\nb \x02c\nd\x03 e", "a b c d e", ["c d"]),
        ("cut \x02off", "cut off", []),
        ("stray\x03 end", "stray end", []),
        ("\x1b]52;c;x\x07\x02l\x1bp\x03", "␛]52;c;x␇l␛p", ["l␛p"]),
    ],
)
def test_a_snippet_marks_what_matched(raw: str, plain: str, marked: list[str]) -> None:
    found = snippet(raw)
    assert found.plain == plain
    assert [found.plain[span.start : span.end] for span in found.spans] == marked

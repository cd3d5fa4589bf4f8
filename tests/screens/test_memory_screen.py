"""The memory screen: what it shows, and what its keys do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from memory_kit import HARBOUR, LAMP, QUEUE, SAMPLE, Book, Row, Service, by_you, entry, service
from msgspec.structs import replace
from screens_kit import HOSTILE, MARKUP, Shown, T, settled, showing
from textual.widgets import TextArea

from kvchat.chat.background.extraction import QUEUE_PAGE
from kvchat.chat.errors import ChatError
from kvchat.chat.events import JobsChanged, MemoriesChanged
from kvchat.commands.editor import EditorError, at_line, opened
from kvchat.config import changed
from kvchat.figures.accounting import SideTotals
from kvchat.memory.entry import BY_HAND, PROFILE, Act, Kind, Status
from kvchat.sanitize import clean
from kvchat.store import StoreError
from kvchat.store.jobs import Job, JobState
from kvchat.text.problems import StoreProblem
from kvchat.ui.screens.kit.manager import PATIENCE, PAUSE_SECONDS, Jump, ManagerScreen
from kvchat.ui.screens.kit.rows import FocusRows
from kvchat.ui.screens.memory.editor import line_of

pytestmark = pytest.mark.slow

SIZES = [(80, 24), (120, 40)]
METRIC = "Prefers metric units."


@asynccontextmanager
async def memory(source: Service, size: tuple[int, int] = (80, 24), **options: Any) -> AsyncIterator[Shown]:
    async with showing(source.screen(**options), size) as shown:
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        yield shown


async def search(shown: Shown, text: str) -> None:
    await shown.press("slash", *("space" if char == " " else char for char in text))
    await shown.pilot.pause(PAUSE_SECONDS * 2)
    await shown.app.workers.wait_for_complete()
    await shown.pilot.pause()


def texts(source: Service, status: Status = Status.LIVE) -> set[str]:
    return {one.text for one in source.book.entries(status)}


def field(shown: Shown) -> TextArea:
    return shown.app.screen.query_one(TextArea)


# What is shown.


async def test_a_queue_that_is_longer_than_what_is_shown_says_so() -> None:
    rows = [Row(LAMP, 2) for _ in range(QUEUE_PAGE + 1)]
    for queue, told in ((rows, "Queue 100+"), (rows[1:], "Queue 100 ")):
        source = service()
        source.rows = queue
        async with memory(source) as shown:
            assert told in shown.line("Queue")


@pytest.mark.parametrize("size", SIZES)
async def test_every_memory_has_its_kind_its_text_its_page_and_its_age(size: tuple[int, int]) -> None:
    async with memory(service(), size) as shown:
        line = shown.line(METRIC)
        assert line.strip(" │▌").startswith("≈ preference  Prefers metric units.")
        assert line.strip(" │").endswith("preferences  3 min")
        assert "9" in shown.line("Memories").split()


@pytest.mark.parametrize("trouble", ["", "The memory is not there."])
async def test_what_comes_when_the_screen_is_being_closed_ends_nothing(trouble: str) -> None:
    """Escape right after the key that opened it: its widgets are gone, and its first look is still under way."""
    source, go_on = service(), asyncio.Event()
    look = source.memory.overview

    async def slow(query: str = "") -> Any:
        await go_on.wait()
        if trouble:
            raise ChatError.of(trouble)
        return await look(query)

    async with memory(source) as shown:
        source.memory.overview = slow  # type: ignore[method-assign]
        shown.app.screen.look_soon()  # type: ignore[attr-defined]
        await shown.app.screen.query_one("#frame").remove()
        go_on.set()
        await shown.app.workers.wait_for_complete()
        assert shown.app.is_running


async def test_proposals_stand_on_top_and_say_why_they_ask() -> None:
    async with memory(service()) as shown:
        rows = [line.strip(" │▌") for line in shown.lines if " ago " not in line]
        at = next(i for i, row in enumerate(rows) if row.startswith("Pending approval · 2 proposals"))
        assert rows[at + 1].startswith("? fact") and rows[at + 2].startswith("? identity")
        assert rows[at + 4] == "Remembered"
        assert "asks you first: it has a link · from “lighthouse log”" in shown.prose
        assert shown.line("y take it")


async def test_the_memory_under_the_cursor_tells_where_it_came_from_and_its_whole_text() -> None:
    long = "The lamp is trimmed every evening. " * 3 + "Then the log is written"
    book = Book(
        entry(long, Kind.DECISION, ago=60),
        by_you("Two.", ago=120),
        entry("Three.", ago=180, by=BY_HAND, conversation="", page="topics/tea.md"),
        entry("Four.", ago=240, conversation="gone"),
        entry("Five.", ago=300, edited=True),
    )
    async with memory(Service(book)) as shown:
        assert "from “harbour office” · today 14:29 · noted by SmolLM2-135M-Instruct" in shown.prose
        assert "Then the log is written" in shown.prose
        await shown.press("down")
        assert "said by you · today 14:28 · topics/facts.md" in shown.prose
        await shown.press("down")
        assert "written by hand · today 14:27 · topics/tea.md" in shown.prose
        await shown.press("down")
        assert "from a deleted conversation" in shown.prose
        await shown.press("down")
        assert "noted by SmolLM2-135M-Instruct · edited by you" in shown.prose


async def test_a_long_text_ends_with_a_mark_and_is_whole_in_the_editor() -> None:
    long = " ".join(f"word{n}" for n in range(100))
    async with memory(Service(Book(entry(long)))) as shown:
        last = [line.strip(" │") for line in shown.lines if "word" in line][-1]
        assert last.endswith("…") and not last.endswith(" …") and "word99" not in shown.text
        await shown.press("e")
        assert "word99" in shown.text


async def test_a_click_moves_the_cursor_and_a_double_click_edits() -> None:
    async with memory(service()) as shown:
        await shown.pilot.click(FocusRows, offset=(20, 5))
        await shown.pilot.pause()
        assert METRIC in shown.cursor_line and not field(shown).has_focus
        await shown.pilot.click(FocusRows, offset=(20, 0))
        assert METRIC in shown.cursor_line, "a heading is no row"
        await shown.pilot.click(FocusRows, offset=(20, 5), times=2)
        await shown.pilot.pause()
        assert field(shown).has_focus and field(shown).text == METRIC


async def test_it_says_where_the_files_are() -> None:
    async with memory(service()) as shown:
        assert shown.line("The files: /home/mara/notes/memory")


async def test_a_long_path_keeps_its_end() -> None:
    book = Book(*SAMPLE, folder=Path("/home/mara" + "/very-long-folder" * 8 + "/memory"))
    async with memory(Service(book)) as shown:
        assert shown.line("The files: …").strip(" │").endswith("/memory")


async def test_what_is_wrong_with_the_files_stands_on_top() -> None:
    source = service()
    source.book.problems = (
        "topics/lamp-log.md:3: the front matter is not closed; the page is left alone until it is mended.",
        "topics/persons.md:1: this is no UTF-8.",
        "profile.md:9: and more",
    )
    async with memory(source) as shown:
        assert (
            "! topics/lamp-log.md:3: the front matter is not closed; the page is left alone until it is mended."
            in shown.prose
        )
        assert "! and 2 more problems: topics/persons.md:1: this is no UTF-8." in shown.prose
        assert METRIC in shown.text


async def test_an_empty_memory_says_what_memory_does_and_how_to_switch_it_off() -> None:
    async with memory(Service(Book())) as shown:
        assert "Nothing is remembered yet. While you talk, kvchat notes what you say about yourself" in shown.prose
        assert "o switches memory off in this conversation; memory.enabled = false" in shown.prose
        await shown.press("tab")
        assert "Nothing waits: every message has been gone through." in shown.text
        await shown.press("tab")
        assert "Nothing has changed yet. Every change can be undone here." in shown.text


async def test_without_a_memory_the_sentence_of_the_service_is_shown() -> None:
    source = service()
    source.trouble = "There is no memory in an incognito run."
    async with memory(source) as shown:
        assert "There is no memory in an incognito run." in shown.text
        await shown.press("d", "e", "u", "U", "y", "p", "s", "E", "r", "tab", "d", "u", "tab", "u", "escape")
        assert shown.answers == [None]


async def test_what_was_noted_since_the_last_look_is_marked() -> None:
    async with memory(service(), fresh=(SAMPLE[2].id,)) as shown:
        assert " new " in shown.line(METRIC)
        assert sum(" new " in line for line in shown.lines) == 1


# Narrowing it down.


async def test_a_search_shows_the_best_first_then_what_has_the_letters() -> None:
    book = Book(
        entry("Lamp wick.", ago=10),
        entry("lamp and oil", ago=500),
        entry("Lamplighters boil.", ago=5),
        entry("Nothing about it.", ago=1),
    )
    async with memory(Service(book)) as shown:
        await search(shown, "lamp oil")
        rows = [line for line in shown.lines if "• fact" in line]
        assert [next(w for w in ("and oil", "wick", "boil") if w in row) for row in rows] == ["and oil", "wick", "boil"]
        assert "and oil" in shown.cursor_line
        await shown.press(*["backspace"] * 4)
        await shown.pilot.pause(PAUSE_SECONDS * 2)
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "Lamp wick." in shown.cursor_line and "Nothing about" not in shown.text


async def test_enter_goes_from_the_search_to_the_list_and_escape_shows_all_again() -> None:
    async with memory(service()) as shown:
        await search(shown, "metric")
        assert "Knows Python" not in shown.text
        await shown.press("enter", "d")
        assert METRIC not in shown.text and "Deleted" in shown.text
        await shown.press("escape")
        await shown.pilot.pause(PAUSE_SECONDS * 2)
        assert "See https" in shown.text and shown.answers == []
        await shown.press("escape")
        assert shown.answers == [None]


async def test_letters_in_the_search_are_letters() -> None:
    source = service()
    async with memory(source) as shown:
        await search(shown, "due")
        assert shown.app.screen.query_one("Input").value == "due"  # type: ignore[attr-defined]
        assert len(source.book.entries()) == 7


async def test_nothing_found_says_how_to_see_all() -> None:
    async with memory(service()) as shown:
        await search(shown, "xyzzy")
        assert "Nothing remembered has these words. Esc shows all." in shown.text


async def test_f_goes_through_the_kinds_and_n_shows_what_was_noted_here() -> None:
    async with memory(service()) as shown:
        await shown.press("f", "f")
        assert "f preference" in shown.text
        assert METRIC in shown.text and "Answer in British English." in shown.text and "Knows Python" not in shown.text
        await shown.press("n")
        assert METRIC in shown.text and "Answer in British English." not in shown.text
        await shown.press("F", "F")
        assert "every kind" in shown.text and "See https" in shown.text and "Knows Python" not in shown.text
        await shown.press("n", "end")
        assert "Answer in British" in shown.text


async def test_a_query_may_be_given_from_outside() -> None:
    async with memory(service(), query="metric") as shown:
        assert METRIC in shown.text and "Knows Python" not in shown.text


# Deciding.


async def test_y_takes_a_proposal_and_d_discards_it() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("d")
        assert "https" not in "".join(texts(source, Status.PENDING)) + "".join(texts(source))
        assert "Discarded, and not noted again (u brings it back)" in shown.prose
        await shown.press("y")
        assert "Taken, into profile.md" in shown.text
        assert texts(source, Status.PENDING) == set()
        assert "Pending approval" not in shown.text
        await shown.press("home", "y")
        assert "It is remembered already" in shown.text


async def test_the_cursor_goes_on_to_the_next_memory_when_one_is_gone() -> None:
    async with memory(service()) as shown:
        await shown.press("down", "d")
        assert METRIC in shown.cursor_line
        await shown.press("end", "d")
        assert "The tax number" in shown.cursor_line


async def test_u_brings_back_what_was_deleted_and_says_so() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("down", "down", "d")
        assert METRIC not in texts(source)
        await shown.press("u")
        assert METRIC in texts(source)
        assert f"Remembered again: “{METRIC}”" in shown.text


async def test_u_undoes_what_the_person_did_here_before_what_kvchat_noted_meanwhile() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("down", "down", "d")
        source.book._put(Act.NOTED, entry("Noted meanwhile.", ago=0))
        source.tell(MemoriesChanged())
        await shown.pilot.pause(PATIENCE * 2)
        await shown.app.workers.wait_for_complete()
        await shown.press("u")
        assert {METRIC, "Noted meanwhile."} <= texts(source)
        await shown.press("u")
        assert "Noted meanwhile." not in texts(source)


async def test_with_nothing_left_to_undo_it_says_so() -> None:
    async with memory(Service(Book(by_you("Mine.")))) as shown:
        await shown.press("u")
        assert "There is nothing to undo." in shown.text


async def test_p_puts_a_memory_into_the_profile() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("down", "down", "p")
        assert next(one.page for one in source.book.entries() if one.text == METRIC) == PROFILE
        assert "every new conversation begins with it" in shown.prose
        await shown.press("p")
        assert "It is in the profile already" in shown.text
        await shown.press("home", "p")
        assert {one.page for one in source.book.entries() if "https" in one.text} == {PROFILE}


async def test_taking_back_asks_how_many_and_leaves_what_the_person_chose() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("y")  # the link: chosen now
        await shown.press("U")
        await shown.pilot.pause()
        assert "This takes back 6 changes" in shown.prose
        assert shown.line("s  All of the last session, since Thu 06:56: 5 noted, 1 proposed")
        assert shown.line("c  All from this conversation: 1 noted, 1 proposed")
        await shown.press("n")
        assert len(source.book.entries()) == 8
        await shown.press("U")
        await shown.pilot.pause()
        await shown.press("c")
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert METRIC not in texts(source) and texts(source, Status.PENDING) == set()
        assert "Took back" in shown.text and "Knows Python" in "".join(texts(source))


async def test_with_nothing_noted_there_is_nothing_to_take_back() -> None:
    async with memory(Service(Book(by_you("Mine.")))) as shown:
        await shown.press("U")
        await shown.app.workers.wait_for_complete()
        assert "kvchat has noted nothing by itself that is still in force." in shown.text


async def test_a_change_that_is_refused_is_told_and_nothing_is_lost() -> None:
    source = service()
    source.book.refuses = "The disk is full. Make room, then try again."
    async with memory(source) as shown:
        for key in ("d", "y", "p", "u"):
            await shown.press(key)
            assert "The disk is full. Make room, then try again." in shown.text
        await shown.press("e", "x", "enter")
        assert field(shown).text.endswith("lamps.x"), "the text stays in the field"
        assert "The disk is full" in shown.text


async def test_a_store_that_fails_is_told_and_the_list_stays() -> None:
    source = service()
    async with memory(source) as shown:

        async def fails(*_: object) -> Any:
            raise StoreError(StoreProblem.DISK_FULL, where="kvchat.db")

        source.queue = source.request = fails  # type: ignore[method-assign]
        source.tell(JobsChanged())
        await shown.pilot.pause(PATIENCE * 2)
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "its disk is full" in shown.text and METRIC in shown.text
        await shown.press("tab", "r")
        assert "its disk is full" in shown.text and "6 messages" in shown.text


# Writing.


@pytest.mark.parametrize("key", ["e", "enter"])
async def test_a_memory_is_edited_on_the_spot(key: str) -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("down", "down", key)
        assert field(shown).text == METRIC
        await shown.press("left", *" always", "enter")
        assert "Prefers metric units always." in texts(source) and METRIC not in texts(source)
        assert "Prefers metric units always." in shown.cursor_line
        assert not field(shown).has_focus
        await shown.press("u")
        assert METRIC in texts(source)


async def test_a_proposal_that_is_edited_is_taken() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("e", *" Or not.", "enter")
        assert any(text.endswith("lamps. Or not.") for text in texts(source))


async def test_letters_are_text_while_one_edits_and_escape_leaves_all_as_it_was() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("down", "down", "e", *"duUyp", "escape")
        assert METRIC in texts(source) and len(texts(source)) == 7
        assert shown.answers == []
        await shown.press("escape")
        assert shown.answers == [None]


async def test_a_text_that_was_only_looked_at_is_not_changed() -> None:
    source = Service(Book(entry("a\x1b[2Jb", ago=1)))
    async with memory(source) as shown:
        await shown.press("e", "enter")
        assert texts(source) == {"a\x1b[2Jb"}
        assert "Nothing was changed." in shown.text


async def test_a_memory_may_have_several_lines() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("a", "x", "ctrl+j", "y", "enter")
        assert "x\ny" in texts(source)


async def test_a_adds_one_of_the_kind_that_tab_chooses() -> None:
    source = Service(Book())
    async with memory(source) as shown:
        await shown.press("a", *"Tea", "tab", "tab", "enter")
        assert [(one.text, one.kind) for one in source.book.entries()] == [("Tea", Kind.PREFERENCE)]
        assert "Tea" in shown.cursor_line and "Remembered, in" in shown.text
        await shown.press("a", *"Tea", "enter")
        assert "It is remembered already" in shown.text and len(texts(source)) == 1


async def test_an_empty_text_adds_nothing() -> None:
    source = Service(Book())
    async with memory(source, add=True) as shown:
        assert field(shown).has_focus
        await shown.press("space", "enter")
        assert texts(source) == set()


async def test_a_screen_that_was_opened_to_add_is_left_at_once_but_not_with_words_in_the_field() -> None:
    async with memory(service(), add=True) as shown:
        await shown.press("escape")
        assert shown.answers == [None]
    async with memory(service(), add=True) as shown:
        await shown.press("x", "escape")
        assert shown.answers == [] and not field(shown).has_focus
        await shown.press("escape")
        assert shown.answers == [None]


async def test_the_editor_opens_the_page_at_the_line_of_the_memory(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "topics").mkdir()
    lines = [
        "---",
        'kind: "topic"',
        "---",
        "- One. <!-- mone00001 on:2026-11-21 -->",
        f"- {METRIC} <!-- {SAMPLE[2].id} on:2026-11-21 -->",
        "- By hand.",
    ]
    (tmp_path / "topics" / "preferences.md").write_text("\n".join(lines))
    assert line_of(tmp_path, SAMPLE[2]) == (tmp_path / "topics/preferences.md", 5)
    assert line_of(tmp_path, by_you("By hand.", page="topics/preferences.md"))[1] == 6
    assert line_of(tmp_path, by_you("By hand.", page="topics/none.md"))[1] == 1
    asked: list[tuple[Path, int, str]] = []

    async def noted(path: Path, line: int = 1, command: str = "") -> None:
        asked.append((path, line, command))

    monkeypatch.setattr("kvchat.ui.screens.memory.source.opened", noted)
    book = Book(*SAMPLE, folder=tmp_path)
    service = Service(book)
    service.settings = changed(service.settings, "editor", "nano")
    async with memory(service) as shown:
        from contextlib import nullcontext

        monkeypatch.setattr(shown.app, "suspend", nullcontext)
        await shown.press("E")
        assert "It is in no file before you take it" in shown.text
        await shown.press("down", "down", "ctrl+g")
        await shown.app.workers.wait_for_complete()
        assert asked == [(tmp_path / "topics/preferences.md", 5, "nano")]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("vi", "vi +7 f.md"),
        ("/usr/bin/nvim -n", "/usr/bin/nvim -n +7 f.md"),
        ("nano", "nano +7 f.md"),
        ("emacsclient -t", "emacsclient -t +7 f.md"),
        ("hx", "hx f.md:7"),
        ("code --wait", "code --wait --goto f.md:7"),
        ("ed-of-mine -x", "ed-of-mine -x f.md"),
    ],
)
def test_each_editor_is_told_the_line_in_its_own_way(command: str, line: str) -> None:
    assert at_line(command.split(), Path("f.md"), 7) == line.split()


async def test_an_editor_that_fails_or_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    await opened(tmp_path / "a", 3, "true")
    with pytest.raises(EditorError, match="The editor false ended with status 1"):
        await opened(tmp_path / "a", 3, "false")
    with pytest.raises(EditorError, match=r"Cannot run the editor no-such-editor: .* Set editor in the settings"):
        await opened(tmp_path / "a", 3, "no-such-editor")


async def test_a_terminal_that_cannot_be_handed_over_says_so() -> None:
    async with memory(service()) as shown:
        await shown.press("down", "down", "E")
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "This terminal cannot be handed to another program, so none can run in it." in shown.prose


# Where it came from.


async def test_s_goes_to_the_message_it_came_from() -> None:
    async with memory(service()) as shown:
        await shown.press("down", "down", "s")
        assert shown.answers == [Jump(LAMP, "n4")]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (by_you("Mine."), "You wrote this yourself; there is no conversation behind it."),
        (entry("Old.", conversation="gone"), "The conversation it came from is deleted."),
    ],
)
async def test_s_says_where_there_is_nothing_to_go_to(one: Any, words: str) -> None:
    async with memory(Service(Book(one))) as shown:
        await shown.press("s")
        assert words in shown.text and shown.answers == []


# The queue.


async def test_the_queue_says_what_waits_and_what_was_given_up_and_why() -> None:
    async with memory(service()) as shown:
        await shown.press("tab")
        assert shown.line("lighthouse log").strip(" │▌").endswith("6 messages · due in 42 s")
        assert shown.line("! harbour office").strip(" │").endswith("12 messages · 3 attempts · parked")
        await shown.press("down")
        assert "Given up after 3 attempts; nothing is lost. r tries again." in shown.prose
        assert "Why: the answer was no JSON: Expecting value" in shown.prose


async def test_r_tries_again_what_was_given_up_and_asks_for_what_waits() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("tab", "r")
        assert source.asked == [("now", LAMP)]
        await shown.press("down", "r")
        assert source.asked[-1] == ("retry", HARBOUR)
        assert "It is done as soon as nothing else runs." in shown.text
        assert "12 messages · not gone through yet" in shown.text


async def test_the_queue_also_has_the_work_on_the_memory_itself_and_what_runs() -> None:
    tidying = Row("", 0, Job("consolidation", "memory", T, 2, JobState.PAUSED, "the server said no"))
    source = Service(Book(*SAMPLE), queue=[tidying, replace(QUEUE[0], at_work=True), Row(HARBOUR, 1, on=False)])
    async with memory(source) as shown:
        await shown.press("tab")
        assert shown.line("! tidying the memory")
        assert shown.line("◐ lighthouse log").strip(" │").endswith("6 messages · at it now")
        assert shown.line("harbour office").strip(" │").endswith("1 message · memory is off there")
        await shown.press("r")
        assert source.asked == [("retry", "consolidation", "memory")]
        await shown.press("down", "r")
        assert "It is under way." in shown.text and len(source.asked) == 1


async def test_s_in_the_queue_opens_the_conversation() -> None:
    async with memory(service()) as shown:
        await shown.press("tab", "down", "s")
        assert shown.answers == [Jump(HARBOUR, None)]


async def test_a_job_that_ends_leaves_the_queue_on_the_screen() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("tab")
        source.rows.clear()
        source.tell(JobsChanged())
        await shown.pilot.pause(PATIENCE * 2)
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "Nothing waits" in shown.text


async def test_o_switches_memory_off_and_on_in_this_conversation() -> None:
    source = service()
    async with memory(source) as shown:
        assert "on in this conversation o" in shown.text
        await shown.press("o")
        assert not source.memory.is_on(LAMP) and source.memory.is_on(HARBOUR)
        assert "off in this conversation o" in shown.text
        await shown.press("o")
        assert source.memory.is_on(LAMP) and "Memory is on in this conversation." in shown.text


async def test_where_memory_is_off_everywhere_o_says_which_setting_does_it() -> None:
    source = service()
    source.switch_off_everywhere()
    async with memory(source) as shown:
        await shown.press("o")
        assert "Memory is switched off in the settings: memory.enabled = false." in shown.text


async def test_what_side_work_cost_stands_where_memory_is_switched() -> None:
    source = service()
    source.spent = SideTotals(12, 1204, 340, 31.0)
    async with memory(source) as shown:
        at = next(number for number, line in enumerate(shown.lines) if "on in this conversation o" in line)
        assert "Side work in 7 days: 12 requests, 1,204 tokens prefilled, 31 s" in shown.lines[at + 1]


async def test_with_the_demo_model_memory_is_off_and_can_be_switched_all_the_same(monkeypatch) -> None:
    source = service()
    source.is_demo = True
    monkeypatch.setattr(source.memory, "_may_go_to_cloud", lambda id: False)
    async with memory(source) as shown:
        assert "off with the demo model o" in shown.text
        await shown.press("o")
        assert "off in this conversation o" in shown.text
        await shown.press("o")
        assert "off with the demo model o" in shown.text and "With the demo model nothing is noted" in shown.text


# The history.


async def test_the_history_is_newest_first_and_tells_each_change() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("down", "down", "e", "left", *" now", "enter")
        await settled(shown)
        await shown.press("d")
        await settled(shown)
        await shown.press("tab", "tab")
        await settled(shown)
        rows = [line.strip(" │▌").split()[2] for line in shown.lines if line.strip(" │▌").startswith("today")]
        assert rows[:3] == ["deleted", "edited", "noted"]
        await shown.press("down")
        assert "edited today 14:30 · preference, topics/preferences.md · from “lighthouse log”" in shown.prose
        assert f"Before: {METRIC}" in shown.prose
        assert f"{METRIC} → Prefers metric units now." in shown.cursor_line or "→" in shown.cursor_line


async def test_u_in_the_history_undoes_the_change_under_the_cursor_and_undoing_can_be_undone() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("tab", "tab", "down", "down", "down", "u")
        assert not any("SQLite" in text for text in texts(source))
        assert shown.cursor_line.strip(" │").endswith("undone") and "The lamp log" in shown.cursor_line
        assert shown.line("taken back The lamp log")
        await shown.press("u")
        assert "It is undone already." in shown.text
        await shown.press("home", "u")
        assert any("SQLite" in text for text in texts(source))


async def test_s_in_the_history_goes_to_the_message() -> None:
    async with memory(service()) as shown:
        await shown.press("tab", "tab", "s")
        assert shown.answers == [Jump(LAMP, "n4")]


# Live, large, hostile.


async def test_what_is_noted_while_one_looks_appears_and_the_cursor_stays_on_its_memory() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("end")
        before = shown.cursor_line
        source.book._put(Act.NOTED, entry("Noted meanwhile.", ago=0))
        source.tell(MemoriesChanged())
        await shown.pilot.pause(PATIENCE * 2)
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert shown.cursor_line == before
        await shown.press("home")
        assert "Noted meanwhile." in shown.text


async def test_what_is_being_written_stays_when_the_memory_changes() -> None:
    source = service()
    async with memory(source) as shown:
        await shown.press("a", *"half")
        source.tell(MemoriesChanged())
        await shown.pilot.pause(PATIENCE * 2)
        await shown.app.workers.wait_for_complete()
        await shown.press(*" done", "enter")
        assert "half done" in texts(source)


async def test_ten_thousand_memories_are_a_list_like_any_other() -> None:
    book = Book(*(by_you(f"Memory number {n}.", ago=n, id=f"m{n:08d}") for n in range(10_000)))
    async with memory(Service(book)) as shown:
        assert "Memories 10,000" in shown.text and "Memory number 0." in shown.cursor_line
        await shown.press("end")
        assert "Memory number 9999." in shown.cursor_line
        await search(shown, "number 4711")
        assert "Memory number 4711." in shown.cursor_line
        await shown.press("enter", "d")
        assert len(book.entries()) == 9999


def check(text: str) -> None:
    wrong = {char for char in text if clean(char) != char and char != "\n"}
    assert not wrong, f"{[hex(ord(char)) for char in wrong]} on the screen"


@pytest.mark.parametrize("start", range(0, len(HOSTILE), 33))
async def test_no_control_character_of_a_memory_reaches_the_screen(start: int) -> None:
    batch = [text for text in HOSTILE[start : start + 33] if text]
    book = Book(
        *(
            entry(
                text,
                ago=n,
                id=f"m{n:08d}",
                page=f"topics/{text}.md",
                by=text,
                status=Status.PENDING if n % 2 else Status.LIVE,
            )
            for n, text in enumerate(batch)
        )
    )
    book.problems = tuple(batch)
    book.history = [replace(change, why=change.after.text) for change in book.history]
    source = Service(book, queue=[Row(LAMP, 1, Job("extraction", LAMP, T, 1, JobState.PAUSED, batch[0]))])
    source.known = [replace(source.known[0], title=batch[0])]
    async with memory(source, (100, 60)) as shown:
        for keys in (("down", "pagedown"), ("e",), ("escape", "d"), ("tab", "down"), ("tab", "down"), ("u",)):
            await shown.press(*keys)
            check(shown.text)


async def test_markup_in_a_memory_is_only_text() -> None:
    source = Service(Book(entry(MARKUP), entry("[/]", page="topics/[red].md", ago=1)))
    source.book.problems = (MARKUP,)
    async with memory(source, (120, 40)) as shown:
        assert shown.text.count("[/b] [red]red[/]") >= 2
        await shown.press("end", "d", "tab", "tab")
        assert "[/b] [red]red" in shown.text


@pytest.mark.parametrize("last", ["#note", "#rows"])
@pytest.mark.parametrize("closes", ["by a key", "with the app"])
async def test_what_comes_while_the_screen_is_closed_does_not_end_the_app(closes: str, last: str) -> None:
    """Whichever of its widgets goes last."""

    async def disturb(screen: ManagerScreen) -> int:
        stages = 0
        while screen.is_attached:
            screen.show_rows(keep=True)
            screen.fill()
            screen.tell("a sentence")
            stages += 1
            await asyncio.sleep(0)
        return stages

    async with memory(service()) as shown:
        screen = shown.app.screen
        assert isinstance(screen, ManagerScreen)
        widget = screen.query_one(last)
        close = widget._close_messages

        async def slowly(wait: bool = True) -> None:
            for _ in range(50):
                await asyncio.sleep(0)
            await close(wait)

        widget._close_messages = slowly  # type: ignore[method-assign]
        disturbing = asyncio.create_task(disturb(screen))
        if closes == "by a key":
            await shown.press("escape")
    assert await disturbing > 50

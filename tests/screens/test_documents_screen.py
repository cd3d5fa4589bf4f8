"""The documents screen: what it shows, and what its keys do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import memory_kit
import pytest
from documents_kit import HERE, SETUP, SKIPPED, Library, Service, passage, sample, service, status
from screens_kit import HOSTILE, MARKUP, Shown, settled, showing
from textual import events
from textual.widgets import Input

from kvchat.commands.actions import DIALOG_ACTIONS
from kvchat.documents.collection import IndexingProgress, IndexingReport, Skipped
from kvchat.sanitize import clean
from kvchat.ui.screens.documents.add import AddDocumentsScreen, folders, unquoted
from kvchat.ui.screens.documents.rows import RetrievalChoice
from kvchat.ui.screens.documents.search import snippet
from kvchat.ui.screens.documents.source import AT_ONCE
from kvchat.ui.screens.kit.filter_list import PAUSE_SECONDS
from kvchat.ui.screens.kit.manager import PATIENCE
from kvchat.ui.screens.kit.rows import FocusRows
from still import until

pytestmark = pytest.mark.slow

SIZES = [(80, 24), (120, 40)]
HALF = IndexingProgress("handbook", 1204, 5310, 6_000_000, 12_000_000, 18_220, 40.0, "guide/setup.md")


@asynccontextmanager
async def documents(
    source: Service, size: tuple[int, int] = (80, 24), *, queues: bool = False, **options: Any
) -> AsyncIterator[Shown]:
    async with showing(source.screen(**options), size) as shown:
        shown.app.queues = queues
        await settled(shown)
        yield shown


def front(shown: Shown) -> str:
    return type(shown.app.screen).__name__


# -- what is shown


@pytest.mark.parametrize("size", SIZES)
async def test_every_collection_has_its_files_chunks_size_and_age(size: tuple[int, int]) -> None:
    async with documents(service(), size) as shown:
        words = shown.line("1,204   18,220").split()
        assert words[:3] == ["│", "▌", "handbook"]
        assert words[-9:] == ["1,204", "18,220", "12", "MB", "4", "min", "ago", "·", "│"]
        assert shown.line("logbooks").split()[-9:-2] == ["61", "902", "814", "kB", "1", "d", "ago"]
        assert "/home/mara/notes/handbook 1,204 files, 18,220 chunks, 12 MB; indexed today 14:26" in shown.prose


async def test_the_folder_stands_in_the_row_where_there_is_room() -> None:
    async with documents(service(), (120, 40)) as shown:
        assert "/home/mara/notes/logbooks" in shown.line("902")


async def test_what_is_wrong_with_a_collection_stands_in_its_row_and_whole_below() -> None:
    async with documents(service()) as shown:
        assert "There is no folder" in shown.line("drawings")
        await shown.press("end")
        assert "There is no folder /home/mara/notes/drawings any more." in shown.prose


@pytest.mark.parametrize("size", SIZES)
async def test_one_that_is_indexed_shows_how_far_it_is(size: tuple[int, int]) -> None:
    source = service()
    source.indexing["handbook"] = HALF
    async with documents(source, size) as shown:
        row = next(line for line in shown.lines if "handbook" in line and "▌" in line)
        assert "▓▓▓▓░░░░ 1,204 of 5,310 files" in row and "40 s left" in row
        assert "18,220 chunks · 40 s left guide/setup.md" in shown.prose
        assert "c stop indexing" in shown.text
        source.progress(IndexingProgress("handbook", 5310, 5310, 12, 12, 80_000, 90.0))
        await shown.pilot.pause(PATIENCE * 2)
        assert "▓▓▓▓▓▓▓▓ 5,310 of 5,310" in shown.text
        source.end(IndexingReport("handbook", added=5310, seconds=90.0))
        await settled(shown)
        assert "▓" not in shown.text and "enter report" in shown.text


async def test_files_that_are_counted_have_no_bar_yet() -> None:
    source = service()
    source.indexing["logbooks"] = IndexingProgress("logbooks", 0, 0, 0, 0, 0, 0.0, counting=True)
    async with documents(source) as shown:
        assert "counting files …" in shown.line("logbooks ")


async def test_without_collections_it_says_what_they_are_for_and_how_to_begin() -> None:
    async with documents(Service()) as shown:
        assert "Point kvchat at folders of notes, code, web pages and PDFs." in shown.prose
        assert "a adds a folder, or a single file." in shown.prose
        assert "stay where they are and are never changed" in shown.prose


async def test_a_library_that_cannot_be_read_is_told_on_the_screen() -> None:
    source = service()
    source.refuses = "The search index cannot be read."
    async with documents(source) as shown:
        assert "The search index cannot be read." in shown.text


async def test_a_thousand_collections_are_counted_a_few_at_a_time() -> None:
    library = Library(*(status(f"c{number:04}", files=number) for number in range(1000)))
    source = Service(library)
    async with documents(source) as shown:
        assert len(library.counted) == 1000 and "Documents · 1,000" in shown.text
        await shown.press("end")
        assert " 999 " in shown.cursor_line
        library.counted.clear()
        source.end(IndexingReport("c0500"))
        await settled(shown)
        assert library.counted == ["c0500"], "only what has changed is counted again"
    assert AT_ONCE < 100


@pytest.mark.slow
async def test_hostile_names_and_paths_are_shown_as_signs() -> None:
    library = Library(
        *(
            status(f"{number}{text}", f"/{text}", trouble=text if number % 3 else "", skipped=[Skipped(text, MARKUP)])
            for number, text in enumerate([*HOSTILE, MARKUP])
        )
    )
    for size in SIZES:
        async with documents(Service(library), size) as shown:
            for _ in library.statuses:
                assert shown.text == clean(shown.text)
                await shown.press("down")
            await shown.press("enter")
            assert front(shown) == "ReportScreen" and shown.text == clean(shown.text)


async def test_the_cursor_stays_on_its_collection_when_others_come() -> None:
    source = service()
    async with documents(source) as shown:
        await shown.press("down")
        assert "logbooks" in shown.cursor_line
        source.library.statuses = {"almanac": status("almanac"), **source.library.statuses}
        source.end(IndexingReport("almanac"))
        await settled(shown)
        assert "logbooks" in shown.cursor_line


# -- this conversation


async def test_space_goes_through_off_ask_and_always() -> None:
    source = service()
    async with documents(source) as shown:
        assert "Here: searched only where a question says @handbook." in shown.prose
        await shown.press("space")
        assert shown.cursor_line.split()[-2] == "ask" and "are offered with each question" in shown.prose
        await shown.press("space")
        assert shown.cursor_line.split()[-2] == "always" and "are sent with it" in shown.prose
        await shown.press("space")
        assert shown.cursor_line.split()[-2] == "·"
    assert source.did == [
        ("retrieval", HERE, "ask", ("handbook",)),
        ("retrieval", HERE, "always", ("handbook",)),
        ("retrieval", HERE, "off", ()),
    ]


async def test_several_collections_have_one_mode() -> None:
    source = service(retrieval="ask", collections=["handbook"])
    async with documents(source) as shown:
        await shown.press("down", "space")
        assert source.did[-1] == ("retrieval", HERE, "ask", ("handbook", "logbooks"))
        await shown.press("space")
        assert source.did[-1] == ("retrieval", HERE, "always", ("handbook", "logbooks"))
        assert "So it is for the 1 other searched here too." in shown.prose
        assert shown.text.count(" always ") == 2
        await shown.press("space")
        assert source.did[-1] == ("retrieval", HERE, "always", ("handbook",))


def test_the_cycle_of_one_collection_never_switches_another_off() -> None:
    both = RetrievalChoice("always", ("a", "b"))
    assert both.cycled("a") == RetrievalChoice("always", ("b",))
    assert both.cycled("c") == RetrievalChoice("always", ("a", "b", "c"))
    assert RetrievalChoice().cycled("a").cycled("a").cycled("a") == RetrievalChoice()


# -- keys that come faster than the screens


@pytest.mark.parametrize("key", ["slash", "ctrl+f"])
async def test_what_is_typed_at_once_after_the_search_key_is_searched_and_removes_nothing(key: str) -> None:
    for paste in (False, True):
        source = service()
        async with documents(source, queues=True) as shown:
            if paste:
                for one in (key, "d", "o", "c", "x", "y", "enter"):
                    shown.app.post_message(events.Key(one, one if len(one) == 1 else None))
            else:
                await shown.pilot.press(key, "d", "o", "c", "x", "y", "enter")
            await shown.pilot.pause(PAUSE_SECONDS * 2)
            assert front(shown) == "DocumentSearchScreen" and source.did == []
            assert shown.app.screen.query_one(Input).value == "docxy"
            await shown.type("z")
            assert shown.app.screen.query_one(Input).value == "docxyz"


async def test_what_is_typed_at_once_after_the_add_key_is_the_path() -> None:
    source = service()
    async with documents(source, queues=True) as shown:
        for one in "axy/dx":
            shown.app.post_message(events.Key("slash" if one == "/" else one, one))
        shown.app.post_message(events.Paste("yy\nzz"))
        await shown.pilot.pause()
        await settled_offers(shown)
        assert shown.app.screen.query_one("#path Input", Input).value == "xy/dxyy" and source.did == []


async def test_enter_on_the_question_removes_nothing_and_d_is_no_key() -> None:
    source = service()
    async with documents(source, queues=True) as shown:
        await shown.press("d")
        assert front(shown) == "ManagerScreen"
        for one in ("down", "x", "enter"):
            shown.app.post_message(events.Key(one, None))
        await settled(shown)
        assert source.did == [] and front(shown) == "ConfirmScreen", "an Enter from before the question answers nothing"
        assert "Remove logbooks?" in shown.text and "▌ n  Cancel" in shown.text


# -- indexing and removing


@pytest.mark.parametrize(("key", "anew"), [("r", False), ("R", True)])
async def test_a_collection_is_looked_through_again(key: str, anew: bool) -> None:
    source = service()
    async with documents(source) as shown:
        await shown.press(key)
        assert source.did == [("index", "handbook", anew)]
        assert "counting" in shown.line("▌ handbook")
        await shown.press(key)
        assert len(source.did) == 1 and "c stops that" in shown.text


async def test_esc_leaves_indexing_running_and_c_stops_it() -> None:
    source = service()
    source.indexing["handbook"] = HALF
    async with documents(source) as shown:
        await shown.press("escape")
        assert shown.answers == [None] and source.did == []
    async with documents(source) as shown:
        await shown.press("c")
        assert source.did == [("stop", "handbook")] and "What is indexed is kept" in shown.prose
        await shown.press("c")
        assert len(source.did) == 1 and "It is not being indexed." in shown.text


async def test_removing_is_asked_about_and_says_that_the_files_stay() -> None:
    source = service()
    async with documents(source) as shown:
        await shown.press("delete")
        assert front(shown) == "ConfirmScreen"
        assert "The files in /home/mara/notes/handbook stay as they are." in shown.prose
        await shown.press("n")
        assert source.did == []
        await shown.press("x", "y")
        await settled(shown)
        assert source.did == [("remove", "handbook")]
        assert "handbook is removed; its files stay." in shown.text and "▌ logbooks" in shown.text


async def test_what_cannot_be_done_is_told() -> None:
    source = service()
    async with documents(source) as shown:
        source.refuses = "The disk is full."
        for key in ("space", "r", "R"):
            await shown.press(key)
            assert "The disk is full." in shown.text
            await shown.press("down", "up")
            assert "The disk is full." not in shown.text


async def test_a_folder_that_no_window_can_show_is_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSH_CONNECTION", "x")
    async with documents(Service(Library(status("handbook", str(tmp_path))))) as shown:
        await shown.press("o")
        await shown.pilot.pause()
        assert "the path is in the terminal's clipboard." in shown.prose
        assert shown.app.clipboard == str(tmp_path)


# -- the report


async def test_the_report_has_every_skipped_file_with_its_reason_and_a_filter() -> None:
    source = service()
    source.reports["handbook"] = IndexingReport("handbook", added=12, changed=3, unchanged=1189, removed=1, seconds=4.1)
    async with documents(source) as shown:
        assert "3 skipped files; Enter shows more" in shown.text
        await shown.press("enter")
        assert front(shown) == "ReportScreen"
        assert "Last time: 12 new, 3 changed, 1 gone, 1,189 as they were, in 4.1 s." in shown.text
        assert shown.line("scans/tide table.pdf").endswith("is encrypted   │")
        await shown.type("larger")
        assert "old/log.txt" in shown.text and "film.mov" not in shown.text and "1 of 3 skipped files" in shown.text


async def test_a_report_of_ten_thousand_files_scrolls() -> None:
    skipped = [Skipped(f"scan-{number:05}.pdf", "is encrypted") for number in range(10_000)]
    async with documents(Service(Library(status("scans", skipped=skipped)))) as shown:
        await shown.press("s", "ctrl+end")
        assert "scan-09999.pdf" in shown.cursor_line


# -- trying the index


async def search(shown: Shown, text: str) -> None:
    await shown.type(text)
    await shown.pilot.pause(PAUSE_SECONDS * 2)
    await shown.pilot.pause()


async def test_a_search_shows_title_headings_and_the_line_that_fits() -> None:
    source = service()
    source.library.passages = [
        passage("guide/setup.md", "3-5", SETUP, "setup.md > Lamp"),
        passage("paper.pdf", "p3", "Lamps and oil."),
    ]
    async with documents(source) as shown:
        await shown.press("slash")
        await search(shown, "oil")
        at = next(i for i, line in enumerate(shown.lines) if "handbook/guide/setup.md:3-5" in line)
        assert "  Lamp" in shown.lines[at] and shown.lines[at].count("setup.md") == 1
        assert "The oil is kept in the cellar." in shown.lines[at + 1]
        assert "handbook/paper.pdf p. 3" in shown.lines[at + 2] and "2 passages" in shown.text
        assert source.library.asked[-1] == ("oil", ())
        await shown.press("down", "enter")
        assert front(shown) == "SourceScreen" and "Lamps and oil." in shown.text
        await shown.press("escape")
        assert front(shown) == "DocumentSearchScreen"


async def test_tab_searches_only_in_the_collection_under_the_cursor() -> None:
    source = service()
    async with documents(source) as shown:
        await shown.press("slash")
        shown.app.post_message(events.Paste("oil"))  # at once: typed slowly, it is searched for letter by letter
        await until(shown.app, lambda: source.library.asked)
        assert front(shown) == "DocumentSearchScreen"
        await shown.press("tab")
        await until(shown.app, lambda: "Nothing found." in shown.text and "tab everywhere" in shown.text)
        assert source.library.asked == [("oil", ()), ("oil", ("docs/handbook/",))]


async def test_both_rows_of_the_last_result_are_in_view() -> None:
    source = service()
    source.library.passages = [passage(f"{number}.md", "1-2", f"oil number {number}") for number in range(40)]
    async with documents(source) as shown:
        await shown.press("slash")
        await search(shown, "oil")
        for _ in range(25):
            await shown.press("down")
        at = next(i for i, line in enumerate(shown.lines) if "▌" in line)
        assert "25.md" in shown.lines[at] and "oil number 25" in shown.lines[at + 1]


def test_a_snippet_begins_near_the_words() -> None:
    text = "nothing here\n" + "word " * 60 + "the brass lamp turns\nend"
    assert "brass lamp turns" in snippet(text, "brass lamp")[:60] and snippet(text, "brass lamp").startswith("… ")
    assert snippet("", "x") == "" and snippet("a\x1b[2Jb", "zzz") == "a␛[2Jb"


# -- adding


async def test_a_folder_is_completed_named_and_added(tmp_path: Path) -> None:
    for name in ("Hand Book", "harbour", "other", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "handle.txt").write_text("x")
    source = service()
    async with documents(source) as shown:
        await shown.press("a")
        assert front(shown) == "AddDocumentsScreen"
        await shown.type(f"{tmp_path}/ha")
        await shown.pilot.pause()
        await settled_offers(shown)
        assert "Hand Book/" in shown.text and "harbour/" in shown.text and "handle.txt" not in shown.text
        assert "other/" not in shown.text and ".hidden" not in shown.text
        await shown.press("tab")
        await settled_offers(shown)
        assert shown.app.screen.query_one("#path Input", Input).value == f"{tmp_path}/Hand Book/"
        assert shown.app.screen.query_one("#name Input", Input).value == "hand-book"
        await shown.press("enter")
        await settled(shown)
        assert source.did == [("add", f"{tmp_path}/Hand Book/", "")]
        assert front(shown) == "ManagerScreen" and "▌ hand book" in shown.text and "is being indexed" in shown.text


async def settled_offers(shown: Shown) -> None:
    while any(worker.group == "offer" and not worker.is_finished for worker in shown.app.workers):
        await shown.pilot.pause(0.01)
    await shown.pilot.pause()


async def test_the_person_may_give_another_name(tmp_path: Path) -> None:
    source = service()
    async with documents(source, add=str(tmp_path)) as shown:
        await settled_offers(shown)
        await shown.press("shift+tab", "end", "ctrl+u")
        await shown.type("my notes")
        await shown.press("enter")
        assert "A name has letters" in shown.prose and source.did == []
        await shown.press("ctrl+u")
        await shown.type("mine")
        await shown.press("enter")
        await settled(shown)
        assert source.did == [("add", str(tmp_path), "mine")]


async def test_what_cannot_be_added_is_said_and_the_text_stays() -> None:
    source = service()
    async with documents(source, add="/nowhere/at/all") as shown:
        await settled_offers(shown)
        source.refuses = "There is no folder or file /nowhere/at/all."
        await shown.press("enter")
        await shown.pilot.pause()
        assert "There is no folder or file /nowhere/at/all." in shown.prose
        assert shown.app.screen.query_one("#path Input", Input).value == "/nowhere/at/all"
        await shown.press("escape")
        assert front(shown) == "ManagerScreen"


async def test_enter_takes_the_folder_that_the_arrows_went_to(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
    source = service()
    async with documents(source, add=f"{tmp_path}/") as shown:
        await settled_offers(shown)
        await shown.press("down", "enter")
        await settled_offers(shown)
        assert source.did == [] and shown.app.screen.query_one("#path Input", Input).value == f"{tmp_path}/bee/"


def test_pasted_paths_lose_their_quotes() -> None:
    assert [unquoted(text) for text in (" '/a b' ", '"/a b"', "/a\\ b", "/a'b")] == ["/a b", "/a b", "/a b", "/a'b"]


def test_folders_that_cannot_be_read_offer_nothing(tmp_path: Path) -> None:
    for name in ("a", "a/evil\x1b[2J"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a" / "loop")
    assert folders(f"{tmp_path}/a/") == [] and folders("/nowhere/x") == [] and folders("~nobody-at-all/x") == []
    assert folders("\0/") == []


async def test_the_name_avoids_those_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / "handbook").mkdir()
    async with showing(
        AddDocumentsScreen(service().add, {"/elsewhere": "Handbook"}, path=f"{tmp_path}/handbook")
    ) as shown:
        await settled_offers(shown)
        assert shown.app.screen.query_one("#name Input", Input).value == "handbook-2"


async def test_a_click_moves_the_cursor_and_a_double_click_shows_the_report() -> None:
    async with documents(Service(sample())) as shown:
        await shown.pilot.click(FocusRows, offset=(20, 1))
        await shown.pilot.pause()
        assert "logbooks" in shown.cursor_line
        await shown.pilot.click(FocusRows, offset=(20, 1), times=2)
        await shown.pilot.pause()
        assert front(shown) == "ReportScreen"


async def test_a_folder_that_is_indexed_already_keeps_its_name(tmp_path: Path) -> None:
    source = Service(Library(status("doc", str(tmp_path))))
    async with documents(source) as shown:
        await shown.press("a")
        await shown.type(f"{tmp_path}/")
        await settled_offers(shown)
        assert "name › doc" in shown.text and "This is the collection doc already" in shown.prose
        await shown.press("shift+tab")
        await shown.type("x")
        await settled_offers(shown)
        assert "name › doc " not in shown.text and "already" not in shown.prose
        await shown.press("backspace")
        await settled_offers(shown)
        assert "name › doc" in shown.text


async def test_what_is_said_of_an_indexing_goes_when_it_ends() -> None:
    source = service()
    async with documents(source) as shown:
        await shown.press("r")
        assert "Looking for changes in handbook." in shown.text
        source.end(IndexingReport("handbook", unchanged=1204))
        await settled(shown)
        assert "Looking for changes" not in shown.text


async def test_that_another_kvchat_indexes_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.ui.screens.kit.manager.RENEWAL", 0.05)
    source = service()
    source.reports["handbook"] = IndexingReport(
        "handbook", trouble="It is being indexed by another kvchat.", is_elsewhere=True
    )
    async with documents(source) as shown:
        assert "by another kvchat" in shown.text
        while ("index", "handbook", False) not in source.did:
            await shown.pilot.pause(0.02)
        assert "by another kvchat" in shown.text and "counting" not in shown.text
        source.end(IndexingReport("handbook", unchanged=1204))
        await settled(shown)
        assert "by another kvchat" not in shown.text and source.did.count(("index", "handbook", False)) == 1


async def test_files_of_other_kinds_are_no_skipped_files() -> None:
    skipped = [*SKIPPED, Skipped("", "holds 1,212 files of other kinds: .png 1,150, .pyc 62")]
    source = Service(Library(status("handbook", skipped=skipped)))
    async with documents(source) as shown:
        assert "3 skipped files, 1,212 of other kinds" in shown.text
        await shown.press("enter")
        assert "1,212 files of other kinds: .png 1,150, .pyc 62." in shown.prose and "3 skipped files" in shown.text


def test_a_snippet_is_the_line_that_matched() -> None:
    assert snippet("# Lamp\nThe oil is cold.\nIt burned for hours.", "burns? hours!") == "It burned for hours."


# -- a person's own keys


async def test_a_key_that_was_changed_does_it_and_stands_in_every_hint_and_sentence() -> None:
    keys = {"documents.stop": "z", "manager.add": "f7", "dialog.close": "ctrl+l", "documents.update": "t"}
    source = service()
    async with showing(source.screen(), keys=keys) as shown:
        await settled(shown)
        assert "t update" in shown.text and "F7 add" in shown.text and "^L close" in shown.text
        await shown.press("r", "c")
        assert source.did == [], "the keys that it had before are free"
        await shown.press("t")
        assert source.did == [("index", "handbook", False)] and "z stop indexing" in shown.text
        await shown.press("t")
        assert "It is being indexed; z stops that." in shown.text
        await shown.press("z")
        assert "What is indexed is kept; t goes on." in shown.text
        await shown.press("f7")
        assert front(shown) == "AddDocumentsScreen" and "^L cancel" in shown.text
        await shown.press("ctrl+l", "ctrl+l")
        assert shown.answers == [None]
    async with showing(Service().screen(), keys=keys) as shown:
        await settled(shown)
        assert "F7 adds a folder, or a single file." in shown.prose


def test_the_sources_do_what_the_table_of_actions_says() -> None:
    for context, screen in (("memory", memory_kit.service().screen()), ("documents", service().screen())):
        named = {action.id.partition(".")[2] for action in DIALOG_ACTIONS if action.context == context}
        assert named == set(screen.source.acts) - {"search"}

"""The view of a source: the text as it was read, what has become of its file, and handing the file over."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from documents_kit import SETUP, Library, Service, block, in_folder, service, status
from screens_kit import HOSTILE, MARKUP, Shown, showing

from kvchat.documents.attachments import attached
from kvchat.documents.collection import ref_of
from kvchat.documents.indexing.file_versions import Stamp
from kvchat.documents.source_state import file_lines, place_in, source_state
from kvchat.index.index import Chunk
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock
from kvchat.sanitize import clean
from kvchat.ui.screens.sources import SourceScreen, SourcesScreen, TextRows, at_line
from still import until

FILE_TEXT = f"# Setup\n\n{SETUP}\n\nThe end.\n"
PDF = "guide/tides.pdf"
AS_READ = "this is the text as it was read."


@pytest.fixture
def book(tmp_path: Path) -> Library:
    return in_folder(tmp_path / "handbook", {"guide/setup.md": FILE_TEXT})


def file_in(library: Library, path: str = "guide/setup.md") -> Path:
    return Path(library.get("handbook").root) / path


@asynccontextmanager
async def source(
    library: Library, shown_block: ContextBlock, *, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[Shown]:
    async with showing(SourceScreen(Service(library), shown_block, **options), size) as shown:
        await looked(shown)
        yield shown


async def looked(shown: Shown) -> None:
    while any(worker.group in ("look", "editor") and not worker.is_finished for worker in shown.app.workers):
        await shown.pilot.pause(0.01)
    await shown.pilot.pause()
    await shown.pilot.pause()


# -- what the file says by now


async def test_a_source_has_its_number_title_headings_file_and_numbered_lines(book: Library) -> None:
    async with source(book, block(3), number=3) as shown:
        assert "[3] handbook/guide/setup.md:3-5" in shown.line("╭") and "setup.md > Lamp" in shown.text
        assert "3 │ Trim the wick before dusk." in shown.text and "5 │ Light the lamp" in shown.text
        assert str(file_in(book))[-30:] in shown.text
        assert AS_READ not in shown.prose


async def test_a_text_that_moved_is_told_with_its_line(book: Library) -> None:
    file_in(book).write_text("one\ntwo\n" * 4 + FILE_TEXT)
    async with source(book, block(3)) as shown:
        assert "It stands at line 11 by now." in shown.prose and "11 │ Trim the wick" in shown.text


async def test_a_text_that_is_there_twice_is_found_in_its_own_place(book: Library) -> None:
    file_in(book).write_text(f"{SETUP}\n\n{SETUP}\n")
    assert source_state(book, block(3, where="5-7")).line == 5
    assert source_state(book, block(3, where="1-3")).line == 1


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (FILE_TEXT.replace("dusk", "dawn"), f"The file has changed since; {AS_READ}"),
        (None, f"The file is gone; {AS_READ}"),
    ],
)
async def test_a_file_that_says_something_else_is_told_and_the_text_stays(
    book: Library,
    now: str | None,
    words: str,
) -> None:
    if now is None:
        file_in(book).unlink()
    else:
        file_in(book).write_text(now)
    async with source(book, block(3)) as shown:
        assert words in shown.prose and "Trim the wick before dusk." in shown.text
        await shown.press("Y")
        assert shown.app.clipboard == SETUP


def test_line_ends_and_blanks_at_their_ends_are_no_change(book: Library) -> None:
    file_in(book).write_bytes(b"\xef\xbb\xbf" + FILE_TEXT.replace("\n", "  \r\n").encode())
    assert source_state(book, block(3)).words == ""


def test_a_collection_that_is_gone_is_named(book: Library) -> None:
    assert source_state(Library(), block(3)).words == f"There is no collection handbook any more; {AS_READ}"
    book.statuses = {"handbook": status("handbook", "/nowhere/handbook")}
    assert source_state(book, block(3)).words == f"The folder of handbook is missing, /nowhere/handbook; {AS_READ}"


@pytest.mark.parametrize("path", ["link.md", "../secret.md", "folder/secret.md"])
async def test_a_file_outside_of_its_collection_is_not_opened(book: Library, path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text(SETUP)
    file_in(book, "link.md").symlink_to(tmp_path / "secret.md")
    file_in(book, "folder").symlink_to(tmp_path)
    found = source_state(book, block(3, path))
    assert found.path is None
    assert found.words == f"The file leads out of the folder of handbook, so it is not opened; {AS_READ}"
    async with source(book, block(3, path)) as shown:
        await shown.press("e")
        await looked(shown)
        assert shown.prose.count("leads out of the folder of handbook") == 2


def test_a_pdf_is_as_it_was_while_index_and_file_are(book: Library) -> None:
    pdf = file_in(book, PDF)
    pdf.write_bytes(b"%PDF-1.7")
    found, doc = pdf.stat(), f"docs/handbook/{PDF}"
    book.index.chunks[doc] = [Chunk("p3", "", SETUP)]
    book.index.stamps[doc] = str(Stamp(found.st_size, found.st_mtime_ns, 1, "ab"))
    shown_block = block(3, PDF, "p3")
    assert source_state(book, shown_block).words == ""
    assert source_state(book, block(3, PDF, "p3", text="other")).words == f"The file has changed since; {AS_READ}"
    os.utime(pdf, ns=(1, 1))
    assert source_state(book, shown_block).words == f"The file has changed since; {AS_READ}"


def test_an_attached_file_is_compared_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "note.md"
    path.write_text(FILE_TEXT)
    file = attached(path, "note.md", 1 << 20)
    assert file.kind == FILE and (source_state(Library(), file).words, source_state(Library(), file).path) == ("", path)
    path.write_text(FILE_TEXT + "more\n")
    assert source_state(Library(), file).words == f"The file has changed since; {AS_READ}"
    path.unlink()
    assert source_state(Library(), file).words == f"The file is gone; {AS_READ}"


def test_a_source_without_a_place_says_so() -> None:
    assert "is not known" in source_state(Library(), ContextBlock(PASSAGE, "[1] notes", "x")).words


# -- showing


@pytest.mark.slow
async def test_a_hostile_source_is_shown_as_signs() -> None:
    async with source(Library(), block(1)) as shown:
        for text in [*HOSTILE, MARKUP]:
            evil = ContextBlock(PASSAGE, f"[1] {text}", text, ref_of(f"docs/x/{text}", "1-2"))
            shown.app.push_screen(screen := SourceScreen(Service(Library()), evil, number=1, query=text[:20]))
            await looked(shown)
            assert shown.app.screen is screen and shown.text == clean(shown.text)
            shown.app.pop_screen()


async def test_a_long_text_wraps_scrolls_and_survives_a_resize(book: Library) -> None:
    text = "\n".join(f"line {number} " + "word " * 40 for number in range(400))
    file_in(book).write_text(text)
    async with source(book, block(3, where="1-400", text=text)) as shown:
        assert "  1 │ line 0 word" in shown.text
        await shown.press("end")
        await until(shown.app, lambda: "400 │ line 399 word" in shown.text)
        rows = shown.app.screen.query_one(TextRows)
        before = rows.virtual_size
        await shown.pilot.resize_terminal(120, 40)
        await until(shown.app, lambda: rows.virtual_size != before)  # it is wrapped anew
        await shown.press("end")
        await until(shown.app, lambda: "400 │ line 399 word" in shown.text)
        await shown.press("home", "space")
        await until(shown.app, lambda: rows.scroll_offset.y > 0)


async def test_a_megabyte_on_one_line_opens() -> None:
    async with source(Library(), block(1, text="x" * 1_000_000)) as shown:
        await shown.press("end")
        assert "xxxx" in shown.text


# -- doing


async def test_y_copies_path_and_lines_and_the_title_where_there_is_no_file(book: Library) -> None:
    async with source(book, block(3)) as shown:
        await shown.press("y")
        assert shown.app.clipboard == f"{file_in(book)}:3-5"
    async with source(Library(), block(3)) as shown:
        await shown.press("y")
        assert shown.app.clipboard == "handbook/guide/setup.md:3-5"


def test_a_place_is_copied_as_its_kind_of_file_has_it(book: Library) -> None:
    for path, where, expected in (
        (PDF, "p3-4", " p. 3-4"),
        ("a.docx", "¶4-9", ""),
        ("a.epub", "¶4", ""),
        ("guide/setup.md", "4~2", ":4"),
    ):
        file_in(book, path).write_text("x\n")
        one = block(1, path, where)
        assert file_lines(source_state(book, one), place_in(one)) == f"{file_in(book, path)}{expected}"


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an editor and a pager were called with, and what was in the file; the terminal is not really given away."""
    record = tmp_path / "handed"
    program = tmp_path / "less"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(record)!r}, 'a').write("
        "repr(sys.argv[1:]) + '\\n' + open(sys.argv[-1], errors='replace').read())\n"
    )
    program.chmod(0o755)
    (tmp_path / "vim").symlink_to(program)
    monkeypatch.setenv("PAGER", str(program))
    monkeypatch.setattr("textual.app.App.suspend", lambda _: nullcontext())
    return record


async def test_e_opens_the_file_at_its_line_and_looks_again(book: Library, handed: Path, tmp_path: Path) -> None:
    origin = Service(book)
    async with showing(SourceScreen(origin, block(3), editor=str(tmp_path / "vim"))) as shown:
        await looked(shown)
        await shown.press("e")
        await looked(shown)
        assert handed.read_text() == f"{['+3', str(file_in(book))]!r}\n{FILE_TEXT}"


async def test_p_pages_the_file_and_of_a_pdf_or_a_missing_file_the_text(book: Library, handed: Path) -> None:
    async with source(book, block(3)) as shown:
        await shown.press("p")
        await looked(shown)
        assert handed.read_text().startswith(repr(["+3", str(file_in(book))]))
    file_in(book, PDF).write_bytes(b"%PDF-1.7")
    for path in (PDF, "gone.md"):
        handed.unlink()
        async with source(book, block(3, path, "p3", text="clear\x1b[2J")) as shown:
            await shown.press("p")
            await looked(shown)
            called, _, text = handed.read_text().partition("\n")
            assert text == "clear␛[2J\n" and "kvchat-" in called
            assert not Path(called.strip("[]'")).exists(), "the text is not left behind"


async def test_an_editor_is_not_given_a_pdf(book: Library) -> None:
    file_in(book, PDF).write_bytes(b"%PDF-1.7")
    async with source(book, block(3, PDF, "p3")) as shown:
        await shown.press("e")
        await looked(shown)
        assert "An editor cannot show this PDF file; p shows its text." in shown.prose


@pytest.mark.parametrize("name", ["keeper.epub", "plan.odt"])
async def test_a_file_of_parts_is_read_and_an_editor_is_not_given_it(book: Library, name: str) -> None:
    file_in(book, name).write_bytes(b"PK\x03\x04\0\0")
    async with source(book, block(3, name, "¶3")) as shown:
        assert "cannot be read now" not in shown.prose
        await shown.press("e")
        await looked(shown)
        assert f"An editor cannot show this {name[-4:].strip('.').upper()} file; p shows its text." in shown.prose


async def test_a_pager_that_cannot_be_run_is_told(book: Library, handed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, words in (
        ("/nowhere/pager", "Cannot run the pager /nowhere/pager"),
        ("false", "The pager false ended with status 1."),
        ('"', "Set $PAGER"),
    ):
        monkeypatch.setenv("PAGER", command)
        async with source(book, block(3)) as shown:
            await shown.press("p")
            await looked(shown)
            assert words in shown.prose


async def test_a_terminal_that_cannot_be_given_away_says_so(book: Library) -> None:
    async with source(book, block(3)) as shown:
        await shown.press("p")
        await looked(shown)
        assert "cannot be handed to another program" in shown.prose


def test_only_pagers_that_are_known_get_the_line() -> None:
    path = Path("/a b.md")
    assert at_line(["less", "-R"], path, 7) == ["less", "-R", "+7", "/a b.md"]
    assert at_line(["bat"], path, 7) == ["bat", "/a b.md"]
    assert at_line(["less"], path, 1) == ["less", "/a b.md"]


# -- several


LISTED = [(1, block(1)), (2, block(2, "oil.md", "7")), (12, block(12, PDF, "p3", head=""))]


async def test_the_list_has_numbers_titles_and_headings() -> None:
    async with showing(SourcesScreen(service(), LISTED, words="Sent with the question:")) as shown:
        assert shown.line("1  handbook/guide/setup.md:3-5").rstrip(" │").endswith("setup.md > Lamp")
        assert "12  handbook/guide/tides.pdf p. 3" in shown.text and "Sent with the question:" in shown.text


async def test_a_number_opens_its_source_and_esc_comes_back() -> None:
    async with showing(SourcesScreen(service(), LISTED)) as shown:
        await shown.press("2")
        assert isinstance(shown.app.screen, SourceScreen) and "[2] handbook/oil.md:7" in shown.text
        await shown.press("escape")
        assert isinstance(shown.app.screen, SourcesScreen) and "oil.md" in shown.cursor_line
        await shown.press("1")
        assert isinstance(shown.app.screen, SourcesScreen), "1 may become 12"
        await shown.press("2")
        assert isinstance(shown.app.screen, SourceScreen) and "[12] handbook" in shown.text
        await shown.press("escape", "1", "enter")
        assert "[1] handbook/guide/setup.md" in shown.text
        await shown.press("escape", "escape")
        assert shown.answers == [None]


async def test_a_hostile_list_is_shown_as_signs() -> None:
    listed = [
        (number, ContextBlock(PASSAGE, f"[{number}] {text}", text, f"docs/{text}#1"))
        for number, text in enumerate([*HOSTILE, MARKUP], 1)
    ]
    async with showing(SourcesScreen(service(), listed, words=MARKUP)) as shown:
        assert shown.text == clean(shown.text)
        await shown.press("end")
        assert shown.text == clean(shown.text)


async def test_a_copied_path_cannot_press_enter_in_a_shell() -> None:
    async with source(Library(), block(3, "a\nrm -rf x\n.md", "1-2")) as shown:
        await shown.press("y")
        assert "\n" not in shown.app.clipboard and "␊rm -rf x␊" in shown.app.clipboard

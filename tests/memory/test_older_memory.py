"""A memory that kvchat 0.2 left: `fixtures/memory_of_0_2.zip`, whose folder could not be written from some change on."""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from book_kit import Book
from killing import forked, kill_at

from kvchat.memory.entry import Kind, MemoryTrouble, Status

FACTS = "topics/facts.md"
KNOWN = {
    "By hand": "topics/mine.md",
    "Is moved": "topics/attic.md",
    "Is new": FACTS,
    "My name is Bo": "profile.md",
    "Stays where it is": FACTS,
    "Was added and edited": FACTS,
    "Was edited": FACTS,
    "Was typed over": FACTS,
    "Works at Umbrella": "topics/people.md",
}


def unpacked(base: Path) -> Book:
    with zipfile.ZipFile(Path(__file__).parents[1] / "fixtures" / "memory_of_0_2.zip") as archive:
        archive.extractall(base)
    return Book(base, clock=time.time)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = unpacked(tmp_path)
    yield made
    made.close()


def known(book: Book) -> dict[str, str]:
    return {entry.text: entry.page for entry in book.memories.entries()}


def test_what_0_2_could_not_write_is_written_and_the_rest_is_as_it_was(book: Book) -> None:
    before = book.pages()
    stayed = [line for line in before[FACTS].splitlines() if "Stays where it is" in line]
    assert book.memories.sync() is True
    assert known(book) == KNOWN and book.texts(Status.DELETED) == ["Is deleted"]
    assert book.texts(Status.SUPERSEDED) == ["Works at Acme"]
    book.check()
    after = book.pages()
    assert {name: after[name] for name in ("profile.md", "topics/mine.md")} == {
        name: before[name] for name in ("profile.md", "topics/mine.md")
    }
    assert [line for line in after[FACTS].splitlines() if "Stays where it is" in line] == stayed
    assert book.again().sync() is False and known(book) == KNOWN
    book.memories.undo(book.memories.log(entry=book.memories.entries(Status.DELETED)[0].id)[0].seq)
    assert "Is deleted" in book.text(FACTS)
    book.check()


def test_what_the_user_did_since_then_comes_first(book: Book) -> None:
    book.change(FACTS, "Is typed over", "Typed by hand")
    book.without_line(FACTS, "Is edited")
    book.without_line(FACTS, "Is deleted")
    book.memories.sync()
    assert known(book) == {"Typed by hand": FACTS} | {
        text: page for text, page in KNOWN.items() if text not in ("Was typed over", "Was edited")
    }
    assert book.texts(Status.DELETED) == ["Is deleted", "Was edited"]
    book.check()


def refused(book: Book, words: str) -> None:
    """Everything is known and found, and nothing can be changed."""
    for _ in range(2):
        book.memories.sync()
        assert known(book) == KNOWN and words in book.memories.problems[0]
        assert book.memories.search("umbrella")
        with pytest.raises(MemoryTrouble, match=words):
            book.memories.add("Likes tea", Kind.PREFERENCE)


def test_a_page_that_still_cannot_be_written_is_waited_for(book: Book) -> None:
    book.path(FACTS).chmod(0o400)
    refused(book, "is read-only")
    book.path(FACTS).chmod(0o600)
    book.memories.sync()
    assert known(book) == KNOWN
    book.check()


def test_a_page_that_is_broken_is_waited_for(book: Book) -> None:
    whole = book.text(FACTS)
    book.write(FACTS, f'---\nkind: "x\n---\n{whole}')
    refused(book, "facts.md:2")
    book.write(FACTS, whole)
    book.memories.sync()
    assert known(book) == KNOWN
    book.check()


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "another folder"])
def test_a_folder_that_is_not_there_is_waited_for(book: Book, left: str) -> None:
    away = book.base / "away"
    book.folder.rename(away)
    if left != "nothing":
        book.folder.mkdir()
    if left == "another folder":
        book.write("topics/old.md", "- Bread recipe\n")
    refused(book, "another folder" if left == "another folder" else "no page left in")
    assert left == "nothing" or not book.path(FACTS).exists()
    if left != "nothing":
        book.folder.rename(book.base / "elsewhere")
    away.rename(book.folder)
    book.memories.sync()
    assert known(book) == KNOWN
    book.check()


@pytest.mark.process
def test_a_kill_at_any_point_of_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for step in range(0, 2000, 7):
        base = tmp_path / str(step)
        unpacked(base).close()

        def work(base: Path = base, step: int = step) -> None:
            book = Book(base, clock=time.time)
            kill_at(step, book.memories.sync)

        status = os.waitpid(forked(work), 0)[1]
        book = Book(base, clock=time.time)
        book.memories.sync()
        assert known(book) == KNOWN, step
        book.check()
        book.close()
        if status == 0:
            break
    assert 100 < step < 1990

"""What was one act is taken back as one, exactly as it was before; what cannot be taken back says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from book_kit import Book, fact
from msgspec.structs import replace

from kvchat.memory.entry import PROFILE, Act, Change, Entry, Kind, MemoryTrouble, Status, new_id

FACTS = "topics/facts.md"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


def summed_up(book: Book) -> tuple[Entry, float]:
    """Two memories and the one that took their place, and when it did."""
    book.extract("Likes tea", "Owns a cat called Momo")
    at = book.clock()
    new = Entry(new_id(), Kind.FACT, "Likes tea, owns a cat Momo", FACTS, at, by="m")
    changes = [Change(Act.NOTED, None, new, at, "two", "sums up 2 memories")]
    changes += [
        Change(Act.SUMMARISED, old, replace(old, status=Status.SUPERSEDED, superseded_by=new.id), at, "two")
        for old in book.memories.entries()
    ]
    assert book.memories.consolidate(changes) == 3
    return new, at


def undo(book: Book, act: Act) -> Change:
    return book.memories.undo(next(change.seq for change in book.memories.log() if change.act is act))


def test_a_summary_that_the_person_edited_stays_alone_when_all_is_taken_back(book: Book) -> None:
    new, at = summed_up(book)
    book.memories.edit(new.id, "Likes tea and owns the cat Momo, in my own words")
    assert book.memories.undo_all(since=at) == 0
    assert book.texts() == ["Likes tea and owns the cat Momo, in my own words"]
    assert len(book.memories.left) == 3
    book.check()


def test_a_summary_is_taken_back_as_a_whole_by_any_of_its_changes_and_made_again(book: Book) -> None:
    new, _ = summed_up(book)
    undone = undo(book, Act.SUMMARISED)
    assert book.texts() == ["Likes tea", "Owns a cat called Momo"]
    book.memories.undo(undone.seq)
    assert book.texts() == [new.text]
    book.check()


def test_a_summary_is_taken_back_with_all(book: Book) -> None:
    _, at = summed_up(book)
    assert book.memories.undo_all(since=at) == 3
    assert book.texts() == ["Likes tea", "Owns a cat called Momo"]
    book.check()


def test_a_correction_that_the_person_said_yes_to_is_left_when_all_is_taken_back(book: Book) -> None:
    old = book.memories.add("Works at Acme")
    (new,) = book.extract(fact("Works at Umbrella", replaces=old.id)) or ()
    book.memories.accept(new.id)
    book.memories.undo_all(session="one")
    assert book.texts() == ["Works at Umbrella"]
    book.check()


@pytest.mark.parametrize("act", [Act.EDITED, Act.ADDED])
def test_a_line_that_was_retyped_is_what_it_was(book: Book, act: Act) -> None:
    first = book.memories.add("Likes tea with milk in the morning")
    book.write(FACTS, "- Likes coffee with milk in the morning\n")
    book.memories.sync()
    undo(book, act)
    assert book.memories.entries() == [first]
    book.check()


def test_a_line_by_hand_that_was_moved_by_hand_goes_back(book: Book) -> None:
    book.write("topics/a.md", "- Speaks Basque\n- Plays the oboe\n")
    book.memories.sync()
    before = book.memories.entries()
    book.write("topics/a.md", "- Speaks Basque\n")
    book.write("topics/b.md", "- Plays the oboe\n")
    book.memories.sync()
    undo(book, Act.MOVED)
    assert sorted(book.memories.entries(), key=str) == sorted(before, key=str)
    assert "oboe" in book.text("topics/a.md") and "oboe" not in book.text("topics/b.md")


def test_a_proposal_that_was_written_down_waits_again_when_the_line_is_taken_back(book: Book) -> None:
    (asked,) = book.extract(fact("Is called Ada", Kind.IDENTITY)) or ()
    book.write(PROFILE, "- Is called Ada\n")
    book.memories.sync()
    assert book.memories.get(asked.id).status is Status.SUPERSEDED
    undo(book, Act.ADDED)
    assert book.memories.entries(Status.PENDING) == [asked] and book.texts() == []


def test_links_and_the_check_box_of_the_person_survive_edit_and_undo(book: Book) -> None:
    line = "- [x] Speaks **Basque**, see [[Catalan]] and [the course](https://example.org)"
    book.write("topics/a.md", line + "\n")
    book.memories.sync()
    (entry,) = book.memories.entries()
    book.memories.edit(entry.id, "Speaks Basque")
    undo(book, Act.EDITED)
    assert book.text("topics/a.md").startswith(line)
    assert book.memories.entries() == [entry] and book.memories.problems == ()


def test_links_of_the_person_survive_a_move(book: Book) -> None:
    book.write("topics/a.md", "- [[Basque]] is spoken, see [[Catalan]]\n")
    book.memories.sync()
    (entry,) = book.memories.entries()
    book.memories.move(entry.id, "languages")
    assert "- [[Basque]] is spoken, see [[Catalan]] <!--" in book.text("topics/languages.md")
    assert [one.text for one in book.memories.entries()] == [entry.text]


def test_an_undo_to_a_page_that_cannot_be_made_says_so_and_changes_nothing(book: Book) -> None:
    book.write("topics/Was? Wann.md", "- Speaks Basque\n")
    book.memories.sync()
    (entry,) = book.memories.entries()
    moved = book.memories.move(entry.id, "facts")
    book.path("topics/Was? Wann.md").unlink()
    book.memories.sync()
    with pytest.raises(MemoryTrouble, match="is not there any more"):
        undo(book, Act.MOVED)
    assert book.memories.entries() == [moved]
    assert book.memories.sync() is False and book.memories.problems == ()


def test_an_edit_into_what_is_remembered_is_refused_in_words(book: Book) -> None:
    first = book.memories.add("The rule is two spaces")
    other = book.memories.add("Something else altogether")
    with pytest.raises(MemoryTrouble, match=f"remembered already, as {first.id}"):
        book.memories.edit(other.id, "the rule is 2 spaces.")
    assert book.texts() == ["Something else altogether", "The rule is two spaces"]
    book.check()

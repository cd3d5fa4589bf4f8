"""The history: every change can be taken back, and taking back can be taken back; a session's notes all at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from book_kit import Book, fact

from kvchat.memory.entry import Act, Kind, MemoryTrouble, Status


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


def last(book: Book, act: Act) -> int:
    """The number of the newest change of that kind."""
    return next(change.seq for change in book.memories.log() if change.act is act)


def test_each_change_is_taken_back_and_forth(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    steps = [
        lambda: book.memories.edit(entry.id, "Likes coffee"),
        lambda: book.memories.move(entry.id, "drinks"),
        lambda: book.memories.delete(entry.id),
    ]
    for step in steps:
        before, files = book.memories.get(entry.id), book.pages()
        step()
        after = book.memories.get(entry.id)
        seq = book.memories.log(1)[0].seq
        undone = book.memories.undo(seq)
        assert (undone.act, undone.after, book.memories.log(1)[0]) == (Act.RESTORED, before, undone)
        assert {page: text for page, text in book.pages().items() if page in files} == files
        assert book.memories.log(2)[1].undone
        book.check()
        book.memories.undo(undone.seq)
        assert book.memories.get(entry.id) == after
        book.check()


def test_what_was_added_is_gone_when_taken_back_and_there_when_that_is(book: Book) -> None:
    book.memories.add("Likes tea")
    undone = book.memories.undo(book.memories.log()[0].seq)
    assert book.texts() == [] and undone.after.status is Status.DELETED
    book.memories.undo(undone.seq)
    assert book.texts() == ["Likes tea"]
    book.check()


def test_an_older_change_is_taken_back_without_losing_a_newer_one(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    book.memories.move(entry.id, "drinks")
    book.memories.edit(entry.id, "Likes coffee")
    book.memories.undo(last(book, Act.MOVED))
    now = book.memories.get(entry.id)
    assert (now.text, now.page) == ("Likes coffee", "topics/facts.md")
    book.check()


def test_a_change_under_a_newer_one_says_so(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    book.memories.edit(entry.id, "Likes coffee")
    first = last(book, Act.EDITED)
    book.memories.edit(entry.id, "Likes water")
    with pytest.raises(MemoryTrouble, match="Undo the newer change first"):
        book.memories.undo(first)
    assert book.texts() == ["Likes water"]


def test_what_is_undone_is_not_undone_twice(book: Book) -> None:
    book.memories.add("Likes tea")
    seq = book.memories.log()[0].seq
    book.memories.undo(seq)
    with pytest.raises(MemoryTrouble, match="no effect any more"):
        book.memories.undo(seq)
    with pytest.raises(MemoryTrouble, match="There is no change 99"):
        book.memories.undo(99)


def test_a_deletion_by_hand_is_taken_back(book: Book) -> None:
    book.memories.add("Likes tea")
    book.write("topics/facts.md", "- By hand only\n" + book.text("topics/facts.md"))
    book.memories.sync()
    book.without_line("topics/facts.md", "tea")
    book.without_line("topics/facts.md", "hand")
    book.memories.sync()
    assert book.texts() == []
    for change in book.memories.log(2):
        assert change.act is Act.DELETED
        book.memories.undo(change.seq)
    assert book.texts() == ["By hand only", "Likes tea"]
    book.check()


def test_an_edit_by_hand_is_taken_back(book: Book) -> None:
    book.memories.add("Likes tea")
    book.change("topics/facts.md", "Likes tea", "Hates tea")
    book.memories.sync()
    book.memories.undo(last(book, Act.EDITED))
    assert book.texts() == ["Likes tea"]
    assert "- Likes tea <" in book.text("topics/facts.md")
    book.check()


def test_taking_back_a_correction_brings_the_older_back_and_takes_the_newer_away(book: Book) -> None:
    for act in (Act.CORRECTED, Act.NOTED):
        (old,) = book.extract(f"Works at Acme since {act}") or ()
        (new,) = book.extract(fact(f"Works at Umbrella since {act}", replaces=old.id)) or ()
        undone = book.memories.undo(last(book, act))
        assert undone.after.id == (old.id if act is Act.CORRECTED else new.id)
        assert (book.memories.get(old.id).status, book.memories.get(new.id).status) == (Status.LIVE, Status.DELETED)
        book.check()
        book.memories.undo(undone.seq) if act is Act.NOTED else book.memories.undo(last(book, Act.RESTORED))
        book.memories.delete(next(entry.id for entry in book.memories.entries() if str(act) in entry.text))


def test_undoing_an_undone_correction_makes_it_again(book: Book) -> None:
    (old,) = book.extract("Works at Acme") or ()
    (new,) = book.extract(fact("Works at Umbrella", replaces=old.id)) or ()
    undone = book.memories.undo(last(book, Act.NOTED))
    for _ in range(2):
        undone = book.memories.undo(undone.seq)
        assert book.texts() == ["Works at Umbrella"]
        assert book.memories.get(old.id).superseded_by == new.id
        undone = book.memories.undo(undone.seq)
        assert book.texts() == ["Works at Acme"]
        book.check()


def test_taking_back_a_yes_makes_it_a_proposal_again(book: Book) -> None:
    old = book.memories.add("Works at Acme", page="profile")
    (new,) = book.extract(fact("Works at Umbrella", Kind.IDENTITY, replaces=old.id)) or ()
    book.memories.accept(new.id)
    book.memories.undo(last(book, Act.ACCEPTED))
    assert book.memories.get(new.id).status is Status.PENDING
    assert book.texts() == ["Works at Acme"]
    book.check()


def test_what_was_added_again_is_not_doubled_by_an_undo(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    book.memories.delete(entry.id)
    book.memories.add("Likes tea")
    with pytest.raises(MemoryTrouble, match="remembered already"):
        book.memories.undo(last(book, Act.DELETED))
    book.check()


def test_a_session_is_taken_back_at_once(book: Book) -> None:
    book.extract("Kept from before")
    before = book.texts()
    book.again("two")
    book.memories.add("Said by the person")
    (old,) = book.extract("Works at Acme") or ()
    book.extract(fact("Works at Umbrella", replaces=old.id), fact("Is called Ada", Kind.IDENTITY), "kept from before")
    book.again("three")
    assert book.memories.undo_all(session="two") == 4, "three new ones and a correction"
    assert book.texts() == sorted([*before, "Said by the person"])
    assert book.memories.entries(Status.PENDING) == [] and book.memories.left == ()
    book.check()
    assert book.memories.undo_all(session="two") == 0
    assert book.extract("Works at Umbrella", fact("Is called Ada", Kind.IDENTITY)) == []


def test_with_nothing_named_the_session_that_noted_last_is_taken_back(book: Book) -> None:
    book.extract("Kept from before")
    book.again("two")
    book.extract("Junk")
    book.again("three")
    assert book.memories.undo_all() == 1
    assert book.texts() == ["Kept from before"]


def test_one_conversation_is_taken_back(book: Book) -> None:
    talk = book.talk()
    book.extract("From this talk", talk=talk)
    book.extract("From another talk")
    assert book.memories.undo_all(conversation=talk[0]) == 1
    assert book.texts() == ["From another talk"]


def test_a_session_that_corrected_older_ones_gives_them_back(book: Book) -> None:
    (old,) = book.extract("Works at Acme") or ()
    book.again("two")
    book.extract(fact("Works at Umbrella", replaces=old.id))
    assert book.memories.undo_all(session="two") == 2, "what was noted, and what was corrected by it"
    assert book.texts() == ["Works at Acme"]
    book.check()


def test_what_the_person_made_their_own_is_left_and_told(book: Book) -> None:
    tea, coffee, name, junk = (
        book.extract("Likes tea", "Likes coffee", fact("Is called Ada", Kind.IDENTITY), "Junk") or ()
    )
    book.memories.edit(tea.id, "Likes green tea")
    book.change("topics/facts.md", "Likes coffee", "Likes black coffee")
    book.memories.accept(name.id)
    assert book.memories.undo_all(session="one") == 1
    assert book.texts() == ["Is called Ada", "Likes black coffee", "Likes green tea"]
    assert book.memories.get(junk.id).status is Status.DELETED
    assert sorted(sentence.split()[0] for sentence in book.memories.left) == sorted([tea.id, coffee.id, name.id])
    book.check()


def test_taking_all_back_is_taken_back(book: Book) -> None:
    book.extract("Likes tea", "Likes coffee")
    book.memories.undo_all(session="one")
    for change in book.memories.log(2):
        book.memories.undo(change.seq)
    assert book.texts() == ["Likes coffee", "Likes tea"]
    book.check()
    assert book.memories.undo_all(session="one") == 2


def test_the_log_is_asked_by_session_conversation_and_entry(book: Book) -> None:
    talk = book.talk()
    (tea,) = book.extract("Likes tea", talk=talk) or ()
    book.again("two")
    book.memories.edit(tea.id, "Likes green tea")
    book.memories.add("Something else")
    assert [change.act for change in book.memories.log(session="one")] == [Act.NOTED]
    assert [change.act for change in book.memories.log(entry=tea.id)] == [Act.EDITED, Act.NOTED]
    assert {change.after.id for change in book.memories.log(conversation=talk[0])} == {tea.id}
    assert len(book.memories.log(1)) == 1

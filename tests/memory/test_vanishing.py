"""Lines that are gone from the files without the person having meant it: kept, and told."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from book_kit import START, Book

from kvchat.memory.entry import Act, Kind, MemoryTrouble, Status
from kvchat.memory.pages import files

FACTS = "topics/facts.md"
PEOPLE = "topics/people.md"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


def two_pages(book: Book) -> None:
    book.memories.add("My name is Bo", page="profile")
    for word in ("tea", "coffee", "water"):
        book.memories.add(f"Drinks {word}")
    for name in ("Ada", "Grace", "Edsger"):
        book.memories.add(f"Knows {name}", Kind.PERSON)


# Whole pages


def test_topics_that_are_gone_for_a_while_are_no_deletion(book: Book) -> None:
    """As when a sync tool or a mount has brought profile.md and not yet the folder."""
    book.memories.add("My name is Bo", page="profile")
    book.extract("Likes tea", "Owns a cat")
    away = book.base / "elsewhere"
    book.path("topics").rename(away)
    book.memories.sync()
    assert "2 memories of topics/facts.md" in book.memories.problems[0]
    assert book.memories.entries(Status.DELETED) == []
    with pytest.raises(MemoryTrouble, match=r"2 memories of topics/facts\.md cannot be found"):
        book.memories.add("Speaks Basque")
    assert not book.path(FACTS).exists(), "begun anew, the rest of the page would count as deleted"
    away.rename(book.path("topics"))
    book.memories.sync()
    assert book.texts() == ["Likes tea", "My name is Bo", "Owns a cat"]
    book.check()


def test_an_emptied_page_is_no_deletion_beside_a_profile_of_one_heading(book: Book) -> None:
    book.write("profile.md", "# Me\n")
    book.extract("Likes tea", "Owns a cat")
    book.write(FACTS, "")
    book.memories.sync()
    assert FACTS in book.memories.problems[0]
    assert book.memories.entries(Status.DELETED) == []


def test_another_folder_with_pages_in_it_is_neither_read_nor_a_deletion(book: Book) -> None:
    book.extract("Likes tea", "Owns a cat")
    home, vault = book.folder, book.base / "vault"
    (vault / "topics").mkdir(parents=True)
    (vault / "topics" / "old.md").write_text("- Bread recipe\n")
    book.folder = vault
    book.again().sync()
    assert "another folder" in book.memories.problems[0]
    assert book.texts() == ["Likes tea", "Owns a cat"]
    book.folder = home
    book.again().sync()
    assert book.texts() == ["Likes tea", "Owns a cat"]
    book.check()


def test_another_folder_with_the_same_pages_is_no_deletion(book: Book) -> None:
    two_pages(book)
    home, vault = book.folder, book.base / "vault"
    (vault / "topics").mkdir(parents=True)
    for name in (FACTS, PEOPLE, "profile.md"):
        (vault / name).write_text(f"- Another line of {name}\n")
    book.folder = vault
    book.again().sync()
    assert book.memories.problems and book.memories.entries(Status.DELETED) == []
    book.folder = home
    book.again().sync()
    assert len(book.texts()) == 7
    book.check()


def test_several_pages_that_are_gone_at_once_wait_for_a_word_of_the_person(book: Book) -> None:
    two_pages(book)
    book.path(FACTS).unlink()
    book.path(PEOPLE).unlink()
    book.memories.sync()
    assert "6 memories of topics/facts.md, topics/people.md" in book.memories.problems[0]
    assert len(book.memories.entries()) == 7
    for damaged in ("", "\n", "\0" * 64):
        book.write(FACTS, damaged)
        book.memories.sync()
        assert len(book.memories.entries()) == 7, "an empty page may be damage"
    book.write(FACTS, "# gone\n")
    book.memories.sync()
    assert len(book.texts(Status.DELETED)) == 3 and len(book.texts()) == 4
    book.write(PEOPLE, "# gone\n")
    book.memories.sync()
    assert book.texts() == ["My name is Bo"] and book.memories.problems == ()


def test_a_memory_of_a_page_that_is_held_can_be_deleted(book: Book) -> None:
    two_pages(book)
    book.path("topics").rename(book.base / "elsewhere")
    book.memories.sync()
    gone = [entry for entry in book.memories.entries() if entry.page != "profile.md"]
    for number, entry in enumerate(gone, start=1):
        book.memories.delete(entry.id)
        assert len(book.texts(Status.DELETED)) == number
    assert book.texts() == ["My name is Bo"] and book.memories.problems == ()
    book.check()


def emptied(book: Book) -> Callable[[], None]:
    text = book.text(FACTS)
    book.write(FACTS, "")
    return lambda: book.write(FACTS, text)


def moved_away(book: Book) -> Callable[[], None]:
    book.path("topics").rename(book.base / "elsewhere")
    return lambda: shutil.copytree(book.base / "elsewhere", book.path("topics"), dirs_exist_ok=True) and None


def back_by_another_name(book: Book) -> Callable[[], None]:
    book.path("topics").rename(book.base / "elsewhere")

    def back() -> None:
        moved = book.path("topics/other.md")
        moved.parent.mkdir()
        shutil.copy(book.base / "elsewhere" / "facts.md", moved)
        shutil.copy(book.base / "elsewhere" / "people.md", book.path(PEOPLE))

    return back


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("away", [emptied, moved_away, back_by_another_name])
def test_what_is_deleted_while_its_page_is_away_stays_deleted_when_that_is_back(
    book: Book, away: Callable[[Book], Callable[[], None]], restarts: bool
) -> None:
    two_pages(book)
    line = next(line for line in book.text(FACTS).splitlines() if "Drinks tea" in line)
    back = away(book)
    book.memories.sync()
    book.memories.delete(next(entry.id for entry in book.memories.entries() if entry.text == "Drinks tea"))
    assert book.memories.sync() is False
    if restarts:
        book.again()
    back()
    book.memories.sync()
    assert book.texts(Status.DELETED) == ["Drinks tea"] and len(book.texts()) == 6
    assert not any("Drinks tea" in text for text in book.pages().values())
    book.check()
    page = next(name for name, text in book.pages().items() if "Drinks water" in text)
    book.change(page, "- Drinks water", f"{line}\n- Drinks water")
    book.memories.sync()
    assert "Drinks tea" in book.texts(), "the user has put it back by hand"
    book.check()


def test_a_line_that_was_edited_while_its_page_was_away_is_not_taken_out(book: Book) -> None:
    two_pages(book)
    back = moved_away(book)
    book.memories.sync()
    book.memories.delete(next(entry.id for entry in book.memories.entries() if entry.text == "Drinks tea"))
    back()
    book.change(FACTS, "Drinks tea", "Drinks green tea")
    book.memories.sync()
    assert "Drinks green tea" in book.texts() and book.texts(Status.DELETED) == []
    book.check()


def test_a_deletion_that_was_undone_takes_nothing_out(book: Book) -> None:
    two_pages(book)
    back = moved_away(book)
    book.memories.sync()
    gone = [book.memories.delete(entry.id) for entry in book.memories.entries() if entry.page != "profile.md"]
    book.memories.undo(next(change.seq for change in gone if change.after.text == "Drinks tea"))
    assert "Drinks tea" in book.text(FACTS)
    book.memories.sync()
    assert book.texts() == ["Drinks tea", "My name is Bo"]
    back()
    book.memories.sync()
    assert book.texts() == ["Drinks tea", "My name is Bo"]
    book.check()


def test_the_only_page_but_an_empty_profile_can_be_deleted_by_hand(book: Book) -> None:
    book.memories.delete(book.memories.add("My name is Bo", page="profile").id)
    book.memories.add("Likes tea")
    book.path(FACTS).unlink()
    book.memories.sync()
    assert book.texts() == [] and book.memories.problems == ()


def test_an_emptied_page_is_no_deletion_until_it_is_deleted_too(book: Book) -> None:
    two_pages(book)
    whole = book.text(FACTS)
    book.write(FACTS, "")
    book.memories.sync()
    assert len(book.texts()) == 7
    assert book.memories.problems[0].startswith("3 memories of topics/facts.md cannot be found")
    (new,) = book.extract("Likes coffee") or ()
    assert book.text(FACTS) == "" and new.status is Status.PENDING
    book.write(FACTS, whole)
    book.memories.sync()
    assert len(book.texts()) == 7 and book.memories.problems == ()
    book.write(FACTS, "")
    book.memories.sync()
    book.path(FACTS).unlink()
    book.memories.sync()
    assert len(book.texts()) == 4 and book.memories.problems == ()


def test_a_page_that_its_owner_made_read_only_is_left_alone(book: Book) -> None:
    two_pages(book)
    book.path(FACTS).chmod(0o400)
    before = book.path(FACTS).read_bytes()
    (new,) = book.extract("Likes coffee") or ()
    assert book.path(FACTS).read_bytes() == before and "chmod u+w" in book.memories.problems[0]
    book.path(FACTS).chmod(0o600)
    book.again().accept(new.id)
    assert "coffee" in book.text(FACTS)


# Lines that an editor did not have


def stale(book: Book) -> str:
    """An editor saves a page with a change, without the line that was noted meanwhile; its id."""
    book.extract("Likes tea")
    opened = book.text(FACTS)
    (entry,) = book.extract("Owns a cat") or ()
    book.write(FACTS, opened.replace("Likes tea", "Likes green tea"))
    book.memories.sync()
    return entry.id


def test_a_line_noted_while_the_page_was_open_in_an_editor_is_put_back_and_told(book: Book) -> None:
    id = stale(book)
    assert book.texts() == ["Likes green tea", "Owns a cat"] and id in book.text(FACTS)
    assert any("Owns a cat" in sentence and "put back" in sentence for sentence in book.memories.problems)
    assert [change.act for change in book.memories.log(entry=id)] == [Act.RESTORED, Act.DELETED, Act.NOTED]
    book.again().sync()
    book.check()


def test_a_line_that_was_put_back_and_is_deleted_again_stays_deleted(book: Book) -> None:
    id = stale(book)
    book.without_line(FACTS, "Owns a cat")
    book.change(FACTS, "green tea", "black tea")
    book.memories.sync()
    assert book.memories.get(id).status is Status.DELETED and book.texts() == ["Likes black tea"]
    book.check()


def test_prose_typed_into_an_old_text_deletes_nothing(book: Book) -> None:
    book.extract("Likes tea")
    opened = book.text(FACTS)
    book.extract("Owns a cat")
    book.memories.sync()
    book.write(FACTS, opened.replace("# Facts", "# Facts\n\nAbout me."))
    book.memories.sync()
    assert book.texts() == ["Likes tea", "Owns a cat"] and "About me." in book.text(FACTS)


def test_a_newest_line_that_alone_is_taken_out_is_deleted(book: Book) -> None:
    book.extract("Likes tea")
    book.extract("Owns a cat")
    book.memories.sync()
    book.without_line(FACTS, "Owns a cat")
    book.memories.sync()
    assert book.texts() == ["Likes tea"] and book.texts(Status.DELETED) == ["Owns a cat"]
    book.check()


def test_a_line_taken_out_by_an_editor_that_had_newer_ones_is_deleted(book: Book) -> None:
    book.extract("Likes tea")
    book.extract("Owns a cat")
    book.without_line(FACTS, "Likes tea")
    book.change(FACTS, "Owns a cat", "Owns a black cat")
    book.memories.sync()
    assert book.texts() == ["Owns a black cat"] and book.texts(Status.DELETED) == ["Likes tea"]


def test_a_line_of_long_ago_is_deleted_whatever_else_was_changed(tmp_path: Path) -> None:
    now = [START]
    book = Book(tmp_path, clock=lambda: now[0])
    book.extract("Likes tea")
    now[0] += 1
    book.extract("Owns a cat")
    now[0] += 3600
    book.without_line(FACTS, "Owns a cat")
    book.change(FACTS, "Likes tea", "Likes green tea")
    book.memories.sync()
    assert book.texts() == ["Likes green tea"]
    book.close()


# Other programs, other kvchats


@pytest.mark.parametrize(
    "copy",
    [
        "mine.sync-conflict-20261122-101010-ABCDEF7.md",
        "mine (1).md",
        "mine (conflicted copy 2026-11-22).md",
        "mine (Bo's conflicted copy).md",
    ],
)
def test_a_conflict_copy_doubles_nothing_keeps_nothing_that_was_deleted_and_is_told(book: Book, copy: str) -> None:
    book.write("topics/mine.md", "- Speaks Basque\n")
    book.memories.sync()
    shutil.copy(book.path("topics/mine.md"), book.path(f"topics/{copy}"))
    book.memories.sync()
    assert book.texts() == ["Speaks Basque"] and f"topics/{copy}" in book.memories.problems[0]
    book.memories.delete(book.memories.entries()[0].id)
    assert book.texts() == []


@pytest.mark.parametrize(
    "copy",
    [
        "profile (conflicted copy).md",
        "profile.sync-conflict-20261122-101010-ABCDEF7.md",
        "Profile 2.md",
        "profile-DESKTOP-AB12CD3.md",
        "topics (Bo's conflicted copy 2026-11-22)",
    ],
)
def test_a_conflict_copy_of_the_profile_or_of_a_folder_is_told_too(book: Book, copy: str) -> None:
    book.write("profile.md", "- Speaks Basque\n")
    if copy.endswith(".md"):
        book.write(copy, "- Speaks Basque and Breton\n")
    else:
        book.write(f"{copy}/mine.md", "- Speaks Breton\n")
    book.memories.sync()
    assert book.texts() == ["Speaks Basque"] and copy in book.memories.problems[0]
    book.path(copy).rename(book.path(copy).with_name("elsewhere.md"))
    book.memories.sync()
    assert book.memories.problems == ()


def test_a_page_with_a_number_in_its_name_is_a_page_where_there_is_no_other(book: Book) -> None:
    book.write("topics/mine (1).md", "- Speaks Basque\n")
    book.memories.sync()
    assert book.texts() == ["Speaks Basque"] and book.memories.problems == ()


def test_a_page_whose_ending_is_in_capitals_can_be_changed(book: Book) -> None:
    book.write("topics/NOTES.MD", "- Speaks Basque\n")
    book.memories.sync()
    book.memories.delete(book.memories.entries()[0].id)
    assert "Basque" not in book.text("topics/NOTES.MD") and book.memories.problems == ()


def test_two_stores_on_one_folder_lose_nothing(book: Book, tmp_path: Path, monkeypatch) -> None:
    """The other one writes between the last look at the page and its renaming."""
    other = Book(tmp_path / "second")
    other.memories.close()
    other.folder = book.folder
    other.memories = other.opened()
    book.memories.add("Likes tea")
    other.memories.add("Speaks Basque")
    book.memories.sync()
    rename = Path.replace
    added: list[threading.Thread] = []

    def late(source: Path, target: Path) -> None:
        if not added and target.name == "facts.md":
            added.append(threading.Thread(target=other.memories.add, args=("Owns a cat",)))
            added[0].start()
            added[0].join(1.0)
        rename(source, target)

    monkeypatch.setattr(Path, "replace", late)
    book.memories.add("Runs a kiln")
    added[0].join(120)
    for one in (book, other, book, other):
        one.memories.sync()
    assert book.texts() == other.texts() == ["Likes tea", "Owns a cat", "Runs a kiln", "Speaks Basque"]
    assert sorted(path.name for path in book.folder.iterdir() if path.name != "log") == ["topics"], "nothing is left"
    other.close()


# Many at once


def test_a_deletion_goes_into_a_page_that_is_full(book: Book) -> None:
    line = "- fact {0} of a page of many words about {1} <!-- m{0:08d} on:2026-01-01 by:x kind:fact h:000000 -->\n"
    line = line.replace("{1}", "x" * 3000)
    book.write(FACTS, "".join(line.format(i) for i in range((files.LARGEST - 300) // len(line.format(9999)))))
    book.memories.sync()
    book.extract(*(f"Knows thing{number} " + "wordy " * 1000 + str(number) for number in range(3)))
    assert "would have more than" in book.memories.problems[0]
    book.memories.delete("m00000007")
    assert "m00000007" not in book.text(FACTS)


def test_many_changes_of_one_page_are_written_at_once(book: Book, monkeypatch) -> None:
    book.memories.add("Likes tea")
    renamed: list[str] = []
    rename = Path.replace
    monkeypatch.setattr(Path, "replace", lambda source, target: (renamed.append(target.name), rename(source, target)))
    book.extract(*(f"Knows the number {number} by heart" for number in range(40)))
    assert len(book.texts()) == 41 and renamed.count("facts.md") == 1
    book.memories.undo_all()
    assert book.texts() == ["Likes tea"] and renamed.count("facts.md") == 2
    book.check()

"""Files that people edit: what they do in them counts, and no trouble with them loses or doubles a memory."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from book_kit import HEAD, Book, fact

from kvchat.memory.entry import BY_HAND, Act, Kind, MemoryTrouble, Status
from kvchat.memory.pages import folder as folder_module
from kvchat.memory.pages.folder import Folder, FolderError
from kvchat.memory.sync import Syncing

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
from forked import fork

FACTS = "topics/facts.md"
NOBODY = 65534


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


def acts(book: Book) -> list[Act]:
    return [change.act for change in book.memories.log()]


# What the person does in an editor


def test_nothing_to_do_costs_no_change(book: Book) -> None:
    assert book.memories.sync() is False
    book.memories.add("Likes tea")
    assert book.memories.sync() is False
    assert book.again().sync() is False


def test_an_edited_line_is_the_same_memory_in_the_persons_words(book: Book) -> None:
    (entry,) = book.extract("Likes tea") or ()
    book.change(FACTS, "Likes tea", "Likes *green* tea, no milk")
    text = book.text(FACTS)
    assert book.memories.sync() is True
    now = book.memories.get(entry.id)
    assert (now.text, now.edited, now.nodes) == ("Likes *green* tea, no milk", True, entry.nodes)
    assert acts(book)[0] is Act.EDITED
    assert [hit[0].id for hit in book.memories.search("milk")] == [entry.id]
    assert book.text(FACTS) == text, "a line of the person's is never rewritten"
    book.check()


def test_an_edited_line_is_left_alone_by_what_is_extracted_later(book: Book) -> None:
    (entry,) = book.extract(fact("Likes tea", confidence=0.5)) or ()
    book.change(FACTS, "Likes tea", "Likes tea.")
    text = book.text(FACTS)
    assert book.extract(fact("likes tea", confidence=1.0)) == []
    (new,) = book.extract(fact("Likes coffee", replaces=entry.id)) or ()
    assert new.status is Status.PENDING and book.text(FACTS) == text


def test_a_deleted_line_stays_deleted(book: Book) -> None:
    (entry,) = book.extract("Likes tea", "Likes coffee")[:1]
    book.without_line(FACTS, "Likes tea")
    assert book.memories.sync() is True
    assert book.memories.get(entry.id).status is Status.DELETED and acts(book)[0] is Act.DELETED
    assert book.memories.search("tea") == []
    assert book.extract("Likes tea") == [] and book.texts() == ["Likes coffee"]
    assert book.again().entries() and book.texts() == ["Likes coffee"]
    book.check()


def test_a_deleted_page_is_a_deletion_of_its_lines(book: Book) -> None:
    book.memories.add("Likes tea")
    book.memories.add("Knows Ada", Kind.PERSON)
    book.path("topics/people.md").unlink()
    book.memories.sync()
    assert book.texts() == ["Likes tea"]
    book.check()


def test_a_line_that_is_put_back_is_there_again(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    line = book.without_line(FACTS, "Likes tea")
    book.memories.sync()
    book.write(FACTS, book.text(FACTS) + line)
    book.memories.sync()
    assert book.memories.get(entry.id).status is Status.LIVE and book.texts() == ["Likes tea"]
    book.check()


def test_the_page_that_a_line_moves_to_is_written_first(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between leaves it in both pages: in none it would be a deletion."""
    ids = {book.memories.add(text, page="attic").id: text for text in ("Has a cat", "Likes tea", "Knows Ada")}
    written: list[str] = []
    rename = os.replace

    def noting(source: Path, target: Path) -> None:
        rename(source, target)
        written.append(Path(target).stem)

    for id, page in zip(ids, ("cellar", "barn", "yard"), strict=True):
        written.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", noting)
            book.memories.move(id, page)
        assert [name for name in written if name in ("attic", page)] == [page, "attic"]


def test_a_moved_line_is_a_move(book: Book) -> None:
    (entry,) = book.extract("Likes tea") or ()
    line = book.without_line(FACTS, "Likes tea")
    book.write("topics/drinks.md", HEAD + line)
    book.memories.sync()
    assert book.memories.get(entry.id).page == "topics/drinks.md" and acts(book) == [Act.MOVED, Act.NOTED]
    book.check()


def test_a_renamed_page_is_a_move_of_all_its_lines(book: Book) -> None:
    entries = book.extract("Likes tea", "Likes coffee") or ()
    book.path(FACTS).rename(book.path("topics/drinks.md"))
    book.memories.sync()
    assert {book.memories.get(entry.id).page for entry in entries} == {"topics/drinks.md"}
    assert Status.DELETED not in {book.memories.get(entry.id).status for entry in entries}
    book.check()


def test_a_line_that_stands_twice_for_a_moment_is_not_lost(book: Book) -> None:
    """An editor saves the new place before the old one."""
    entry = book.memories.add("Likes tea")
    line = next(line for line in book.text(FACTS).splitlines(keepends=True) if "tea" in line)
    book.write("topics/drinks.md", HEAD + line)
    book.memories.sync()
    assert len(book.memories.entries()) == 1
    book.without_line(FACTS, "tea")
    book.memories.sync()
    assert book.memories.get(entry.id).page == "topics/drinks.md"
    book.check()


def test_a_new_bullet_is_a_memory_by_hand_and_nothing_is_written_into_it(book: Book) -> None:
    book.write("topics/garden.md", "# My garden\n\nSome prose.\n\n- Grows tomatoes\n- Has a shed\n  with a lamp\n")
    text = book.text("topics/garden.md")
    book.memories.sync()
    found = book.memories.entries()
    assert {(entry.by, entry.page) for entry in found} == {(BY_HAND, "topics/garden.md")}
    assert book.memories.search("tomatoes")[0][0].text == "Grows tomatoes"
    assert book.memories.sync() is False and book.again().sync() is False
    assert book.text("topics/garden.md") == text
    assert set(acts(book)) == {Act.ADDED} and len(acts(book)) == 2


def test_a_bullet_by_hand_that_is_retyped_is_edited_not_deleted(book: Book) -> None:
    book.write("topics/garden.md", "- Grows tomatoes in the garden\n- Has a shed\n")
    book.memories.sync()
    book.change("topics/garden.md", "Grows tomatoes", "Grows many tomatoes")
    book.memories.sync()
    assert book.texts() == ["Grows many tomatoes in the garden", "Has a shed"]
    assert book.memories.entries(Status.DELETED) == []
    book.check()


def test_a_bullet_by_hand_can_be_edited_moved_and_deleted_in_kvchat(book: Book) -> None:
    book.write("topics/garden.md", "- Grows tomatoes\n- Has a shed\n- Owns a spade\n")
    book.memories.sync()
    ids = {entry.text: entry.id for entry in book.memories.entries()}
    book.memories.edit(ids["Grows tomatoes"], "Grows beans")
    book.memories.move(ids["Has a shed"], "house")
    book.memories.delete(ids["Owns a spade"])
    assert book.texts() == ["Grows beans", "Has a shed"]
    assert book.memories.get(ids["Has a shed"]).page == "topics/house.md"
    assert book.memories.problems == () and book.memories.sync() is False
    assert book.again().sync() is False
    assert book.texts() == ["Grows beans", "Has a shed"] and "spade" not in book.text("topics/garden.md")


def test_lines_without_their_comments_are_the_same_memories(book: Book) -> None:
    """A person who finds the comments ugly takes them out."""
    book.extract("Likes tea", "Likes coffee")
    book.write(FACTS, "\n".join(line.partition(" <!--")[0] for line in book.text(FACTS).splitlines()) + "\n")
    book.memories.sync()
    assert book.texts() == ["Likes coffee", "Likes tea"]
    assert book.memories.entries(Status.DELETED) == []
    assert {entry.nodes != () for entry in book.memories.entries()} == {True}
    book.check()


def test_a_copied_line_with_other_words_is_told(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    line = next(line for line in book.text(FACTS).splitlines() if "tea" in line)
    book.write("topics/drinks.md", HEAD + line.replace("tea", "coffee") + "\n")
    book.memories.sync()
    assert book.texts() == ["Likes tea"]
    assert any(entry.id in sentence and "topics/drinks.md:" in sentence for sentence in book.memories.problems)


def test_a_proposed_memory_written_into_a_page_is_a_yes(book: Book) -> None:
    (entry,) = book.extract(fact("Is called Ada", Kind.IDENTITY)) or ()
    book.write("profile.md", "- Is called Ada\n")
    book.memories.sync()
    assert book.texts() == ["Is called Ada"]
    assert book.extract(fact("Is called Ada", Kind.IDENTITY)) == []
    assert book.memories.entries(Status.PENDING) == [] and len(book.memories.profile()) == 1
    assert book.memories.get(entry.id).superseded_by == book.memories.profile()[0].id
    book.check()


def test_what_is_no_bullet_is_kept_byte_for_byte(book: Book) -> None:
    text = (
        '---\ntags: [a, b]\nkvchat: 1\nkind: "topic"\nmine: yes\n---\n# Facts\n\nProse *here*.\r\n\n'
        "```\n- not a bullet\n```\n- Likes tea\n\n> quoted\n\n| a | b |\n|---|---|\n"
    )
    book.write(FACTS, text)
    book.memories.sync()
    book.extract("Likes coffee")
    with book.path(FACTS).open(newline="") as file:
        after = file.read()
    for line in text.splitlines(keepends=True):
        assert line in after
    assert book.texts() == ["Likes coffee", "Likes tea"]


# While kvchat writes


def test_an_edit_made_while_an_extraction_writes_wins_and_nothing_is_lost(book: Book, monkeypatch) -> None:
    old, other = book.extract("Works at Acme", "Likes tea") or ()
    changing = Folder.changing
    edits = [
        lambda: book.change(FACTS, "Works at Acme", "Works at Acme in Rome"),
        lambda: book.write(FACTS, book.text(FACTS) + "- Just typed\n"),
    ]

    def edited_meanwhile(self, pages):
        if edits:
            edits.pop(0)()
        return changing(self, pages)

    monkeypatch.setattr(Folder, "changing", edited_meanwhile)
    (new,) = book.extract(fact("Works at Umbrella", replaces=old.id)) or ()
    book.extract("Likes coffee")
    book.extract("Likes water")
    assert book.texts() == ["Just typed", "Likes coffee", "Likes tea", "Likes water", "Works at Acme in Rome"]
    assert book.memories.get(old.id).edited, "a line of the user's own is replaced by nobody"
    assert book.memories.get(new.id).status is Status.PENDING
    assert book.memories.get(other.id).text == "Likes tea"
    book.check()


def test_a_line_edited_before_its_deletion_is_written_is_kept(book: Book, monkeypatch) -> None:
    entry = book.memories.add("Likes tea")
    changing = Folder.changing

    def edited_meanwhile(self, pages):
        monkeypatch.setattr(Folder, "changing", changing)
        book.change(FACTS, "Likes tea", "Likes green tea")
        return changing(self, pages)

    monkeypatch.setattr(Folder, "changing", edited_meanwhile)
    with pytest.raises(MemoryTrouble, match="changed by somebody else"):
        book.memories.delete(entry.id)
    assert book.texts() == ["Likes green tea"]
    assert book.memories.get(entry.id).status is Status.LIVE
    book.check()


def test_two_kvchats_see_what_the_other_one_does(book: Book, tmp_path: Path) -> None:
    other = Book(tmp_path, "two")
    try:
        entry = book.memories.add("Likes tea")
        assert [one.id for one in other.memories.entries()] == [entry.id]
        other.memories.edit(entry.id, "Likes coffee")
        assert book.texts() == ["Likes coffee"]
        book.without_line(FACTS, "coffee")
        other.memories.sync()
        assert book.memories.get(entry.id).status is Status.DELETED
        assert len(book.memories.log(entry=entry.id)) == 3
        book.check()
    finally:
        other.close()


# Trouble with the files


def test_a_broken_page_is_reported_left_alone_and_its_memories_stay(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    person = book.memories.add("Knows Ada", Kind.PERSON)
    whole = book.text(FACTS)
    broken = '---\nkind: "topic\n---\n' + whole.replace("Likes tea", "Likes tea no more")
    book.write(FACTS, broken)
    book.memories.sync()
    assert any("facts.md:2" in sentence for sentence in book.memories.problems)
    assert book.memories.get(entry.id) == entry
    assert [one.id for one, _ in book.memories.search("tea")] == [entry.id]
    (new,) = book.extract("Likes coffee") or ()
    assert book.text(FACTS) == broken and new.status is Status.PENDING
    for refused in (lambda: book.memories.accept(new.id), lambda: book.memories.delete(entry.id)):
        with pytest.raises(MemoryTrouble, match=r"facts\.md:2"):
            refused()
    book.memories.edit(person.id, "Knows Ada well")
    assert "well" in book.text("topics/people.md")
    book.write(FACTS, whole)
    book.memories.sync()
    book.memories.accept(new.id)
    assert book.texts() == ["Knows Ada well", "Likes coffee", "Likes tea"]
    book.check()


def test_a_page_that_is_no_text_is_left_alone(book: Book) -> None:
    book.memories.add("Likes tea")
    book.path(FACTS).write_bytes(b"\xff\xfe\x00- x\n")
    book.memories.sync()
    assert book.texts() == ["Likes tea"] and "facts.md" in book.memories.problems[0]
    assert book.path(FACTS).read_bytes() == b"\xff\xfe\x00- x\n"


def test_a_folder_that_is_gone_is_no_deletion(book: Book) -> None:
    book.memories.add("Likes tea")
    away = book.base / "away"
    book.folder.rename(away)
    book.memories.sync()
    assert "is not there" in book.memories.problems[0]
    assert book.texts() == ["Likes tea"] and book.memories.search("tea")
    for refused in (
        lambda: book.memories.add("Likes coffee"),
        lambda: book.memories.delete(book.memories.entries()[0].id),
    ):
        with pytest.raises(MemoryTrouble, match="is not there"):
            refused()
    assert not book.folder.exists(), "begun anew, the rest would count as deleted"
    away.rename(book.folder)
    book.memories.sync()
    assert book.texts() == ["Likes tea"]
    book.check()


def test_an_empty_folder_is_no_deletion(book: Book) -> None:
    """As of a drive that is not mounted."""
    book.memories.add("Likes tea")
    shutil.rmtree(book.folder)
    book.folder.mkdir()
    book.memories.sync()
    assert book.texts() == ["Likes tea"] and "no page left" in book.memories.problems[0]
    book.write("profile.md", "# Profile\n")
    book.memories.sync()
    assert book.texts() == []


def full(self, pages):
    raise FolderError("There is no room for it: the disk is full.")


def test_what_is_extracted_and_cannot_be_written_waits_for_a_yes_and_acts_are_refused(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    tea, water = book.memories.add("Likes tea"), book.memories.add("Likes water")
    before = book.pages()
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "changing", full)
        (new,) = book.extract("Likes coffee") or ()
        assert "disk is full" in book.memories.problems[0]
        assert book.texts() == ["Likes tea", "Likes water"] and new.status is Status.PENDING
        assert book.memories.log(entry=new.id)[0].why == "its page could not be written"
        for refused in (
            lambda: book.memories.add("New"),
            lambda: book.memories.accept(new.id),
            lambda: book.memories.edit(tea.id, "Likes green tea"),
            lambda: book.memories.move(tea.id, "drinks"),
            lambda: book.memories.delete(water.id),
            lambda: book.memories.undo(book.memories.log(entry=tea.id)[0].seq),
        ):
            log = book.memories.log()
            with pytest.raises(MemoryTrouble, match="disk is full"):
                refused()
            assert book.memories.log() == log and book.pages() == before
    book.again().accept(new.id)
    assert "coffee" in book.text(FACTS) and book.log().count("Likes coffee") == 1
    book.check()


def test_what_was_said_again_and_cannot_be_written_covers_its_messages(book: Book, monkeypatch) -> None:
    book.extract("Likes tea")
    before = book.pages()
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "changing", full)
        assert book.extract("Likes tea", fact("Likes coffee")) != []
        assert book.memories.ledger.behind() == [] and book.pages() == before
        assert "disk is full" in book.memories.problems[0]
    book.again()
    book.check()


@pytest.mark.parametrize("act", ["add", "edit", "move", "delete", "extract"])
def test_a_store_that_cannot_be_written_leaves_the_pages_as_they_were(book: Book, monkeypatch, act: str) -> None:
    """The pages have been written already, and their disk is full when the store's transaction ends."""
    entry, other = book.memories.add("Likes tea"), book.memories.add("Likes water")
    talk, before, log = book.talk(), book.pages(), book.memories.log()
    acts = {
        "add": lambda: book.memories.add("Knows Ada", Kind.PERSON),
        "edit": lambda: book.memories.edit(entry.id, "Likes green tea"),
        "move": lambda: book.memories.move(entry.id, "drinks"),
        "delete": lambda: book.memories.delete(entry.id),
        "extract": lambda: book.extract("Likes coffee", talk=talk),
    }

    def written(self, changes, log=lambda: None):
        def no_room():
            patch.setattr(os, "write", no_more)
            raise sqlite3.OperationalError("database or disk is full")

        return writing(self, changes, no_room)

    def no_more(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writing = Syncing.writing
    with monkeypatch.context() as patch:
        patch.setattr(Syncing, "writing", written)
        with pytest.raises(MemoryTrouble, match="disk is full"):
            acts[act]()
    assert book.pages() == before and book.memories.log() == log
    assert not [path for path in book.folder.rglob(".*") if path.is_file()]
    assert book.memories.get(other.id) == other
    book.check()
    acts[act]()
    book.check()


@pytest.mark.process
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    """By a user whom permissions stop."""
    if os.geteuid():
        read_only(tmp_path)
        return
    base = Path(tempfile.mkdtemp())
    os.chown(base, NOBODY, NOBODY)

    def work(say) -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        read_only(base)
        say("told")

    try:
        child = fork(work)
        assert (child.lines(), child.wait()) == (["told"], 0)
    finally:
        shutil.rmtree(base)


def read_only(base: Path) -> None:
    book = Book(base)
    book.memories.add("Likes tea")
    places = [book.folder, book.folder / "topics"]
    for place in places:
        place.chmod(0o500)
    try:
        book.extract("Likes coffee")
        assert book.memories.problems and book.texts(Status.PENDING) == ["Likes coffee"]
        with pytest.raises(MemoryTrouble, match="cannot be written: permission denied"):
            book.memories.edit(book.memories.entries()[-1].id, "Likes green tea")
        assert book.texts() == ["Likes tea"]
    finally:
        for place in places:
            place.chmod(0o700)
    book.again().sync()
    book.check()
    book.close()


def test_a_crash_between_page_and_store_is_made_up_for_once(book: Book, monkeypatch) -> None:
    class Crash(Exception):  # noqa: N818
        pass

    writing = Syncing.writing

    def cut(self, changes, log=lambda: None):
        def crash() -> None:
            raise Crash

        return writing(self, changes, crash)

    entry = book.memories.add("Likes tea")
    for work in (
        lambda: book.extract("Likes coffee"),
        lambda: book.memories.edit(entry.id, "Likes green tea"),
        lambda: book.memories.move(entry.id, "drinks"),
        lambda: book.memories.delete(entry.id),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "_put_back", lambda drafts: None)
            patch.setattr(Syncing, "writing", cut)
            with pytest.raises(Crash):
                work()
        book.again().sync()
        book.check()
    assert book.texts() == ["Likes coffee"]


def test_a_lost_database_is_made_up_for_from_the_files(book: Book) -> None:
    book.extract("Likes tea", "Likes coffee")
    before = {entry.id for entry in book.memories.entries()}
    book.close()
    shutil.rmtree(book.base / "data")
    book.__init__(book.base)  # type: ignore[misc]
    assert {entry.id for entry in book.memories.entries()} == before
    book.check()


def test_a_lost_index_is_made_anew(book: Book) -> None:
    book.extract("Likes tea", "Likes coffee")
    digest = book.memories.index.digest("memory/")
    book.close()
    for path in (book.base / "data").glob("index.db*"):
        path.unlink()
    book.store = __import__("kvchat.store", fromlist=["Store"]).Store.open(book.base / "data")
    book.memories = book.opened()
    book.memories.sync()
    assert book.memories.index.digest("memory/") == digest
    book.check()

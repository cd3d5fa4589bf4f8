"""What is remembered, proposed and refused; what the person adds, edits, moves, accepts and deletes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from book_kit import Book, fact

from kvchat.memory.entry import Act, ChangeReason, Kind, MemoryTrouble, Status, Why


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


# What the person asks for


def test_what_the_person_adds_is_a_line_of_its_kinds_page(book: Book) -> None:
    entry = book.memories.add("Prefers metric units.", Kind.PREFERENCE)
    assert (entry.page, entry.status, entry.confidence) == ("topics/preferences.md", Status.LIVE, None)
    assert "- Prefers metric units. <!-- " in book.text("topics/preferences.md")
    assert book.memories.get(entry.id) == entry == book.memories.get(entry.id[:5])
    book.check()


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (Kind.IDENTITY, "profile.md"),
        (Kind.PERSON, "topics/people.md"),
        (Kind.PROJECT, "topics/projects.md"),
        (Kind.DECISION, "topics/decisions.md"),
        (Kind.SKILL, "topics/skills.md"),
        (Kind.FACT, "topics/facts.md"),
    ],
)
def test_each_kind_has_its_page(book: Book, kind: Kind, page: str) -> None:
    assert book.memories.add("Has a page.", kind).page == page


def test_what_is_added_twice_is_there_once(book: Book) -> None:
    first = book.memories.add("Likes green tea")
    assert book.memories.add("likes GREEN tea.") == first
    assert book.texts() == ["Likes green tea"]
    book.check()


def test_what_is_added_to_a_page_by_name_moves_there(book: Book) -> None:
    first = book.memories.add("Likes green tea")
    assert book.memories.add("Likes green tea", page="profile").page == "profile.md"
    assert [entry.id for entry in book.memories.profile()] == [first.id]
    book.check()


@pytest.mark.parametrize("page", ["../x.md", "/etc/passwd", "topics/../profile.md", "a b", "log/2026-01-01.md", "ä"])
def test_a_page_outside_the_memory_is_refused_in_words(book: Book, page: str) -> None:
    with pytest.raises(MemoryTrouble, match="is no page of the memory"):
        book.memories.add("Something", page=page)
    assert book.memories.entries() == []


@pytest.mark.parametrize("text", ["", "  \n ", "—"])
def test_nothing_is_not_remembered(book: Book, text: str) -> None:
    with pytest.raises(MemoryTrouble, match="nothing to remember"):
        book.memories.add(text)


@pytest.mark.parametrize(
    "text",
    [
        "first line\nsecond line\n- third, a bullet",
        "ends a comment --> here",
        "<!-- m12345678 on:2020-01-01 -->",
        "# heading",
        "1. one",
        "back\\slash `code` *stars* [x](y)",
        "emoji 👩‍👩‍👧 and 漢字",
        "tab\there",
        "--- x",
        "- [ ] task x",
    ],
)
def test_any_text_comes_back_as_it_was_said(book: Book, text: str) -> None:
    entry = book.memories.add(text)
    assert entry.text == text
    book.memories.sync()
    assert [one.text for one in book.again().entries()] == [text]
    assert [change.act for change in book.memories.log()] == [Act.ADDED]


def test_an_edit_is_in_the_file_and_in_the_history(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    assert book.memories.edit(entry.id, "Likes coffee").text == "Likes coffee"
    assert "Likes coffee" in book.text("topics/facts.md") and "Likes tea" not in book.text("topics/facts.md")
    change = book.memories.log()[0]
    assert (change.act, change.before and change.before.text, change.after.text) == (
        Act.EDITED,
        "Likes tea",
        "Likes coffee",
    )
    book.check()


def test_a_move_leaves_nothing_behind(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    assert book.memories.move(entry.id, "drinks").page == "topics/drinks.md"
    assert "tea" not in book.text("topics/facts.md") and "tea" in book.text("topics/drinks.md")
    book.check()


def test_what_is_deleted_is_in_no_file_and_not_found(book: Book) -> None:
    entry = book.memories.add("Likes tea")
    change = book.memories.delete(entry.id)
    assert (change.act, change.seq > 0, change.after.status) == (Act.DELETED, True, Status.DELETED)
    assert "tea" not in book.text("topics/facts.md")
    assert book.memories.search("tea") == []
    with pytest.raises(MemoryTrouble, match="is deleted"):
        book.memories.delete(entry.id)
    book.check()


def test_unknown_and_ambiguous_ids_are_told(book: Book) -> None:
    book.memories.add("One thing")
    book.memories.add("Another matter")
    with pytest.raises(MemoryTrouble, match="There is no memory zzz"):
        book.memories.get("zzz")
    with pytest.raises(MemoryTrouble, match="2 memories"):
        book.memories.get("m")
    with pytest.raises(MemoryTrouble, match="no memory"):
        book.memories.get("")


def test_search_finds_by_words_and_only_what_is_live(book: Book) -> None:
    tea = book.memories.add("Prefers green tea in the morning")
    book.memories.add("Works on a compiler for Oberon")
    found = book.memories.search("which tea?")
    assert [(entry.id, hit.chunk.key) for entry, hit in found] == [(tea.id, tea.id)]
    assert book.again().search("compiler")[0][0].text.startswith("Works on")


# What kvchat notes by itself


def test_an_extraction_is_noted_logged_and_covers_its_messages(book: Book) -> None:
    talk = book.talk(title="Tea time")
    new = book.extract(fact("Prefers metric units", Kind.PREFERENCE, 0.8, talk[1][:1]), talk=talk)
    assert new is not None
    assert (new[0].by, new[0].conversation, new[0].nodes) == ("tiny-model", talk[0], tuple(talk[1][:1]))
    assert book.memories.entries() == new
    run = book.memories.ledger.runs()[0]
    assert (run.noted, json.loads(run.refused)) == (1, [])
    assert book.memories.ledger.behind() == []
    assert book.log().count("Prefers metric units") == 1 and "Tea time" in book.log()
    book.check()


def test_messages_that_were_covered_meanwhile_are_not_noted_from_again(book: Book) -> None:
    talk = book.talk()
    assert book.extract("Likes tea", talk=talk)
    assert book.extract("Likes coffee", talk=talk) is None
    assert book.texts() == ["Likes tea"]


def test_an_extraction_that_finds_nothing_covers_and_changes_nothing(book: Book) -> None:
    assert book.extract() == []
    assert book.memories.log() == [] and book.memories.ledger.behind() == []
    assert not (book.folder / "log").exists()


def test_a_fact_with_a_topic_has_the_topics_page(book: Book) -> None:
    new = book.extract(fact("Uses a Raspberry Pi 5", topic="Home Lab"), fact("Sells tea", topic="茶"))
    assert [entry.page for entry in new or ()] == ["topics/home-lab.md", "topics/facts.md"]


def test_identity_is_proposed_and_reaches_the_profile_only_by_a_yes(book: Book) -> None:
    new = book.extract(fact("Is called Ada", Kind.IDENTITY))
    assert new is not None and new[0].status is Status.PENDING
    assert not book.path("profile.md").exists() and book.memories.entries() == []
    assert book.memories.search("Ada") == []
    assert book.memories.accept(new[0].id).status is Status.LIVE
    assert "Is called Ada" in book.text("profile.md")
    assert [entry.text for entry in book.memories.profile()] == ["Is called Ada"]
    book.check()


def test_what_is_to_be_reviewed_is_proposed_with_its_reason(book: Book) -> None:
    new = book.extract(fact("See https://example.org", review=ChangeReason(Why.ADDRESS)))
    assert new is not None and new[0].status is Status.PENDING
    assert book.memories.log()[0].why == "has an address in it"
    assert "Proposed" in book.log()


def test_a_refused_proposal_is_not_proposed_again(book: Book) -> None:
    new = book.extract(fact("Is called Ada", Kind.IDENTITY)) or []
    book.memories.delete(new[0].id)
    assert book.extract(fact("is called Ada.", Kind.IDENTITY)) == []
    assert book.memories.entries(Status.PENDING) == []


def test_what_is_known_is_not_noted_twice_but_better_borne_out(book: Book) -> None:
    talk = book.talk(4)
    book.extract(fact("Prefers metric units", confidence=0.6, nodes=talk[1][:1]), talk=(talk[0], talk[1][:4]))
    again = fact("prefers metric units!", confidence=0.9, nodes=talk[1][4:5])
    assert book.extract(again, talk=(talk[0], talk[1][4:])) == []
    (entry,) = book.memories.entries()
    assert (entry.confidence, entry.nodes) == (0.9, (talk[1][0], talk[1][4]))
    book.check()
    book.again()
    assert [change.act for change in book.memories.log()] == [Act.NOTED, Act.NOTED]


def test_a_model_that_says_the_same_thrice_notes_it_once(book: Book) -> None:
    assert len(book.extract("Likes tea", "likes tea", "Likes tea.") or ()) == 1
    book.check()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Has 2 cats", "Has 3 cats"),
        ("Eats meat", "Does not eat meat"),
        ("Prefers tabs over spaces", "Prefers spaces over tabs"),
        ("Moved from Berlin to Rome", "Moved from Rome to Berlin"),
        ("Can't swim", "Can swim"),
        ("Version 1.10 of the tool", "Version 1.1 of the tool"),
    ],
)
def test_what_says_otherwise_is_no_double(book: Book, one: str, other: str) -> None:
    assert len(book.extract(one, other) or ()) == 2


def test_a_correction_takes_the_olders_place(book: Book) -> None:
    (old,) = book.extract("Works at Acme") or ()
    (new,) = book.extract(fact("Works at Umbrella", replaces=old.id)) or ()
    assert book.texts() == ["Works at Umbrella"]
    gone = book.memories.get(old.id)
    assert (gone.status, gone.superseded_by) == (Status.SUPERSEDED, new.id)
    assert "Corrected" in book.log()
    book.check()


def test_a_correction_of_the_persons_own_line_is_only_proposed(book: Book) -> None:
    old = book.memories.add("Works at Acme")
    (new,) = book.extract(fact("Works at Umbrella", replaces=old.id)) or ()
    assert new.status is Status.PENDING and book.texts() == ["Works at Acme"]
    book.memories.accept(new.id)
    assert book.texts() == ["Works at Umbrella"]
    assert book.memories.get(old.id).superseded_by == new.id
    book.check()


def test_a_newer_proposal_takes_the_place_of_both_when_accepted(book: Book) -> None:
    old = book.memories.add("Works at Acme", page="profile")
    (first,) = book.extract(fact("Works at Umbrella", Kind.IDENTITY, replaces=old.id)) or ()
    (second,) = book.extract(fact("Works at Initech", Kind.IDENTITY, replaces=first.id)) or ()
    assert [entry.id for entry in book.memories.entries(Status.PENDING)] == [second.id]
    book.memories.accept(second.id)
    assert [entry.text for entry in book.memories.profile()] == ["Works at Initech"]
    book.check()


def test_deleted_text_is_not_noted_again_but_the_person_can_add_it(book: Book) -> None:
    (entry,) = book.extract("Likes tea") or ()
    book.memories.delete(entry.id)
    assert book.extract("likes TEA!") == []
    assert json.loads(book.memories.ledger.runs()[0].refused) == [["likes TEA!", "you deleted it"]]
    assert "Refused: likes TEA!" in book.log()
    again = book.memories.add("Likes tea")
    assert again.id != entry.id and book.texts() == ["Likes tea"]
    book.check()


def test_a_person_says_what_was_proposed_and_it_is_accepted(book: Book) -> None:
    (new,) = book.extract(fact("Is called Ada", Kind.IDENTITY)) or ()
    assert book.memories.add("Is called Ada").id == new.id
    assert book.memories.get(new.id).status is Status.LIVE
    book.check()


def test_a_proposal_that_is_written_down_already_is_not_doubled(book: Book) -> None:
    (new,) = book.extract(fact("Is called Ada", Kind.IDENTITY)) or ()
    there = book.memories.edit(book.memories.add("Something else").id, "Is called Ada")
    assert book.memories.accept(new.id) == there and book.texts() == ["Is called Ada"]
    book.check()


def test_what_has_an_address_in_it_waits_for_a_yes(book: Book) -> None:
    (new,) = book.extract("Send all mail to https://example.org") or ()
    assert new.status is Status.PENDING


def test_a_page_that_the_person_named_their_own_way_is_a_place_to_move_to(book: Book) -> None:
    book.write("topics/My Garden.md", "- Grows tomatoes\n")
    book.memories.sync()
    entry = book.memories.add("Has a shed")
    assert book.memories.move(entry.id, "topics/My Garden.md").page == "topics/My Garden.md"
    book.check()


def test_threads_that_extract_at_once_lose_and_double_nothing(book: Book) -> None:
    talks = [book.talk() for _ in range(12)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            book.extract(f"Owns the item number {number}", "Likes tea", talk=talks[number])
            book.memories.add(f"Item {number} is by the person")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert book.texts() == sorted(
        [
            "Likes tea",
            *(f"Owns the item number {n}" for n in range(12)),
            *(f"Item {n} is by the person" for n in range(12)),
        ]
    )
    book.check()


# Consolidation


def test_a_merge_holds_only_while_the_entry_is_as_it_was(book: Book) -> None:
    from msgspec.structs import replace

    from kvchat.memory.entry import Change

    one, other = book.extract("Likes green tea", "Enjoys green tea daily") or ()

    def merge(old):
        return Change(Act.MERGED, old, replace(old, status=Status.SUPERSEDED, superseded_by=one.id), 1.0, "one")

    assert book.memories.consolidate([merge(replace(other, text="as it was once"))]) == 0
    assert book.memories.consolidate([merge(other)]) == 1
    assert book.texts() == ["Likes green tea"]
    assert book.memories.consolidate([merge(other)]) == 0
    book.check()


def test_a_summary_is_made_only_if_all_of_it_gives_way(book: Book) -> None:
    from msgspec.structs import replace

    from kvchat.memory.entry import Change, Entry

    one, other = book.extract("Has a Pi 4 in the attic", "Has a Pi 5 in the cellar") or ()
    short = Entry("msummary1", Kind.FACT, "Has a Pi 4 (attic) and a Pi 5 (cellar)", one.page, 5.0, by="tiny-model")
    changes = [
        Change(Act.SUMMARISED, None, short, 5.0, "one"),
        *(
            Change(Act.SUMMARISED, old, replace(old, status=Status.SUPERSEDED, superseded_by=short.id), 5.0, "one")
            for old in (one, other)
        ),
    ]
    book.memories.edit(other.id, "Has two Pi 5 in the cellar")
    assert book.memories.consolidate(changes) == 0
    assert len(book.texts()) == 2
    book.memories.undo(book.memories.log()[0].seq)
    assert book.memories.consolidate(changes) == 3
    assert book.texts() == [short.text]
    book.check()

"""A memory that says otherwise is not the one that is there: code, signs, accents, and denials in many languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from book_kit import Book, fact
from msgspec.structs import replace

from kvchat.memory.entry import ChangeReason, Status, Why, new_id
from kvchat.memory.learning.consolidation import duplicates
from kvchat.memory.learning.grounding import grounding, statements
from kvchat.memory.similarity import says_the_same

PAIRS = [
    ("Always runs chmod +x on scripts", "Always runs chmod -x on scripts"),
    ("Prefers == to ===", "Prefers === to =="),
    ("The alert fires when free space is < 20%", "The alert fires when free space is > 20%"),
    ("The freezer must stay at -5 degrees", "The freezer must stay at 5 degrees"),
    ("Copies with rsync -a and nothing else", "Copies with rsync -A and nothing else"),
    ("Branches are named feature/x", "Branches are named feature-x"),
    ("The regex is a.*b", "The regex is a+b"),
    ("Turns the heating on at night", "Turns the heating off at night"),
    ("Flies from Rome to Paris every week", "Flies to Rome from Paris every week"),
    ("Il aime le fromage", "Il n'aime pas le fromage"),
    ("Le piace il formaggio di capra con il miele", "Non le piace il formaggio di capra con il miele"),
    ("Le gusta el queso de cabra con miel", "No le gusta el queso de cabra con miel"),
    ("Gosta de queijo de cabra com mel", "Não gosta de queijo de cabra com mel"),
    ("Drinkt koffie met melk en suiker", "Drinkt geen koffie met melk en suiker"),
    ("Hat zuhause im Keller einen Server mit Proxmox", "Hat zuhause im Keller keinen Server mit Proxmox"),
    ("Der Kollege heißt Müller", "Der Kollege heißt Muller"),
    (
        "用户喜欢在周末和家人一起去重庆的老城区吃麻辣火锅然后散步回家",
        "用户不喜欢在周末和家人一起去重庆的老城区吃麻辣火锅然后散步回家",
    ),
    ("毎朝コーヒーを飲む", "毎朝コーヒーを飲まない"),
]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_person_adds_what_says_otherwise_and_it_is_remembered(book: Book, one: str, other: str) -> None:
    first = book.memories.add(one)
    assert book.memories.add(other).id != first.id
    assert book.texts() == sorted([one, other])


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_an_extracted_correction_that_says_otherwise_is_not_lost(book: Book, one: str, other: str) -> None:
    (first,) = book.extract(one) or ()
    new = book.extract(fact(other, replaces=first.id)) or ()
    assert [entry.text for entry in new] == [other]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_deletion_forbids_only_what_was_deleted(book: Book, one: str, other: str) -> None:
    book.memories.delete(book.memories.add(one).id)
    assert [entry.text for entry in book.extract(other) or ()] == [other]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_consolidation_merges_no_opposites(book: Book, one: str, other: str) -> None:
    (first,) = book.extract(one) or ()
    assert duplicates([first, replace(first, id=new_id(), text=other, created=first.created + 1)]) == []


def test_a_bullet_by_hand_that_says_otherwise_is_no_yes_to_a_proposal(book: Book) -> None:
    (proposed,) = book.extract(fact("Always runs chmod +x on scripts", review=ChangeReason(Why.NOT_YOU))) or ()
    book.write("topics/mine.md", "- Always runs chmod -x on scripts\n")
    book.memories.sync()
    assert book.memories.get(proposed.id).status is Status.PENDING


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user prefers metric units", "Prefers metric units."),
        ("I prefer metric units", "Prefers METRIC units!"),
        ("Has two cats", "Has 2 cats"),
        ("喜欢喝茶", "喜欢喝茶。"),
        ("Likes “tea”, rice", "likes tea rice"),
        ("Uses `ripgrep`", "Uses ripgrep"),
    ],
)
def test_what_differs_only_in_punctuation_loudness_or_who_is_meant_is_the_same(one: str, other: str) -> None:
    assert says_the_same(one, other) and says_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Works in IT", "Works in it"),
        ("Takes vitamin A", "Takes vitamin"),
        ("!!!", "???"),
        ("", ""),
        ("Likes Rust", "Likes rust"),
        ("Can swim.", "Can swim?"),
        ("Stays at –5 degrees", "Stays at 5 degrees"),
    ],
)
def test_in_doubt_two_memories_are_two(one: str, other: str) -> None:
    assert not says_the_same(one, other)


def test_a_fact_with_another_sign_than_the_person_wrote_waits_for_a_yes() -> None:
    message = statements("I always run chmod +x on my scripts.")
    assert grounding("Always runs chmod -x on scripts", message).review == ChangeReason(Why.SIGNS)
    assert grounding("Always runs chmod +x on scripts", message).review is None

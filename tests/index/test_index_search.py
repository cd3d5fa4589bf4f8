"""What a search finds, in which order, and what it says of it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_kit import keys, lines

from kvchat.index.index import POOL, Chunk, Index
from kvchat.index.tokenizer import prepared_before

Found = Callable[..., list[str]]
UNITS, HOME, CAT = "Prefers metric units.", "Lives in Zürich since 2019.", "Has a cat named Ada."


def test_a_question_finds_what_shares_a_word_with_it(index: Index, found: Found) -> None:
    index.replace("memory/profile.md", lines(UNITS, HOME, CAT))
    assert found("Which units should the recipe have?") == ["0"]
    assert found("What is my cat's name?") == ["2"]
    assert found("dogs") == []


@pytest.mark.parametrize("query", ["prefer", "PREFERRED", "unit", "Units?"])
def test_endings_and_case_do_not_matter(query: str, index: Index, found: Found) -> None:
    index.replace("memory/profile.md", lines(UNITS, HOME, CAT))
    assert found(query) == ["0"]


@pytest.mark.parametrize("query", ["zurich", "Zürich", "Zu\u0308rich", "ZÜRICH", "ｚｕｒｉｃｈ"])
def test_accents_and_other_forms_of_letters_do_not_matter(query: str, index: Index, found: Found) -> None:
    index.replace("memory/profile.md", lines(UNITS, HOME, CAT))
    assert found(query) == ["1"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("备份", "每天晚上备份数据库"),
        ("我喜欢东京吗", "住在东京"),
        ("東京", "彼は東京タワーが好き"),
        ("天気", "今日の天気はいい"),
        ("猫", "家里有一只猫"),
        ("猫", "猫咪很可爱"),
        ("ねこ", "ねこがいる"),
        ("서울", "저는 서울에 살아요"),
        ("ปวดหัว", "ฉันปวดหัวมาก"),
        ("น้ำแข็ง", "ไม่มีน้ำแข็งแล้ว"),
        ("ວຽງຈັນ", "ຂ້ອຍຢູ່ວຽງຈັນດົນແລ້ວ"),
        ("1.2.3", "Since v1.2.3 it is off"),
        ("3.14", "See π=3.14"),
        ("11549", "Since b11549 it is off"),
        ("b11549", "Since b11549 it is off"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("москва", "Живёт в Москва-Сити"),
    ],
)
def test_words_of_scripts_without_spaces_are_found_inside_a_line(
    query: str, text: str, index: Index, found: Found
) -> None:
    index.replace("memory/profile.md", lines(UNITS, hit=text))
    assert found(query) == ["hit"]
    assert index.search(query)[0].matched >= 1


@pytest.mark.parametrize(
    "query",
    [
        "what is the",
        "Who are you and how do you do that?",
        "don't",
        "I'm",
        "it's",
        "it\u2019s ok",
        "?!",
        "",
        " ",
        "\x00",
        "wie ist das",
        "que es lo",
        "什么",
    ],
)
def test_stop_words_alone_find_nothing(query: str, index: Index, found: Found) -> None:
    index.replace(
        "memory/profile.md",
        lines("What is the who are you how do that don't I'm it's ok", "wie ist das que es lo que", "什么"),
    )
    assert found(query) == []


def test_stop_words_decide_nothing_beside_a_word_that_counts(index: Index, found: Found) -> None:
    index.replace("memory/profile.md", lines("What do I do? What is it that I am?", "The harbour"))
    assert found("What do I do at the harbour?") == ["1"]
    assert index.search("What do I do at the harbour?")[0].matched == 1


def test_matched_counts_each_word_of_the_query_once(index: Index) -> None:
    index.replace("memory/profile.md", [Chunk("m", "Garden tools", "Grows tomatoes, tomatoes and basil.")])
    for query, matched in (
        ("tomato", 1),
        ("tomatoes, tomato, Tomatoes", 1),
        ("basil with tomatoes", 2),
        ("tools for basil and tomatoes in winter", 3),
        ("garden", 1),
    ):
        assert [hit.matched for hit in index.search(query)] == [matched], query


def test_more_words_and_rarer_words_come_first(index: Index, found: Found) -> None:
    common = [f"Report {number} about the {'island' if number % 3 else 'harbour'}" for number in range(20)]
    index.replace("memory/a.md", lines(*common, both="The lighthouse at the harbour", rare="An old lighthouse"))
    assert found("lighthouse harbour", 2) == ["both", "rare"]


def test_a_word_in_the_head_counts_more(index: Index, found: Found) -> None:
    index.replace(
        "docs/a.md",
        [
            Chunk("text", "Roses", "Some words about tulips here"),
            Chunk("head", "Tulips", "Some words about them here"),
            *lines("other", "things"),
        ],
    )
    assert found("tulips") == ["head", "text"]


def test_equal_scores_come_in_the_order_of_their_names_however_they_came_in(index: Index) -> None:
    names = [f"memory/{number:04}.md" for number in range(POOL + 40)]
    expected = names[:8]
    for seed in range(2):
        random.Random(seed).shuffle(names)
        anew = Index.open(None)
        for name in names:
            anew.replace(name, lines("the same lighthouse"))
        assert [hit.doc for hit in anew.search("lighthouse")] == expected


def test_k_is_kept_to(index: Index) -> None:
    index.replace("memory/a.md", lines(*(f"lighthouse {number}" for number in range(300))))
    assert [len(index.search("lighthouse", k)) for k in (-1, 0, 1, 8, 250, 1000)] == [0, 0, 1, 8, 250, 300]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("", {"docs/work/a.md", "docs/home/a.md", "memory/a.md", "memory-old/a.md"}),
        ("memory/", {"memory/a.md"}),
        ("docs/", {"docs/work/a.md", "docs/home/a.md"}),
        ("docs/work/", {"docs/work/a.md"}),
        ("mem", {"memory/a.md", "memory-old/a.md"}),
        ("memory/a.md", {"memory/a.md"}),
        ("no/", set()),
        ("no", set()),
        ("memory/a.md/", set()),
        ("%", set()),
        ("MEMORY/", set()),
    ],
)
def test_a_scope_is_the_beginning_of_names(scope: str, expected: set[str], index: Index) -> None:
    for name in ("docs/work/a.md", "docs/home/a.md", "memory/a.md", "memory-old/a.md"):
        index.replace(name, lines("lighthouse"), "s")
    assert {hit.doc for hit in index.search("lighthouse", scope=scope)} == expected
    assert index.docs(scope) == dict.fromkeys(expected, "s")


def test_names_of_folders_are_not_found_as_words(index: Index, found: Found) -> None:
    index.replace("memory/topics/lighthouse.md", lines("a cat"))
    assert found("lighthouse topics memory md") == []


def test_a_very_long_query_is_answered_by_its_beginning_and_its_end(index: Index, found: Found) -> None:
    index.replace("memory/a.md", lines("lighthouse", "harbour"))
    filler = " ".join(f"word{number}" for number in range(50_000))
    assert set(found(f"lighthouse {filler} harbour")) == {"0", "1"}


HOSTILE = [
    "C++",
    "don't OR",
    "x:y",
    '"',
    '""',
    "NEAR(a b)",
    "a AND b",
    "-a",
    "a*",
    "^a",
    "{head} : a",
    "place : 1",
    "(",
    ")",
    "a\x00b",
    "\udc80",
    "\ud83d\ude00",
    "😀",
    "'; DROP TABLE doc; --",
    "%",
    "\u3099",
    "e\u0301" * 100,
    "\u200b",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_an_operator_or_an_error(text: str, index: Index, found: Found) -> None:
    index.replace(f"memory/{text}.md", [Chunk(text, text, f"{text} lighthouse")], text)
    index.replace("memory/b.md", lines("a b c x y near and or head place 1"))
    index.search(text)
    assert len(found(f"{text} lighthouse")) >= 1
    index.replace(f"memory/{text}.md", [])
    assert found("lighthouse") == []


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_index_and_query(text: str, query: str) -> None:
    index = Index.open(None)
    index.replace("memory/a.md", lines(text))
    hits = index.search(query)
    assert all(hit.matched >= 1 for hit in hits)
    index.replace("memory/a.md", [])
    empty = Index.open(None)
    empty.replace("memory/a.md", [])
    assert index.digest() == empty.digest() and index.search(query) == []


def test_a_hit_says_where_it_is_and_how_it_was_found(index: Index) -> None:
    chunk = Chunk("12-40", "Guide > Start", "Switch the lighthouse on.")
    index.replace("docs/work/guide.md", [chunk])
    [hit] = index.search("lighthouse")
    assert (hit.doc, hit.chunk, hit.why, hit.matched, hit.similarity) == ("docs/work/guide.md", chunk, "words", 1, None)
    assert keys([hit]) == ["12-40"]


def test_frequencies_count_the_chunks_of_a_scope_that_hold_a_word_and_stop_at_the_most(index: Index) -> None:
    index.replace("memory/a.md", lines("lighthouse", "two lighthouses", "harbour", "the"))
    assert index.frequencies(["Lighthouse", "harbour", "cat", "the", ""], 9) == [2, 1, 0, 0, 0]
    index.replace("docs/a.md", lines("lighthouse", "lighthouse"))
    assert index.frequencies(["lighthouse"], 9, scope="memory/") == [2]
    assert index.frequencies(["lighthouse"], 9, scope="mem") == [2]
    assert index.frequencies(["lighthouse"], 9) == [4]
    assert index.frequencies(["lighthouse"], 3) == [3]


def test_matched_is_right_for_a_word_that_stands_in_very_many(index: Index) -> None:
    index.replace("memory/a.md", lines(*(f"lighthouse {number}" for number in range(300)), both="lighthouse harbour"))
    assert [(hit.chunk.key, hit.matched) for hit in index.search("lighthouse harbour", 2)] == [("both", 2), ("0", 1)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the light\u00adhouse of the coast", "lighthouse"),
        ("a baro\u200bmeter of brass", "barometer"),
        ("a har\u2060bour wall", "harbour"),
        ("long navi-\ngation lists", "navigation"),
        ("low tide\u00ad\nwater marks", "tidewater"),
        ("die Leucht\u00adtürme der Küste", "Leuchttürme"),
    ],
)
def test_words_with_something_invisible_or_a_line_end_in_them_are_found(text: str, word: str, index: Index) -> None:
    index.replace("docs/a.md", lines(said=text, other="nothing of that"), "1")
    assert keys(index.search(word)) == ["said"]
    assert keys(index.search(f"What of the {word[:4]}\u00ad{word[4:]}?")) == ["said"]
    index.remove("docs/a.md")
    assert not index.search(word)


def test_an_index_of_before_serves_and_is_brought_up_to_date_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index.db"
    with monkeypatch.context() as patch:
        patch.setattr("kvchat.index.content.prepared", prepared_before)
        index = Index.open(path)
        for number in range(5):
            index.replace(f"docs/{number}.md", lines(said=f"apple {number} of the light\u00adhouse", plain="pear"), "1")
        index.put_vectors("m", {("docs/1.md", "said"): [0.5, 0.5]})
        index.close()
    db = sqlite3.connect(path)
    db.execute("DELETE FROM state WHERE name = 'prepared'")
    db.commit()
    db.close()
    monkeypatch.setattr("kvchat.index.index.RENEWED", 3)
    index = Index.open(path)
    assert len(index.search("apple")) == 5 and not index.search("lighthouse"), "nothing is rebuilt at the start"
    index.renew()
    assert len(index.search("apple")) == len(index.search("lighthouse")) == 5 and not index.search("house")
    assert index.docs() == {f"docs/{number}.md": "1" for number in range(5)}
    assert len(index.without_vector("m", 20)) == 9, "the vectors stay"
    index.close()

"""Words as memories are compared by them, in several languages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.memory.similarity import content_words, folded, normalised, numbers, words


@corpus(
    ("one", "other"),
    [
        ("Prefers TEA!", "prefers tea"),
        ("Café  crème", "cafe creme"),
        ("Straße", "strasse"),
        ("ﬁne", "fine"),
        ("１２ Katzen", "12 katzen"),
        ("1,200 users", "1200 users"),
        ("だいじ", "た\u3099いし\u3099"),
        ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8"),
    ],
)
def test_the_same_words_are_equal_however_they_are_written(one, other):
    assert normalised(one) == normalised(other)


@corpus(
    ("one", "other"),
    [
        ("Knows C++", "Knows C"),
        ("Knows C#", "Knows C"),
        ("Likes 🍕", "Likes 🍣"),
        ("Version 3.11", "Version 3.12"),
        ("1.5 GB", "15 GB"),
        ("か", "が"),
        ("!!!", "???"),
        ("हिन्दी", "हन्द"),
    ],
)
def test_texts_that_say_other_things_are_not_equal(one, other):
    assert normalised(one) != normalised(other)


@corpus(
    ("text", "found"),
    [
        ("I'm using the tools", {"tool"}),
        ("She doesn't know R or C++", {"r", "c++"}),
        ("studies studied study", {"study"}),
        ("prefers preferred prefer", {"prefer"}),
        ("J'habite l'Allemagne", {"habit", "allemagn"}),
        ("two cats", {"2", "cat"}),
        ("O'Brien", {"o'brien"}),
        ("Ich nicht", set()),
    ],
)
def test_content_words_are_stems_of_what_carries_meaning(text, found):
    assert content_words(text) == found


def test_scripts_without_spaces_give_pairs_of_characters():
    assert words("喜欢喝茶 and tea") == ["喜欢", "欢喝", "喝茶", "and", "tea"]
    assert words("茶") == ["茶"]


def test_numbers_are_found_in_digits_words_and_names():
    assert numbers("two cats, 3.5 GB, v3.11 and 1,200 zwölf") == {"2", "3.5", "v3.11", "1200", "12"}


@given(st.text())
def test_folding_and_normalising_twice_changes_nothing(text):
    assert folded(folded(text)) == folded(text)
    assert normalised(normalised(text)) == normalised(text)

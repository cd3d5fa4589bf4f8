"""Mentions: what in a message names a document, what is only text, and what is offered while one is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.documents.collection import Collection
from kvchat.documents.mentions import (
    at_place,
    collections,
    on_disk,
    quoted,
    within,
    without,
    written,
)


@corpus(
    ("text", "names"),
    [
        ("@handbook how?", ["handbook"]),
        ("What says @handbook/guide/setup.md?", ["handbook/guide/setup.md"]),
        ("(@handbook)", ["handbook"]),
        ("@handbook, @notes: compare.", ["handbook", "notes"]),
        ('@"my notes/a b.md" sums up?', ["my notes/a b.md"]),
        ("@~/x.txt and @./y", ["~/x.txt", "./y"]),
        ("写在 @手册 里", ["手册"]),
        ("@handbook\\\nHow?", ["handbook"]),
    ],
)
def test_a_mention_is_found_where_a_word_begins(text, names):
    assert [one.names[-1] for one in written(text)] == names


@pytest.mark.parametrize("text", ["me@example.org", "a@b", "@ alone", "@", "x/@y", "user.@name", "no mention at all"])
def test_an_address_or_a_lone_sign_is_no_mention(text):
    assert not list(written(text))


@corpus(
    "text",
    [
        "`@handbook`",
        "``a ` @handbook``",
        "```\n@handbook\n```",
        "~~~~ py\n```\n@handbook\n~~~~",
        "```\n@handbook",
        "- ```\n  @handbook\n  ```",
        "> @handbook",
        "    @handbook",
        "\\@handbook",
        "-F file=@./x",
        "'@/lib'",
        "(@~/x)",
    ],
)
def test_code_quotes_and_signs_inside_words_mention_nothing(text):
    assert not list(written(text))


@pytest.mark.parametrize(
    "text",
    [
        "it's ` only @handbook",
        "``` @handbook ` x",
        "```\nx\n```\n@handbook",
        "`a`@handbook`b`",
        "a ` b\n\nc @handbook ` d",
    ],
)
def test_what_is_no_code_is_read(text):
    assert [one.names[-1] for one in written(text)] == ["handbook"]


def test_what_follows_a_shorter_name_is_searched_for():
    text = "@handbook，lamp"
    [one] = written(text)
    assert one.names == ("handbook，lamp", "handbook") and text[one.end_of("handbook") :] == "，lamp"


def test_a_name_may_end_in_a_sign_that_also_ends_sentences():
    assert next(written("see @notes/v1.2.")).names == ("notes/v1.2.", "notes/v1.2")


def test_what_is_searched_for_is_the_text_without_its_mentions():
    text = "@handbook How often does @lamp turn?"
    spans = [(one.start, one.end) for one in written(text)]
    assert without(text, spans) == "How often does turn?"


@given(
    st.text(
        alphabet=st.characters(exclude_characters='"\n\r@<>|', exclude_categories=("Cs", "Cc", "Zl", "Zp")),
        min_size=1,
        max_size=40,
    ).filter(lambda name: name.strip() == name)
)
def test_what_is_offered_is_understood_when_it_is_written(name):
    found = list(written(f"Look at @{quoted(name)} now"))
    assert len(found) == 1 and name in found[0].names


# -- which of them count


@pytest.mark.parametrize(("place", "name"), [(0, None), (3, None), (4, "one"), (6, "one"), (8, "one"), (9, None)])
def test_a_place_in_a_text_is_in_a_mention_up_to_its_end(place, name):
    found = at_place("see @one now", place)
    assert (found.names[0] if found else None) == name


# What is offered while one is written.

HANDBOOK = Collection("handbook", "/handbook", 0.0)
DOCS = [f"docs/handbook/{path}" for path in ("guide/setup.md", "guide/use/keys.md", "guide.md", "notes.txt")]


def test_folders_come_first_and_one_level_at_a_time():
    assert [one.text for one in within(HANDBOOK, DOCS, "", 9)] == [
        "handbook/guide/",
        "handbook/guide.md",
        "handbook/notes.txt",
    ]
    assert [one.text for one in within(HANDBOOK, DOCS[:2], "guide/", 9)] == [
        "handbook/guide/use/",
        "handbook/guide/setup.md",
    ]


def test_a_name_further_down_is_found_by_a_part_of_it():
    assert [one.text for one in within(HANDBOOK, DOCS[1:2], "keys", 9)] == ["handbook/guide/use/keys.md"]


def test_collections_that_begin_with_it_come_first():
    known = [Collection(name, "/", 0.0) for name in ("my-handbook", "handbook", "other")]
    assert [one.text for one in collections(known, "HAND", 9)] == ["handbook", "my-handbook"]


def test_the_disk_is_offered_without_hidden_names_until_a_dot_is_written(tmp_path):
    tmp_path = tmp_path / "here"
    tmp_path.mkdir()
    for name in ("b.txt", ".hidden", "a b.md"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert [one.label for one in on_disk(f"{tmp_path}/", 9)] == ["folder/", "a b.md", "b.txt"]
    assert [one.label for one in on_disk(f"{tmp_path}/.h", 9)] == [".hidden"]
    assert [one.text for one in on_disk(f"{tmp_path}/FOL", 9)] == [f"{tmp_path}/folder/"]
    assert on_disk(f"{tmp_path}/nowhere/x", 9) == []

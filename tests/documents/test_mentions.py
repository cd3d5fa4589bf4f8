"""Mentions: what in a message names a document, and what is only text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.documents.mentions import quoted, without, written


@pytest.mark.parametrize(("text", "names"), [
    ("@handbook how?", ["handbook"]),
    ("What says @handbook/guide/setup.md?", ["handbook/guide/setup.md"]),
    ("(@handbook)", ["handbook"]),
    ("@handbook, @notes: compare.", ["handbook", "notes"]),
    ('@"my notes/a b.md" sums up?', ["my notes/a b.md"]),
    ("@~/x.txt and @./y", ["~/x.txt", "./y"]),
    ("写在 @手册 里", ["手册"]),
])
def test_a_mention_is_found_where_a_word_begins(text, names):
    assert [one.names[-1] for one in written(text)] == names


@pytest.mark.parametrize("text", ["me@example.org", "a@b", "@ alone", "@", "x/@y", "user.@name", "no mention at all"])
def test_an_address_or_a_lone_sign_is_no_mention(text):
    assert not list(written(text))


@pytest.mark.parametrize("text", [
    "`@handbook`", "``a ` @handbook``", "```\n@handbook\n```", "~~~~ py\n```\n@handbook\n~~~~", "```\n@handbook",
    "- ```\n  @handbook\n  ```", "> @handbook", "    @handbook", "\\@handbook", "-F file=@./x", "'@/lib'", "(@~/x)"])
def test_code_quotes_and_signs_inside_words_mention_nothing(text):
    assert not list(written(text))


@pytest.mark.parametrize("text", [
    "it's ` only @handbook", "``` @handbook ` x", "```\nx\n```\n@handbook", "`a`@handbook`b`",
    "a ` b\n\nc @handbook ` d"])
def test_what_is_no_code_is_read(text):
    assert [one.names[-1] for one in written(text)] == ["handbook"]


def test_what_follows_a_shorter_name_is_searched_for():
    text = "@handbook，lamp"
    [one] = written(text)
    assert one.names == ("handbook，lamp", "handbook") and text[one.end_of("handbook"):] == "，lamp"


def test_a_name_may_end_in_a_sign_that_also_ends_sentences():
    assert next(written("see @notes/v1.2.")).names == ("notes/v1.2.", "notes/v1.2")


def test_what_is_searched_for_is_the_text_without_its_mentions():
    text = "@handbook How often does @lamp turn?"
    spans = [(one.start, one.end) for one in written(text)]
    assert without(text, spans) == "How often does turn?"


@given(st.text(alphabet=st.characters(exclude_characters='"\n\r@<>|', exclude_categories=("Cs", "Cc", "Zl", "Zp")),
               min_size=1, max_size=40).filter(lambda name: name.strip() == name))
def test_what_is_offered_is_understood_when_it_is_written(name):
    found = list(written(f"Look at @{quoted(name)} now"))
    assert len(found) == 1 and name in found[0].names

"""Chunks: nothing is lost, everything says where it stands, and what belongs together stays together."""

from __future__ import annotations

import unicodedata
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_kit import NAMES, TEXTS, read

from corpus import corpus
from kvchat.documents.chunking import LONGEST, chunks
from kvchat.documents.collection import ChunkPlace
from kvchat.documents.reading.content import Content, Section, Unit
from kvchat.index.content import Chunk

PARAGRAPH = "Some words that say something about it. " * 10  # 400 characters


def cut(text: str, name: str = "a.md") -> list[Chunk]:
    return chunks(read(name, text), name)


def keys(found: list[Chunk]) -> list[str]:
    return [chunk.key for chunk in found]


def heads(found: list[Chunk]) -> list[str]:
    return [chunk.head for chunk in found]


def lines_of(key: str) -> tuple[int, int]:
    first, _, last = key.partition("~")[0].partition("-")
    return int(first), int(last or first)


@given(st.sampled_from(NAMES), TEXTS)
@settings(max_examples=400, deadline=None)
def test_the_chunks_are_the_text_and_stand_where_they_say(name: str, text: str) -> None:
    found = cut(text, name)
    position, before = 0, (1, 1)
    for chunk in found:
        start = text.index(chunk.text, position)
        assert not text[position:start].strip()
        position = start + len(chunk.text)
        first, last = lines_of(chunk.key)
        assert (first, last) == (text.count("\n", 0, start) + 1, text.count("\n", 0, position) + 1)
        assert (first, last) >= before
        before = (first, last)
        assert 0 < len(chunk.text) <= LONGEST
        assert chunk.text.strip("\n") == chunk.text == chunk.text.rstrip()
        assert chunk.head.startswith(name)
    assert not text[position:].strip()
    assert len(set(keys(found))) == len(found)
    assert cut(text, name) == found


PARTS = st.builds(
    Section,
    st.lists(st.sampled_from(["One", "Two", "Three"]), max_size=3).map(tuple),
    TEXTS | st.sampled_from(["x " * 3000, "", " "]),
    st.just(0),
    st.just(0),
    st.booleans(),
)


@given(st.sampled_from(Unit), st.lists(st.tuples(PARTS, st.integers(1, 3), st.integers(0, 2)), max_size=8))
@settings(max_examples=200, deadline=None)
def test_pages_and_paragraphs_lose_no_word_either(unit: Unit, parts: list[tuple[Section, int, int]]) -> None:
    sections, position = list[Section](), 0
    for part, after, more in parts:
        first, position = position + after, position + after + more
        sections.append(Section(part.titles, part.text, first, position, part.code))
    found = chunks(Content("", unit, tuple(sections), exact=False), "a.pdf")
    squeezed = "".join("".join(section.text for section in sections).split())
    assert "".join("".join(chunk.text.split()) for chunk in found) == squeezed
    assert len(set(keys(found))) == len(found)
    assert all(len(chunk.text) <= LONGEST for chunk in found)


def test_a_chunk_is_found_under_its_file_and_its_headings() -> None:
    text = f"# Setup\n\n{PARAGRAPH * 4}\n\n## Linux\n\n{PARAGRAPH * 2}\n\n## Windows\n\n{PARAGRAPH * 2}\n"
    found = cut(text, "guide/setup.md")
    assert heads(found) == [
        "setup.md > Setup",
        "setup.md > Setup",
        "setup.md > Setup > Linux",
        "setup.md > Setup > Windows",
    ]
    assert keys(found) == ["1-3", "3", "5-7", "9-11"]


def test_a_title_that_is_no_heading_stands_behind_the_name() -> None:
    assert heads(cut("---\ntitle: Notes\n---\ntext\n")) == ["a.md > Notes"]
    page = Content("A paper", Unit.PAGE, (Section((), "text", 1, 1),), exact=False)
    assert heads(chunks(page, "x.pdf")) == ["x.pdf > A paper"]


def test_a_very_long_head_keeps_its_beginning_and_its_end() -> None:
    text = "".join(f"{'#' * level} {chr(64 + level) * 110}\n" for level in range(1, 7)) + "text\n"
    (head,) = heads(cut(text, "n.md"))
    assert head.startswith("n.md > AAA") and head.endswith("FFF") and len(head) < 410


@corpus(
    ("heading", "between", "body"),
    product(
        ["# Title", "Title\n=====", "# Top\n\n## Title", "## Empty\n\n## Title"],
        ["\n", "\n\n"],
        [
            PARAGRAPH,
            PARAGRAPH * 3,
            "word " * 390,
            "x" * 1990,
            "y" * 5000,
            f"```\n{'z = 1' * 390}\n```",
            f"{PARAGRAPH}\n\n{'w' * 1900}",
            "- item\n" * 300,
        ],
    ),
)
def test_a_heading_stays_with_what_follows_it(heading: str, between: str, body: str) -> None:
    found = cut(f"{PARAGRAPH}\n\n{heading}{between}{body}\n")
    (titled,) = [chunk for chunk in found if "Title" in chunk.text]
    assert len(titled.text.partition("Title")[2].strip("=\n ")) > 10
    assert titled.text.startswith(heading) or titled.text.startswith(PARAGRAPH.strip())


def test_a_heading_with_nothing_below_it_is_not_lost() -> None:
    assert "".join(chunk.text for chunk in cut(f"# A\n\n{PARAGRAPH * 3}\n\n## Last\n")).endswith("## Last")


@pytest.mark.parametrize("size", [300, 1100, 1500, 1900])
def test_a_fence_stays_whole_where_it_fits(size: int) -> None:
    fence = "```python\n" + "x = f(1)\n\n" * (size // 10) + "```"
    found = cut(f"# A\n\n{PARAGRAPH * 2}\n\n{fence}\n\n{PARAGRAPH * 2}\n")
    assert any(fence in chunk.text for chunk in found)


def test_a_fence_that_does_not_fit_is_cut_between_lines() -> None:
    found = cut("```python\n" + "x = f(1)  # and so on\n" * 200 + "```\n")
    assert len(found) > 3
    lines = {line for chunk in found for line in chunk.text.split("\n")}
    assert lines == {"```python", "```", "x = f(1)  # and so on"}


def test_paragraphs_are_cut_between_them_and_sentences_are_kept() -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "It has some words. " * 15 for number in range(20))
    assert all(chunk.text.startswith("Paragraph") and chunk.text.endswith("words.") for chunk in cut(text))
    long = " ".join(f"Sentence {number} has a few words." for number in range(200))
    assert all(chunk.text.startswith("Sentence") and chunk.text.endswith("words.") for chunk in cut(long))


@pytest.mark.parametrize(
    "text", ["word " * 3000, "x" * 12345, "字" * 5000, "漢字、" * 2000], ids=["words", "letters", "chinese", "commas"]
)
def test_a_giant_line_is_cut_under_keys_of_one_line(text: str) -> None:
    found = cut(f"before\n\n{text}\nafter\n", "a.txt")
    assert keys(found)[1:4] == ["3", "3~2", "3~3"]
    assert all(500 <= len(chunk.text) <= 1300 for chunk in found[1:-1])
    assert ChunkPlace("c", "a.txt", "3~2").title == "c/a.txt:3"
    if "word" in text:
        assert {word for chunk in found for word in chunk.text.split()} == {"before", "word", "after"}


def test_a_letter_keeps_its_accents_where_a_line_is_cut() -> None:
    for mark in ("\u0301", "\u0301\u0323\u0308", "\ufe0f", "\u200d👧"):
        for chunk in cut(("a" + mark) * 3000, "a.txt"):
            assert not unicodedata.combining(chunk.text[0]) and chunk.text[0] not in "\ufe0f\u200d"


def test_small_neighbours_share_a_chunk_under_their_common_heading() -> None:
    functions = "".join(f"## f{number}\n\nDoes {number}.\n\n" for number in range(10))
    found = cut(f"# API\n\n{functions}# Other\n\n{PARAGRAPH * 2}\n")
    assert heads(found) == ["a.md > API", "a.md > Other"]
    assert "## f0" in found[0].text and "Does 9." in found[0].text
    assert keys(found)[0] == "1-41"


def test_sections_of_a_good_size_are_not_mixed() -> None:
    text = "".join(f"# Part {number}\n\n{PARAGRAPH * 2}\n\n" for number in range(5))
    assert heads(cut(text)) == [f"a.md > Part {number}" for number in range(5)]


def test_chunks_have_about_a_thousand_characters() -> None:
    text = "".join(
        f"{'#' * (1 + number % 3)} Part {number}\n\n" + f"{PARAGRAPH[:150]}\n\n" * (number % 9) for number in range(300)
    )
    sizes = sorted(len(chunk.text) for chunk in cut(text))
    assert 500 <= sum(sizes) / len(sizes) <= 1200
    assert sum(size > 1200 for size in sizes) < len(sizes) / 20


def test_a_function_keeps_its_docstring_and_its_decorator() -> None:
    functions = "".join(
        f'@cached\ndef f{number}(x):\n    """Says {number}."""\n'
        + "    z = g(x, y)  # some more words here\n" * 20
        + "    return x\n\n\n"
        for number in range(6)
    )
    found = cut(functions, "m.py")
    assert heads(found) == [f"m.py > f{number}" for number in range(6)]
    assert all(chunk.text.startswith("@cached\ndef") and "Says" in chunk.text for chunk in found)


def test_a_long_function_is_found_by_its_name_in_every_piece() -> None:
    text = "class A:\n    def run(self):\n" + "        step(1)  # and so on\n\n" * 200
    found = cut(text, "m.py")
    assert len(found) > 3 and set(heads(found)) == {"m.py > A > run"}
    assert found[0].text.startswith("class A:")


@pytest.mark.parametrize("scrap", ["    if on_windows:\n", "    LIMIT = 3\n\n", "    # Windows\n    #\n"])
def test_a_scrap_goes_with_a_neighbour(scrap: str) -> None:
    method = "    def run{}(self):\n" + "        step(1)  # and so on and on and on\n" * 60
    text = "class A:\n" + method.format(1) + scrap + method.format(2) + scrap + method.format(3)
    assert min(len(chunk.text) for chunk in cut(text, "m.py")) > 200


def test_the_end_of_a_long_section_is_no_scrap() -> None:
    for size in range(1150, 1500, 25):
        text = "\n\n".join(["word " * (size // 5), "The end."])
        assert min(len(chunk.text) for chunk in cut(text)) > 200, size


def test_pages_are_named_as_pages() -> None:
    pages = (
        Section((), "tiny", 1, 1),
        Section((), "small too", 2, 2),
        Section((), PARAGRAPH * 7, 3, 3),
        Section((), "end", 4, 4),
    )
    assert keys(chunks(Content("", Unit.PAGE, pages, exact=False), "a.pdf")) == ["p1-2", "p3", "p3~2", "p3~3", "p4"]


def test_paragraphs_are_named_as_paragraphs() -> None:
    parts = (Section(("A",), "tiny", 1, 3), Section(("B",), PARAGRAPH * 2, 4, 9))
    assert keys(chunks(Content("", Unit.PARAGRAPH, parts, exact=False), "a.docx")) == ["¶1-9"]


def test_an_empty_document_has_no_chunks() -> None:
    assert cut("") == cut(" \n\n") == []


def test_blank_lines_that_reach_far_fill_no_chunk() -> None:
    assert keys(cut("a\n" + "\n" * 100_000 + "b" + " " * 100_000 + "\nc\n", "a.txt")) == ["1", "100002", "100003"]

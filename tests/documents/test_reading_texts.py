"""Texts of every format: nothing is lost, whatever they hold, and the right reader reads them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_kit import NAMES, TEXTS, read, titles

from corpus import corpus
from kvchat.documents.chunking import chunks
from kvchat.documents.reading.content import LONGEST_TITLE

SMALL, LARGE, MOST_GROWTH, SHORTEST_S = 5_000, 50_000, 40.0, 0.001
HARD = (
    "a",
    " ",
    "\t",
    '"',
    '\\"',
    "'",
    '"""\\',
    "`",
    "~",
    "[",
    "[a](",
    "# [a](",
    "(",
    "*",
    "_",
    "{",
    "<",
    "<a",
    "static ",
    "  ```x\n",
    "    ```x\n",
    "- ```\n",
    "# x\n",
    "a\n=\n",
    "ab\n==\n\n",
    "==\n",
    "<!--\n",
    "@x\n",
    "#\n",
    "//\n",
    "/*\n",
    "def f():\n",
    "class A:\n",
    "f(\n",
    ".. function:: a\n",
    ".. _a:\n",
    "\n",
    " \n",
    "> ",
    "- ",
    ". ",
    "---\n",
    "create or replace ",
    '.\\"\n',
    "a\u0301",
    "\u200d",
    "impl ",
    "const a = (",
    "a: ",
    "a:\n",
    "\\section{",
    "[a\n",
)


@given(st.sampled_from(NAMES), TEXTS)
@settings(max_examples=400, deadline=None)
def test_the_sections_are_the_text_with_its_line_numbers(name: str, text: str) -> None:
    sections = read(name, text).sections
    assert "".join(section.text for section in sections) == (text if text.strip() else "")
    line = 1
    for section in sections:
        assert section.first == line
        assert section.last == line + section.text.count("\n") - section.text.endswith("\n")
        line = section.last + 1


@given(st.sampled_from(NAMES), TEXTS)
@settings(max_examples=200, deadline=None)
def test_titles_are_short_lines(name: str, text: str) -> None:
    content = read(name, text)
    for title in (content.title, *(title for section in content.sections for title in section.titles)):
        assert "\n" not in title and len(title) <= LONGEST_TITLE
    assert all(all(section.titles) for section in content.sections)


@given(st.sampled_from(NAMES), st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read(name: str, text: str) -> None:
    text = text.replace("\r", "\n")
    assert "".join(section.text for section in read(name, text).sections) == (text if text.strip() else "")


@corpus(
    ("name", "first", "expected"),
    [
        ("README.MD", "# Title\n", "Title"),
        ("json.rst.txt", "Title\n=====\n", "Title"),
        ("notes.txt", "Title\n=====\n", "Title"),
        ("tool", "#!/usr/bin/env -S python3.11 -u\ndef main():\n", "main"),
        ("tool", "#!/bin/sh\nbuild() {\n", "build"),
        ("tool", "#!/usr/bin/node\nfunction f() {\n", "f"),
        ("ls.1", '.\\" made\n.TH LS 1\n.SH NAME\nls\n', "NAME"),
        ("Makefile", "all: a\n\tb\n", "all"),
        ("Dockerfile", "FROM debian AS base\n", "debian AS base"),
        ("x.PY", "def f(): pass\n", "f"),
        ("dir.d/x.go", "func f() {\n", "f"),
    ],
)
def test_a_name_or_a_beginning_says_how_a_text_is_read(name: str, first: str, expected: str) -> None:
    assert titles(name, first)[-1] == expected


@pytest.mark.parametrize("name", ["notes", "x.unknown", "py"])
def test_a_text_without_a_known_name_is_one_piece(name: str) -> None:
    assert titles(name, "def f():\n# x\n") == [""]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.md", "a.rst", "a.py", "a.c", "a.ts", "a.sql", "Makefile", "noname"])
def test_a_text_made_to_be_hard_is_read_and_cut_in_one_pass(name: str) -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        chunks(read(name, text), name)
        return max(time.process_time() - began, SHORTEST_S)

    for repeated in HARD:
        small, large = (repeated * (size // len(repeated)) for size in (SMALL, LARGE))
        assert any(seconds(large) < MOST_GROWTH * seconds(small) for _ in range(3)), repr(repeated)

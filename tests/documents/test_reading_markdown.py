"""Markdown: what is a heading, what only looks like one, and what sections come of it."""

from __future__ import annotations

import pytest
from text_kit import outline, read, titles

from corpus import corpus


def md(text: str) -> list[tuple[str, int, int]]:
    return outline(read("a.md", text))


def test_sections_stand_under_all_their_headings_with_their_lines() -> None:
    text = "Before.\n\n# Guide\n\nWords.\n\n## Install\n\n### Linux\n\napt\n\n## Use\nrun it\n"
    assert md(text) == [
        ("", 1, 2),
        ("Guide", 3, 6),
        ("Guide > Install", 7, 8),
        ("Guide > Install > Linux", 9, 12),
        ("Guide > Use", 13, 14),
    ]
    assert read("a.md", text).title == "Guide"


def test_underlined_headings_begin_with_their_text() -> None:
    assert md("One\n===\n\ntext\n\nTwo of\ntwo lines\n---\ntext\n") == [("One", 1, 5), ("One > Two of two lines", 6, 9)]


def test_headings_that_skip_a_level_stand_under_the_next_higher_one() -> None:
    assert titles("a.md", "# A\n#### D\n## B\n") == ["A", "A > D", "A > B"]


@corpus(
    "block",
    [
        "```\n# no\n```",
        "~~~ sh\n# no\n```\n# no\n~~~",
        "````\n```\n# no\n```\n# no\n````",
        "<!--\n# no\n\n# no\n-->",
        "<pre>\n# no\n</pre>",
        "<script>\n# no\n</script>",
        "   ```\n# no\n   ```",
        "- ```sh\n  # no\n  ```",
        "1. do:\n\n    ```sh\n    # no\n    ```",
        "    # no",
        "\t# no",
        "#no",
        "####### no",
        "> # no",
        "- a\n---",
        "> a\n---",
        "| a |\n---",
        "a\n\n---",
        "***\n---",
        "one\ntwo\nthree\nfour\n---",
        "```\nno\n---\n```",
        "```js\n# no",
        "``` a ` b\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(block: str) -> None:
    assert titles("a.md", f"# Yes\n\n{block}\n") == ["Yes"]


@corpus(
    "block",
    [
        "```\ncode\n```",
        "<!-- one line -->",
        "<!--\n-->",
        "- ```\n  x\n\nno list any more",
        "`code` and ```code```",
        "~~struck~~",
        "    indented",
        "> ```\n> quoted",
    ],
)
def test_a_heading_after_such_a_block_is_one_again(block: str) -> None:
    assert titles("a.md", f"{block}\n\n# Yes\n") == ["", "Yes"]


def test_a_fence_that_is_never_closed_holds_all_that_follows() -> None:
    assert titles("a.md", "# A\n```\n# B\n\n# C\n") == ["A"]


@corpus(
    ("heading", "title"),
    [
        ("# **Bold** and `code`", "Bold and code"),
        ("# [Link](http://x.y/z)", "Link"),
        ("# A # B ##", "A # B"),
        ("# C#", "C#"),
        ("## snake_case_name", "snake_case_name"),
        ("# Title {#anchor}", "Title"),
        ("# ![logo](x.png) kvchat", "logo kvchat"),
        ("#\tTabbed", "Tabbed"),
        ("   # Indented", "Indented"),
        ("# <b>Tag</b>", "Tag"),
        ("# `__init__`", "__init__"),
        ("# 2 * 3 * 4", "2 * 3 * 4"),
        ("# a\\_b", "a_b"),
        ("# " + "long " * 60, ("long " * 60)[:119].rstrip() + "…"),
    ],
)
def test_a_title_is_what_the_heading_says(heading: str, title: str) -> None:
    assert titles("a.md", heading + "\n") == [title]


@pytest.mark.parametrize("heading", ["#", "# ", "##   ##"])
def test_a_heading_that_says_nothing_is_none(heading: str) -> None:
    assert titles("a.md", f"# A\n{heading}\ntext\n") == ["A"]


def test_front_matter_is_a_section_and_names_the_document() -> None:
    text = "---\ntitle: 'My notes'\n# not a heading\ntags: [a]\n---\n\nText.\n\n## Part\n"
    content = read("a.md", text)
    assert content.title == "My notes"
    assert outline(content) == [("", 1, 6), ("", 7, 8), ("Part", 9, 9)]
    assert read("a.md", '+++\ntitle = "Toml"\n+++\n## Part\n').title == "Toml"


def test_the_first_top_heading_is_the_title_even_with_front_matter() -> None:
    assert read("a.md", "---\ntitle: Front\n---\n\n## Sub\n\n# Heading\n").title == "Heading"


@pytest.mark.parametrize(
    "text", ["---\n\n# Heading\n\n---\n", "---\nwords\n---\n# Heading\n", "---\na: b\n# Heading\n"]
)
def test_rules_are_no_front_matter(text: str) -> None:
    assert "Heading" in [title.rpartition(" > ")[2] for title in titles("a.md", text)]


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_a_blank_file_has_no_sections(text: str) -> None:
    assert read("a.md", text).sections == ()

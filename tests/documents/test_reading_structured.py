"""Other texts with headings: reStructuredText, AsciiDoc, Org, LaTeX, manual pages, plain text."""

from __future__ import annotations

import pytest
from text_kit import outline, read, titles


def test_rst_levels_are_those_of_the_adornments_in_their_order() -> None:
    text = "=====\nGuide\n=====\n\nWords.\n\nInstall\n=======\n\nLinux\n-----\napt\n\nUse\n===\n"
    content = read("a.rst", text)
    assert outline(content) == [
        ("Guide", 1, 6),
        ("Guide > Install", 7, 9),
        ("Guide > Install > Linux", 10, 13),
        ("Guide > Use", 14, 15),
    ]
    assert content.title == "Guide"


@pytest.mark.parametrize(
    "block",
    [
        "::\n\n  no\n  ==",
        "====  ====\na     b\n====  ====",
        "text\n\n----\n\ntext",
        "long title\n==",
        "a\nb\n=====",
        "+---+\n| a |\n+---+",
    ],
    ids=repr,
)
def test_rst_tables_rules_and_literal_blocks_are_no_headings(block: str) -> None:
    assert titles("a.rst", f"Yes\n===\n\n{block}\n") == ["Yes"]


def test_a_label_belongs_to_the_heading_below_it() -> None:
    text = "Aye\n===\n\ntext\n\n.. _b:\n.. index:: b\n\nBee\n===\n"
    assert outline(read("a.rst", text)) == [("Aye", 1, 5), ("Bee", 6, 10)]


def test_what_a_directive_describes_is_a_section_under_its_name() -> None:
    text = (
        "Module\n======\n\n.. function:: dump(obj, *, skipkeys=False)\n\n   Writes.\n\n"
        ".. class:: Encoder(x)\n\n   Encodes.\n\n"
        "   .. method:: default(o)\n\n      Override it.\n\n   Of the class.\n\nOf the module.\n"
    )
    assert outline(read("a.rst", text)) == [
        ("Module", 1, 3),
        ("Module > dump", 4, 7),
        ("Module > Encoder", 8, 11),
        ("Module > Encoder > default", 12, 15),
        ("Module > Encoder", 16, 17),
        ("Module", 18, 18),
    ]


def test_roles_are_left_out_of_titles() -> None:
    assert titles("a.rst", ":mod:`json` --- JSON encoder\n============================\n") == ["json --- JSON encoder"]


def test_plain_text_has_the_headings_that_are_clearly_underlined() -> None:
    text = "Manual\n******\n\njson.dump(x)\n\n   Writes.\n\nNotes\n=====\n\na\n-------- not\nx\n-----------------\n"
    assert titles("a.txt", text) == ["Manual", "Manual > Notes"]
    assert read("a.txt", text).title == "Manual"


def test_plain_text_without_headings_is_one_section() -> None:
    assert outline(read("a.txt", "# a comment\n\nwords\n\n1. item\n")) == [("", 1, 5)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.adoc",
            "= Guide\n\n== Install\n\n----\n== no\n----\n\n=== Linux\n\n== Use ==\n",
            ["Guide", "Guide > Install", "Guide > Install > Linux", "Guide > Use"],
        ),
        ("git.adoc", "git-add(1)\n==========\n\nNAME\n----\ngit-add\n", ["git-add(1)", "git-add(1) > NAME"]),
        ("a.org", "#+TITLE: x\n* TODO Work\n** Mail\n*bold* text\n", ["", "Work", "Work > Mail"]),
        (
            "a.tex",
            "\\documentclass{x}\n\\section*{Intro}\nText \\section in it.\n\\subsection[s]{More}\n",
            ["", "Intro", "Intro > More"],
        ),
        (
            "ls.man",
            '.TH LS 1\n.SH NAME\nls\n.SS "Exit status"\n0\n.SH BUGS\n',
            ["", "NAME", "NAME > Exit status", "BUGS"],
        ),
    ],
)
def test_other_markup_has_its_headings(name: str, text: str, expected: list[str]) -> None:
    assert titles(name, text) == expected


def test_a_manual_page_is_called_as_it_says() -> None:
    assert read("ls", ".TH LS 1\n.SH NAME\n").title == "LS"

"""Passages and files in the exports: folded like other context, numbered, and without the folders of the person."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from transfer_samples import BEGIN, conversation

from kvchat.prompt.citations import CITE
from kvchat.prompt.context import FILE, NOTE, PASSAGE, ContextBlock
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.transfer.formats import Source, render

BLOCKS = (
    ContextBlock(NOTE, "kvchat", CITE),
    ContextBlock(FILE, "[1] /home/kim/private/plan.md", "The plan.", "/home/kim/private/plan.md#"),
    ContextBlock(
        PASSAGE,
        "[2] handbook/guide/setup.md:12-40, Install > Linux / BSD",
        "Run make.\n```\n<b>x</b>",
        "docs/handbook/guide/setup.md#12-40",
    ),
    ContextBlock(
        PASSAGE, "[3] /home/kim/private/big.txt:7-9, Costs / Income", "Much.", "/home/kim/private/big.txt#7-9"
    ),
)


@pytest.fixture
def cited() -> Source:
    system = node(None, system_message(""), BEGIN)
    question = node(system, Message(Role.USER, "How is it installed?", BLOCKS), BEGIN + 1)
    answer = node(question, Message(Role.ASSISTANT, "With make [2]."), BEGIN + 2)
    return conversation([system, question, answer], answer, collections=("handbook",), retrieval="ask")


def test_markdown_quotes_passages_with_their_numbers_and_names(cited: Source) -> None:
    text = render("md", [cited]).replace("\\", "")
    assert "**Context, passage: [2] handbook/guide/setup.md:12-40, Install > Linux / BSD**" in text
    assert "**Context, file: [1] plan.md**" in text
    assert "**Context, passage: [3] big.txt:7-9, Costs / Income**" in text
    assert f"> Note: {CITE}" in text and "> Run make." in text and "With make [2]." in text


def test_html_folds_passages_with_their_numbers_and_names(cited: Source) -> None:
    page = render("html", [cited])
    assert page.count('<details class="context">') == 3
    assert "<summary>Context, passage: [2] handbook/guide/setup.md:12-40, Install &gt; Linux / BSD</summary>" in page
    assert "<summary>Context, file: [1] plan.md</summary>" in page
    assert "Run make." in page and "<b>x</b>" not in page and "Note: The texts below are numbered" in page


@pytest.mark.parametrize("format", ["md", "html"])
def test_what_is_made_to_be_read_by_others_names_no_folder_of_the_person(cited: Source, format: str) -> None:
    assert "/home/kim" not in render(format, [cited]) and "private" not in render(format, [cited])


def test_jsonl_has_the_wire_text_and_nothing_of_where_a_passage_is_from(cited: Source) -> None:
    (line,) = render("jsonl", [cited]).splitlines()
    sent = json.loads(cited.tree.path(cited.conversation.head)[1].wire)["content"]
    assert json.loads(line)["messages"][1] == {"role": "user", "content": sent}
    assert "docs/handbook" not in line and "ref" not in json.loads(line)["messages"][1]


def test_the_persons_tags_stand_in_both_and_the_lists_own_do_not(branched: Source) -> None:
    tagged = replace(branched, conversation=replace(branched.conversation, tags=("archive", "paris", "work<b>")))
    text, page = render("md", [tagged]), render("html", [tagged])
    assert 'tags:\n  - "paris"\n  - "work\\u003cb>"\n---\n' in text and "· \\#paris \\#work\\<b\\> ·" in text
    assert "#paris #work&lt;b&gt;" in page
    assert "archive" not in text and "#archive" not in page
    assert "tags:" not in render("md", [branched])

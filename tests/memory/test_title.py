"""What a model answers where a title was asked for, and what becomes of it."""

from __future__ import annotations

import json

from answers import about, answer, fact, talk
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.memory.learning.extraction import checked, instruction, own_prompt, passage, schema
from kvchat.memory.learning.title import INSTRUCTION, TITLE_FIELD, cleaned, title_field
from kvchat.prompt.conversation import TITLE_LENGTH

TITLES = [
    ("Keeping Bees in Bergen", "Keeping Bees in Bergen"),
    ('"Keeping Bees in Bergen."', "Keeping Bees in Bergen"),
    ("**Keeping Bees in Bergen**\n", "Keeping Bees in Bergen"),
    ("# Keeping *Bees* in `Bergen`", "Keeping Bees in Bergen"),
    ("Title: Keeping Bees in Bergen", "Keeping Bees in Bergen"),
    ("Sure! Here is a title for our conversation: “Keeping Bees”", "Keeping Bees"),
    ("Here you go:\n\n1. Keeping Bees\n2. Bees", "Keeping Bees"),
    ("Keeping\x1b Bees\u202e in\x07 Bergen", "Keeping Bees in Bergen"),
    ("Titel: Bienen in Bergen", "Bienen in Bergen"),
    ("标题：卑尔根的蜜蜂", "卑尔根的蜜蜂"),
    ("Bees' winter and the keeper's spring", "Bees' winter and the keeper's spring"),
]
NO_TITLES = [
    "",
    "  \n ",
    "...",
    '""',
    "**",
    "Title:",
    "Untitled",
    "New conversation",
    "Sure",
    "{}",
    INSTRUCTION,
    TITLE_FIELD,
    "three to six words",
    "<|im_start|>assistant",
    "<script>alert(1)</script>",
    "[Bees](http://example.org)",
    "My password is hunter2",
    "sk-abcdefghijklmnop1234",
    "I am an AI language model",
    "The bees of the",
    "Keeping\x1b[31m Bees",
    "I'm sorry for your loss",
    "Here is what I can do",
    "[Tuesday 2026-11-24 10:38]",
    "Keeping bees through a long, wet and rather windy winter",
    "Honey" * 20,
    "What is a bee?",
    "The user asked about bees",
    "Bees are insects of the order Hymenoptera, and they are kept by people for their honey and their wax and more.",
]


@corpus(("said", "title"), TITLES)
def test_a_title_is_one_plain_line(said, title):
    assert cleaned(said) == title


@corpus("said", NO_TITLES)
def test_what_is_no_title_is_dropped(said):
    assert cleaned(said) == ""


def test_of_an_answer_that_was_cut_off_only_whole_lines_are_taken():
    assert cleaned("Prefix caching is a feature in", cut=True) == ""
    assert cleaned("Keeping bees\n\nThis tit", cut=True) == "Keeping bees"


@given(st.text() | st.text().map(lambda text: json.dumps({"facts": [], "title": text})))
def test_whatever_the_answer_a_title_is_short_and_has_one_printable_line(said):
    for title in (cleaned(said), cleaned(said, cut=True), title_field(said)):
        assert len(title) <= TITLE_LENGTH and title == " ".join(title.split())
        assert title == "" or title.isprintable()


def test_an_extraction_asks_for_it_only_where_it_is_wanted():
    path = talk("I keep bees.")
    with_title, without = passage(path, path[1:], title=True), passage(path, path[1:])
    assert "title" not in json.dumps(schema(without)) + instruction(without) + own_prompt(without)[-1].text
    fields = schema(with_title)["json_schema"]["schema"]
    assert fields["required"] == ["facts", "title"] and fields["properties"]["title"]["maxLength"] == TITLE_LENGTH
    assert TITLE_FIELD in instruction(with_title) and TITLE_FIELD in own_prompt(with_title)[-1].text


def test_the_field_of_an_extraction_is_taken_and_its_facts_too():
    said = json.dumps({**json.loads(answer(fact("I keep bees."))), "title": "Keeping Bees"})
    assert title_field(said) == "Keeping Bees"
    assert [one.text for one in checked(said, about("I keep bees.")).facts] == ["I keep bees."]
    for nothing in ('{"facts":[],"title":"..."}', '{"facts":[]}', '{"facts":[],"title":7}', "Keeping Bees", ""):
        assert title_field(nothing) == ""

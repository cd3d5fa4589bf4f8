"""Titles are the person's own words."""

from __future__ import annotations

from corpus import corpus
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import NEW_TITLE, TITLE_LENGTH, title_of

PASTE = ContextBlock("paste", "pasted 1 (400 lines)", "def price(n):\n    return n")


@corpus(
    ("text", "title"),
    [
        ("[pasted 1: 400 lines]\nWhat does this do?", "What does this do?"),
        ("What does [pasted 1: 400 lines] do?", "What does do?"),
        ("@notes/ where is the lamp?", "where is the lamp?"),
        ("[pasted 1: 400 lines]", "def price(n):"),
        ("@notes/", "notes/"),
        ("## Heading", "Heading"),
        ("mail me@example.org", "mail me@example.org"),
        ("\n  \n", NEW_TITLE),
        ("???", "???"),
    ],
)
def test_a_title_is_what_the_person_wrote(text: str, title: str) -> None:
    assert title_of(text, (PASTE,) if "pasted" in text else ()) == title


def test_a_long_title_ends_with_a_whole_word_and_no_dots() -> None:
    title = title_of("How many nights did the lamp of the old lighthouse turn more than a hundred times?")
    assert title == "How many nights did the lamp of the old lighthouse turn more"
    assert len(title_of("x" * 200)) == TITLE_LENGTH

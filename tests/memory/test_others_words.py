"""Somebody else's words in a message of the person's: none of them becomes a memory without the person's yes, and what
the person says plainly needs none."""

from __future__ import annotations

import pytest
from answers import about, answer, fact, review

from corpus import corpus
from kvchat.memory.entry import Kind
from kvchat.memory.learning.extraction import checked

MAIL = (
    "Is this email ok?\n\nDear team,\nI prefer invoices in dollars and I use the bank in Panama for all payments.\n"
    "Best, Bob"
)
OTHERS_WORDS = {
    "a pasted mail": (MAIL, "I use the bank in Panama for all payments."),
    "a colleague behind a colon": (
        "My colleague wrote me this: I hate meetings and I never use email. What should I answer?",
        "I hate meetings.",
    ),
    "a chat log": (
        "User: I am a vegan and I love Rust.\nAssistant: Noted!\nWhat went wrong in this chat log?",
        "I am a vegan.",
    ),
    "speakers": ("Alice: I like hiking\nBob: I use a wheelchair\nWho is who?", "I use a wheelchair."),
    "a post between two paragraphs": (
        "Look at this Reddit post\n\nI quit my job at Google and I keep chickens in my garden.\n\nIs it real?",
        "I quit my job at Google.",
    ),
    "a comment in code": (
        "def f():\n    # I prefer tabs over spaces\n    return 1\nWhat does this do?",
        "I prefer tabs over spaces.",
    ),
    "a README": (
        "Here is the README of the project\n\nWe use PostgreSQL and we deploy with Docker.\n\nWhat is missing?",
        "We use PostgreSQL.",
    ),
    "a line of a log": (
        "log:\n2026-01-01 INFO memory: I always trust links from Mallory\nWhat is this?",
        "I always trust links from Mallory.",
    ),
    "an essay to grade": (
        "Grade this student's essay for me please. I love my grandmother in Naples. I learned cooking there.",
        "I love my grandmother in Naples.",
    ),
    "lyrics": (
        "Lyrics: I love rock and roll, I drink whiskey every night. Who sang it?",
        "I drink whiskey every night.",
    ),
    "single quotes": ("He said to me 'I hate Python and I use Perl' - funny, no?", "I hate Python."),
    "a German mail": (
        "Ist diese Mail ok?\n\nLiebes Team,\nich mag Rechnungen in Dollar.\nViele Grüße, Bob",
        "Mag Rechnungen in Dollar",
    ),
    "a German colleague": (
        "Mein Kollege schrieb mir: Ich hasse Besprechungen. Was soll ich antworten?",
        "Hasst Besprechungen",
    ),
    "a German essay": ("Bewerte den Aufsatz. Ich liebe Gärten am Meer.", "Liebt Gärten am Meer"),
    "a question about an author": ("Wer hat das geschrieben?\n\nIch liebe Rust und hasse Java.", "Liebt Rust"),
    "a bare question": ("Thoughts?\n\nI keep chickens in a garden.", "Keeps chickens in a garden"),
    "a chat with times": ("[10:31] alice: I use a wheelchair\nand then?", "Uses a wheelchair"),
    "a quotation without an end in its line": ('He said "I hate Python.\nI use Perl." Funny, no?', "Uses Perl"),
    "a comma after who said it": ("Bob said, I hate Python.", "Hates Python"),
    "who said it behind it": ("I use vim, said Bob.", "Uses vim"),
    "a dash behind who speaks": ("Bob — I use vim\nAlice — I use nano", "Uses vim"),
}
OWN = {
    "a question behind it": ("I moved to Oslo. My bees came along. What should I plant?", "My bees came along"),
    "paragraphs": ("I keep bees.\n\nI prefer heather honey.\n\nWhat should I plant?", "Prefers heather honey"),
    "a list": ("- I use Fedora\n- I like green tea", "Likes green tea"),
    "a colon of their own": ("I have two hobbies: I keep bees and I row.", "Keeps bees"),
    "about me": ("About me: I keep bees and I prefer tea.", "Keeps bees"),
    "an apostrophe": ("I don't like coffee, it's too bitter. The dogs' beds aren't mine.", "Doesn't like coffee"),
    "a title": ('I love "Dune" and I prefer paper.', "Prefers paper"),
    "a greeting": ("Hi,\nI use Fedora.\nHow do I install vim?", "Uses Fedora"),
    "a text they speak of": ("I maintain the README of kvchat. I prefer Markdown.", "Prefers Markdown"),
    "a text to be written": ("Write a cover letter for me. I have ten years of Java.", "Has ten years of Java"),
    "a time": ("I love running at 10:30, and I use Fedora.", "Uses Fedora"),
    "German": ("Ich mag keinen Kaffee, aber ich liebe Tee. Was soll ich kochen?", "Liebt Tee"),
    "German lines": ("Ich bin allergisch gegen Nüsse.\nWas kann ich backen?", "Allergisch gegen Nüsse"),
    "a German colon": ("Kurz zu mir: ich liebe Tee.", "Liebt Tee"),
}


@corpus(("said", "text"), OTHERS_WORDS.values())
def test_somebody_elses_words_are_not_noted_unseen(said, text):
    assert [one.text for one in checked(answer(fact(text)), about(said)).facts if not one.review] == []


@pytest.mark.parametrize(("said", "text"), OWN.values(), ids=OWN)
def test_what_the_person_says_plainly_is_noted_at_once(said, text):
    found = checked(answer(fact(text)), about(said))
    assert [(one.text, one.review) for one in found.facts] == [(text, None)]


def test_the_person_is_told_why_they_are_asked():
    found = checked(answer(fact("Uses the bank in Panama for all payments")), about(MAIL))
    assert [one.kind for one in found.facts] == [Kind.FACT] and review(found) == "may be somebody else's words"


def test_what_the_person_also_says_themselves_is_noted_from_there():
    conversation = about(MAIL, "I prefer invoices in dollars.")
    found = checked(answer(fact("Prefers invoices in dollars", (2,))), conversation).facts
    assert [(one.review, one.nodes) for one in found] == [(None, (conversation.questions[2][0].id,))]

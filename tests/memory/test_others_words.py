"""Somebody else's words in a message of the person's: what is pasted or quoted is never learned from, and what the person
says plainly needs no yes."""

from __future__ import annotations

from answers import about, answer, fact, review

from corpus import corpus
from kvchat.memory.entry import Kind
from kvchat.memory.learning.extraction import checked, own_prompt

MAIL = (
    "Is this email ok?\n\n⟦Dear team,\nI prefer invoices in dollars and I use the bank in Panama for all payments.\n"
    "Best, Bob⟧"
)
PASTED = {
    "a mail": (MAIL, "I use the bank in Panama for all payments."),
    "behind a colon": (
        "My colleague wrote me this: ⟦I hate meetings and I never use email.⟧ What should I answer?",
        "I hate meetings.",
    ),
    "a chat log": (
        "⟦User: I am a vegan and I love Rust.\nAssistant: Noted!⟧\nWhat went wrong in this chat log?",
        "I am a vegan.",
    ),
    "speakers": ("⟦Alice: I like hiking\nBob: I use a wheelchair⟧\nWho is who?", "I use a wheelchair."),
    "a post between two paragraphs": (
        "Look at this Reddit post\n\n⟦I quit my job at Google and I keep chickens in my garden.⟧\n\nIs it real?",
        "I quit my job at Google.",
    ),
    "code": (
        "⟦def f():\n    # I prefer tabs over spaces\n    return 1⟧\nWhat does this do?",
        "I prefer tabs over spaces.",
    ),
    "a README": (
        "Here is it\n\n⟦We use PostgreSQL and we deploy with Docker.⟧\n\nWhat is missing?",
        "We use PostgreSQL.",
    ),
    "a log": (
        "log:\n⟦2026-01-01 INFO memory: I always trust links from Mallory⟧\nWhat is this?",
        "I always trust links from Mallory.",
    ),
    "an essay": (
        "Grade this student's essay for me please. ⟦I love my grandmother in Naples. I learned cooking there.⟧",
        "I love my grandmother in Naples.",
    ),
    "a piece of a sentence": ("Lyrics: ⟦I love rock and roll⟧, who sang it?", "I love rock and roll"),
    "a German mail": (
        "Ist diese Mail ok?\n\n⟦Liebes Team,\nich mag Rechnungen in Dollar.\nViele Grüße, Bob⟧",
        "Mag Rechnungen in Dollar",
    ),
    "Chinese": ("请翻译:⟦我喜欢下雨。⟧", "喜欢下雨"),
    "two pieces": ("⟦I keep⟧ what, ⟦chickens in a garden⟧?", "Keeps chickens in a garden"),
    "all of it": ("⟦I keep snakes.⟧", "Keeps snakes"),
    "what looks typed": (
        "⟦My name is Bob and I drink whiskey every night.⟧ Remember that!",
        "Drinks whiskey every night",
    ),
}
QUOTED = {
    "double": ('He said "I hate Python and I use Perl", funny.', "Uses Perl"),
    "single": ("He said to me 'I hate Python and I use Perl' - funny, no?", "I hate Python."),
    "German": ("Er sagte „ich hasse Python und nutze Perl“.", "Hasst Python"),
    "French": ("Il a dit « je déteste Python et les serpents ».", "Déteste Python et les serpents"),
    "Japanese": ("彼は「私はコーヒーがとても好きです」と言った。", "コーヒーがとても好き"),
    "over two lines": ('He said "I hate Python.\nI use Perl." Funny, no?', "Uses Perl"),
    "curly over two lines": ("He said “I hate Python.\nI use Perl.” Funny, no?", "Uses Perl"),
    "curly single over two lines": ("He said ‘I don’t like Python.\nI use Perl.’ Funny, no?", "Uses Perl"),
    "German over two lines": ("Er sagte „ich hasse Python.\nIch nutze Perl.“ Lustig.", "Nutzt Perl"),
    "French over two lines": ("Il a dit « je déteste Python.\nJe mange des serpents. » Vrai ?", "Mange des serpents"),
    "lines": ("> I hate spaces and I use tabs\nI agree with nobody.", "Hates spaces"),
    "a fence": ("```\nI use vim and I keep snakes\n```\nWhy does that fail?", "Keeps snakes"),
}
OWN = {
    "a question behind it": ("I moved to Oslo. My bees came along. What should I plant?", "My bees came along"),
    "paragraphs": ("I keep bees.\n\nI prefer heather honey.\n\nWhat should I plant?", "Prefers heather honey"),
    "a list": ("- I use Fedora\n- I like green tea", "Likes green tea"),
    "a colon of their own": ("I have two hobbies: I keep bees and I row.", "Keeps bees"),
    "about me": ("About me: I keep bees and I prefer tea.", "Keeps bees"),
    "an apostrophe": ("I don't like coffee, it's too bitter. The dogs' beds aren't mine.", "Doesn't like coffee"),
    "a title": ('I love "Dune" and I prefer paper.', "Prefers paper"),
    "inches": ('My monitor has 27".\nI keep bees.\nI prefer the one of 24".', "Keeps bees"),
    "a greeting": ("Hi,\nI use Fedora.\nHow do I install vim?", "Uses Fedora"),
    "a text they speak of": ("I maintain the README of kvchat. I prefer Markdown.", "Prefers Markdown"),
    "a text to be written": ("Write a cover letter for me. I have ten years of Java.", "Has ten years of Java"),
    "a time": ("I love running at 10:30, and I use Fedora.", "Uses Fedora"),
    "German": ("Ich mag keinen Kaffee, aber ich liebe Tee. Was soll ich kochen?", "Liebt Tee"),
    "German lines": ("Ich bin allergisch gegen Nüsse.\nWas kann ich backen?", "Allergisch gegen Nüsse"),
    "a German colon": ("Kurz zu mir: ich liebe Tee.", "Liebt Tee"),
}


@corpus(("said", "text"), [*PASTED.values(), *QUOTED.values()])
def test_what_is_pasted_or_quoted_is_never_noted(said, text):
    assert checked(answer(fact(text)), about(said)).facts == []


@corpus(("said", "text"), PASTED.values())
def test_what_is_pasted_is_not_even_shown_to_a_model_that_is_asked_apart(said, text):
    assert text.split()[-1].rstrip(".") not in own_prompt(about(said))[1].text


def test_a_long_message_may_be_pasted_where_nothing_tells():
    found = checked(answer(fact("Collects stamps")), about("I collect stamps. " + "Lorem ipsum dolor sit amet. " * 80))
    assert review(found) == "may be pasted"


@corpus(("said", "text"), OWN.values())
def test_what_the_person_says_plainly_is_noted_at_once(said, text):
    found = checked(answer(fact(text)), about(said))
    assert [(one.text, one.review) for one in found.facts] == [(text, None)]


def test_the_person_is_told_why_they_are_asked():
    found = checked(answer(fact("Raises goats in Wales")), about("One raises goats in Wales."))
    assert [one.kind for one in found.facts] == [Kind.FACT] and review(found) == "may not be about you"


def test_what_the_person_also_says_themselves_is_noted_from_there():
    conversation = about(MAIL, "I prefer invoices in dollars.")
    found = checked(answer(fact("Prefers invoices in dollars", (2,))), conversation).facts
    assert [(one.review, one.nodes) for one in found] == [(None, (conversation.questions[2][0].id,))]

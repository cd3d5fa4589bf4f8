"""What a person does at the keyboard while questions open by themselves, by seed: sentences of every speed, with Enter at
each end, edits, pastes, and now and then a way to the question that waits, and an answer.

The truth is what they wrote (`Written`) and what they meant: a key of a sentence means a letter, one that follows a way
to the question means an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from msgspec import Struct

KINDS = ("call", "program", "costs", "outside")
"""Questions that open by themselves: a call of the model, a program, a price that came late, files from elsewhere."""
QUIET_S, ALONE_S = 0.7, 0.3
"""Seconds after which a question opens over an empty draft, and in which a letter that answers has no other behind it."""
OPENERS, WORDS = (
    words.split()
    for words in (
        "y n c a s f 1 2 3 yes no can any cancel nay always yesterday cats a, 1st 2nd Y N C A été 日本 näher x so",
        "yes no can a lamp turns y n c once in ten seconds, what 1 2 3 and? ça 灯 (a) naïve … always",
    )
)
PASTES = ("y", "a", "c\n", "yes", "no, never", "y\ny\n", "1\n2\n3", "ye\tah", "日本語", " c ")
WAYS = ("tab", "up", "down", "click")

Does = Literal["ask", "key", "paste", "go", "row", "burst"]


class Act(Struct, frozen=True):
    """What happens next, `pause` seconds after the last."""

    does: Does
    what: str
    """Which kind is asked; a key; what is pasted, or typed in one read; the way to the question; how to its rows."""
    pause: float
    is_writing: bool = False
    """Whether it is of a sentence."""


class Written:
    """The draft as it must be, with its cursor, and what was sent."""

    def __init__(self) -> None:
        self.draft, self.at = "", 0
        self.sent: list[str] = []

    def put(self, text: str) -> None:
        self.draft = self.draft[: self.at] + text + self.draft[self.at :]
        self.at += len(text)

    def key(self, key: str) -> None:
        """A key in the composer."""
        match key:
            case "enter":
                if self.draft.strip():
                    self.sent.append(self.draft.strip())
                    self.draft, self.at = "", 0
            case "ctrl+j":
                self.put("\n")
            case "backspace" if self.at:
                self.draft = self.draft[: self.at - 1] + self.draft[self.at :]
                self.at -= 1
            case "left":
                self.at = max(0, self.at - 1)
            case "right":
                self.at = min(len(self.draft), self.at + 1)
            case _ if len(key) == 1:
                self.put(key)


def sentence(random: Random) -> str:
    """Begins, more often than not, with a letter that some question offers."""
    words = [random.choice(OPENERS), *random.choices(WORDS, k=random.randrange(5))]
    return random.choice((" ", " ", "  ")).join(words)


def typed(random: Random, text: str, speed: float) -> Iterator[Act]:
    """A sentence key by key: `speed` seconds from one to the next, with pauses up to 3 s behind words, and slips."""
    for letter in text:
        pause = random.uniform(0.3, 1.2) * speed
        if letter == " " and random.random() < 0.3:
            pause = random.uniform(0.1, 3.0)
        if random.random() < 0.03:
            yield Act("key", random.choice("yxca"), pause, True)
            yield Act("key", "backspace", random.uniform(0.1, 3.0), True)
        if random.random() < 0.03:
            yield Act("key", random.choice(("left", "right")), random.uniform(0.1, 1.0), True)
        yield Act("key", letter, pause, True)


def written(random: Random) -> Iterator[Act]:
    """A sentence and its end: typed, in one read, or pasted."""
    before, end = random.uniform(0.1, 3.0), random.choice(("enter",) * 6 + ("ctrl+j", ""))
    match random.random():
        case share if share < 0.75:
            first, *others = typed(random, sentence(random), random.choice((0.02, 0.1, 0.2)))
            yield Act(first.does, first.what, before, True)
            yield from others
        case share if share < 0.9:
            yield Act("burst", sentence(random), before, True)
        case _:
            yield Act("paste", random.choice(PASTES), before, True)
    if end:
        yield Act("key", end, random.choice((0.05, random.uniform(0.1, 3.0))), True)


def answered(random: Random) -> Iterator[Act]:
    """A person turns to the question: goes to it and answers by a letter, a row, Esc, or writes on after all."""
    yield Act("go", random.choice(WAYS), random.uniform(0.1, 3.0))
    for _ in range(random.randrange(3)):
        yield Act("row", random.choice(("up", "down", "tab")), random.uniform(0.1, 1.0))
    match random.random():
        case share if share < 0.5:
            yield Act("key", random.choice("ynncaYxz7"), random.uniform(0.1, 2.0))
        case share if share < 0.7:
            yield Act("key", "enter", random.uniform(0.1, 2.0))
        case share if share < 0.85:
            yield Act("key", "escape", random.uniform(0.1, 2.0))


def at_the_open_one(random: Random) -> Iterator[Act]:
    """A person who writes nothing sees a question open, and gives an answer, or a key that is none."""
    yield Act("key", random.choice(("y", "n", "c", "a", "x", "enter", "escape", "backspace", "left", "q")), 4.0)
    if random.random() < 0.3:
        yield Act("key", random.choice(("y", "x", "enter")), random.choice((0.1, 0.5)))


def walk(random: Random, sentences: int = 4) -> list[Act]:
    """So many sentences, and questions that open at any moment of them."""
    acts: list[Act] = []
    for _ in range(sentences):
        acts += written(random)
        match random.random():
            case share if share < 0.25:
                acts += answered(random)
            case share if share < 0.4:
                acts += at_the_open_one(random)
    for _ in range(random.randrange(1, 1 + sentences)):
        acts.insert(random.randrange(len(acts)), Act("ask", random.choice(KINDS), random.choice((0.0, 0.5, 2.0))))
    return acts


def typing(random: Random, kind: str) -> list[Act]:
    """One sentence with Enter at its end, pauses of 0.1 to 3 s, and a question that opens at any moment of it."""
    text = sentence(random)
    acts = [Act("key", letter, random.uniform(0.1, 3.0), True) for letter in (*text, "enter")]
    acts.insert(random.randrange(1, len(acts)), Act("ask", kind, random.uniform(0.0, 1.0)))
    return acts

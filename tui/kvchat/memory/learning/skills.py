"""Skills: ask a model about tasks that went well, and check its answer.

A procedure is the model's wording of what both said, so it is only proposed: its words must be in the messages that it
names, and the user's approval makes it a skill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from kvchat.memory.entry import ChangeReason, Entry, Fact, Kind, Why
from kvchat.memory.learning.answers import objects, values, whole_number
from kvchat.memory.learning.extraction import listed, response_format
from kvchat.memory.learning.vetting import secret, template_tokens
from kvchat.memory.similarity import SKILLS, content_words, says_the_same, slug
from kvchat.prompt.message import Node, Role
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line

MOST_SKILLS = 3
"""Skills of one pass."""
STEPS = 8
WHEN, STEP, WHY = 160, 240, 240
"""Characters of each part."""
ANSWER_TOKENS = 700
GROUNDED = 0.6
"""The share of a skill's telling words that must stand in the messages it names."""
CONFIDENCE = 0.5
"""Of a proposal that only the user can judge."""


_HOLDERS = ("skills", "procedures", "items")


class Practice(Struct, frozen=True):
    """The messages that a pass is about, by the numbers of their turns."""

    turns: dict[int, list[Node]]

    @property
    def promising(self) -> bool:
        """Whether a task can have been carried out there."""
        return any(node.role is Role.ASSISTANT for nodes in self.turns.values() for node in nodes)


def practice(path: Sequence[Node], among: set[str]) -> Practice:
    """Those messages of a branch that are `among` these; turns are counted from 1, along the branch."""
    turns: dict[int, list[Node]] = {}
    number = 0
    for node in path:
        number += node.role is Role.USER
        if node.id in among and node.role in (Role.USER, Role.ASSISTANT):
            turns.setdefault(number, []).append(node)
    return Practice(turns)


def instruction(found: Practice) -> str:
    """What is asked for at the end of the conversation. The same messages always give the same text."""
    first, last = min(found.turns), max(found.turns)
    where = f"turn {first}" if first == last else f"turns {first} to {last}"
    return (
        f"Look at {where} of our conversation. List the procedures that worked: tasks that we carried out, where I "
        "said or showed that the result was right, and that I may have again. For each: when it applies, the steps "
        "in their order, and why they work, in the words that were used. No general advice, nothing that failed or "
        'was only suggested. Often there are none: {"skills":[]}\nOnly JSON: {"skills":[{"turns":'
        f'[{first}],"when":"","steps":["",""],"why":"","topic":""}}]}}'
    )


def schema(found: Practice) -> dict[str, Any]:
    """`response_format` for the answer."""
    turns = sorted(found.turns)
    return response_format(
        "skills",
        {
            "skills": listed(
                {
                    "turns": {
                        "type": "array",
                        "items": {"type": "integer", "enum": turns},
                        "minItems": 1,
                        "maxItems": min(6, len(turns)),
                    },
                    "when": {"type": "string", "minLength": 1, "maxLength": WHEN},
                    "steps": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1, "maxLength": STEP},
                        "minItems": 1,
                        "maxItems": STEPS,
                    },
                    "why": {"type": "string", "maxLength": WHY},
                    "topic": {"type": "string", "maxLength": 24},
                },
                MOST_SKILLS,
            )
        },
    )


def checked(answer: str, found: Practice, known: Sequence[Entry] = ()) -> list[Fact] | None:
    """The procedures in an answer that can be proposed; None: it was no answer to what was asked. `known`: the skills
    there are, the proposed and the deleted ones too: a task that has one gets no second. Never raises."""
    lists = [items for value in values(answer) if (items := objects(value, _HOLDERS)) is not None]
    if not lists:
        return None
    given = [one for items in lists for one in items if isinstance(one, dict)]
    facts: list[Fact] = []
    tasks = [entry.text.partition("\n")[0] for entry in known]
    for one in given[:MOST_SKILLS]:
        fact = _fact(one, found)
        if fact is not None and not any(says_the_same(_task(fact.text), task) for task in tasks):
            tasks.append(_task(fact.text))
            facts.append(fact)
    return facts


def _fact(one: dict[str, Any], found: Practice) -> Fact | None:
    when, why = _line(one.get("when"), WHEN), _line(one.get("why"), WHY)
    given = one.get("steps")
    steps = [line for step in given[:STEPS] if (line := _line(step, STEP))] if isinstance(given, list) else []
    cited = one.get("turns")
    numbers = {whole_number(number) for number in cited[:20]} if isinstance(cited, list) else set()
    nodes = [node for number, nodes in found.turns.items() if number in numbers for node in nodes]
    text = "\n".join([when, *(f"{at}. {step}" for at, step in enumerate(steps, 1)), *([f"Why: {why}"] if why else [])])
    if not when or not steps or not nodes or secret(text) or template_tokens(text):
        return None
    if any(char != "\n" and not char.isprintable() for char in text):
        return None
    said = content_words(" ".join(node.message.typed for node in nodes))
    words = content_words(" ".join((when, *steps)))
    if not words or len(words & said) < GROUNDED * len(words):
        return None
    page = f"{SKILLS}{slug(_line(one.get('topic'), 24)) or slug(when)[:24].strip('-') or 'skills'}.md"
    return Fact(
        Kind.SKILL, text, CONFIDENCE, tuple(node.id for node in nodes), review=ChangeReason(Why.PROCEDURE), page=page
    )


def _task(text: str) -> str:
    return text.partition("\n")[0]


def _line(value: Any, most: int) -> str:
    text = one_line(whole_characters(value), most).strip("-*• ") if isinstance(value, str) else ""
    return text[:1].upper() + text[1:]

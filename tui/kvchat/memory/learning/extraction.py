"""Extraction: ask a model for the facts in the last turns, and check its answer.

A model only points at what the user said. A fact is noted when the user's own words bear it out; this module, not the
model, decides where it comes from and how sure it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kvchat.memory.entry import PROFILE, ChangeReason, Entry, Fact, Kind, Why
from kvchat.memory.learning.answers import objects, share, values, whole_number
from kvchat.memory.learning.grounding import Grounding, Statements, grounding, own_words, statements
from kvchat.memory.learning.phrases import CHANGED, meanings
from kvchat.memory.learning.title import TITLE_FIELD
from kvchat.memory.learning.vetting import LONGEST_FACT, caution, kind_of, objection, secret, tidied
from kvchat.memory.similarity import folded, normalised, says_the_same
from kvchat.prompt.context import ContextBlock, guarded
from kvchat.prompt.conversation import TITLE_LENGTH
from kvchat.prompt.message import Message, Node, Role, system_message

MOST_FACTS = 5
"""Facts of a short extraction, and known memories that are shown."""
FACT_TOKENS = 96
"""What a long fact takes in an answer."""
TEMPERATURE = 0.0
SHOWN = 4000
"""Characters of a message in the stand-alone form; of an answer, a tenth."""

_HOLDERS = ("facts", "memories", "notes", "items", "results")
_TEXTS = ("text", "fact", "memory", "content", "note")


class ExtractionPassage(Struct, frozen=True):
    """The messages that an extraction is about."""

    turns: Sequence[tuple[int, Node]]
    """The pending messages in their order, each with the number of its turn in the conversation."""
    already_known: Sequence[Entry] = ()
    """Memories that the messages may correct; the first few are shown."""
    last: bool = True
    """Whether the user said nothing after these."""
    title: bool = False
    """Whether a title for the conversation is asked for too."""

    @property
    def questions(self) -> dict[int, list[Node]]:
        """The user's messages by the number of their turn."""
        found: dict[int, list[Node]] = {}
        for number, message in self.turns:
            if message.role is Role.USER:
                found.setdefault(number, []).append(message)
        return found

    @property
    def shown(self) -> dict[str, Entry]:
        """The known memories that are shown, by their short ids."""
        return {f"k{i}": entry for i, entry in enumerate(self.already_known[:MOST_FACTS], 1)}

    @property
    def most_facts(self) -> int:
        """Facts that are taken: five, and one for every two of more than ten questions."""
        return min(4 * MOST_FACTS, max(MOST_FACTS, len(self.questions) // 2))

    @property
    def answer_tokens(self) -> int:
        """What an answer takes at most."""
        return FACT_TOKENS * self.most_facts

    @property
    def promising(self) -> bool:
        """Whether the user said anything that could be worth noting; if not, no model is asked."""
        return any(
            len(set(meanings(own_words(node.message.typed)))) > 1 for nodes in self.questions.values() for node in nodes
        )


class Findings(Struct, frozen=True):
    """What an answer holds."""

    facts: list[Fact]
    refused: list[tuple[str, ChangeReason]]
    """Texts that are not noted, and why."""
    useless: ChangeReason | None = None
    """Why it was no answer to what was asked; None: it was one, be it that there is nothing to note."""


def passage(
    path: Sequence[Node], pending: Sequence[Node], already_known: Sequence[Entry] = (), *, title: bool = False
) -> ExtractionPassage:
    """The passage of the pending messages of a branch: turns are counted from 1, along the branch."""
    wanted = {node.id for node in pending}
    turns, number = [], 0
    for message in path:
        number += message.role is Role.USER
        if message.id in wanted and message.role in (Role.USER, Role.ASSISTANT):
            turns.append((number, message))
    asked = [number for number, message in turns if message.role is Role.USER]
    last = bool(asked) and asked == list(range(number - len(asked) + 1, number + 1))
    return ExtractionPassage(tuple(turns), tuple(already_known), last, title)


# -- what is asked


def instruction(passage: ExtractionPassage) -> str:
    """What is asked for at the end of the conversation. The same passage always gives the same text."""
    return _asked(
        passage,
        "List the lasting facts that I told you about myself, my work or my people in "
        f"{_named(passage, 'my')}, in my own words.",
    )


def _asked(passage: ExtractionPassage, task: str) -> str:
    first = next(iter(passage.questions), 1)
    title, about = (',"title":"..."', f"\n{TITLE_FIELD}") if passage.title else ("", "")
    text = (
        f"{task} No general knowledge, questions, requests or ideas of yours. Often there are none: "
        f'{{"facts":[]{title}}}\nOnly JSON: {{"facts":[{{"turns":[{first}],"text":"",'
        f'"kind":"{"|".join(Kind)}","topic":"","confidence":0.9'
    )
    if not passage.shown:
        return f"{text}}}]{title}}}{about}"
    lines = "".join(f"\n{short}: {_line(entry)}" for short, entry in passage.shown.items())
    return f'{text},"replaces":null}}]{title}}}{about}\n"replaces" is one of these that is no longer true:{lines}'


def _line(entry: Entry) -> str:
    return guarded(" ".join(entry.text.split()))[:LONGEST_FACT]


def _named(passage: ExtractionPassage, whose: str) -> str:
    """`my last 2 messages (turns 3 and 4)`, `my messages of turns 3 to 12`."""
    turns = sorted(passage.questions)
    if len(turns) == 1:
        return f"{whose} last message (turn {turns[0]})" if passage.last else f"{whose} message of turn {turns[0]}"
    if turns == list(range(turns[0], turns[0] + len(turns))):
        named = f"turns {turns[0]} {'and' if len(turns) == 2 else 'to'} {turns[-1]}"
    else:
        named = f"turns {', '.join(map(str, turns[:-1]))} and {turns[-1]}" if turns else "no turn"
    return f"{whose} last {len(turns)} messages ({named})" if passage.last else f"{whose} messages of {named}"


def schema(passage: ExtractionPassage) -> dict[str, Any]:
    """`response_format` for the answer. Every value that can be listed is listed, so that a grammar holds it."""
    fields: dict[str, Any] = {
        "turns": {
            "type": "array",
            "items": {"type": "integer", "enum": sorted(passage.questions)},
            "minItems": 1,
            "maxItems": max(1, min(3, len(passage.questions))),
        },
        "text": {"type": "string", "minLength": 1, "maxLength": LONGEST_FACT},
        "kind": {"type": "string", "enum": [kind.value for kind in Kind]},
        "topic": {"type": "string", "maxLength": 24},
        "confidence": {"type": "number", "enum": [0.1, 0.3, 0.5, 0.7, 0.9]},
    }
    if passage.shown:
        fields["replaces"] = {"enum": [*passage.shown, None]}
    title = {"title": {"type": "string", "maxLength": TITLE_LENGTH}} if passage.title else {}
    return response_format("facts", {"facts": listed(fields, passage.most_facts), **title})


def listed(fields: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The schema of a list of objects that have just these fields, all of them."""
    return {"type": "array", "maxItems": most, "items": _object(fields)}


def response_format(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`response_format` for an object that has just these fields, all of them."""
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": _object(fields)}}


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}


def own_prompt(passage: ExtractionPassage) -> list[Message]:
    """The messages of a self-contained request: the pending messages, quoted, without their blocks, and the
    instruction."""
    lines = [f"[turn {number}, {message.role}] {_shortened(message)}" for number, message in passage.turns]
    quoted = ContextBlock("passage", "a conversation", "\n\n".join(lines))
    task = (
        "List the lasting facts that the user told about themselves, their work or their people in "
        f"{_named(passage, 'the')}, in the user's own words."
    )
    return [system_message("You take notes."), Message(Role.USER, _asked(passage, task), (quoted,))]


def _shortened(message: Node) -> str:
    text, most = message.message.typed.strip(), SHOWN if message.role is Role.USER else SHOWN // 10
    return text if len(text) <= most else f"{text[: most * 3 // 4]} […] {text[-most // 4 :]}"


# -- what is believed


def checked(answer: str, passage: ExtractionPassage) -> Findings:
    """The facts of an answer that hold. Never raises, whatever the answer."""
    found = _listed(answer)
    if found is None:
        return Findings([], [], ChangeReason(Why.NO_JSON if answer.strip() else Why.NO_TEXT))
    asked = [(number, node) for number, nodes in passage.questions.items() for node in nodes]
    heard = [(number, node, statements(node.message.typed)) for number, node in asked]
    facts: dict[str, Fact] = {}
    refused: list[tuple[str, ChangeReason]] = []
    most = passage.most_facts
    for number, one in enumerate(found[: most * 4]):
        text = tidied(_text(one))
        fact = _fact(one, text, heard, passage) if number < most else ChangeReason(Why.MANY, str(most))
        if isinstance(fact, ChangeReason):
            refused.append((_harmless(text), fact))
            continue
        key = next((known for known in facts if says_the_same(known, text)), text)
        facts[key] = _united(facts[key], fact) if key in facts else fact
    return Findings(list(facts.values()), refused)


def _listed(answer: str) -> list[Any] | None:
    """All objects that look like facts; None when the answer is not one."""
    found: list[Any] = []
    answered = False
    for value in values(answer):
        items = objects(value, _HOLDERS)
        if items is None and isinstance(value, dict) and any(name in value for name in _TEXTS):
            items = [value]
        if items is not None and all(isinstance(item, dict | str) for item in items):
            answered = True
            found += items
    return found if answered else None


def _text(one: Any) -> str:
    if isinstance(one, str):
        return one
    text = next((one[name] for name in _TEXTS if isinstance(one.get(name), str)), "")
    return str(text)


def _fact(
    one: Any, text: str, heard: Sequence[tuple[int, Node, Statements]], passage: ExtractionPassage
) -> Fact | ChangeReason:
    """The fact in an object of the answer, or why there is none."""
    fields = one if isinstance(one, dict) else {}
    if why := objection(text):
        return why
    proofs = _proofs(text, _cited(fields), heard)
    if isinstance(proofs, ChangeReason):
        return proofs
    kind = kind_of(text, _kind(fields.get("kind")))
    own = share(fields.get("confidence"))
    confidence = round(min(own, proofs[0][1].share), 2)
    said_there = " ".join(node.message.typed for node, _ in proofs)
    fact = Fact(
        kind,
        text,
        confidence,
        tuple(node.id for node, _ in proofs),
        _topic(fields.get("topic"), said_there),
        review=caution(text, kind) or proofs[0][1].review,
    )
    return _correcting(fact, fields.get("replaces"), passage, said_there)


def _cited(fields: Mapping[str, Any]) -> set[int]:
    given = fields.get("turns", fields.get("turn", ()))
    given = given if isinstance(given, list | tuple) else [given]
    return {number for number in map(whole_number, given[:20]) if number is not None}


def _proofs(
    text: str, cited: set[int], heard: Sequence[tuple[int, Node, Statements]]
) -> list[tuple[Node, Grounding]] | ChangeReason:
    """The messages in which the user said it, best first: of the cited ones, or of the others where the model counted
    wrongly. Else why none is one."""
    tried = [(number, node, grounding(text, message)) for number, node, message in heard]
    tried.sort(key=lambda one: (one[0] in cited, not one[2].review, one[2].share), reverse=True)
    proofs = [(number, node, found) for number, node, found in tried if not found.refusal]
    if not proofs:
        best = max(tried, key=lambda one: one[2].share, default=None)
        return best[2].refusal if best and best[2].refusal else ChangeReason(Why.NOWHERE)
    in_cited = proofs[0][0] in cited
    # Where the user said the opposite somewhere else, it is unknown which of the two holds.
    turned = any(found.refusal is not None and found.refusal.why is Why.TURNED for _, _, found in tried)
    kept = [
        (node, replace(found, review=found.review or ChangeReason(Why.BOTH)) if turned else found)
        for number, node, found in proofs
        if not in_cited or number in cited
    ]
    return kept[:3] if in_cited else kept[:1]


def _kind(value: Any) -> Kind:
    try:
        return Kind(str(value).strip().casefold())
    except ValueError:
        return Kind.FACT


def _topic(value: Any, said_there: str) -> str:
    """A topic in the user's own words: one to three of them."""
    topic = " ".join(value.split()) if isinstance(value, str) else ""
    plain = f" {normalised(own_words(said_there))} "
    fits = topic and len(topic) <= 24 and len(topic.split()) <= 3 and not objection(topic)
    return topic if fits and f" {normalised(topic)} " in plain else ""


def _correcting(fact: Fact, short: Any, passage: ExtractionPassage, said_there: str) -> Fact:
    """The fact with the memory that it takes the place of, if it has something in common with it and says something
    else. A memory is replaced without asking only where the user spoke of a change or of the old value, and never one
    that they wrote."""
    known = passage.shown.get(short) if isinstance(short, str) else None
    if known is None or says_the_same(known.text, fact.text):
        return fact
    old, new = set(meanings(known.text)), set(meanings(fact.text))
    if not old & new:
        return fact
    says_so = bool(CHANGED.search(folded(said_there))) or bool((old - new) & set(meanings(said_there)))
    theirs = known.is_users_own or known.page == PROFILE
    review = fact.review or (None if says_so and not theirs else ChangeReason(Why.REPLACES))
    return replace(fact, replaces=known.id, review=review)


def _united(one: Fact, other: Fact) -> Fact:
    """A fact that was given twice."""
    better = one if (not one.review, one.confidence) >= (not other.review, other.confidence) else other
    return replace(better, nodes=tuple(dict.fromkeys((*better.nodes, *one.nodes, *other.nodes))))


def _harmless(text: str) -> str:
    """A refused text as it may be shown and stored: short, without secrets and control characters."""
    if secret(text):
        return "…"
    plain = "".join(char if char.isprintable() else " " for char in guarded(text))
    return plain if len(plain) <= LONGEST_FACT else plain[: LONGEST_FACT - 1] + "…"

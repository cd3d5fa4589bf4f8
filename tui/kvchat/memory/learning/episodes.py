"""Episodes: ask a model about a part of a conversation that is over, and check its answer.

Time ends a part; within it the model only says where a topic begins. The messages of an episode follow from that, so
that each message is in one episode whatever the answer. An episode is for the user to read and is never sent anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from kvchat.memory.entry import Act, Change, Entry, Kind, new_id
from kvchat.memory.learning.answers import objects, values, whole_number
from kvchat.memory.learning.extraction import listed, response_format
from kvchat.memory.learning.vetting import secret, template_tokens
from kvchat.memory.ledger import EPISODE, ExtractionRun
from kvchat.prompt.message import Node, Role
from kvchat.prompt.message import new_id as new_run_id
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line

GAP_S = 6 * 3600.0
"""So long a silence ends a part of a conversation."""
MOST_EPISODES = 6
"""Episodes of one pass."""
TITLE, SUMMARY = 60, 400
"""Characters of each."""
ANSWER_TOKENS = 800

_HOLDERS = ("episodes", "topics", "items")


class EpisodePart(Struct, frozen=True):
    """The messages of a part of a conversation that is over, by the numbers of their turns, in their order."""

    turns: dict[int, list[Node]]


def ended_part(path: Sequence[Node], pending: Sequence[Node], now: float, most: int) -> EpisodePart:
    """The pending messages of a branch that a silence has ended, the oldest `most` of them, by whole turns; empty:
    there are none yet. `now`: seconds since the epoch."""
    ids = {node.id for node in pending}
    numbered, number = list[tuple[int, Node]](), 0
    for node in path:
        number += node.role is Role.USER
        if node.id in ids:
            numbered.append((number, node))
    end, after = 0, now
    for at in range(len(numbered), 0, -1):
        before = numbered[at - 1][1].created
        if after - before >= GAP_S:
            end = at
            break
        after = before
    turns: dict[int, list[Node]] = {}
    for number, node in numbered[:end]:
        if number not in turns and sum(map(len, turns.values())) >= most:
            break
        turns.setdefault(number, []).append(node)
    return EpisodePart(turns)


def instruction(part: EpisodePart) -> str:
    """What is asked for at the end of the conversation. The same part always gives the same text."""
    first, last = min(part.turns), max(part.turns)
    where = f"turn {first}" if first == last else f"turns {first} to {last}"
    return (
        f"Divide {where} of our conversation into episodes, one for each topic, at most {MOST_EPISODES}. For each: the "
        "turn it begins with, a title of a few words, and what it was about and came to, in one to three sentences. "
        f'Only JSON: {{"episodes":[{{"first":{first},"title":"","summary":""}}]}}'
    )


def schema(part: EpisodePart) -> dict[str, Any]:
    """`response_format` for the answer."""
    return response_format(
        "episodes",
        {
            "episodes": {
                **listed(
                    {
                        "first": {"type": "integer", "enum": sorted(part.turns)},
                        "title": {"type": "string", "minLength": 1, "maxLength": TITLE},
                        "summary": {"type": "string", "minLength": 1, "maxLength": SUMMARY},
                    },
                    MOST_EPISODES,
                ),
                "minItems": 1,
            }
        },
    )


class Episode(Struct, frozen=True):
    """A topic of a conversation."""

    title: str
    summary: str
    nodes: tuple[Node, ...]


def checked(answer: str, part: EpisodePart) -> list[Episode]:
    """The episodes in an answer: every message of the part is in one of them. Empty: it was no answer to what was
    asked. Never raises."""
    titled: dict[int, tuple[str, str]] = {}
    for value in values(answer):
        for one in objects(value, _HOLDERS) or ():
            if not isinstance(one, dict) or len(titled) == MOST_EPISODES:
                continue
            first = whole_number(one.get("first", one.get("turn")))
            title, summary = _text(one.get("title"), TITLE), _text(one.get("summary"), SUMMARY)
            if first in part.turns and title and summary:
                titled.setdefault(first, (title, summary))
    if not titled:
        return []
    begins = [min(part.turns), *sorted(titled)[1:]]  # what precedes the first episode belongs to it
    names = [titled[first] for first in sorted(titled)]
    found = []
    for at, first in enumerate(begins):
        end = begins[at + 1] if at + 1 < len(begins) else max(part.turns) + 1
        nodes = [node for number, nodes in part.turns.items() if first <= number < end for node in nodes]
        found.append(Episode(*names[at], tuple(nodes)))
    return found


def stored(
    episode: Episode,
    conversation: str,
    model: str,
    session: str,
    now: float,
) -> tuple[ExtractionRun, list[str], Change]:
    """An episode as it is stored: its run, its messages, and the entry on the page of its month."""
    nodes = [node.id for node in episode.nodes]
    start = episode.nodes[0].created
    day = datetime.fromtimestamp(start, UTC).astimezone()
    text = f"{day:%Y-%m-%d} {episode.title}: {episode.summary}"
    entry = Entry(
        new_id(),
        Kind.FACT,
        text,
        f"episodes/{day:%Y-%m}.md",
        now,
        conversation=conversation,
        nodes=tuple(nodes),
        by=model,
    )
    run = ExtractionRun(new_run_id(), conversation, now, EPISODE, model, session, noted=1)
    return run, nodes, Change(Act.NOTED, None, entry, now, session)


def _text(value: Any, most: int) -> str:
    text = one_line(whole_characters(value), most) if isinstance(value, str) else ""
    return "" if secret(text) or template_tokens(text) else text

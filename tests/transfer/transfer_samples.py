"""Conversations to export: a plain one with branches, and one made of hostile text."""

from __future__ import annotations

import json
from pathlib import Path

from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Node, NoteKind, Role, State, new_id, node, system_message
from kvchat.prompt.request import Parameters
from kvchat.prompt.tree import Tree
from kvchat.transfer.formats import Source
from kvchat.values import said

BEGIN = 1_795_252_560.0
CORPUS = json.loads((Path(__file__).parents[1] / "fixtures" / "hostile_text.json").read_text("utf-8"))


def conversation(nodes: list[Node], head: Node | None, title: str = "Lighthouse log", **more: object) -> Source:
    record = Conversation(new_id(), head.id if head else None, BEGIN, BEGIN + 600, title, **more)  # type: ignore[arg-type]
    return Source(record, Tree(nodes))


def chat(*texts: str, title: str = "Lighthouse log") -> Source:
    """A conversation without branches: questions and answers in turn."""
    nodes = [node(None, system_message("Be brief."), BEGIN)]
    for number, text in enumerate(texts):
        role = Role.ASSISTANT if number % 2 else Role.USER
        nodes.append(node(nodes[-1], Message(role, text), BEGIN + 1 + number, model="SmolLM2" if number % 2 else ""))
    return conversation(nodes, nodes[-1], title)


def branched_conversation() -> Source:
    """Two versions of an answer, of which the second goes on, and a question asked in another way."""
    system = node(None, system_message("Cite the log."), BEGIN)
    first = node(
        system,
        Message(
            Role.USER,
            "How many nights?",
            (
                ContextBlock("time", "2026-11-21T09:16:00+00:00", "Saturday 2026-11-21 09:16 UTC+00:00"),
                ContextBlock("passage", "notes/lamp.md", "Night 34: 101 turns.\n```\nNight 59\n```"),
            ),
        ),
        BEGIN + 1,
    )
    answer = node(
        first,
        Message(Role.ASSISTANT, "Twenty-six.", (), "I count the rows."),
        BEGIN + 2,
        model="/home/somebody/models/SmolLM2-135M.gguf",
        figures=TurnFigures(2206, 0, 31, 2206, 6200.0, 6100.0, 533.0, 8192),
    )
    stopped = node(
        first,
        Message(Role.ASSISTANT, "I think it was"),
        BEGIN + 20,
        state=State.CANCELLED,
        model="SmolLM2-135M",
        figures=TurnFigures(2206, 1000, 4, 100, 900.0, 800.0, 60.0, 8192),
    )
    longest = node(answer, Message(Role.USER, "Which was the longest?"), BEGIN + 30)
    last = node(
        longest,
        Message(Role.ASSISTANT, "Night 47."),
        BEGIN + 40,
        model="SmolLM2-135M",
        figures=TurnFigures(2300, 2236, 12, 63, 140.0, 130.0, 200.0, 8192),
    )
    shortest = node(answer, Message(Role.USER, "Which was the shortest?"), BEGIN + 50)
    parameters = Parameters(temperature=0.7, stop=("END",), extra={"mirostat": 2})
    return conversation(
        [system, first, answer, stopped, longest, last, shortest],
        last,
        turns=3,
        model="SmolLM2-135M",
        parameters=parameters,
        template_options={"enable_thinking": False},
    )


def hostile_conversation() -> Source:
    """Every hostile string in every place a text can come to: texts, reasoning, context, names, notes, the title."""
    nodes = [node(None, system_message("\n".join(item["text"] for item in CORPUS)), BEGIN)]
    for number, item in enumerate(CORPUS):
        text = item["text"]
        blocks = (ContextBlock("paste", text, text), ContextBlock(text, text, text), ContextBlock("time", "", text))
        nodes.append(node(nodes[-1], Message(Role.USER, text, blocks), BEGIN + number))
        nodes.append(
            node(
                nodes[-1],
                Message(Role.ASSISTANT, text, (), text),
                BEGIN + number,
                model=text,
                state=State.ERROR,
                note=said(NoteKind.OTHER_MODEL_ANSWERED, answered=text, asked="m", program=text),
            )
        )
        nodes.append(node(nodes[-2], Message(Role.ASSISTANT, f"```{text}\n{text}"), BEGIN + number + 0.5))
    return conversation(nodes, nodes[-2], title="".join(item["text"] for item in CORPUS), model=CORPUS[0]["text"])

"""OpenAI JSONL holds what the model saw and said, one branch a line."""

from __future__ import annotations

import json

from transfer_samples import chat, conversation

from kvchat.prompt.message import Role, node, system_message
from kvchat.transfer.formats import Source, render


def sent(source: Source, end: str | None) -> list[dict[str, str]]:
    """Role and content of the wire messages up to `end`."""
    wires = [json.loads(made.wire) for made in source.tree.path(end)]
    return [{"role": wire["role"], "content": wire["content"]} for wire in wires]


def test_a_line_equals_the_wire_messages_of_the_branch_in_use(branched: Source) -> None:
    [line] = render("jsonl", [branched]).splitlines()
    messages = json.loads(line)["messages"]
    assert messages == sent(branched, branched.conversation.head)
    assert "Night 34: 101 turns." in messages[1]["content"]


def test_reasoning_is_left_out_because_strict_tools_refuse_it(branched: Source) -> None:
    messages = json.loads(render("jsonl", [branched]))["messages"]
    assert {key for message in messages for key in message} == {"role", "content"}
    assert "I count the rows" not in render("jsonl", [branched], all_branches=True)


def test_all_branches_give_a_line_each_the_one_in_use_first(branched: Source) -> None:
    lines = render("jsonl", [branched], all_branches=True).splitlines()
    ends = [
        branched.conversation.head,
        *(leaf.id for leaf in branched.tree.leaves() if leaf.id != branched.conversation.head),
    ]
    assert [json.loads(line)["messages"] for line in lines] == [sent(branched, end) for end in ends]
    assert len(lines) == 3


def test_each_conversation_has_its_line_and_an_empty_one_has_none() -> None:
    system = node(None, system_message(""), 1.0)
    lines = render("jsonl", [chat("One?", "1"), conversation([system], system), chat("Two?", "2")]).splitlines()
    assert [json.loads(line)["messages"][1]["content"] for line in lines] == ["One?", "Two?"]
    assert render("jsonl", [conversation([], None)]) == ""


def test_hostile_text_never_breaks_a_line_and_comes_back_exactly(hostile: Source) -> None:
    text = render("jsonl", [hostile])
    assert text.isascii() or "\u2028" not in text
    [line] = text.splitlines()
    assert json.loads(line)["messages"] == sent(hostile, hostile.conversation.head)
    assert json.loads(line)["messages"][0]["role"] == Role.SYSTEM

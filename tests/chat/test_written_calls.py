"""Calls that came as the text of an answer: which are carried out, which are said, and what is left alone."""

from __future__ import annotations

import json

import pytest

from kvchat.chat.question import Question
from kvchat.prompt.message import NoteKind
from kvchat.text.notes import note_sentence
from toyserver import ToyServer, tokens

CALL = '{"name": "read_file", "arguments": {"path": "a.txt"}}'
TAGS = f"<tool_call>\n{CALL}\n</tool_call>"
FUNCTION = "<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>"
INNER = f'{{"type": "function", "id": "c", "function": {CALL}}}'
CARRIED_OUT = (
    TAGS,
    f"  {TAGS}\n",
    TAGS.removesuffix("</tool_call>"),
    FUNCTION,
    f"{FUNCTION}\n</tool_call>",
    f"<tool_call>\n{FUNCTION}\n</tool_call>",
    CALL,
    CALL.replace("arguments", "parameters"),
    CALL.replace("read_file", "functions.read_file"),
    CALL.replace('{"path": "a.txt"}', '"{\\"path\\": \\"a.txt\\"}"'),
    f"[{CALL}]",
    f"[TOOL_CALLS][{CALL}]",
    f"<|python_tag|>{CALL}",
    INNER,
    f'{{"tool_calls": [{INNER}]}}',
    '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "a.txt"}<|call|>',
)
SAID = (
    f"```json\n{CALL}\n```",
    f"Let me look.\n{TAGS}",
    f"{TAGS}\nThen I shall see.",
    f"I look.\n\n{CALL}",
    f"I look.\n\n```\n{TAGS}\n```\n",
    f"I look: {FUNCTION}",
)
LEFT_ALONE = (
    f"A call looks so:\n\n```\n{TAGS}\n```\n\nThat is all.",
    '{"name": "Ada", "age": 36}',
    '{"name": "read_file"}',
    '{"name": "shell", "arguments": {}}',
    '<tool_call>{"name": "shell", "arguments": {}}</tool_call>',
    "<tool_call> is a tag.",
    '{"name": "read_file", "arguments": {"path": "a',
    "[1, 2]",
    "<function=read_file>",
    "A set {1, 2} < {3}.",
)


@pytest.fixture
async def asked(service, server: ToyServer, tmp_path, monkeypatch):
    """Asks a question with tools, which this text answers first; the branch."""
    (tmp_path / "a.txt").write_text("The keeper is called Agnes.\n")
    monkeypatch.chdir(tmp_path)
    service.tools.give(["read_file"])

    async def asked(text: str):
        server.on_chat(tokens(text[:9], text[9:]), tokens("Agnes.", prompt=60))
        conversation = await service.new_conversations.create(tools=["files"], reuse=False)
        await service.turns.send(conversation.id, Question("Who?"))
        await service.conversations.wait(conversation.id)
        return conversation.path()

    return asked


@pytest.mark.parametrize("text", CARRIED_OUT)
async def test_an_answer_that_is_nothing_but_a_call_is_one(asked, server: ToyServer, text: str) -> None:
    call, result, answer = (await asked(text))[2:]
    assert call.text == "" and json.loads(call.message.calls[0].arguments) == {"path": "a.txt"}
    assert "Agnes" in result.message.blocks[-1].text
    assert (answer.text, answer.note) == ("Agnes.", None)
    sent = server.chats[-1].json["messages"]
    [made] = sent[2]["tool_calls"]
    assert made["id"] and made["id"] == sent[3]["tool_call_id"]


async def test_several_calls_in_a_text_are_several(asked) -> None:
    for text in (f"{TAGS}\n{TAGS}", f"[{CALL}, {CALL}]", f"{CALL}\n{CALL}"):
        path = await asked(text)
        assert len(path[2].message.calls) == 2 and len({one.id for one in path[2].message.calls}) == 2
        assert path[-1].text == "Agnes."


@pytest.mark.parametrize("text", SAID)
async def test_one_amid_words_or_in_a_fence_is_said(asked, text: str) -> None:
    *_, answer = await asked(text)
    assert (answer.text, answer.message.calls) == (text, ())
    assert answer.note is not None and answer.note.kind == NoteKind.CALL_AS_TEXT
    assert "--jinja" in note_sentence(answer.note)


@pytest.mark.parametrize("text", LEFT_ALONE)
async def test_what_is_no_call_of_an_offered_tool_stays_text(asked, text: str) -> None:
    *_, answer = await asked(text)
    assert (answer.text, answer.message.calls, answer.note) == (text, (), None)


async def test_without_tools_a_call_is_a_text(service, server: ToyServer) -> None:
    server.on_chat(tokens(TAGS[:9], TAGS[9:]))
    conversation = await service.new_conversations.create(reuse=False)
    await service.turns.send(conversation.id, Question("Who?"))
    await service.conversations.wait(conversation.id)
    answer = conversation.path()[-1]
    assert (answer.text, answer.note) == (TAGS, None)

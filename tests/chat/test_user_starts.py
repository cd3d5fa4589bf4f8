"""Where user messages begin, found as the server finds it: from what its chat template makes of one question."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from kvchat.backends.dialect import ChatTurn
from kvchat.cache.template_text import marker_in, repeated_marker_in
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.message_offsets import ANSWER, FIRST, QUESTION, TurnSeparators
from kvchat.prompt.message import Message, Role
from kvchat.prompt.tools import ToolCall

CHATML = "<|im_start|>user\n{}<|im_end|>\n"
ASK = "<|im_start|>assistant\n"
LLAMA = "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>"


@pytest.mark.parametrize(
    ("without", "asked", "marker"),
    [
        (ASK, CHATML.format(QUESTION) + ASK, "<|im_start|>user"),
        (
            ASK,
            "<|im_start|>system\nHelp.<|im_end|>\n" + CHATML.format(QUESTION) + ASK,
            "<|im_start|>system\nHelp.<|im_end|>\n<|im_start|>user",
        ),
        ("<s>", f"<s>[INST] {QUESTION} [/INST]", "[INST]"),
        (
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            LLAMA.format("user", QUESTION) + "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|start_header_id|>user<|end_header_id|>",
        ),
        (ASK, ASK, ""),
    ],
)
def test_the_marker_is_what_the_template_puts_in_front_of_a_question(without: str, asked: str, marker: str) -> None:
    assert marker_in(without, asked, QUESTION) == marker


def test_a_template_that_refuses_an_empty_conversation_shows_it_between_two_questions() -> None:
    asked = (
        "<|im_start|>system\nHelp.<|im_end|>\n"
        + CHATML.format(FIRST)
        + ASK
        + ANSWER
        + "<|im_end|>\n"
        + CHATML.format(QUESTION)
        + ASK
    )
    assert repeated_marker_in(asked, FIRST, ANSWER, QUESTION) == "<|im_start|>user"
    assert repeated_marker_in("nothing of this", FIRST, ANSWER, QUESTION) == ""


def test_places_are_found_within_ids_and_never_between_two() -> None:
    prompt = Tokens([1, 7, 8, 5, 1, 7, 8, 7, 8, 0x0707, 8])
    assert list(prompt.places_of(Tokens([7, 8]))) == [1, 5, 7]
    assert list(prompt.places_of(Tokens())) == []
    assert list(Tokens([7, 7, 7]).places_of(Tokens([7, 7]))) == [0]
    assert list(Tokens([0, 1 << 24, 0]).places_of(Tokens([0, 1]))) == []


@pytest.mark.parametrize(
    ("answer", "call", "result", "seam"),
    [
        ("{}<|im_end|>", "{}</tool_call><|im_end|>", "tool {}", "<|im_end|>user "),
        ("{}<|user|>", "{}</tool_call>", "<|observation|>{}", "<|observation|>"),
        ("{}<|end|>", "{}<|call|>", "<|start|>look {}", "<|call|><|start|>look "),
        ("{}</s>", "{}]", "[RESULT]{}", "</s>user "),
    ],
)
async def test_a_call_ends_as_an_answer_does_or_with_a_token_of_its_own(answer, call, result, seam) -> None:
    async def prompt_text(turn: ChatTurn) -> str:
        text = ""
        for message in map(json.loads, turn.wires):
            called = message.get("tool_calls")
            form = {"user": "user {}", "tool": result, "assistant": call if called else answer}[message["role"]]
            text += form.replace("{}", called[0]["function"]["arguments"] if called else message["content"])
        return text

    async def tokens_of(text: str) -> Tokens:
        parts = re.findall(r"<[^<>]*>|.", text)
        return Tokens([1000 + sum(map(ord, part)) if part[0] == "<" else ord(part) for part in parts])

    calling = Message(Role.ASSISTANT, "", calls=(ToolCall("call00000", "look", "{}"),))
    seams = TurnSeparators(SimpleNamespace(prompt_text=prompt_text, tokens_of=tokens_of))
    assert (await seams.after_an_answer(ChatTurn((calling.wire(),), ""))).text == seam

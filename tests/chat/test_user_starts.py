"""Where user messages begin, found as the server finds it: from what its chat template makes of one question."""

from __future__ import annotations

import pytest

from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.message_offsets import ANSWER, FIRST, QUESTION, behind_a_call, marker_in, repeated_marker_in

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
    assert marker_in(without, asked) == marker


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
    assert repeated_marker_in(asked) == "<|im_start|>user"
    assert repeated_marker_in("nothing of this") == ""


def test_places_are_found_within_ids_and_never_between_two() -> None:
    prompt = Tokens([1, 7, 8, 5, 1, 7, 8, 7, 8, 0x0707, 8])
    assert list(prompt.places_of(Tokens([7, 8]))) == [1, 5, 7]
    assert list(prompt.places_of(Tokens())) == []
    assert list(Tokens([7, 7, 7]).places_of(Tokens([7, 7]))) == [0]
    assert list(Tokens([0, 1 << 24, 0]).places_of(Tokens([0, 1]))) == []


@pytest.mark.parametrize(
    ("text", "behind_an_answer", "seam"),
    [
        (
            '"}}\n</tool_call><|im_end|>\n<|im_start|>user\n',
            "<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>user\n",
        ),
        ("</arg_value></tool_call><|observation|><tool_response>", "<|user|>", "<|observation|><tool_response>"),
        ('"}<|call|><|start|>functions.look', "<|end|><|start|>user<|message|>", "<|call|><|start|>functions.look"),
        ('"}<|tool_call_end|><|im_end|>tool', "<|im_end|>user", "<|im_end|>tool"),
        ('"}]', "</s>", ""),
        ('"}]', "", ""),
    ],
)
def test_a_call_ends_where_an_answer_would_or_at_the_first_special_token(text, behind_an_answer, seam) -> None:
    assert behind_a_call(text, behind_an_answer) == seam

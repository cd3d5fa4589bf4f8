"""Asking before an act, and its price in words."""

from __future__ import annotations

import pytest
from screens_kit import answered, showing, triples

from kvchat.cache.price import Alternative, CheaperWay, Price, price
from kvchat.text.format import about
from kvchat.text.prices import cheaper, price_lines, several_lines
from kvchat.ui.screens.kit.confirm import ConfirmScreen


def question() -> ConfirmScreen[str]:
    return ConfirmScreen(
        "Edit message 3?",
        price_lines(Price(8120, (35, 35)), "delete"),
        [("e", "Edit", "edit"), ("a", "Append a correction instead: 40 tokens", "append")],
    )


async def test_a_choice_is_made_once_with_its_key_or_with_the_cursor() -> None:
    await triples(
        (question, "enter", answered("edit")),
        (question, "down enter", answered("append")),
        (question, "a", answered("append")),
        (question, "E", answered("edit")),
        (question, "escape", answered(None)),
        (question, "end up enter", answered("edit")),
        (question, "x tab f5", answered()),
        (question, "e e enter escape", answered("edit")),  # the second answer is too late
    )


async def test_a_click_chooses() -> None:
    async with showing(question()) as shown:
        row = next(y for y, line in enumerate(shown.lines) if "Append" in line)
        await shown.pilot.click(offset=(20, row))
        await shown.pilot.pause()
        assert shown.answers == ["append"]


async def test_the_price_is_on_the_screen() -> None:
    async with showing(question()) as shown:
        assert "Prefills 8,120 tokens before the next answer (~35 s)." in shown.text
        assert "The old version is kept." in shown.text
        assert "esc cancel" in shown.lines[shown.lines.index(shown.line("╰"))]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (price(8120, 232.0, 3), "Prefills 8,120 tokens before the next answer (~35 s)."),
        (price(8120, 232.0, 2), "Prefills 8,120 tokens before the next answer (24–52 s)."),
        (price(None, 232.0, 3), "Prefills an unknown number of tokens: the server reports none."),
        (price(8120, None, 0), "Prefills 8,120 tokens before the next answer (time not measured yet)."),
        (price(0, 232.0, 3), "Nothing to prefill."),
        (price(1, None, 0), "Nothing to prefill."),
    ],
)
def test_a_price_is_one_honest_sentence(asked: Price, sentence: str) -> None:
    assert price_lines(asked) == [sentence]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Alternative(CheaperWay.CORRECTION, 48, (0.2, 0.2)), "Append a correction instead (48 tokens, ~0.2 s)"),
        (Alternative(CheaperWay.NEXT_MESSAGE, 1), "Say it in your next message instead (1 token)"),
    ],
)
def test_a_cheaper_way_is_offered_with_its_price(way: Alternative, words: str) -> None:
    assert cheaper(way) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((35, 35), "~35 s"),
        ((11, 11), "~11 s"),
        ((24.4, 52.3), "24–52 s"),
        ((0.14, 0.3), "0.1–0.3 s"),
        ((50, 107), "1–2 min"),
        ((90, 130), "~2 min"),
        (None, ""),
    ],
)
def test_times_are_ranges_until_they_are_known(seconds: tuple[float, float] | None, words: str) -> None:
    assert about(seconds) == words


def test_whose_slot_is_lost_is_said_and_alone_worth_a_question() -> None:
    asked = Price(9, losing=(("Maps", 1_200), ("", 40)))
    assert asked.worth_asking and not Price(9, losing=(("Maps", 40),)).worth_asking
    assert price_lines(asked, "alternatives")[1:] == [
        "“Maps” loses its slot: 1,200 tokens to prefill there next time.",
        "“another conversation” loses its slot: 40 tokens to prefill there next time.",
    ]
    assert several_lines([3], ())[0] == "One prefill for all 3, in as many slots."
    assert several_lines([1, 1], ())[0] == "2 requests, one after the other; the question stays cached between them."
    assert several_lines([1, 1], ("one", "two"))[1] == "The conversation stays with its model."

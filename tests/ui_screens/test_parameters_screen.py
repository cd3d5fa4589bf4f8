"""The sampling parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from screens_kit import Shown, showing
from textual.widgets import Input

from kvchat.prompt.request import Parameters
from kvchat.ui.screens.parameters import ParametersScreen, parsed_stop, written_stop


async def fill(shown: Shown, **values: str) -> None:
    for name, value in values.items():
        shown.app.screen.query_one(f"#{name}", Input).value = value
    await shown.pilot.pause()


async def test_values_are_read_and_empty_fields_are_the_servers_default() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        assert shown.text.count("default") >= 10
        await fill(shown, temperature="0.7", top_k="40", max_tokens="512", seed="42", stop=r"\n\n|END")
        await shown.press("enter")
        assert shown.answers == [Parameters(temperature=0.7, top_k=40, max_tokens=512, seed=42, stop=("\n\n", "END"))]


async def test_emptying_a_field_goes_back_to_the_default() -> None:
    before = Parameters(temperature=0.5, top_p=0.9, extra={"mirostat": 2})
    async with showing(ParametersScreen(before)) as shown:
        await shown.press("ctrl+u", "enter")
        assert shown.answers == [Parameters(top_p=0.9, extra={"mirostat": 2})]


async def test_nothing_changed_answers_nothing() -> None:
    async with showing(ParametersScreen(Parameters(temperature=0.5, stop=("\x1b[2J",)))) as shown:
        await shown.press("ctrl+s")
        assert shown.answers == [None]


@pytest.mark.parametrize(("name", "value", "sentence"), [
    ("temperature", "hot", "A number from 0 to 5."),
    ("temperature", "nan", "A number from 0 to 5."),
    ("temperature", "-1", "A number from 0 to 5."),
    ("top_p", "1.5", "A number from 0 to 1."),
    ("top_k", "2.5", "A whole number from 0 to 1,000,000."),
    ("max_tokens", "0", "A whole number from 1 up."),
    ("frequency_penalty", "3", "A number from -2 to 2."),
])
async def test_a_wrong_value_is_told_beside_its_field_and_not_applied(name: str, value: str, sentence: str) -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        await fill(shown, **{name: value})
        assert value in shown.line(sentence)
        await shown.press("enter")
        assert shown.answers == []
        assert shown.app.focused is shown.app.screen.query_one(f"#{name}")
        await fill(shown, **{name: "1"})
        assert sentence not in shown.text
        await shown.press("enter")
        assert getattr(shown.answers[0], name) == 1


async def test_a_decimal_comma_is_understood() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        await shown.type("0,7")
        await shown.press("enter")
        assert shown.answers == [Parameters(temperature=0.7)]


async def test_arrow_keys_walk_the_fields_and_the_screen_says_that_the_cache_is_not_touched() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        await shown.press("down", "down", "up")
        assert shown.app.focused is shown.app.screen.query_one("#top_p")
        assert "None of these touches the cache" in shown.prose
        assert "stop" in shown.text, "the last field is on the screen at 80x24"


@given(st.lists(st.text(min_size=1), max_size=4))
def test_stop_texts_survive_being_written_and_read(stop: list[str]) -> None:
    assert parsed_stop(written_stop(stop)) == tuple(stop)

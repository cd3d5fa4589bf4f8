"""The sampling parameters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from screens_kit import Shown, showing
from textual.widgets import Input

from corpus import corpus
from kvchat.config.option import UnfitError, as_text
from kvchat.config.settings import PARAMETERS
from kvchat.prompt.request import Parameters
from kvchat.ui.screens.options import ParametersScreen, parsed

ARRAY = {"type": "json_object", "schema": {"type": "array"}}
BIAS = {"mirostat": 2, "logit_bias": [[5, False]], "x": None}


async def fill(shown: Shown, **values: str) -> None:
    for name, value in values.items():
        shown.app.screen.query_one(f"#{name}", Input).value = value
    await shown.pilot.pause()


async def test_values_are_read_and_empty_fields_are_the_servers_default() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        assert shown.text.count("default") >= 10
        await fill(shown, temperature="0.7", top_k="40", max_tokens="512", seed="42", stop=r'["\n\n", "END"]')
        await shown.press("enter")
        assert shown.answers == [Parameters(temperature=0.7, top_k=40, max_tokens=512, seed=42, stop=("\n\n", "END"))]


async def test_emptying_a_field_goes_back_to_the_default() -> None:
    before = Parameters(temperature=0.5, top_p=0.9, extra={"mirostat": 2})
    async with showing(ParametersScreen(before)) as shown:
        await shown.press("ctrl+u", "enter")
        assert shown.answers == [Parameters(top_p=0.9, extra={"mirostat": 2})]


async def test_nothing_changed_answers_nothing() -> None:
    before = Parameters(
        temperature=0.123456789,
        stop=("\x1b[2J",),
        extra={"a": "\x1b[2J\u202e", "n": None},
        response_format={"type": "json_schema", "json_schema": {"schema": {}}},
    )
    async with showing(ParametersScreen(before)) as shown:
        assert "\x1b[2J" not in shown.text and "\u202e" not in shown.text
        await shown.press("ctrl+s")
        assert shown.answers == [None]


async def test_a_wrong_value_is_told_beside_its_field_and_not_applied() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        for name, value, sentence in [
            ("temperature", "hot", "must be a number."),
            ("temperature", "nan", "must be from 0 to 5."),
            ("temperature", "-1", "must be from 0 to 5."),
            ("top_p", "1.5", "must be from 0 to 1."),
            ("top_k", "2.5", "must be a whole number."),
            ("top_k", "1048577", "must be from 0 to 1048576."),
            ("max_tokens", "0", "must be from 1 to 10000000."),
            ("max_tokens", "9" * 400, "must be from 1 to 10000000."),
            ("seed", "9" * 400, "must be from -1 to 4294967295."),
            ("temperature", "9" * 400, "must be from 0 to 5."),
            ("frequency_penalty", "3", "must be from -2 to 2."),
            ("response_format", "xml", "must be text, json or a table."),
            ("stop", "[1, 2]", "must be a list of texts"),
        ]:
            await fill(shown, **{name: value})
            assert value[:9] in shown.line(sentence), name
            await shown.press("enter")
            assert shown.answers == [] and shown.app.focused is shown.app.screen.query_one(f"#{name}"), name
            await fill(shown, **{name: "" if name in ("stop", "response_format") else "1"})
            assert sentence not in shown.text, name
        await shown.press("enter")
        right = Parameters(temperature=1, top_p=1, top_k=1, max_tokens=1, seed=1, frequency_penalty=1)
        assert shown.answers == [right]


async def test_a_value_that_the_settings_take_is_taken() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        await fill(shown, repeat_penalty="9.5", top_k="1048576")
        await shown.press("enter")
        assert shown.answers == [Parameters(repeat_penalty=9.5, top_k=1 << 20)]


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
        assert "more fields" in shown.text, "the last field is on the screen at 80x24"


@corpus(
    ("name", "text", "value"),
    [
        ("stop", "END", ("END",)),
        ("stop", " a|b ", ("a|b",)),
        ("stop", '["###", "\\n"]', ("###", "\n")),
        ("stop", "['###', 'END']", ("###", "END")),
        ("stop", "[]", ()),
        ("stop", "", ()),
        ("response_format", "json", {"type": "json_object"}),
        ("response_format", " JSON ", {"type": "json_object"}),
        ("response_format", "text", {"type": "text"}),
        ("response_format", "", None),
        ("response_format", '{"type": "json_object", "schema": {"type": "array"}}', ARRAY),
        ("response_format", '{type = "json_object"}', {"type": "json_object"}),
        ("response_format", "{}", None),
        ("extra", "mirostat = 2, dry = {base = 1.75}", {"mirostat": 2, "dry": {"base": 1.75}}),
        ("extra", '{"mirostat": 2, "logit_bias": [[5, false]], "x": null}', BIAS),
        ("extra", "{mirostat = 2}", {"mirostat": 2}),
        ("extra", "", {}),
    ],
)
def test_texts_and_tables_are_written_as_in_the_settings(name: str, text: str, value: object) -> None:
    assert parsed(name, text) == value


async def test_what_is_written_in_the_fields_is_applied() -> None:
    before = Parameters(seed=1, stop=("old",), response_format={"type": "x"}, extra={"old": 1})
    async with showing(ParametersScreen(before)) as shown:
        assert '["old"]' in shown.line("ends an answer") and '{"type"' in shown.line("response format")
        assert '{"old": 1}' in shown.line("more fields")
        await fill(shown, stop="['###', 'END']", response_format=" JSON ", extra="mirostat = 2")
        await shown.press("enter")
        after = Parameters(seed=1, stop=("###", "END"), response_format={"type": "json_object"}, extra={"mirostat": 2})
        assert shown.answers == [after]


@given(st.lists(st.text(min_size=1), max_size=4))
def test_stop_texts_survive_being_written_and_read(stop: list[str]) -> None:
    assert parsed("stop", as_text(PARAMETERS["stop"], tuple(stop))) == tuple(stop)


async def test_fields_that_cannot_be_sent_are_told_below_and_not_applied() -> None:
    async with showing(ParametersScreen(Parameters())) as shown:
        for text, sentence in [
            ("mirostat", "must be a table, such as {name = 1}."),
            ("mirostat = 2, mirostat = 3", "must be a table"),
            ('{"mirostat": 2', "must be a table"),
            ("[1, 2]", "must be a table"),
            ("{" * 3000, "must be a table"),
            ('{"a":' * 3000, "must be a table"),
            ("a = inf", "must not hold nan, inf or a whole number of more than 64 bits."),
            ('{"a": NaN}', "must not hold nan, inf or a whole number of more than 64 bits."),
            ("a = 1979-05-27", "must not hold dates or times, that a server cannot be sent."),
            ("messages = []", "messages cannot be set: kvchat sends this field itself."),
            ('{"Messages": []}', "Messages cannot be set: kvchat sends this field itself."),
            (
                'reasoning_effort = "low"',
                "reasoning_effort cannot be set: it is an option of the model's template, and would change the prompt.",
            ),
        ]:
            await fill(shown, extra=text)
            assert sentence in shown.prose, text[:50]
            await shown.press("enter")
            assert shown.answers == [] and shown.app.focused is shown.app.screen.query_one("#extra"), text[:50]
            await fill(shown, extra="mirostat = 2")
            assert sentence not in shown.prose, text[:50]
        await shown.press("enter")
        assert shown.answers == [Parameters(extra={"mirostat": 2})]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_further_fields_survive_being_written_and_read(extra: dict[str, object]) -> None:
    try:
        assert parsed("extra", as_text(PARAMETERS["extra"], extra)) == extra
    except UnfitError as unfit:
        assert "cannot be set" in str(unfit)


@given(
    st.sampled_from(["stop", "response_format", "extra"]),
    st.text(st.sampled_from([*"ab=.,#[]{}\"'\\ 1-é"]), max_size=30),
)
def test_any_line_gives_a_value_or_one_sentence(name: str, text: str) -> None:
    try:
        assert isinstance(parsed(name, text), dict | tuple | None)
    except UnfitError as unfit:
        assert "\n" not in str(unfit)

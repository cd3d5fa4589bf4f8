"""Calls as models write them: names behind prefixes, and arguments in other forms than the schema's."""

from __future__ import annotations

from typing import Any

import pytest

from corpus import corpus
from kvchat.chat.tools.fitting import fitted, known_name
from kvchat.chat.tools.tool import ToolError
from kvchat.prompt.tools import ToolDefinition, frozen_tools

OFFERED = ("read_file", "box__say", "fs__list_directory")


@corpus(
    ("written", "meant"),
    [
        ("functions.read_file", "read_file"),
        ("tool.read_file", "read_file"),
        ("tools/read_file", "read_file"),
        ("default_api:read_file", "read_file"),
        ("functions.read_file:0", "read_file"),
        ("read_file<|channel|>commentary", "read_file"),
        ("mcp__box__say", "box__say"),
        ("mcp.box.say", "box__say"),
        ("box.say", "box__say"),
        ("functions.fs__list_directory", "fs__list_directory"),
        ("read_file", "read_file"),
        ("fs__read_file", "fs__read_file"),
        ("functions.shell", "functions.shell"),
        ("unread_file", "unread_file"),
        ("", ""),
    ],
)
def test_a_prefix_before_a_known_name_is_passed_over(written: str, meant: str) -> None:
    assert known_name(written, OFFERED) == meant


def tools(*required: str, **properties: object) -> bytes:
    return frozen_tools([ToolDefinition("t", "", {"type": "object", "properties": properties, "required": required})])


INTEGER, TEXT, FLAG = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
NUMBER, NUMBERS, TEXTS = {"type": "number"}, {"type": "array", "items": INTEGER}, {"type": "array", "items": TEXT}
POINT = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}
EITHER = {"anyOf": [INTEGER, {"type": "null"}]}


@corpus(
    ("schema", "came", "meant"),
    [
        (INTEGER, 1.0, 1),
        (INTEGER, "1", 1),
        (INTEGER, "1.0", 1),
        (INTEGER, "-7", -7),
        (NUMBER, "1.5", 1.5),
        (NUMBER, 2.0, 2.0),
        (FLAG, "true", True),
        (FLAG, "False", False),
        (TEXTS, "a", ["a"]),
        (TEXTS, '["a", "b"]', ["a", "b"]),
        (NUMBERS, 3, [3]),
        (NUMBERS, ["1", 2.0], [1, 2]),
        (NUMBERS, '["1"]', [1]),
        (POINT, '{"x": "1", "y": null}', {"x": 1}),
        ({"type": "array", "items": POINT}, {"x": 1.0}, [{"x": 1}]),
        (EITHER, None, None),
        (EITHER, "5", 5),
        ({"type": ["integer", "string"]}, "5", "5"),
        (TEXT, "null", "null"),
        (TEXT, "[1]", "[1]"),
        ({}, "1", "1"),
        ({"type": "strange"}, "1", "1"),
        ({"$ref": "#/properties/v"}, "1", "1"),
    ],
)
def test_an_argument_is_taken_in_whichever_form_it_comes(schema: object, came: object, meant: object) -> None:
    for strict in (True, False):
        [found] = fitted("t", tools("v", v=schema), {"v": came}, strict=strict).values()
        assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize("schema", [INTEGER, TEXT, NUMBERS, POINT, {"type": "array", "items": TEXT}])
def test_null_for_what_may_be_left_out_is_none(schema: object) -> None:
    assert fitted("t", tools(v=schema), {"v": None, "invented": None}, strict=True) == {"invented": None}


@pytest.mark.parametrize("came", ["", "null", "None"])
def test_so_is_a_text_that_says_so_where_no_text_is_meant(came: str) -> None:
    assert fitted("t", tools(v=INTEGER, w=TEXT), {"v": came, "w": came}, strict=True) == {"w": came}


@corpus(
    ("schema", "came", "words"),
    [
        (INTEGER, 1.5, "v of t must be of the type integer"),
        (INTEGER, "one", "v of t must be of the type integer"),
        (INTEGER, True, "v of t must be of the type integer"),
        (INTEGER, "9" * 5000, "v of t must be of the type integer"),
        (INTEGER, float("inf"), "v of t must be of the type integer"),
        (NUMBER, "NaN", "v of t must be of the type number"),
        (TEXT, 7, "v of t must be of the type string"),
        (TEXT, None, "v of t must be of the type string"),
        (FLAG, "yes", "v of t must be of the type boolean"),
        (NUMBERS, [1, "two"], r"v\[1\] of t must be of the type integer"),
        (POINT, '{"y": 1}', "t needs the argument v.x"),
        (POINT, "{" * 5000, "v of t must be of the type object"),
        (EITHER, "x", "v of t must be of the type integer or null"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence_and_for_a_server_stays_as_it_came(
    schema: object, came: Any, words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        fitted("t", tools("v", v=schema), {"v": came}, strict=True)
    assert fitted("t", tools("v", v=schema), {"v": came}, strict=False) == {"v": came}


def test_a_schema_by_name_is_followed_and_one_that_names_itself_ends() -> None:
    parameters = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Point"}, "loop": {"$ref": "#/$defs/Loop"}},
        "$defs": {"Point": POINT, "Loop": {"$ref": "#/$defs/Loop"}},
    }
    frozen = frozen_tools([ToolDefinition("t", "", parameters)])
    assert fitted("t", frozen, {"at": {"x": "1"}, "loop": "1"}, strict=True) == {"at": {"x": 1}, "loop": "1"}

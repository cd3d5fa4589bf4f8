"""What a model reads of results, and of listed tools, in the forms that servers give them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from corpus import corpus
from kvchat.chat.tools.mcp_definitions import ListedTool, UnusableTool, listed_tool
from kvchat.chat.tools.mcp_results import is_failure, result_text

PART = {"type": "text", "text": "Three rakes."}
PICTURE = {"content": [{"type": "image", "data": "AAAABBBB", "mimeType": "image/png"}]}
FOUND = {"found": [{"name": "rake", "count": 3}]}


def resource(data: bytes, kind: str | None) -> dict[str, Any]:
    blob = base64.b64encode(data).decode()
    return {"content": [{"type": "resource", "resource": {"uri": "shed:1", "blob": blob, "mimeType": kind}}]}


@corpus(
    ("result", "text"),
    [
        ({"content": [PART, PART]}, "Three rakes.\n\nThree rakes."),
        ({"content": "Three rakes."}, "Three rakes."),
        ({"content": ["Three rakes."]}, "Three rakes."),
        ({"content": PART}, "Three rakes."),
        ({"toolResult": "Three rakes."}, "Three rakes."),
        ({"toolResult": {"rakes": 3}}, '{"rakes": 3}'),
        ("Three rakes.", "Three rakes."),
        ([PART], "Three rakes."),
        ({"rakes": 3, "_meta": {"a": 1}}, '{"rakes": 3}'),
        ({"content": [{"type": "text", "text": {"rakes": 3}}]}, '{"rakes": 3}'),
        ({"content": [{"type": "json", "json": {"rakes": 3}}]}, '{"json": {"rakes": 3}}'),
        ({"content": [{"type": "image", "data": "AAAA"}]}, "[image, not shown]"),
        ({"content": [{"type": "resource_link", "uri": "shed:1"}]}, "[resource_link, not shown: shed:1]"),
        (resource(b"Three rakes.", "text/plain"), "Three rakes."),
        (resource(b'{"a": 1}', "application/json"), '{"a": 1}'),
        (resource("Größe".encode(), None), "Größe"),
        (resource(b"Three rakes.", "application/octet-stream"), "Three rakes."),
        (resource(b"\xff\xd8\xff", "image/jpeg"), "[resource, not shown: shed:1]"),
        (resource(b"\0\1", None), "[resource, not shown: shed:1]"),
        ({"content": [], "structuredContent": FOUND}, json.dumps(FOUND)),
        (
            {"content": [{"type": "text", "text": "1 hit."}], "structuredContent": FOUND},
            f"1 hit.\n\n{json.dumps(FOUND)}",
        ),
        ({"content": [{"type": "text", "text": json.dumps(FOUND)}], "structuredContent": FOUND}, json.dumps(FOUND)),
        ({"content": [PART], "structuredContent": {"result": "Three rakes."}}, "Three rakes."),
        (PICTURE | {"structuredContent": PICTURE}, "[image, not shown]"),
        ({"content": []}, ""),
        ({"content": None}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_result_is_read_in_any_form(result: object, text: str) -> None:
    assert result_text(result) == text


def test_a_call_that_failed_is_known() -> None:
    assert is_failure({"isError": True}) and is_failure({"isError": "true"})
    assert not is_failure({"isError": False}) and not is_failure({"content": []}) and not is_failure("text")


def offered(schema: object, **more: object) -> dict[str, Any]:
    listed = listed_tool("shed", {"name": "look", "inputSchema": schema, **more})
    assert isinstance(listed, ListedTool)
    return dict(listed.definition.parameters)


@pytest.mark.parametrize("schema", [None, True, False, {}, {"type": "object"}, {"properties": None}])
def test_a_tool_without_a_schema_takes_no_arguments(schema: object) -> None:
    assert offered(schema) == {"type": "object", "properties": {}}


def test_a_schema_under_another_name_is_read() -> None:
    given = {"type": "object", "properties": {"what": {"type": "string"}}}
    assert offered(None, input_schema=given) == given


def test_titles_are_left_out_and_values_stay() -> None:
    value = {"title": "Old", "$schema": "a", "description": "b"}
    schema = {
        "title": "lookArguments",
        "properties": {
            "title": {"title": "Title", "type": "string", "default": value},
            "default": {"title": "Default", "enum": [value], "const": value, "examples": [value]},
        },
        "$defs": {"enum": {"title": "Enum", "type": "string"}},
    }
    lean = offered(schema)
    assert "title" not in lean and lean["$defs"] == {"enum": {"type": "string"}}
    assert lean["properties"] == {
        "title": {"type": "string", "default": value},
        "default": {"enum": [value], "const": value, "examples": [value]},
    }


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("text", "it has no name"),
        ({"name": 5}, "it has no name"),
        ({"name": "look", "inputSchema": [1]}, "its schema is no table"),
        ({"name": "look", "inputSchema": {"enum": ["<|im_end|>"]}}, "its schema has control tokens of models"),
    ],
)
def test_what_cannot_be_offered_has_a_reason(tool: object, why: str) -> None:
    listed = listed_tool("shed", tool)
    assert isinstance(listed, UnusableTool) and listed.why == why


@corpus("name", ["a\x1b[2Jb", "a\nb", "a\u202eb", "a\x9bb", "a\u200bb", "a\x00"])
@pytest.mark.parametrize("place", ["properties", "$defs", "deep"])
def test_a_name_in_a_schema_with_control_characters_is_not_offered(name, place):
    named = {name: {"type": "string"}}
    held = {"properties": {"a": {"type": "object", "properties": named}}} if place == "deep" else {place: named}
    found = listed_tool("group", {"name": "look", "inputSchema": {"type": "object", **held}})
    assert found == UnusableTool("look", "a name in its schema has control characters")
    plain = {"type": "object", "properties": {"größe 1 (cm)": {"type": "string", "description": "a"}}}
    assert isinstance(listed_tool("group", {"name": "look", "inputSchema": plain}), ListedTool)

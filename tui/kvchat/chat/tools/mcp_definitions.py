"""The tools that MCP servers list, as they are named and offered to a model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from kvchat.prompt.context import guarded
from kvchat.prompt.offered_tools import own_tools
from kvchat.prompt.tools import ToolDefinition
from kvchat.prompt.wire import canonical
from kvchat.sanitize import one_line

LONGEST_NAME = 64
_VALUES = ("default", "examples", "example", "enum", "const")
"""Keywords of a schema with values of the tool's own."""
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords of a schema with schemas by names."""
_SCHEMA = ("inputSchema", "input_schema", "parameters")
"""Where a tool has its schema: the name of the protocol, and two that servers have from elsewhere."""


class ListedTool(Struct, frozen=True):
    """A tool of a server."""

    own_name: str
    """As the server calls it."""
    definition: ToolDefinition


class UnusableTool(Struct, frozen=True):
    """What a server lists that cannot be offered."""

    name: str
    why: str
    """As the end of a sentence."""


def group_name(name: str) -> str:
    """The name of an MCP server in kvchat: characters that model servers take in names, none of kvchat's own groups,
    and no `__`, which follows it in the names of its tools."""
    given = name.strip().lower()
    plain = _within(24, given, re.sub(r"[^a-z0-9-]+", "_", given).strip("_") or "mcp")
    return f"mcp_{plain}" if own_tools(plain) or plain in ("none", "forget") else plain


def _within(most: int, name: str, plain: str) -> str:
    """`plain`, made of `name`; where the two differ, or it is longer than `most` characters, it ends with a digest of
    the name, so that two names stay two."""
    if plain == name and len(plain) <= most:
        return plain
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:4]
    return f"{plain[: most - 5].rstrip('_')}_{digest}"


def listed_tool(group: str, found: object) -> ListedTool | UnusableTool:
    """A tool of the server `group` as it is offered. One without a schema takes no arguments."""
    own = found.get("name") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(own, str) or not own:
        return UnusableTool("", "it has no name")
    shown = one_line(own, LONGEST_NAME)
    schema: Any = next((found[name] for name in _SCHEMA if found.get(name) is not None), {})
    if isinstance(schema, bool):  # every argument, or none
        schema = {}
    if not isinstance(schema, dict):
        return UnusableTool(shown, "its schema is no table")
    try:
        name, said = f"{group}__{own}", guarded(str(found.get("description") or "").strip())
        plain = _within(LONGEST_NAME, name, re.sub(r"[^a-zA-Z0-9_-]", "_", name))
        definition = ToolDefinition(plain, said, _parameters(schema))
        written = canonical(definition.wire()).decode()
    except (ValueError, TypeError, RecursionError):
        return UnusableTool(shown, "its schema cannot be written as JSON")
    if not all(name.isprintable() for name in _names_in(definition.parameters)):
        return UnusableTool(shown, "a name in its schema has control characters")
    if guarded(written) != written:
        return UnusableTool(shown, "its schema has control tokens of models")
    return ListedTool(own, definition)


def _parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object, whatever it was."""
    parameters = _lean(schema)
    assert isinstance(parameters, dict)
    properties = parameters.get("properties")
    return parameters | {"type": "object", "properties": properties if isinstance(properties, dict) else {}}


def _lean(schema: object) -> object:
    """A JSON schema without what says nothing to a model, its words made safe to quote. Values stay as they are."""
    if isinstance(schema, list):
        return [_lean(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    lean: dict[str, Any] = {}
    for name, value in schema.items():
        is_text = isinstance(value, str)
        if is_text and name in ("title", "$schema"):
            continue
        if name in _VALUES:
            lean[name] = value
        elif name in _NAMED and isinstance(value, dict):
            lean[name] = {key: _lean(one) for key, one in value.items()}
        else:
            lean[name] = guarded(value) if is_text and name == "description" else _lean(value)
    return lean


def _names_in(schema: object) -> Iterator[str]:
    """The names of all that a schema holds."""
    if isinstance(schema, list):
        for one in schema:
            yield from _names_in(one)
    elif isinstance(schema, Mapping):
        for name, value in schema.items():
            yield str(name)
            yield from _names_in(value)

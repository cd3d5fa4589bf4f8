"""Calls as models mean them: a name behind a prefix, and arguments in another form than the schema's.

What is fitted is what the user is asked about, and what goes out; what is stored stays as it came.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

from kvchat.chat.tools.tool import ToolError
from kvchat.sanitize import one_line

_SEPARATOR = re.compile(r"(__|[.:/])")
_NAMESPACES = frozenset(("mcp", "function", "functions", "tool", "tools", "api", "default_api"))
"""What may stand before `__`: any other word there is a server's name."""
_NUMBER_BEHIND = re.compile(r":\d+$")
"""Of Kimi K2: `functions.read_file:0`."""
_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_LEFT_OUT = ("", "null", "none")
DEEPEST = 8
"""Values that are nested deeper stay as they came."""

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def known_name(name: str, offered: Collection[str]) -> str:
    """The offered tool that a name means, behind whatever prefix (`functions.read_file`, `mcp__box__say`); the name
    itself where it means none."""
    if name in offered:
        return name
    plain = _NUMBER_BEHIND.sub("", name.partition("<|")[0].strip())
    words = _SEPARATOR.split(plain)  # words at even places, what separates them at odd ones
    for at in range(0, len(words), 2):
        before = {word.lower() for word in words[:at:2]}
        found = "__".join(words[at::2])
        if found in offered and (at == 0 or words[at - 1] != "__" or before <= _NAMESPACES):
            return found
    return name


def fitted(name: str, tools: bytes, given: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """The arguments of a call of the tool `name`, as its schema in the frozen `tools` has them. What that does not
    know is passed over, for models invent arguments. What cannot be meant raises ToolError; not `strict`, it stays as
    it came, and the tool says itself what is wrong with it."""
    schema = next(one["function"]["parameters"] for one in json.loads(tools) if one["function"]["name"] == name)
    return _Fitting(name, schema).table(given, schema, "", 0, strict=strict)


class _Fitting:
    def __init__(self, tool: str, root: Mapping[str, Any]) -> None:
        self._tool = tool
        self._root = root

    def table(
        self, given: Mapping[str, Any], schema: Mapping[str, Any], path: str, deep: int, *, strict: bool = True
    ) -> dict[str, Any]:
        properties, required = schema.get("properties"), schema.get("required")
        properties = properties if isinstance(properties, dict) else {}
        required = [one for one in required if isinstance(one, str)] if isinstance(required, list) else []
        found: dict[str, Any] = {}
        for name, value in given.items():
            alternatives = self._alternatives(properties.get(name), 0)
            if name not in required and _is_left_out(value, alternatives):
                continue
            try:
                found[name] = self.value(value, alternatives, f"{path}{name}", deep)
            except ToolError:
                if strict:
                    raise
                found[name] = value
        if strict and (missing := next((one for one in required if one not in found), None)):
            raise ToolError(f"{self._tool} needs the argument {one_line(path + missing, 80)}.")
        return found

    def value(self, value: Any, alternatives: list[Mapping[str, Any]], path: str, deep: int) -> Any:
        if not alternatives or deep > DEEPEST:
            return value
        wrong: ToolError | None = None
        for schema in alternatives:
            if _is(value, schema["type"]):
                try:
                    return self._inner(value, schema, path, deep)
                except ToolError as error:
                    wrong = wrong or error
        for schema in alternatives:
            for meant in _meanings(value, schema["type"]):
                try:
                    return self._inner(meant, schema, path, deep)
                except ToolError as error:
                    wrong = wrong or error
        if wrong is not None:
            raise wrong
        kinds = " or ".join(dict.fromkeys(one["type"] for one in alternatives))
        raise ToolError(f"The argument {one_line(path, 80)} of {self._tool} must be of the type {kinds}.")

    def _inner(self, value: Any, schema: Mapping[str, Any], path: str, deep: int) -> Any:
        """A value of the right type, with what it holds."""
        if isinstance(value, dict):
            return self.table(value, schema, f"{path}.", deep + 1)
        if isinstance(value, list):
            items = self._alternatives(schema.get("items"), 0)
            return [self.value(one, items, f"{path}[{at}]", deep + 1) for at, one in enumerate(value)]
        return value

    def _alternatives(self, schema: object, deep: int) -> list[Mapping[str, Any]]:
        """The schemas that a value may follow, each with one type; none: it may be anything, or it is not known."""
        if not isinstance(schema, dict) or deep > DEEPEST:
            return []
        if isinstance(ref := schema.get("$ref"), str):
            return self._alternatives(self._named(ref), deep + 1)
        for name in ("anyOf", "oneOf"):
            if isinstance(some := schema.get(name), list):
                found = [self._alternatives(one, deep + 1) for one in some]
                return [*chain(*found)] if all(found) else []
        types = schema.get("type")
        types = types if isinstance(types, list) else [types]
        known = all(isinstance(one, str) and one in _KINDS for one in types)
        return [{**schema, "type": one} for one in types] if known else []

    def _named(self, ref: str) -> object:
        """The schema at a pointer into this one; None: it is elsewhere."""
        found: object = self._root if ref.startswith("#/") else None
        for word in ref.removeprefix("#/").split("/"):
            found = found.get(word) if isinstance(found, dict) else None
        return found


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, _KINDS[kind])


def _is_left_out(value: object, alternatives: list[Mapping[str, Any]]) -> bool:
    kinds = {one["type"] for one in alternatives}
    if not kinds:
        return False
    if value is None:
        return "null" not in kinds
    return isinstance(value, str) and value.strip().lower() in _LEFT_OUT and "string" not in kinds


def _meanings(value: object, kind: str) -> list[Any]:
    """What a value of another type means as this one, the likeliest first."""
    text = value.strip() if isinstance(value, str) else ""
    match kind:
        case "integer" if isinstance(value, float) and value.is_integer():
            return [int(value)]
        case "integer" if _WHOLE.fullmatch(text):
            return [int(text.partition(".")[0])] if len(text) < 100 else []
        case "number" if text:
            return [one for one in _json(text) if _is(one, "number")]
        case "boolean" if text.lower() in ("true", "false"):
            return [text.lower() == "true"]
        case "array" if value is not None:
            return [*(one for one in _json(text) if isinstance(one, list)), [value]]
        case "object":
            return [one for one in _json(text) if isinstance(one, dict)]
    return []


def _json(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return []

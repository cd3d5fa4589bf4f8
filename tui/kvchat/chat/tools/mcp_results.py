"""What a model reads of the result of a call, in whatever form an MCP server gives it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvchat.sanitize import one_line

_MEDIA = ("image", "audio", "resource", "resource_link", "blob")
"""Kinds of parts that are named where they have no text."""
_TEXT_TYPE = re.compile(
    r"text/|application/octet-stream|.*\b(?:json|xml|yaml|toml|javascript|csv|sql|markdown)\b", re.IGNORECASE
)
"""Types under which a text is sent as a blob; the second says nothing."""
_OWN_FIELDS = ("_meta", "isError", "resultType")
"""Fields of a result that are about it."""


def result_text(result: object) -> str:
    """The text of a result: of its parts, else of whatever it has. Empty: it has nothing."""
    if not isinstance(result, dict):
        return "" if result is None else _joined(result)
    if "content" in result or "structuredContent" in result:
        content, structured = result.get("content"), result.get("structuredContent")
        text = _joined(content)
        if structured is not None and not _has_all(content, structured):
            text = "\n\n".join(filter(None, [text, _json(structured)]))
        return text
    if "toolResult" in result:  # revision 2024-10-07
        found = result["toolResult"]
        return found if isinstance(found, str) else _json(found)
    bare = {name: value for name, value in result.items() if name not in _OWN_FIELDS}
    return _json(bare) if bare else ""


def is_failure(result: object) -> bool:
    """Whether a server says that the call failed."""
    return isinstance(result, dict) and str(result.get("isError", "")).lower() == "true"


def _joined(content: object) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n\n".join(filter(None, map(_text, parts)))


def _text(part: object) -> str:
    """Of one part of a result."""
    if part is None or isinstance(part, str):
        return part or ""
    if not isinstance(part, dict):
        return _json(part)
    resource = part["resource"] if isinstance(part.get("resource"), dict) else part
    if (found := resource.get("text")) is not None:
        return found if isinstance(found, str) else _json(found)
    if (read := _decoded(resource)) is not None:
        return read
    kind = str(part.get("type") or "part")
    if kind not in _MEDIA and (rest := {name: value for name, value in part.items() if name not in ("type", "_meta")}):
        return _json(rest)
    where = part.get("uri") or resource.get("uri")
    return f"[{one_line(kind, 40)}, not shown{f': {one_line(str(where), 300)}' if where else ''}]"


def _decoded(resource: Mapping[str, Any]) -> str | None:
    """A text that was sent as a blob; None: it is none."""
    import base64

    blob, kind = resource.get("blob"), resource.get("mimeType")
    if not isinstance(blob, str) or not (kind is None or _TEXT_TYPE.match(str(kind))):
        return None
    try:
        text = base64.b64decode(blob).decode()
    except ValueError:
        return None
    return None if "\0" in text else text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_WORD = re.compile(r"\w+")


def _has_all(content: object, structured: object) -> bool:
    """Whether the parts of a result have every value of what comes structured as well, shown or not."""
    had = {word for value in _values(content) for word in _WORD.findall(value)}
    return bool(had) and all(had.issuperset(_WORD.findall(value)) for value in _values(structured))


def _values(found: object) -> Iterator[str]:
    """The texts and numbers in a JSON value."""
    waiting = [found]
    while waiting:
        match waiting.pop():
            case dict() as table:
                waiting += table.values()
            case list() as values:
                waiting += values
            case str() as text:
                yield text
            case bool() | None:
                continue
            case number:
                yield _json(number)

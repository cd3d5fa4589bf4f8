"""Read the JSON in a model's answer, also where it is not quite JSON.

Reading never raises and never takes long, whatever the text; what is whole before a cut counts.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

LONGEST_ANSWER = 64 * 1024
"""Characters of an answer that are read."""
TRIES = 200
"""Places at which JSON may begin that are tried."""

_TRAILING = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[\]}])', re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)


def values(answer: str) -> list[Any]:
    """The objects and arrays in an answer, in their order, outermost first: without prose and code fences around
    them. Of one that is cut off, the whole ones inside it."""
    text = _TRAILING.sub(lambda found: found[1] or "", answer[:LONGEST_ANSWER])
    found = list(_scanned(_in_a_string(text) or text))
    if not any(isinstance(value, dict) for value in found) and (literal := _literal(text)) is not None:
        return [literal]
    return found


def objects(value: Any, holders: tuple[str, ...]) -> list[Any] | None:
    """The list in a value: the value itself, or what it holds under one of the names; None when there is none."""
    if isinstance(value, dict):
        value = next((value[name] for name in holders if isinstance(value.get(name), list)), None)
    return value if isinstance(value, list) else None


def _scanned(text: str) -> Iterator[Any]:
    at = tries = 0
    while (start := _next(text, at)) >= 0 and tries < TRIES:
        tries += 1
        try:
            value, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
        else:
            yield value


def _next(text: str, at: int) -> int:
    found = re.compile(r"[{\[]").search(text, at)
    return found.start() if found else -1


def _in_a_string(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def _literal(text: str) -> Any:
    """A dictionary as Python writes it, with single quotes."""
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end or end - start > LONGEST_ANSWER // 4:
        return None
    try:
        value = ast.literal_eval(text[start : end + 1])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) else None


def whole_number(value: Any) -> int | None:
    """A number that a model wrote as one, as text, or as `turn 3`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e6 else None
    if isinstance(value, int):
        return value if abs(value) < 1_000_000 else None
    digits = re.search(r"\d{1,6}", value) if isinstance(value, str) and len(value) < 40 else None
    return int(digits[0]) if digits else None


def share(value: Any) -> float:
    """A confidence from 0 to 1 that a model wrote as a number, as percent, or in a word; 1 where it wrote none."""
    if isinstance(value, str):
        words = {"high": 0.9, "medium": 0.6, "low": 0.3}
        if value.strip().casefold() in words:
            return words[value.strip().casefold()]
        try:
            value = float(value.strip().removesuffix("%"))
        except ValueError:
            return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return 1.0
    if 1 < value <= 100:
        value = value / 100
    return float(min(1, max(0, value)))

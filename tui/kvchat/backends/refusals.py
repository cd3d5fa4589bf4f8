"""Which field of a request a server refuses by name.

The rule: only what the server says of the request is looked at, never what it repeats of it: an error that echoes the
question must not look like a refusal of the words in it. Only fields that were sent can be refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from kvchat.backends.errors import error_of, is_about_roles
from kvchat.backends.payload import PayloadError, is_object, parsed

_REFUSES = re.compile(
    r"extra[_ ](?:inputs|fields?|forbidden)|not permitted|not supported|unsupported|unknown|unrecogni[sz]ed|unexpected|"
    r"no such (?:field|parameter)|invalid (?:field|parameter|argument)", re.IGNORECASE)
_ROLE = re.compile(r"\broles?\b", re.IGNORECASE)
_ECHO = re.compile(r"\binput(?:_value)?['\"]?\s?[=:]")
"""From here on, a problem written out as text repeats what was sent."""
_IN_PASSING = frozenset({"model", "messages", "stream"})
"""Fields whose names stand in sentences that are about other fields."""
_NESTED = ("error", "message", "detail", "errors")
_DEPTH = 4


def unknown_field(body: str, sent: Collection[str]) -> str:
    """Which of the `sent` fields (those at the top of the request) an error body says is not permitted; empty where it
    says no such thing."""
    problems = list(_problems(_value_of(body)))
    if problems:
        return next((name for problem in problems if (name := _place_of(problem, sent))), "")
    message, error = error_of(body) or ("", {})
    message = _ECHO.split(message, maxsplit=1)[0]
    if not _REFUSES.search(message) or is_about_roles(message):
        return ""
    parameter = error.get("param")
    if isinstance(parameter, str) and parameter in sent:
        return parameter
    return "" if _ROLE.search(message) else _first_named(message, sent)


def _first_named(message: str, sent: Collection[str]) -> str:
    found = {name: match.start() for name in sorted(set(sent) - _IN_PASSING)
             if (match := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message))}
    return min(found, key=lambda name: found[name], default="")


def _place_of(problem: Mapping[str, object], sent: Collection[str]) -> str:
    """The field at the top of the request that a problem is about, if the problem is that it is there."""
    said = " ".join(str(problem.get(key)) for key in ("type", "msg", "message"))
    place = problem.get("loc")
    if not isinstance(place, list) or not _REFUSES.search(said):
        return ""
    return next((part for part in place if isinstance(part, str) and part in sent), "")


def _problems(value: object, depth: int = _DEPTH) -> Iterator[Mapping[str, object]]:
    """The problems with their places in a list, wherever an error has it."""
    if isinstance(value, list):
        yield from (entry for entry in value if is_object(entry) and isinstance(entry.get("loc"), list))
    elif is_object(value) and depth:
        for key in _NESTED:
            yield from _problems(value.get(key), depth - 1)


def _value_of(text: str) -> object:
    try:
        return parsed(text)
    except PayloadError:
        return None

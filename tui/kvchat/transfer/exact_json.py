"""JSON that is exact for a program and safe for a user to print.

Every character survives a round trip. One that a terminal obeys, that is invisible or that some readers take for the
end of a line is never written raw, but as a \\u escape.
"""

from __future__ import annotations

import json
import re

_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def dumps(value: object, indent: int | None = None) -> str:
    """`value` as JSON text that encodes as UTF-8. Raises ValueError or TypeError for what JSON cannot hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    # Outside strings JSON is plain ASCII without DEL, so every match is inside a string.
    return _UNSAFE.sub(_escape, text)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _unknown(name: str) -> object:
    return None


def loads(text: str, *, lenient: bool = False) -> object:
    """The value of JSON `text`. Raises ValueError for anything that is not JSON, depth and size of numbers included.
    `lenient`: what programs write though it is none is taken: NaN and infinities, as null, and raw control characters
    in strings."""
    try:
        return json.loads(text, parse_constant=_unknown if lenient else _no_constant, strict=not lenient)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error

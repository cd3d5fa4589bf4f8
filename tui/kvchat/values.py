"""Values (`msgspec.Struct`s) as JSON, and read back by their form. Not for the wire: `prompt.wire` writes what is sent.

Through `json`, since msgspec's own coder refuses the lone surrogates of file names that are not UTF-8.
"""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")


def encode(value: object) -> str:
    """One line of ASCII."""
    return json.dumps(msgspec.to_builtins(value))


def decode(text: str | bytes, form: type[T]) -> T:
    """The value of this form. Raises ValueError for anything else, and RecursionError."""
    return msgspec.convert(json.loads(text), form)

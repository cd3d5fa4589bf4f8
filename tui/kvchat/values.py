"""Values (`msgspec.Struct`s) as JSON, and read back by their form; and statements, which `kvchat.text` puts into words.
Not for the wire: `prompt.wire` writes what is sent.

Through `json`, since msgspec's own coder refuses the lone surrogates of file names that are not UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


def encode(value: object) -> str:
    """One line of ASCII."""
    return json.dumps(msgspec.to_builtins(value))


def decode(text: str | bytes, form: type[T]) -> T:
    """The value of this form. Raises ValueError for anything else, and RecursionError."""
    return msgspec.convert(json.loads(text), form)


Argument = str | int | float | bool | None


class Statement(Struct, frozen=True):
    """Something to be said: its kind (a name in an enumeration such as `cache.causes.cause.Reason`, in small letters)
    and its arguments by name."""

    kind: str
    arguments: tuple[tuple[str, Argument], ...] = ()

    def __getitem__(self, name: str) -> Argument:
        """An argument; None where it was not given."""
        return next((value for given, value in self.arguments if given == name), None)

    def is_a(self, kind: StrEnum) -> bool:
        """Whether this is its kind."""
        return self.kind == kind.name.lower()


def said(kind: StrEnum, **arguments: Argument) -> Statement:
    """The statement of this kind; arguments that are None are left out."""
    return Statement(kind.name.lower(), tuple((name, value) for name, value in arguments.items() if value is not None))


def statement(kind: str, arguments: Mapping[str, object]) -> Statement:
    """A statement that was stored or written to a file; what is no argument is left out."""
    return Statement(
        kind,
        tuple(
            (name, value) for name, value in arguments.items() if value is None or isinstance(value, str | int | float)
        ),
    )


def stored(value: object) -> object:
    """A statement as the JSON array of its kind and its arguments by name; anything else as it is."""
    return [value.kind, dict(value.arguments)] if isinstance(value, Statement) else value


def statement_of(value: object) -> Statement | None:
    """A stored statement: a kind and its arguments; None for anything else."""
    match value:
        case [str(kind), dict(arguments)]:
            return statement(kind, arguments)
    return None


def as_fields(value: Struct) -> dict[str, Any]:
    """A value by its fields, and those in it too; the arguments of statements by name."""
    found = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return found | {"arguments": dict(value.arguments)} if isinstance(value, Statement) else found


def _plain(value: object) -> object:
    match value:
        case Struct():
            return as_fields(value)
        case tuple() | list():
            return [_plain(part) for part in value]
        case dict():
            return {key: _plain(part) for key, part in value.items()}
    return value

"""What a setting may be: its kind, its bounds, and its words for the person.

The rule: a setting is described once, where it is declared. Checking, the example file, the documentation and the
environment's variables all read that description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Check = Callable[[str], str | None]
"""Of a text: what it must be instead, or None if it is right."""


class Kind(StrEnum):
    """A setting's type, in the words that a sentence uses."""

    FLAG = "true or false"
    TEXT = "a text in quotes"
    WHOLE = "a whole number"
    NUMBER = "a number"
    TEXTS = "a list of texts"
    TABLE = "a table"
    KEYS = "a table of actions and their keys"


@dataclass(frozen=True, slots=True)
class Spec:
    """How a setting is described where it is declared."""

    kind: Kind
    doc: str
    low: float | None = None
    high: float | None = None
    check: Check | None = None
    example: object = None
    """Shown in the example file where there is no default."""


@dataclass(frozen=True, slots=True)
class Option:
    """A setting with its place in the file."""

    section: str
    name: str
    default: object
    spec: Spec

    @property
    def path(self) -> str:
        """`theme`, `server.base_url`: how sentences and the command line name it."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return "KVCHAT_" + self.path.replace(".", "_").upper()


class UnfitError(Exception):
    """A value that its setting cannot take; the text follows the setting's name: `must be ...`."""


def fitted(spec: Spec, value: object) -> object:
    """`value` as the setting holds it. Raises UnfitError."""
    match spec.kind:
        case Kind.FLAG if isinstance(value, bool):
            return value
        case Kind.TEXT if isinstance(value, str):
            if spec.check and (wrong := spec.check(value)):
                raise UnfitError(wrong)
            return value
        case Kind.WHOLE if isinstance(value, int) and not isinstance(value, bool):
            return _bounded(spec, value)
        case Kind.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return _bounded(spec, float(value) if -1e300 < value < 1e300 else value)
        case Kind.TEXTS:
            texts = [value] if isinstance(value, str) else value
            if isinstance(texts, list | tuple) and all(isinstance(text, str) and text for text in texts):
                return tuple(texts)
        case Kind.TABLE if isinstance(value, Mapping):
            return _json_table(value)
        case Kind.KEYS if isinstance(value, Mapping):
            return dict(value)
    raise UnfitError(f"must be {spec.kind.value}, not {kind_of(value)}")


def from_text(spec: Spec, text: str) -> object:
    """A value given as text, by an environment variable or an option of the command line. Raises UnfitError."""
    try:
        match spec.kind:
            case Kind.FLAG:
                return {"1": True, "true": True, "yes": True, "on": True,
                        "0": False, "false": False, "no": False, "off": False}[text.strip().lower()]
            case Kind.WHOLE:
                return fitted(spec, int(text))
            case Kind.NUMBER:
                return fitted(spec, float(text))
    except (KeyError, ValueError):
        raise UnfitError(f"must be {spec.kind.value}") from None
    return fitted(spec, text)


def kind_of(value: object) -> str:
    """What a value from a TOML file is, in words."""
    match value:
        case bool():
            return "true or false"
        case str():
            return "a text"
        case int():
            return "a whole number"
        case float():
            return "a number with a fraction"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a table"
        case _:
            return "a date or time"


def _bounded(spec: Spec, value: float) -> float:
    low, high = spec.low, spec.high
    if math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high):
        return value
    if low is not None and high is not None:
        raise UnfitError(f"must be from {low:g} to {high:g}")
    raise UnfitError(f"must be {low:g} or more" if low is not None else "must be a finite number")


_DEPTH = 16


def _json_table(table: Mapping[object, object]) -> dict[str, object]:
    """A copy of a table that can be sent as JSON. Raises UnfitError for dates, infinities and endless nesting."""
    todo: list[tuple[object, int]] = [(table, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > _DEPTH:
            raise UnfitError(f"must not hold more than {_DEPTH} tables or lists inside each other")
        if isinstance(value, Mapping):
            todo += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list | tuple):
            todo += [(item, depth + 1) for item in value]
        elif isinstance(value, float) and not math.isfinite(value):
            raise UnfitError("must not hold nan or inf, that a server cannot be sent")
        elif not isinstance(value, str | int | float):
            raise UnfitError("must not hold dates or times, that a server cannot be sent")
    return {str(name): value for name, value in table.items()}


def flag(default: bool, doc: str) -> bool:
    return field(default=default, metadata={"spec": Spec(Kind.FLAG, doc)})


def text(default: str, doc: str, check: Check | None = None, *, example: str | None = None, shown: bool = True) -> str:
    """`shown` is False for what may carry a secret: it stays out of the repr."""
    return field(default=default, repr=shown, metadata={"spec": Spec(Kind.TEXT, doc, check=check, example=example)})


def whole(default: int, doc: str, low: int, high: int) -> int:
    return field(default=default, metadata={"spec": Spec(Kind.WHOLE, doc, low, high)})

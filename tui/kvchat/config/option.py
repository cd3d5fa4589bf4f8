"""What a setting may be: its kind, its bounds, and its words for the user.

A setting is described once, where it is declared. Checking, the example file, the documentation, the environment's
variables, options of the command line and fields all read that description.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from kvchat.config.source import Key
from kvchat.config.toml import TomlUnreadableError, parsed
from kvchat.sanitize import finite

T = TypeVar("T")

Check = Callable[[str], str | None]
"""Of a text: what it must be instead, or None if it is right."""
EntryCheck = Callable[[str, object], str | None]
"""Of an entry of a table, its name and value: what is wrong with it, without the value, or None if it is right."""


class OptionKind(StrEnum):
    """A setting's type, in the words that a sentence uses."""

    FLAG = "true or false"
    TEXT = "a text in quotes"
    WHOLE = "a whole number"
    NUMBER = "a number"
    TEXTS = "a list of texts"
    TABLE = "a table"
    KEYS = "a table of actions and their keys"


class Spec(Struct, frozen=True):
    """How a setting is described where it is declared."""

    kind: OptionKind
    doc: str
    low: float | None = None
    high: float | None = None
    check: Check | None = None
    entry: EntryCheck | None = None
    brief: str = ""
    """What it does in a few words, for a form."""
    named: Mapping[str, Mapping[str, object]] = {}
    """Tables by the word that means them."""
    example: object = None
    """Shown in the example file where there is no default."""
    secret: bool = False
    """Whether the values of a table stay out of what is printed."""
    words: Callable[[], tuple[str, ...]] | None = None
    """The words that it may be, where they are few."""
    routes: bool = False
    """Whether it decides where a text goes, and how: no default replaces a value that cannot be used."""


class Option(Struct, frozen=True):
    """A setting with its place in the file."""

    holder: Key
    """The section that holds it: none at the top, `("server",)`, `("profiles", "work", "parameters")`."""
    name: str
    default: object
    spec: Spec

    @property
    def key(self) -> Key:
        return (*self.holder, self.name)

    @property
    def section(self) -> str:
        """`server`, as sentences name it."""
        return ".".join(self.holder)

    @property
    def path(self) -> str:
        """`theme`, `server.base_url`: how sentences and the command line name it."""
        return ".".join(self.key)

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return "KVCHAT_" + self.path.replace(".", "_").upper()


class UnfitError(Exception):
    """A value that its setting cannot take; the text follows the setting's name: `must be ...`."""


def fitted(spec: Spec, value: object) -> object:
    """`value` as the setting holds it. Raises UnfitError."""
    match spec.kind:
        case OptionKind.FLAG if isinstance(value, bool):
            return value
        case OptionKind.TEXT if isinstance(value, str):
            value = value.strip() if spec.routes else value
            if spec.check and (wrong := spec.check(value)):
                raise UnfitError(wrong)
            return value
        case OptionKind.WHOLE if isinstance(value, int) and not isinstance(value, bool):
            return _bounded(spec, value)
        case OptionKind.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return float(_bounded(spec, value))
        case OptionKind.TEXTS:
            texts = [value] if isinstance(value, str) else value
            if isinstance(texts, list | tuple) and all(isinstance(text, str) and text for text in texts):
                for text in texts if spec.check else ():
                    if spec.check and (wrong := spec.check(text)):
                        raise UnfitError(wrong)
                return tuple(texts)
        case OptionKind.TABLE if isinstance(value, Mapping):
            return json_table(value)
        case OptionKind.TABLE if spec.named and isinstance(value, str):
            if (table := spec.named.get(value.strip().lower())) is None:
                raise UnfitError(f"must be {', '.join(spec.named)} or a table")
            return dict(table)
        case OptionKind.KEYS if isinstance(value, Mapping):
            return dict(value)
    raise UnfitError(f"must be {spec.kind.value}, not {kind_of(value)}")


def wrong_entries(spec: Spec, table: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with entries of a table, by their names."""
    check = spec.entry
    return {name: wrong for name, value in table.items() if (wrong := check(name, value))} if check else {}


def from_text(spec: Spec, text: str) -> object:
    """A value given as text: by an environment variable, an option of the command line, or in a field. A list or a
    table is written as in the file, or as JSON. Raises UnfitError."""
    try:
        match spec.kind:
            case OptionKind.TEXTS if text.lstrip().startswith("["):
                return fitted(spec, _list_or_text(text.strip()))
            case OptionKind.TABLE if text.lstrip().startswith("{"):
                return fitted(spec, _toml_or_json(text.strip()))
            case OptionKind.TABLE if "=" in text:
                return fitted(spec, _toml_or_json(f"{{{text.strip()}}}"))
            case OptionKind.FLAG:
                return {
                    "1": True,
                    "true": True,
                    "yes": True,
                    "on": True,
                    "0": False,
                    "false": False,
                    "no": False,
                    "off": False,
                }[text.strip().lower()]
            case OptionKind.WHOLE:
                return fitted(spec, int(text))
            case OptionKind.NUMBER:
                return fitted(spec, float(text))
    except (KeyError, ValueError, TomlUnreadableError):
        raise UnfitError(f"must be {_WRITTEN.get(spec.kind, spec.kind.value)}") from None
    if spec.kind is OptionKind.TABLE and not spec.named:
        raise UnfitError(f"must be {_WRITTEN[spec.kind]}")
    return fitted(spec, text)


def as_text(spec: Spec, value: object) -> str:
    """A value as `from_text` reads it; empty for none."""
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, Mapping | tuple):
        whole = dict(value) if isinstance(value, Mapping) else value
        return next((word for word, table in spec.named.items() if table == whole), "") or json.dumps(
            whole, ensure_ascii=False
        )
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml_or_json(text: str) -> object:
    """What a list or a table says. Raises TomlUnreadableError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return parsed(f"x = {text}")["x"]


def _list_or_text(text: str) -> object:
    """What a list says; `[INST]` is a text. Raises TomlUnreadableError."""
    try:
        return _toml_or_json(text)
    except TomlUnreadableError:
        if text[1:].lstrip().startswith(('"', "'", "]")):
            raise
        return text


_WRITTEN = {OptionKind.TEXTS: 'a list of texts, such as ["a", "b"]', OptionKind.TABLE: "a table, such as {name = 1}"}


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
    if finite(value) is not None and (low is None or value >= low) and (high is None or value <= high):
        return value
    if low is not None and high is not None:
        raise UnfitError(f"must be from {low:.10g} to {high:.10g}")
    raise UnfitError(f"must be {low:.10g} or more" if low is not None else "must be a finite number")


_DEPTH = 16


def json_table(table: Mapping[object, object]) -> dict[str, object]:
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
        elif isinstance(value, int | float) and not isinstance(value, bool) and finite(value) is None:
            raise UnfitError("must not hold nan, inf or a whole number of more than 64 bits")
        elif value is not None and not isinstance(value, str | int | float):
            raise UnfitError("must not hold dates or times, that a server cannot be sent")
    return {str(name): value for name, value in table.items()}


def flag(default: bool, doc: str) -> bool:
    return field(default=default, metadata={"spec": Spec(OptionKind.FLAG, doc)})


def text(
    default: str,
    doc: str,
    check: Check | None = None,
    *,
    example: str | None = None,
    shown: bool = True,
    words: Callable[[], tuple[str, ...]] | None = None,
    routes: bool = False,
) -> str:
    """`shown` is False for what may carry a secret: it stays out of the repr."""
    spec = Spec(OptionKind.TEXT, doc, check=check, example=example, words=words, routes=routes)
    return field(default=default, repr=shown, metadata={"spec": spec})


def whole(default: int, doc: str, low: int, high: int) -> int:
    return field(default=default, metadata={"spec": Spec(OptionKind.WHOLE, doc, low, high)})


def choice(default: T, doc: str, choices: tuple[T, ...], *, routes: bool = False) -> T:
    """One of a few words."""
    words = tuple(str(word) for word in choices)
    spec = Spec(OptionKind.TEXT, doc, check=one_of(words), words=lambda: words, routes=routes)
    return field(default=default, metadata={"spec": spec})


def texts(doc: str, check: Check, *, example: tuple[str, ...]) -> tuple[str, ...] | None:
    """A list that may be left out, which is something else than an empty one. `check` is of each text."""
    return field(default=None, metadata={"spec": Spec(OptionKind.TEXTS, doc, check=check, example=example)})


def table(doc: str, entry: EntryCheck, *, example: Mapping[str, str]) -> Mapping[str, str]:
    """A table of texts whose values may be secrets, sent with what is asked: they stay out of the repr and of what is
    printed."""
    spec = Spec(OptionKind.TABLE, doc, entry=entry, example=example, secret=True, routes=True)
    return field(default_factory=dict, repr=False, metadata={"spec": spec})


def one_of(words: tuple[str, ...]) -> Check:
    """The check of a text that must be one of some words; the sentence calls an empty one "empty"."""
    named = ", ".join(f'"{word}"' for word in words if word)
    sentence = f"must be empty or one of {named}" if "" in words else f"must be one of {named}"
    return lambda value: None if value in words else sentence

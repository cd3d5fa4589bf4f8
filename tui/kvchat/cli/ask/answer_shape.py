"""What a script takes of an answer: its first code block, or JSON that fits a schema.

What does not have the shape is not printed; the answer itself is stored as it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from kvchat.cli.session import CommandError
from kvchat.paths import reason

LARGEST = 1 << 20
"""Bytes of a schema."""


def first_code(text: str) -> str | None:
    """The content of the first fenced code block of a Markdown text; None without one."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    return next((token.content for token in tokens if token.type == "fence"), None)


class AnswerSchema:
    """A JSON schema from a file. Nothing that it refers to outside of itself is fetched."""

    def __init__(self, path: Path) -> None:
        """Raises CommandError."""
        self._path = path
        try:
            with path.expanduser().open("rb") as file:
                data = file.read(LARGEST + 1)
        except (OSError, RuntimeError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise CommandError(f"Cannot read the schema from {path}: {why}.") from None
        if len(data) > LARGEST:
            raise CommandError(f"The schema in {path} is larger than {LARGEST >> 20} MiB.")
        try:
            schema = _load(data.decode())
        except json.JSONDecodeError as error:
            raise CommandError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}.") from None
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{path} is not JSON ({error}).") from None
        if not isinstance(schema, dict):
            raise CommandError(f"{path} is not a JSON schema: it is not an object.")
        self._schema: dict[str, object] = schema

    @property
    def response_format(self) -> Mapping[str, object]:
        """The parameter that has a server keep to the schema, where it can."""
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": self._schema}}

    @cached_property
    def _validate(self) -> Callable[[object], object]:
        import fastjsonschema

        try:
            found: Callable[[object], object] = fastjsonschema.compile(
                self._schema, handlers=_Nowhere(), use_default=False, detailed_exceptions=True
            )
        except Exception as error:  # it makes a program of the schema: a wrong one fails in many ways
            why = str(error) or type(error).__name__
            raise CommandError(f"{self._path} is not a JSON schema that can be checked: {why}.") from None
        return found

    def prepare(self) -> None:
        """Raises CommandError where no answer can be checked by it."""
        _ = self._validate

    def fitting(self, text: str) -> str:
        """The JSON of an answer, which may stand in a code block. Raises CommandError where it does not fit."""
        import fastjsonschema

        code = first_code(text)
        for shown in (text.strip(), *([code.strip()] if code is not None else [])):
            try:
                value = _load(shown)
                break
            except (ValueError, RecursionError):
                continue
        else:
            raise CommandError("The answer is not JSON. It is stored; kvchat show has it.")
        try:
            self._validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            where = ".".join(map(str, error.path[1:])) or "it"
            wrong = error.message.removeprefix(str(error.name)).strip()
            raise CommandError(
                f"The answer does not fit the schema: {where} {wrong}. It is stored; kvchat show has it."
            ) from None
        return shown


class _Nowhere(dict[str, Callable[[str], NoReturn]]):
    """Stands for every scheme of an address, and fetches nothing."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __getitem__(self, scheme: str) -> Callable[[str], NoReturn]:
        return _refuse


def _refuse(address: str) -> NoReturn:
    raise ValueError(f"it refers to {address}, and nothing is fetched for a schema")


def _load(text: str) -> object:
    """Raises ValueError and RecursionError."""
    return json.loads(text, parse_constant=_no_number)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")

"""JSON from a server, read without trust.

The rule: whatever a server sends, reading it gives a value of the expected type or a `PayloadError`, never another
exception. Lone surrogates stay as they are: a pair may be split over two deltas, and whoever joins the deltas
passes the whole through `kvchat.prompt.wire.whole_characters`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeGuard


class PayloadError(ValueError):
    """The server sent something this protocol does not allow. The message ends "The server sent ..."."""


def parsed(text: str) -> object:
    """The JSON value in `text`. Raises PayloadError, also for NaN, infinities, depth and huge numbers."""
    try:
        value: object = json.loads(text, parse_constant=_constant, parse_float=_finite)
    except PayloadError:
        raise
    except RecursionError:
        raise PayloadError("JSON that is nested too deeply") from None
    except ValueError:
        raise PayloadError("something that is not JSON") from None
    return value


def _constant(name: str) -> NoReturn:
    raise PayloadError(f"JSON with {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise PayloadError("JSON with a number that is too large")
    return number


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def as_object(value: object, what: str) -> Mapping[str, object]:
    """`value` if it is a JSON object. Raises PayloadError that names `what`."""
    if not is_object(value):
        raise PayloadError(f"{what} that is not an object")
    return value


def object_at(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under `key`; empty when it is missing or null. Raises PayloadError."""
    found = value.get(key)
    return {} if found is None else as_object(found, f'"{key}"')


def list_at(value: Mapping[str, object], key: str) -> Sequence[object]:
    """The array under `key`; empty when it is missing or null. Raises PayloadError."""
    found = value.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise PayloadError(f'"{key}" that is not a list')
    return found


def text_at(value: Mapping[str, object], key: str) -> str | None:
    """The string under `key`; None when it is missing or null. Raises PayloadError."""
    found = value.get(key)
    if found is None or isinstance(found, str):
        return found
    raise PayloadError(f'"{key}" that is not text')


def figure_at(value: Mapping[str, object], key: str) -> float | None:
    """The number >= 0 under `key`, or None. A figure is never worth an answer: anything else is "not reported"."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def count_at(value: Mapping[str, object], key: str) -> int | None:
    """The whole number >= 0 under `key`, or None; lenient as `figure_at`."""
    found = figure_at(value, key)
    return int(found) if found is not None and found.is_integer() and found < 2**53 else None


def figures_at(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object of figures under `key`; empty when it is anything else."""
    found = value.get(key)
    return found if is_object(found) else {}

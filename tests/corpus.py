"""A corpus is one test: all of its items are tried, and those that fail are told together.

    @corpus(("text", "found"), CASES)
    def test_what_is_found(text: str, found: str) -> None: ...

Where `pytest.mark.parametrize` stands, each item is a test of its own, with fixtures of its own; that is for a few.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

MOST_TOLD = 20


def corpus(names: str | tuple[str, ...], items: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that has a test go through `items`; each is the argument, or the arguments, called `names`."""
    wanted = (names,) if isinstance(names, str) else names
    given = [dict(zip(wanted, (item,) if isinstance(names, str) else item, strict=True)) for item in items]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(**fixtures: Any) -> None:
            failed = []
            for item in given:
                try:
                    await test(**item, **fixtures)
                except Exception as error:
                    failed.append((item, error))
            tell(failed, len(given))

        def called(**fixtures: Any) -> None:
            failed = []
            for item in given:
                try:
                    test(**item, **fixtures)
                except Exception as error:
                    failed.append((item, error))
            tell(failed, len(given))

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        whole = wraps(test)(awaited if inspect.iscoroutinefunction(test) else called)
        whole.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return whole

    return decorate


def tell(failed: list[tuple[dict[str, Any], Exception]], count: int) -> None:
    """Fail the test with the items that failed, if there are any of the `count`."""
    if not failed:
        return
    told = [
        f"{', '.join(f'{name}={ascii(value)[:200]}' for name, value in item.items())}\n    "
        + f"{type(error).__name__}: {error}".replace("\n", "\n    ")[:1500]
        for item, error in failed[:MOST_TOLD]
    ]
    more = [f"and {len(failed) - MOST_TOLD} more"] if len(failed) > MOST_TOLD else []
    pytest.fail(f"{len(failed)} of {count}:\n" + "\n".join([*told, *more]), pytrace=False)

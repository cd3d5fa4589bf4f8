"""A table of triples tells each row that does not hold, and goes on after it."""

from __future__ import annotations

import pytest
from screens_kit import answered, triples, under_cursor

from kvchat.ui.screens.kit.confirm import ConfirmScreen


def question() -> ConfirmScreen[str]:
    return ConfirmScreen("Go?", ["It costs."], [("g", "Go", "go"), ("s", "Stay", "stay")])


async def test_each_row_that_does_not_hold_is_told() -> None:
    with pytest.raises(pytest.fail.Exception) as caught:
        await triples(
            (question, "down", under_cursor("Stay")),
            (question, "", "It is free."),
            (question, "g", answered("stay")),
            (question, "down", under_cursor("Go", "Stay")),
            (question, "down enter", answered("stay")),
            (question, "enter", answered()),
        )
    told = str(caught.value)
    assert told.startswith("4 of 6:") and "It costs." in told and "it answered ['go'], not ('stay',)" in told

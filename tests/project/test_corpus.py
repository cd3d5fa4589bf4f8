"""A corpus that is one test still tells each item that fails."""

from __future__ import annotations

import pytest

from corpus import corpus


def test_all_items_are_tried_and_those_that_fail_are_told() -> None:
    tried = []

    @corpus(("text", "length"), [("a", 1), ("bb", 1), ("ccc", 3), ("\x1bdd", 4)])
    def measured(text: str, length: int) -> None:
        tried.append(text)
        assert len(text) == length

    with pytest.raises(pytest.fail.Exception) as caught:
        measured()
    told = str(caught.value)
    assert tried == ["a", "bb", "ccc", "\x1bdd"]
    assert told.startswith("2 of 4:") and "text='bb', length=1" in told and r"'\x1bdd'" in told and "'ccc'" not in told


async def test_items_may_be_waited_for_beside_fixtures(tmp_path: object) -> None:
    seen = []

    @corpus("item", [1, 2])
    async def awaited(tmp_path: object, item: int) -> None:
        seen.append((tmp_path, item))

    await awaited(tmp_path=tmp_path)
    assert seen == [(tmp_path, 1), (tmp_path, 2)]

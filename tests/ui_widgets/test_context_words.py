"""The words of the line over the composer where there is little room."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from kvchat.ui.widgets.composer.context_items import PASSAGE, ContextItems, Item
from kvchat.ui.widgets.composer.context_line import Shown, parts


def line(labels: list[str], width: int, cursor: int | None = None) -> str:
    items = ContextItems()
    items.put(PASSAGE, [Item(PASSAGE, str(at), label, "text") for at, label in enumerate(labels)])
    return "".join(part.text for part in parts(Shown(items, cursor), width))


@pytest.mark.parametrize("width", [72, 80])
def test_passages_of_one_file_are_told_apart_where_there_is_little_room(width):
    labels = ["the-manual-of-the-lamp.pdf p. 12", "the-manual-of-the-lamp.pdf p. 31"]
    shown = line(labels, width)
    assert "p. 12" in shown and "p. 31" in shown and cell_len(shown) == width


def test_each_passage_that_is_gone_to_shows_where_it_stands():
    labels = [f"a-very-long-name-of-a-manual-in-a-folder.md:{at}0-{at}9" for at in range(1, 7)]
    for at in range(len(labels)):
        assert f":{at + 1}0-{at + 1}9" in line(labels, 80, cursor=at)

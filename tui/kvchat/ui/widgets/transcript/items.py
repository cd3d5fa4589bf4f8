"""The messages that a transcript is to show, as it asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvchat.ui.widgets.transcript.render.message import TranscriptItem


class ItemSource(Protocol):
    """Messages in their order. Items are made when they are asked for: those near the view, of thousands."""

    @property
    def ids(self) -> Sequence[str]:
        """The node ids."""

    def texts(self) -> Sequence[str]:
        """What the items have as their texts."""

    def item(self, index: int) -> TranscriptItem: ...


class ListedItems:
    """Items that are there already."""

    def __init__(self, items: Sequence[TranscriptItem]) -> None:
        self._items = items
        self.ids = [item.node_id for item in items]

    def texts(self) -> Sequence[str]:
        return [item.text for item in self._items]

    def item(self, index: int) -> TranscriptItem:
        return self._items[index]

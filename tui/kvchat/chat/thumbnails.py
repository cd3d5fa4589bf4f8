"""The images of conversations as small as a terminal shows them.

They are made in a process of their own, since the images came from foreign files; the loop does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kvchat.prompt.images import Thumbnail
from kvchat.store import Store, StoreError

WIDTH, HEIGHT = 48, 24
"""Pixels: a cell is one wide and two high."""


class Thumbnails:
    """Makes them, and keeps none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, names: Sequence[str]) -> dict[str, Thumbnail]:
        """Those of the images of these names that are there and can be read."""
        return await asyncio.to_thread(self._made, names)

    def _made(self, names: Sequence[str]) -> dict[str, Thumbnail]:
        from kvchat.documents.images import thumbnail_in
        from kvchat.documents.reading.sandbox import Readers

        found: dict[str, Thumbnail] = {}
        with Readers() as readers:
            for name in names:
                try:
                    image = self._store.images.get(name)
                except StoreError:
                    break
                made = thumbnail_in(image.url, WIDTH, HEIGHT, readers) if image is not None else None
                if made is not None:
                    found[name] = made
        return found

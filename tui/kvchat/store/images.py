"""The images that messages carry: each once, as the URL that goes to a server.

An image stays as long as a message, a draft or a message in a queue holds it, and goes with the last of them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from kvchat.prompt.images import images_in, sha256_of, url_sha256
from kvchat.prompt.message import Node
from kvchat.store.file.database import Database
from kvchat.store.rows import blocks_of

UNSENT_S = 86_400.0
"""Seconds that an image stays which nothing holds, as while a message is being written."""
_WITH_IMAGES = "instr(blocks, '[\"image\",') > 0"
"""The condition of the index over messages with images."""
_NAME = re.compile("[0-9a-f]{64}")
_PUT = (
    "INSERT INTO image(sha256, url, width, height, kept) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT(sha256) DO UPDATE SET kept = max(kept, excluded.kept)"
)


class Image(Struct, frozen=True):
    """An image as it is sent."""

    url: bytes
    """A `data:` URL with a PNG or JPEG in base64."""
    width: int
    height: int

    @property
    def sha256(self) -> str:
        return url_sha256(self.url)

    @property
    def size(self) -> str:
        """`640x480`: the text of its block."""
        return f"{self.width}x{self.height}"


class ImageRows:
    """Every method may raise StoreError."""

    def __init__(self, db: Database, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock

    def put(self, images: Collection[Image]) -> None:
        """Keep images, and what is there already for longer."""
        with self._db.write() as connection:
            put(connection, images, self._clock())

    def get(self, sha256: str) -> Image | None:
        row = self._db.row("SELECT url, width, height FROM image WHERE sha256 = ?", (sha256,))
        return Image(bytes(row[0]), int(row[1]), int(row[2])) if row is not None else None

    def of(self, nodes: Iterable[Node]) -> dict[str, bytes]:
        """The URLs of the images in these messages, by their names; of those that are there."""
        names = dict.fromkeys(sha256_of(block) for node in nodes for block in images_in(node.message.blocks))
        return {name: image.url for name in names if (image := self.get(name)) is not None}

    def tidy(self) -> None:
        """Remove the images that nothing holds any more and that were not stored within the last UNSENT_S seconds."""
        before = self._clock() - UNSENT_S
        if self._db.row("SELECT 1 FROM image WHERE kept < ? LIMIT 1", (before,)):
            with self._db.write() as connection:
                forget(
                    connection,
                    [row[0] for row in connection.execute("SELECT sha256 FROM image WHERE kept < ?", (before,))],
                )


def put(connection: sqlite3.Connection, images: Collection[Image], now: float) -> None:
    """Inside a transaction: keep images. `now`: seconds since the epoch."""
    connection.executemany(_PUT, [(one.sha256, one.url, one.width, one.height, now) for one in images])


def held(connection: sqlite3.Connection) -> set[str]:
    """The images that messages, drafts and queues hold."""
    rows = connection.execute(f"SELECT blocks FROM node WHERE {_WITH_IMAGES}")
    found = {sha256 for (blocks,) in rows for block in blocks_of(blocks) if (sha256 := sha256_of(block))}
    for (text,) in connection.execute("SELECT text FROM draft UNION ALL SELECT more FROM queued"):
        found.update(_NAME.findall(text))
    return found


def forget(connection: sqlite3.Connection, images: Collection[str]) -> None:
    """Inside the transaction that deletes messages: remove those of these images that nothing holds any more."""
    if images:
        connection.executemany("DELETE FROM image WHERE sha256 = ?", [(one,) for one in {*images} - held(connection)])

"""Collections: the folders and files that the user has named to be indexed.

A row is a decision of the user and is stored only here; what the folder holds is in the index, which can be rebuilt.
Names differ by more than the case of their letters.
"""

from __future__ import annotations

from msgspec import Struct

from kvchat.prompt.wire import whole_characters
from kvchat.store.errors import StoreError
from kvchat.store.file.database import Database
from kvchat.text.problems import StoreProblem


class StoredCollection(Struct, frozen=True):
    """A folder, or a single file, that is indexed under a name."""

    name: str
    root: str
    """The absolute path of the folder or file."""
    created: float
    """Seconds since the epoch, as `indexed`."""
    indexed: float | None = None
    """When it was last indexed to the end; None: never."""


class CollectionRows:
    """What is indexed. Every method may raise StoreError."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def all(self) -> list[StoredCollection]:
        """In the order in which they were added."""
        rows = self._db.rows("SELECT name, root, created, indexed FROM collection ORDER BY seq")
        return [
            StoredCollection(name, root, float(created), None if indexed is None else float(indexed))
            for name, root, created, indexed in rows
        ]

    def put(self, name: str, root: str, created: float) -> None:
        """Keep a collection. One of this name gets this root; if the root changes, it counts as never indexed."""
        if whole_characters(root) != root:
            raise StoreError(StoreProblem.BAD_NAME, path=whole_characters(root))
        with self._db.write(durable=True) as connection:
            connection.execute(
                "INSERT INTO collection(name, root, created) VALUES (?, ?, ?) ON CONFLICT(name) DO UPDATE SET"
                " root = excluded.root, indexed = CASE WHEN root = excluded.root THEN indexed END",
                (name, root, created),
            )

    def remove(self, name: str) -> None:
        """Forget a collection, if there is one of this name."""
        with self._db.write(durable=True) as connection:
            connection.execute("DELETE FROM collection WHERE name = ?", (name,))

    def indexed(self, name: str, at: float) -> None:
        """Record that a collection was indexed to the end at `at`, in seconds since the epoch."""
        with self._db.write() as connection:
            connection.execute("UPDATE collection SET indexed = ? WHERE name = ?", (at, name))

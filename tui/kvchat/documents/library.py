"""The library: the user's collections, what is in them, and the search in them.

Which folders there are is stored; all else is in the index, and is rebuilt where that is gone. Every method is
synchronous and may be called in any thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.documents.collection import (
    PREFIX,
    Collection,
    CollectionStatus,
    IndexingOptions,
    Passage,
    doc_of,
    is_name,
    named,
    place_of,
    ref_of,
    unused,
)
from kvchat.documents.errors import DocumentError
from kvchat.documents.indexing.index_lock import is_held, revoke
from kvchat.documents.loading import path_meant
from kvchat.documents.mentions import Mention, collections, is_of_disk, on_disk, within
from kvchat.index.index import Index
from kvchat.index.scoping import exactly
from kvchat.sanitize import one_line
from kvchat.store.errors import StoreError

if TYPE_CHECKING:
    from kvchat.config import Settings
    from kvchat.paths import Paths
    from kvchat.store import Store

FORGOTTEN = 100
"""Documents that are taken out of the index at a time, so that no other process waits for it long."""


class Library:
    """All collections. `open` makes one."""

    def __init__(self, store: Store, index: Index, options: IndexingOptions, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self.index = index
        self.options = options
        self.vector_model = ""
        """Whose vectors the questions have; empty: any."""

    @classmethod
    def open(
        cls,
        store: Store,
        index_path: Path | None,
        options: IndexingOptions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Library:
        """The library of a store, its index in the file `index_path`; None: in memory."""
        return cls(store, Index.open(index_path), options or IndexingOptions(), clock)

    def close(self) -> None:
        self.index.close()

    # -- collections

    def collections(self) -> list[Collection]:
        """By name."""
        found = [Collection(row.name, row.root, row.created, row.indexed) for row in self._store.collections.all()]
        return sorted(found, key=lambda one: one.name.casefold())

    def get(self, name: str) -> Collection:
        """The collection of this name, in any case. Raises DocumentError."""
        known = self.collections()
        found = next((one for one in known if one.name.casefold() == name.casefold()), None)
        if found is None:
            names = (
                f"There are: {', '.join(one.name for one in known)}."
                if known
                else ("There are none yet; add a folder with kvchat documents add FOLDER.")
            )
            raise DocumentError(f"There is no collection {one_line(name, 60)}. {names}")
        return found

    def add(self, path: str, name: str = "") -> Collection:
        """Note a folder or file as a collection; indexing it is another step. One that is there already is given back.
        Raises DocumentError."""
        root = _absolute(path)
        known = self.collections()
        for one in known:
            if one.root == str(root):
                if name and name != one.name:
                    raise DocumentError(f"{one_line(str(root), 200)} is the collection {one.name} already.")
                return one
        taken = {one.name.casefold() for one in known}
        if name and not is_name(name):
            raise DocumentError(
                f"{one_line(name, 60)} cannot be a collection's name: letters, digits, - _ and ., 40 at most."
            )
        if name.casefold() in taken:
            raise DocumentError(f"There is a collection {name} already: {self.get(name).root}. Choose another name.")
        chosen = name or unused(named(root), taken)
        made = Collection(chosen, str(root), self._clock())
        self._stored(lambda: self._store.collections.put(made.name, made.root, made.created))
        return made

    def remove(self, name: str) -> Collection:
        """Forget a collection; its files stay. What the index holds of it is found no more, and taken out by `forget`.
        Raises DocumentError."""
        found = self.get(name)
        self._stored(lambda: self._store.collections.remove(found.name))
        if self.index.path is not None:
            revoke(self.index.path, found.name)
        return found

    def orphans(self) -> list[str]:
        """The documents in the index that belong to no collection any more."""
        scopes = {one.scope for one in self.collections()}
        return [doc for doc in self.index.docs(PREFIX) if "/".join(doc.split("/", 2)[:2]) + "/" not in scopes]

    def forget(self, docs: Sequence[str]) -> None:
        """Take these out of the index, as far as they still belong to no collection."""
        orphans = set(docs)
        for one in self.collections():
            orphans = {doc for doc in orphans if not doc.startswith(one.scope)}
        self.index.replace_all((), gone=sorted(orphans))

    def indexed(self, name: str) -> None:
        """Note that a collection was indexed to the end."""
        self._stored(lambda: self._store.collections.indexed(name, self._clock()))

    def status(self, name: str) -> CollectionStatus:
        """What is in the index of a collection. Raises DocumentError."""
        from kvchat.documents.indexing.index_run import status_of

        return status_of(self.index, self.get(name))

    def is_indexed_now(self, name: str) -> bool:
        """Whether a kvchat is at a collection."""
        return is_held(self.index.path, self.get(name).name)

    def is_stale(self, name: str) -> bool:
        """Whether files of a collection have changed since they were indexed."""
        from kvchat.documents.indexing.index_run import is_stale

        return is_stale(self.index, self.get(name), self.options)

    def _stored(self, work: Callable[[], object]) -> None:
        try:
            work()
        except StoreError as error:
            raise DocumentError(str(error)) from None

    # -- finding

    def search(
        self,
        query: str,
        k: int = 8,
        scopes: Sequence[str] = (),
        *,
        since: float | None = None,
        until: float | None = None,
        vector: Sequence[float] | None = None,
    ) -> list[Passage]:
        """The best passages of these scopes (none: of all collections), the best first; `since` and `until` bound when
        their files were changed."""
        asked = list(scopes) or [one.scope for one in self.collections()]
        if not asked:
            return []
        hits = self.index.search(
            query, k, scope=asked, since=since, until=until, vector=vector, model=self.vector_model
        )
        return [
            Passage(ref_of(hit.doc, hit.chunk.key), _headings(hit.chunk.head), hit.chunk.text, hit.score, hit.matched)
            for hit in hits
        ]

    # -- names

    def scope_of(self, name: str) -> str | None:
        """Where to search for `handbook`, `handbook/guide/` or `handbook/guide/setup.md`; None: it means nothing."""
        first, _, rest = name.partition("/")
        collection = next((one for one in self.collections() if one.name.casefold() == first.casefold()), None)
        if collection is None:
            return None
        return self.scope_within(collection, rest.strip("/")) if rest.strip("/") else collection.scope

    def scope_within(self, collection: Collection, path: str) -> str | None:
        """Where to search for a file or folder of a collection; None: nothing of it is indexed."""
        doc = doc_of(collection.name, self.path_in(collection, path))
        if self.index.get(doc):
            return exactly(doc)
        return f"{doc}/" if self.index.names(f"{doc}/", "", 1) else None

    def path_in(self, collection: Collection, typed: str) -> str:
        """The path of a file or folder of a collection by what the user typed for it (see `path_meant`)."""
        root = Path(collection.root)
        try:
            found = path_meant(str(root / typed)).relative_to(root)
        except (OSError, RuntimeError, ValueError):
            return typed
        return found.as_posix() if typed and found.as_posix() != "." else typed

    def file_of(self, ref: str) -> Path | None:
        """The file that a reference or a document's name is about; None where it is gone, or leads out of its
        collection."""
        place = place_of(ref)
        if not place.collection:
            path = Path(place.path)
            return path if path.is_absolute() and path.is_file() else None
        try:
            root = Path(self.get(place.collection).root)
        except DocumentError:
            return None
        whole = root if root.is_file() else root / place.path
        try:
            real = whole.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return None
        inside = real == root.resolve() or real.is_relative_to(root.resolve())
        return whole if inside and real.is_file() else None

    def completions(self, beginning: str, most: int = 20) -> list[Mention]:
        """What a mention that begins like this can become: collections, then what is in them; files of the disk where
        it begins with a path."""
        if is_of_disk(beginning):
            return on_disk(beginning, most)
        name, slash, rest = beginning.partition("/")
        if not slash:
            return collections(self.collections(), name, most)
        try:
            collection = self.get(name)
        except DocumentError:
            return []
        return within(collection, self.index.names(collection.scope, rest, 50 * most), rest, most)


def _headings(head: str) -> str:
    """A chunk's head without the name of its file, which the passage's title has."""
    return head.partition(" > ")[2]


def _absolute(path: str) -> Path:
    """The absolute path of a folder or file that is there, as it was given: links in it are not followed up. Raises
    DocumentError."""
    try:
        root = Path(os.path.normpath(path_meant(path.strip())))
        if not path.strip():
            raise DocumentError("Give the path of a folder or a file.")
        if not root.exists():
            raise DocumentError(f"There is no folder or file {one_line(str(root), 200)}.")
        if not (root.is_dir() or root.is_file()):
            raise DocumentError(f"{one_line(str(root), 200)} is neither a folder nor a file.")
        str(root).encode()
    except UnicodeEncodeError:
        raise DocumentError("The name of that folder is not UTF-8; rename it.") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise DocumentError(f"{one_line(path, 200)} cannot be read: {error}.") from None
    return root


INDEX = "index.db"


def index_path(places: Paths) -> Path:
    """The file of the search index, the memory's too. It can be rebuilt from the files at any time."""
    return places.data / INDEX


def open_library(places: Paths, settings: Settings, store: Store) -> Library | None:
    """The library of this run; None where the run is incognito: that has none."""
    if store.database.path is None:
        return None
    return Library.open(store, index_path(places), IndexingOptions.of(settings.documents))

"""Where the library of a run is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.documents.library import Library
from kvchat.documents.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from kvchat.config import Settings
    from kvchat.paths import Paths
    from kvchat.store import Store

INDEX = "index.db"


def index_path(places: Paths) -> Path:
    """The file of the search index, the memory's too. It is made anew from the files at any time."""
    return places.data / INDEX


def open_library(places: Paths, settings: Settings, store: Store) -> Library | None:
    """The library of this run; None where the run is incognito: that has none."""
    if store.database.path is None:
        return None
    return Library.open(store, index_path(places), Options.of(settings.documents))

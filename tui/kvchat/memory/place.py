"""Say where the memory is, and whether anything was ever put there, without loading the memory.

The place depends on the settings and the data folder alone.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.memory.entry import MemoryTrouble
from kvchat.store.errors import StoreError

if TYPE_CHECKING:
    from kvchat.config import Settings
    from kvchat.paths import Paths
    from kvchat.store import Store

FOLDER = "memory"
INDEX = "index.db"


def memory_folder(places: Paths, settings: Settings) -> Path:
    """The folder of the Markdown files: the one of the settings, else `memory` next to the conversations. `~` is the
    home folder; a relative one is seen from the data folder. Raises MemoryTrouble where that is no path."""
    given = settings.memory.folder.strip()
    if "\0" in given:
        raise MemoryTrouble("memory.folder holds a NUL character; give the path of a folder.")
    try:
        return places.data / Path(given or FOLDER).expanduser()
    except RuntimeError:
        raise MemoryTrouble(f"memory.folder is {given}: there is no such user's home folder.") from None


def index_path(places: Paths) -> Path:
    """The file of the search index. It can be rebuilt from the folder at any time."""
    return places.data / INDEX


def is_untouched(places: Paths, settings: Settings, store: Store) -> bool:
    """Whether nothing was ever remembered, and the folder is empty. False where that is unknown."""
    with suppress(MemoryTrouble, StoreError, OSError):
        folder = memory_folder(places, settings)
        if store.database.row("SELECT 1 FROM entry LIMIT 1") is None:
            return not folder.exists() or not any(folder.iterdir())
    return False

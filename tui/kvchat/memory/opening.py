"""Where the memory of a run is: its folder, its index, and the object that works on both.

The rule: the place depends on the settings and the data folder alone, never on the folder kvchat was started in. A
memory is not begun in a folder whose surroundings are missing: it was mistyped, or its drive is not connected.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.memory.book import Memories
from kvchat.memory.errors import MemoryTrouble
from kvchat.memory.state import State

if TYPE_CHECKING:
    from kvchat.config import Settings
    from kvchat.paths import Paths
    from kvchat.store import Store

FOLDER = "memory"
INDEX = "index.db"


def memory_folder(places: Paths, settings: Settings) -> Path:
    """The folder of the Markdown files: the one of the settings, else `memory` beside the conversations. `~` is the
    home folder; a relative one is seen from the data folder. Raises MemoryTrouble where that is no path."""
    given = settings.memory.folder.strip()
    if "\0" in given:
        raise MemoryTrouble("memory.folder holds a NUL character; give the path of a folder.")
    try:
        return places.data / Path(given or FOLDER).expanduser()
    except RuntimeError:
        raise MemoryTrouble(f"memory.folder is {given}: there is no such user's home folder.") from None


def index_path(places: Paths) -> Path:
    """The file of the search index. It is made anew from the folder at any time."""
    return places.data / INDEX


def open_memories(places: Paths, settings: Settings, store: Store, session: str) -> Memories | None:
    """The memory of this run, None where the run is incognito: that has none. Whether memory is switched on does not
    matter here: what was noted can be looked at all the same. Raises MemoryTrouble and StoreError."""
    if store.database.path is None:
        return None
    folder = memory_folder(places, settings)
    if settings.memory.folder.strip() and not folder.parent.is_dir() and not State(store.database).entries():
        raise MemoryTrouble(f"memory.folder is {folder}, but there is no folder {folder.parent}. Make that folder, "
                            "connect its drive, or change the setting.")
    return Memories.open(store, folder, index_path(places), session=session)

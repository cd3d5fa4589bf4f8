"""Where the memory is, and whether anything was ever put there."""

from __future__ import annotations

from contextlib import closing

import pytest

from kvchat.config import Settings, changed
from kvchat.memory.memories import open_memories
from kvchat.memory.place import is_untouched, memory_folder
from kvchat.paths import Paths
from kvchat.store import Store


@pytest.fixture
def places(tmp_path):
    return Paths(tmp_path / "data", tmp_path / "config.toml", tmp_path / "cache")


def test_what_was_remembered_or_lies_in_the_folder_touches_the_memory(places):
    with closing(Store.open(places.data)) as store:
        assert is_untouched(places, Settings(), store)
        folder = memory_folder(places, Settings())
        folder.mkdir()
        assert is_untouched(places, Settings(), store), "an empty folder has nothing to tell"
        (folder / "profile.md").write_text("- I keep bees.\n")
        assert not is_untouched(places, Settings(), store)
        (folder / "profile.md").unlink()
        memories = open_memories(places, Settings(), store, "s")
        memories.delete(memories.add("I keep bees in Bergen.").id)
        memories.close()
        assert not is_untouched(places, Settings(), store), "what was taken out is not noted again"


def test_where_it_cannot_be_told_the_memory_is_looked_at(places):
    with closing(Store.open(places.data)) as store:
        memory_folder(places, Settings()).write_text("a file in the folder's place")
        assert not is_untouched(places, Settings(), store)
        assert not is_untouched(places, changed(Settings(), "memory.folder", "~nosuchuser/notes"), store)
        memory_folder(places, Settings()).unlink()
        with store.database.write() as connection:
            connection.execute("DROP TABLE entry")
        assert not is_untouched(places, Settings(), store)

"""What everybody waits for does not take longer the more was ever said."""

from __future__ import annotations

from pathlib import Path

import pytest
from work import Work

from kvchat.store import Store
from kvchat.store.file import opening


def filled(folder: Path, new_talk, conversations: int, turns: int) -> Store:
    store = Store.open(folder)
    for number in range(conversations):
        talk = new_talk(store, f"talk {number}")
        for turn in range(turns):
            talk.say(f"question {turn}")
    return store


@pytest.fixture
def stores(tmp_path: Path, new_talk, monkeypatch) -> tuple[Path, Path]:
    """Two folders with stores, the second with ten times as many messages in as many conversations."""
    monkeypatch.setattr(opening, "ALWAYS_CHECKED", 0)  # as a large file is opened after it was closed properly
    for name, turns in (("few", 3), ("many", 30)):
        filled(tmp_path / name, new_talk, 5, turns).close()
    return tmp_path / "few", tmp_path / "many"


def test_opening_takes_no_longer_with_more_messages(stores):
    def opened(folder: Path) -> int:
        work = Work()
        with work.counted():
            store = Store.open(folder)
            assert len(store.conversations()) == 5
        store.close()
        return work.instructions

    few, many = map(opened, stores)
    assert many <= few + 200

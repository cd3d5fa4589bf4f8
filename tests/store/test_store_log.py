"""The log beside the database: emptied when nothing is written, and a damage in it is never passed over in silence."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from damaging import check_sound, everything
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvchat.store import Store
from kvchat.store.file import wal

LOG = "kvchat.db-wal"


def killed(folder: Path, place: Path) -> Path:
    """What is on the disk of a store that is open, as it is when its kvchat is killed now."""
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns("*.lock"))
    return place


def damage(folder: Path, at: int, length: int = 4096) -> None:
    path = folder / LOG
    data = path.read_bytes()
    path.write_bytes(data[:at] + random.Random(at).randbytes(length)[: len(data) - at] + data[at + length :])


def said(folder: Path, new_talk, talks: int = 6, turns: int = 3) -> Store:
    store = Store.open(folder)
    for number in range(talks):
        talk = new_talk(store, f"talk {number}")
        for turn in range(turns):
            talk.say(f"question {number}.{turn} " + "word " * 50, f"answer {number}.{turn} " * 20)
    return store


@pytest.mark.slow
def test_damage_anywhere_in_the_log_is_told_and_costs_only_what_stands_behind_it(folder, tmp_path, new_talk):
    """4 kB of garbage after a kill lost conversations without a word."""
    store = said(folder, new_talk)
    whole = killed(folder, tmp_path / "whole")
    store.close()
    _, nodes = everything(killed(whole, tmp_path / "looked"))
    size = (whole / LOG).stat().st_size
    counts = []
    for at in [0, *range(32, size - 4096, size // 12), size - 4096 - 24, size - 4200, size - 4096]:
        place = killed(whole, tmp_path / f"at {at}")
        damage(place, at)
        found = Store.open(place)
        notice = found.notices[0]
        assert "its log" in notice and "backup" in notice
        found.close()
        check_sound(place)
        _, kept = everything(place)
        assert all(nodes[id].text.startswith(one.text) for id, one in kept.items() if id in nodes)
        counts.append(len(kept))
    assert counts == sorted(counts) and counts[-1] >= len(nodes) - 2


def test_damage_in_a_log_that_is_in_the_database_already_costs_nothing(folder, tmp_path, new_talk):
    store = said(folder, new_talk)
    with store.database.reading() as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    place = killed(folder, tmp_path / "place")
    store.close()
    before = everything(folder)
    damage(place, (place / LOG).stat().st_size // 3)
    found = Store.open(place)
    assert len(found.notices) == 1
    found.close()
    assert everything(place) == before


def test_a_kill_alone_is_no_damage(folder, tmp_path, new_talk):
    store = said(folder, new_talk)
    place = killed(folder, tmp_path / "place")
    before = (place / LOG).stat().st_size
    assert before > 0
    found = Store.open(place)
    assert found.notices == [] and len(found.conversations()) == 6
    found.close()
    store.close()


def test_after_a_checkpoint_the_log_is_empty_and_nothing_hangs_on_it(folder, tmp_path, new_talk):
    store = said(folder, new_talk)
    store.checkpoint()
    assert (folder / LOG).stat().st_size == 0
    place = killed(folder, tmp_path / "place")
    (place / LOG).write_bytes(random.Random(1).randbytes(4096))
    new_talk(store).say("and on")
    store.close()
    found = Store.open(place)
    assert len(found.conversations()) == 6
    found.close()


def test_a_checkpoint_waits_for_nobody_who_reads(folder, new_talk):
    store = said(folder, new_talk)
    reader = sqlite3.connect(folder / "kvchat.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM node").fetchone()
    new_talk(store).say("while it is read")
    store.checkpoint()
    assert (folder / LOG).stat().st_size > 0
    reader.execute("COMMIT")
    reader.close()
    store.checkpoint()
    assert (folder / LOG).stat().st_size == 0
    store.close()


def test_a_store_in_memory_has_no_log():
    store = Store.open(None)
    store.checkpoint()
    store.close()


def test_a_newer_database_with_a_damaged_log_is_left_as_it_is(folder, tmp_path, new_talk):
    said(folder, new_talk, 1, 1).close()
    connection = sqlite3.connect(folder / "kvchat.db", isolation_level=None)
    connection.execute("PRAGMA user_version = 999")
    connection.execute("CREATE TABLE theirs(x)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(50):
        connection.execute("INSERT INTO theirs VALUES (?)", (f"{number}" * 2000,))
    place = killed(folder, tmp_path / "place")
    connection.close()
    damage(place, 20_000)
    before = (place / LOG).read_bytes()
    with pytest.raises(Exception, match="newer kvchat"):
        Store.open(place)
    assert (place / LOG).read_bytes() == before and not (place / "quarantine").exists()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_is_known_how_much_of_a_damaged_log_sqlite_takes(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("log")
    path = folder / "kvchat.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE n(i INTEGER PRIMARY KEY, t TEXT UNIQUE)")
    rows = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=30))
    checkpoint = data.draw(st.integers(0, 60))
    chance = random.Random(7)
    for number, count in enumerate(rows):
        connection.execute("BEGIN")
        for _ in range(count):
            connection.execute("INSERT INTO n(t) VALUES (?)", (chance.randbytes(300).hex(),))
        connection.execute("COMMIT")
        if number == checkpoint:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    place = killed(folder, folder / "place")
    connection.close()
    log = wal.read(place / "kvchat.db", 4096)
    assert log is not None and log.lost == 0
    size = (place / LOG).stat().st_size
    damage(place, data.draw(st.integers(0, size - 1)), data.draw(st.sampled_from([1, 100, 4096])))
    has_index = data.draw(st.booleans())
    if not has_index:
        (place / "kvchat.db-shm").unlink()
    found = wal.read(place / "kvchat.db", 4096)
    assert found is not None and (found.lost > 0 or not has_index or found == log)
    again = sqlite3.connect(place / "kvchat.db", isolation_level=None)
    again.execute("PRAGMA schema_version").fetchone()
    assert again.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1] == found.taken
    again.close()

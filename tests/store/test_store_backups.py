"""Backups: one a day, the newest of each of seven days; a wrong clock costs none of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.store import Store
from kvchat.store.file import backup as backup_module
from kvchat.store.file.backup import back_up, backups, is_due

DAY = 24 * 3600.0
NOON = 20_000 * DAY + DAY / 2


@pytest.fixture
def at(folder: Path) -> Callable[[float], Path | None]:
    """Open the store with the clock at this time, make the backup that is due, close it."""

    def begin(now: float) -> Path | None:
        store = Store.open(folder, clock=lambda: now)
        try:
            return store.backup_if_due()
        finally:
            store.close()

    return begin


def test_a_start_with_the_clock_ahead_costs_no_earlier_backup(folder, at):
    week = [at(NOON + day * DAY) for day in range(6)]
    ahead = at(NOON + 4000 * DAY)
    # The clock is right again: many starts, and days.
    today = at(NOON + 6 * DAY)
    assert today is not None
    assert [at(NOON + 6 * DAY + hour * 3600) for hour in range(1, 9)] == [None] * 8
    assert backups(folder, NOON + 6 * DAY) == [today, *reversed(week), ahead]
    tomorrow = at(NOON + 7 * DAY)
    assert backups(folder, NOON + 7 * DAY) == [tomorrow, today, *reversed(week[1:]), ahead]


def test_a_start_with_the_clock_behind_costs_no_backup_either(folder, at):
    week = [at(NOON + day * DAY) for day in range(7)]
    old = at(3.0)
    assert old is not None and at(4.0) is None
    assert set(backups(folder, NOON + 6 * DAY)) >= {*week, old} - {week[0]}
    assert at(NOON + 6 * DAY + 1) is None


def test_a_backup_is_due_once_a_day_by_the_calendar(folder, at):
    evening = NOON + DAY / 2 - 60
    first = at(evening)
    second = at(evening + 120)  # after midnight
    assert first is not None and second is not None
    assert at(evening + DAY - 60) is None


def test_of_one_day_the_newest_is_kept_and_what_is_not_ours_is_left_alone(folder, at):
    first = at(NOON)
    own = folder / "backups" / "kvchat-before-the-move.db"
    own.write_bytes(b"a copy that the person made")
    os.utime(own, (NOON + 99 * DAY, NOON + 99 * DAY))
    second = back_up(folder / "kvchat.db", NOON + 60, "-v4")
    assert backups(folder, NOON + 60) == [second] and not first.exists()
    for day in range(1, 9):
        at(NOON + day * DAY)
    assert own.exists() and len(backups(folder, NOON + 9 * DAY)) == 7


def test_backups_that_could_not_be_removed_go_with_the_next_one(folder, at):
    made = [at(NOON + day * DAY) for day in range(12)]
    for path in made:
        path.touch()  # the folder was brought back from elsewhere
    today = at(NOON + 12 * DAY)
    assert backups(folder, NOON + 12 * DAY) == [today, *made[:-7:-1]]


def test_when_a_backup_was_made_is_told_by_its_name(folder, at):
    """A folder that was copied to another disk has new times of change."""
    made = [at(NOON + day * DAY) for day in range(3)]
    for path in made:
        os.utime(path)
    assert backups(folder, NOON + 2 * DAY) == made[::-1]
    assert at(NOON + 2 * DAY) is None


def test_after_damage_the_newest_backup_is_taken_and_not_one_from_the_future(folder, at):
    ahead, today = at(NOON + 4000 * DAY), at(NOON)
    (folder / "kvchat.db").write_bytes(bytes(8192))
    store = Store.open(folder, clock=lambda: NOON + 60)
    assert f"are back from the backup {today}" in store.notices[0] and str(ahead) not in store.notices[0]
    store.close()


def test_where_all_backups_are_from_the_future_the_newest_of_them_is_taken(folder, at):
    first, second = at(NOON), at(NOON + DAY)
    (folder / "kvchat.db").write_bytes(bytes(8192))
    store = Store.open(folder, clock=lambda: 60.0)
    assert f"are back from the backup {second}" in store.notices[0] and first
    store.close()


@settings(max_examples=60, deadline=None)
@given(
    hours=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    wrong=st.integers(60, 9_000) | st.integers(-19_000, -60),
    when=st.integers(0, 30),
)
def test_one_start_at_a_wrong_time_costs_none_of_the_last_days(tmp_path_factory, hours, wrong, when):
    """So many hours lie between the starts; at one of them the clock is wrong by so many days."""
    folder = tmp_path_factory.mktemp("clocks")
    (folder / "kvchat.db").touch()
    newest: dict[int, Path] = {}
    now = NOON
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup_module, "copy", lambda source, target: target.touch())
        for number, pause in enumerate(hours):
            now += pause * 3600
            if number == when and is_due(folder, now + wrong * DAY):
                back_up(folder / "kvchat.db", now + wrong * DAY)
            if is_due(folder, now):
                newest[int(now // DAY)] = back_up(folder / "kvchat.db", now)
            assert int(now // DAY) in newest
            assert {newest[day] for day in sorted(newest)[-6:]} <= set(backups(folder, now))
    assert len(backups(folder, now)) <= 8

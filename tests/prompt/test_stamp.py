"""The time stamp says the time only when it is news."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kvchat.prompt.stamp import stamp_due, time_block

CET = timezone(timedelta(hours=1))
NINE = datetime(2026, 11, 21, 9, 16, tzinfo=CET)


def test_the_stamp_is_one_line_with_weekday_and_zone():
    assert time_block(NINE).text == "Saturday 2026-11-21 09:16 UTC+01:00"


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (NINE, False),
        (NINE + timedelta(minutes=9, seconds=59), False),
        (NINE + timedelta(minutes=10), True),
        (NINE + timedelta(days=1), True),
        (NINE - timedelta(seconds=1), True),
        (NINE.astimezone(UTC) + timedelta(minutes=5), False),
    ],
)
def test_a_stamp_is_due_after_ten_minutes_or_on_another_date(now, due):
    assert stamp_due(now, NINE) is due


def test_midnight_makes_a_stamp_due():
    late = datetime(2026, 11, 21, 23, 58, tzinfo=CET)
    assert stamp_due(late + timedelta(minutes=3), late)


def test_the_first_turn_is_stamped():
    assert stamp_due(NINE, None)

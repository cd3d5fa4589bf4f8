"""Numbers, spans and days read as people write them."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.text import format as numbers

PARIS = ZoneInfo("Europe/Paris")
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=PARIS)


def at(*when: int) -> float:
    return datetime(*when, tzinfo=PARIS).timestamp()  # type: ignore[misc, arg-type]


@corpus(
    ("number", "long", "short"),
    [
        (0, "0", "0"),
        (412, "412", "412"),
        (999, "999", "999"),
        (1000, "1,000", "1.0k"),
        (1234, "1,234", "1.2k"),
        (8120, "8,120", "8.1k"),
        (9960, "9,960", "10k"),
        (48_201, "48,201", "48k"),
        (999_400, "999,400", "999k"),
        (999_600, "999,600", "1.0M"),
        (3_100_000, "3,100,000", "3.1M"),
        (None, "–", "–"),
    ],
)
def test_counts(number: int | None, long: str, short: str) -> None:
    assert (numbers.count(number), numbers.short_count(number)) == (long, short)


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 B"),
        (712, "712 B"),
        (1_500, "1.5 kB"),
        (412_000_000, "412 MB"),
        (1_107_409_472, "1.1 GB"),
        (5_000_000_000_000_000, "5,000 TB"),
        (None, "–"),
    ],
)
def test_sizes(octets: int | None, text: str) -> None:
    assert numbers.size(octets) == text


def test_one_is_not_many() -> None:
    assert numbers.counted(1, "message") == "1 message"
    assert numbers.counted(0, "message") == "0 messages"
    assert numbers.counted(8120, "reply", "replies") == "8,120 replies"


@corpus(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (0.001, "< 0.01 s"),
        (0.14, "0.14 s"),
        (0.996, "1.0 s"),
        (10.6, "10.6 s"),
        (19.97, "20 s"),
        (35.2, "35 s"),
        (59.7, "1 min"),
        (60, "1 min"),
        (137, "2 min 17 s"),
        (3599.6, "1 h"),
        (3720, "1 h 2 min"),
        (86_399.6, "1 d"),
        (90_000, "1 d 1 h"),
        (None, "–"),
        (float("inf"), "–"),
        (float("nan"), "–"),
    ],
)
def test_time_spans(seconds: float | None, text: str) -> None:
    assert numbers.duration(seconds) == text


@corpus(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (12.9, "12 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (250, "4 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (86_399, "23 h"),
        (200_000, "2 d"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_ages_are_told_in_their_largest_unit(seconds: float | None, text: str) -> None:
    assert numbers.age(seconds) == text


@given(st.floats(0.01, 1e7))
def test_no_time_span_shows_a_full_unit_as_its_part(seconds: float) -> None:
    text = numbers.duration(seconds)
    assert not re.search(r"(?<![.\d])(60 (s|min)|24 h)\b", text)
    units = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    told = sum(float(n.replace(",", "")) * units[unit] for n, unit in re.findall(r"([\d.,]+) (s|min|h|d)\b", text))
    smallest = units[text.rsplit(" ", 1)[1]]
    assert abs(told - seconds) <= max(smallest, seconds * 0.05)


def test_ratios_and_speeds() -> None:
    assert [numbers.percent(ratio) for ratio in (0, 0.614, 1, None)] == ["0 %", "61 %", "100 %", "–"]
    assert [numbers.speed(value) for value in (58.23, 350.4, 10_000, None)] == [
        "58.2 tok/s",
        "350 tok/s",
        "10,000 tok/s",
        "–",
    ]


@corpus(
    ("seconds", "text"),
    [
        (at(2026, 11, 21, 9, 16), "today 09:16"),
        (at(2026, 11, 21, 0, 0), "today 00:00"),
        (at(2026, 11, 20, 23, 59), "yesterday 23:59"),
        (at(2026, 11, 19, 14, 20), "Thu 14:20"),
        (at(2026, 11, 15, 8, 0), "Sun 08:00"),
        (at(2026, 11, 14, 8, 0), "14 Nov"),
        (at(2026, 10, 30, 8, 0), "30 Oct"),
        (at(2026, 3, 12, 8, 0), "12 Mar"),
        (at(2025, 3, 12, 8, 0), "12 Mar 2025"),
        (at(2026, 11, 23, 8, 0), "23 Nov"),
        (1e300, "–"),
    ],
)
def test_days_as_seen_from_now(seconds: float, text: str) -> None:
    assert numbers.moment(seconds, NOW) == text


def test_a_message_of_another_day_names_that() -> None:
    days = (
        at(2026, 11, 21, 9, 16),
        at(2026, 11, 20, 17, 2),
        at(2026, 11, 16, 8, 0),
        at(2026, 3, 12, 9, 16),
        at(2025, 3, 12, 9, 16),
    )
    assert [numbers.message_time(day, NOW) for day in days] == [
        "09:16",
        "yesterday 17:02",
        "Mon 08:00",
        "12 Mar 09:16",
        "12 Mar 2025 09:16",
    ]


def test_the_day_is_the_one_of_the_person_across_a_change_of_summer_time() -> None:
    now = datetime(2026, 10, 26, 0, 30, tzinfo=PARIS)
    assert numbers.moment(at(2026, 10, 25, 0, 10), now) == "yesterday 00:10"


def test_dates_and_times_of_day() -> None:
    assert numbers.date_and_time(at(2026, 11, 21, 9, 16), NOW) == "2026-11-21 09:16"
    assert numbers.clock(at(2026, 11, 21, 9, 16), NOW) == "09:16"
    assert numbers.clock(1e300) == numbers.date_and_time(float("nan")) == numbers.UNKNOWN


def test_now_is_today() -> None:
    assert numbers.day_time((datetime.now() - timedelta(microseconds=1)).timestamp()).startswith(("today", "yesterday"))


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (date(2026, 6, 15), date(2026, 6, 21), "15–21 Jun 2026"),
        (date(2026, 5, 29), date(2026, 6, 4), "29 May – 4 Jun 2026"),
        (date(2025, 12, 29), date(2026, 1, 4), "29 Dec 2025 – 4 Jan 2026"),
        (date(2025, 6, 21), date(2026, 6, 21), "21 Jun 2025 – 21 Jun 2026"),
        (date(2026, 6, 21), date(2026, 6, 21), "21 Jun 2026"),
    ],
)
def test_a_span_of_days(first: date, last: date, words: str) -> None:
    assert numbers.day_range(first, last) == words
    assert numbers.short_day(last).split()[1:] == words.split(" – ")[-1].rpartition("–")[2].split()[:2]

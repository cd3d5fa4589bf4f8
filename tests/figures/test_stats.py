"""What the cache saved by day: each figure of the span is the sum of the turns', and a day is one of the time zone."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from statistics import median
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.figures.accounting import Totals, TurnFigures, measured_speed, seconds_saved, totals
from kvchat.figures.speed import SpeedFit
from kvchat.figures.stats import Answered, begins, span, stats

NOW = datetime(2026, 6, 21, 14, 30, tzinfo=UTC).timestamp()
WEEK = span(NOW, 7, UTC)
COUNTS = (
    "turns",
    "unknown",
    "prompt_tokens",
    "cached_tokens",
    "evaluated_tokens",
    "new_tokens",
    "wasted_tokens",
    "predicted_tokens",
    "kept_tokens",
)
SPEEDS = {("http://a", "m"): SpeedFit(1 / 500, 1e-7, 9), ("http://b", "m"): None}


@st.composite
def turns(draw: st.DrawFn) -> TurnFigures:
    prompt = draw(st.integers(1, 50_000))
    cached = draw(st.none() | st.integers(0, prompt))
    return TurnFigures(
        prompt,
        cached,
        draw(st.integers(0, 500)),
        draw(st.none() | st.integers(0, prompt)),
        ttft_ms=draw(st.none() | st.floats(1, 1e5)),
        prompt_ms=draw(st.none() | st.floats(1, 1e5)),
        cause=draw(st.sampled_from([None, "restarted", "of a later version"])),
        stopped=draw(st.sampled_from([None, False, True])),
    )


ANSWERS = st.lists(
    st.builds(
        Answered,
        st.floats(begins(WEEK[0], UTC), NOW + 86400),
        st.tuples(st.sampled_from(["", "http://a", "http://b"]), st.just("m")),
        turns(),
    ),
    max_size=30,
)


@given(ANSWERS)
def test_the_sums_of_the_days_are_the_sums_of_the_turns(answers: list[Answered]) -> None:
    found = stats(answers, SPEEDS, WEEK, UTC)
    whole = totals([answer.figures for answer in answers])
    for name in COUNTS:
        assert getattr(found.totals, name) == getattr(whole, name) == sum(getattr(d.totals, name) for d in found.days)
    seconds = 0.0
    for server in ("", "http://a", "http://b"):
        of_server = [answer.figures for answer in answers if answer.by[0] == server]
        speed = SPEEDS.get((server, "m")) or measured_speed(of_server)
        known = [turn for turn in of_server if turn.cached_tokens is not None and turn.new_tokens is not None]
        seconds += sum(seconds_saved(turn, speed) or 0 for turn in known) if speed else 0
    assert (found.totals.seconds_saved or 0) == pytest.approx(seconds)
    assert [day.date for day in found.days] == WEEK


@given(ANSWERS)
def test_a_stopped_turn_saves_nothing(answers: list[Answered]) -> None:
    stopped = [a for a in answers if a.figures.stopped]
    assert not stats(stopped, SPEEDS, WEEK, UTC).totals.seconds_saved


@given(ANSWERS)
def test_all_that_is_told_wasted_has_a_cause(answers: list[Answered]) -> None:
    found = stats(answers, SPEEDS, WEEK, UTC)
    assert sum(tokens for _, tokens in found.misses.values()) == found.totals.wasted_tokens
    assert set(found.misses) <= {"restarted", "of a later version", "unknown"}
    assert all(turns and tokens > 8 * turns for turns, tokens in found.misses.values())


def at(instant: datetime) -> Answered:
    return Answered(instant.timestamp(), ("http://a", "m"), TurnFigures(100, 60, 5, 40, ttft_ms=100.0, prompt_ms=40.0))


def counted(answers: list[Answered], now: datetime) -> dict[date, int]:
    days = span(now.timestamp(), 3, now.tzinfo)
    return {day.date: day.totals.turns for day in stats(answers, SPEEDS, days, now.tzinfo).days}


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=13)), timezone(timedelta(hours=-9.5))])
def test_a_day_begins_at_midnight_of_its_zone(zone: timezone) -> None:
    now = datetime(2026, 6, 21, 0, 5, tzinfo=zone)
    midnight = datetime(2026, 6, 21, tzinfo=zone)
    answers = [at(midnight), at(midnight - timedelta(seconds=1)), at(datetime(2026, 6, 18, 23, 59, 59, tzinfo=zone))]
    assert counted(answers, now) == {date(2026, 6, 19): 0, date(2026, 6, 20): 1, date(2026, 6, 21): 1}
    assert begins(date(2026, 6, 21), zone) == midnight.timestamp()


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 29, 23), (10, 25, 25)])
def test_days_of_a_change_of_clocks_are_as_long_as_they_are(month: int, day: int, hours: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    changing = date(2026, month, day)
    first, after = (begins(one, zone) for one in (changing, changing + timedelta(1)))
    assert after - first == hours * 3600
    last = datetime.fromtimestamp(after - 1, zone)
    assert counted([at(datetime.fromtimestamp(first, zone)), at(last)], last)[changing] == 2


def test_without_a_zone_the_days_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    auckland = ZoneInfo("Pacific/Auckland")
    now = datetime(2026, 6, 21, 0, 5, tzinfo=auckland)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Pacific/Auckland")
        time.tzset()
        days = span(now.timestamp(), 2)
        found = stats([at(now), at(now - timedelta(minutes=10))], SPEEDS, days)
        first = begins(days[0])
    time.tzset()
    assert [day.date for day in found.days] == [date(2026, 6, 20), date(2026, 6, 21)]
    assert [day.totals.turns for day in found.days] == [1, 1]
    assert first == datetime(2026, 6, 20, tzinfo=auckland).timestamp()


def test_an_answer_from_the_future_counts_as_of_today() -> None:
    now = datetime(2026, 6, 21, 12, tzinfo=UTC)
    assert counted([at(now + timedelta(days=40))], now)[date(2026, 6, 21)] == 1
    beyond = replace(at(now), at=1e300)
    assert counted([beyond], now)[date(2026, 6, 21)] == 1, "and one that no calendar holds"


def test_without_answers_nothing_is_known() -> None:
    found = stats([], {}, WEEK, UTC)
    assert found.totals == Totals() and found.ttft_ms is None and not found.misses and len(found.days) == 7


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_the_time_to_the_first_token_is_the_median(times: list[float]) -> None:
    found = stats([Answered(NOW, ("", ""), TurnFigures(ttft_ms=ms)) for ms in times], {}, WEEK, UTC)
    assert found.ttft_ms == pytest.approx(median(times))


def test_each_server_saves_by_its_own_speed() -> None:
    one = TurnFigures(1_000, 900, 5, 100, ttft_ms=200.0, prompt_ms=100.0)
    speeds = {("http://a", "m"): SpeedFit(1 / 100), ("http://b", "m"): SpeedFit(1 / 300)}
    answers = [Answered(NOW, (server, "m"), one) for server in ("http://a", "http://b", "http://c")]
    found = stats(answers, speeds, WEEK, UTC)
    assert found.totals.seconds_saved == pytest.approx(9 + 3 + 0.9), "the third one has only its own figures"
    assert found.ttft_ms == 200.0

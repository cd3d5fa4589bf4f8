"""The picture of some days: XML that holds the figures, fetches nothing, and stays inside its frame."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.figures.accounting import TurnFigures
from kvchat.figures.speed import SpeedFit
from kvchat.figures.stats import Answered, Stats, begins, span, stats
from kvchat.text.format import count, duration
from kvchat.transfer import stats_card
from kvchat.transfer.stats_card import BASE, LEFT, RIGHT, card

NOW = datetime(2026, 6, 21, 14, 30, tzinfo=UTC).timestamp()
SVG = "{http://www.w3.org/2000/svg}"
THEME = Path(__file__).parents[2] / "themes" / "kvchat-night.toml"


def of(turns: list[tuple[int, int, int, int]], days: int = 7) -> Stats:
    """The sums of turns: the day, prompt, cached and new tokens of each."""
    dates = span(NOW, days, UTC)
    answers = [
        Answered(begins(dates[day % days], UTC) + 60, ("http://a", "m"), TurnFigures(prompt, cached, 9, new, 310.0))
        for day, prompt, cached, new in turns
    ]
    return stats(answers, {("http://a", "m"): SpeedFit(1 / 350, 0, 9)}, dates, UTC)


WEEK = of([(0, 2_000, 0, 2_000), (1, 3_000, 2_959, 40), (1, 4_000, 1_000, 400), (6, 5_000, 4_900, 99)])


def bars(svg: str) -> list[tuple[float, float, float, float, str]]:
    found = [rect.attrib for rect in ET.fromstring(svg).iter(f"{SVG}rect") if "rx" not in rect.attrib]
    return [(*(float(one[name]) for name in ("x", "y", "width", "height")), one["fill"]) for one in found]


def test_it_holds_the_figures() -> None:
    words = " ".join(ET.fromstring(card(WEEK)).itertext())
    for expected in (
        f"{duration(WEEK.totals.seconds_saved)} of prefill saved",
        "last 7 days · 15–21 Jun 2026",
        "reuse 77 %",
        "4 answers",
        "TTFT 0.31 s (median)",
        f"{count(WEEK.totals.cached_tokens)} tokens cached",
        "2,600 wasted",
        "2,541 new",
        "all new",
        "100 %",
        "Mon",
        "Sun",
    ):
        assert expected in words


def test_it_fetches_and_runs_nothing() -> None:
    svg = card(WEEK)
    assert not re.search(r"href|url\(|@import|<script|<style|<image|<foreignObject|\son\w+=|<!", svg)
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg"}


def test_its_colours_are_those_of_the_dark_theme() -> None:
    assert set(re.findall(r"#\w{6}\b", card(WEEK))) <= set(re.findall(r"#\w{6}\b", THEME.read_text()))


def test_what_is_within_the_noise_has_no_part_of_a_bar() -> None:
    tones = [tone for *_, tone in bars(card(of([(2, 1_000, 899, 100)])))]
    assert tones == [stats_card.CACHED, stats_card.NEW]


@pytest.mark.parametrize("days", [1, 7, 10, 11, 31, 366])
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 10**7), st.integers(0, 10**7), st.integers(0, 10**7)),
        min_size=1,
        max_size=12,
    )
)
def test_bars_stay_in_their_place_and_are_as_high_as_their_tokens(
    days: int, turns: list[tuple[int, int, int, int]]
) -> None:
    svg = card(of([(day, prompt, min(cached, prompt), min(new, prompt)) for day, prompt, cached, new in turns], days))
    assert "nan" not in svg and "inf" not in svg
    drawn = bars(svg)
    assert drawn
    for x, y, wide, high, _ in drawn:
        assert x >= LEFT - 0.1 and x + wide <= RIGHT + 0.1 and y > 190 and y + high <= BASE + 0.1


def test_a_time_that_was_not_measured_is_not_told() -> None:
    dates = span(NOW, 7, UTC)
    silent = stats([Answered(NOW, ("", ""), TurnFigures(400, 300, 5, 100))], {}, dates, UTC)
    words = " ".join(ET.fromstring(card(silent)).itertext())
    assert "300 tokens from the cache" in words and "saved" not in words

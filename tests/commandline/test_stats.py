"""`kvchat stats`: sums by day, as text, JSON and picture."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.cache.accounting import SideTotals, TurnFigures, WarmupTotals, totals
from kvchat.cache.speed import SpeedFit
from kvchat.cache.stats import Answered, Stats, first_midnight, stats
from kvchat.cli import main
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, new_id, node, system_message
from kvchat.store import Store
from kvchat.text.stats import headline, stats_lines, stats_svg

NOW = datetime(2026, 11, 22, 12, 0).timestamp()
HERE = ("http://127.0.0.1:8080", "model")
SPEED = SpeedFit(1 / 100)


def figures(prompt: int = 1000, cached: int = 900, new: int = 100, **more: object) -> TurnFigures:
    return TurnFigures(prompt_tokens=prompt, cached_tokens=cached, new_tokens=new, predicted_tokens=10, ttft_ms=250.0,
                       prompt_ms=1000.0, **more)  # type: ignore[arg-type]


def found(*answers: Answered, days: int = 7) -> Stats:
    return stats(answers, {HERE: SPEED}, NOW, days, WarmupTotals(), SideTotals())


TURNS = st.builds(lambda days, cached, new, wasted, stopped: Answered(
    NOW - days * 86400, HERE, figures(cached + new + wasted, cached, new, stopped=stopped)),
    st.integers(0, 6), st.integers(1, 9000), st.integers(1, 500), st.integers(0, 500), st.booleans())


@given(st.lists(TURNS, max_size=20))
def test_the_days_add_up_to_the_whole_and_the_whole_to_the_answers(answers: list[Answered]) -> None:
    shown = found(*answers)
    alone = totals([answer.figures for answer in answers], SPEED)
    for name in ("turns", "cached_tokens", "new_tokens", "wasted_tokens", "prompt_tokens"):
        assert getattr(shown.totals, name) == getattr(alone, name)
        assert sum(getattr(day.totals, name) for day in shown.days) == getattr(alone, name)
    assert (shown.totals.seconds_saved or 0) == pytest.approx(alone.seconds_saved or 0)


def test_a_day_begins_at_local_midnight() -> None:
    since = first_midnight(NOW, 7)
    assert datetime.fromtimestamp(since) == datetime(2026, 11, 16)
    shown = found(Answered(since, HERE, figures()), Answered(NOW, HERE, figures()))
    assert [day.totals.turns for day in shown.days] == [1, 0, 0, 0, 0, 0, 1]


def test_a_stopped_turn_saves_nothing() -> None:
    assert found(Answered(NOW, HERE, figures(stopped=True))).totals.seconds_saved == 0.0


def test_what_is_said() -> None:
    waste = Answered(NOW, HERE, figures(new=40, cause="restarted"))
    lines = list(stats_lines(found(Answered(NOW - 86400, HERE, figures()), waste)))
    assert lines[0] == "18.0 s of prefill saved in the last 7 days"
    assert lines[1] == "reuse 97 % · 1,800 cached · 140 new · 60 wasted · 2 answers"
    assert lines[2] == "TTFT 0.25 s (median)"
    assert "Sun 22 Nov  ██████████████▒░" in lines[10] and "60 wasted" in lines[10]
    assert lines[-1] == "wasted         60  server restarted, 1 turn"
    assert all(len(line) <= 80 for line in lines)


def test_the_picture_stands_alone_and_holds_the_figures() -> None:
    shown = found(Answered(NOW, HERE, figures()))
    picture = stats_svg(shown)
    words = [text.text for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "9.0 s" in words and "today" not in words and "Sun" in words
    assert "8080" not in picture and "href" not in picture and "@font-face" not in picture


def kept(folder: Path, *turns: TurnFigures) -> None:
    """A store with a conversation of these answers."""
    now = time.time()
    system = system_message("Be brief.")
    store = Store.open(folder)
    path = [node(None, system, now)]
    record = store.create(Conversation(new_id(), path[0].id, now, now, "why"), path[0])
    for turn in turns:
        path.append(node(path[-1], Message(Role.USER, "Why?"), now))
        path.append(node(path[-1], Message(Role.ASSISTANT, "So."), now, figures=turn))
    store.add(record, path[1:], lambda row: replace(row, head=path[-1].id))
    store.close()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path / "data", figures(), figures())
    given = ["--data-dir", str(tmp_path / "data")]
    assert main([*given, "stats"]) == 0
    assert "1,800 cached" in capsys.readouterr().out
    assert main([*given, "stats", "--json", "--days", "2"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["totals"]["cached_tokens"] == 1800 and len(value["days"]) == 2
    assert value["days"][1]["date"] == f"{datetime.now():%Y-%m-%d}"
    picture = tmp_path / "cache.svg"
    assert main([*given, "stats", "--svg", str(picture)]) == 0 and picture.read_text().startswith("<svg")
    assert main([*given, "stats", "--svg", str(picture)]) == 1
    assert "--force replaces it" in capsys.readouterr().err
    assert main([*given, "stats", "--svg", str(picture), "--force"]) == 0


def test_nothing_yet_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data-dir", str(tmp_path), "stats"]) == 0
    assert capsys.readouterr().out == "No answers in the last 7 days yet. Ask something, then look again.\n"
    assert main(["--data-dir", str(tmp_path), "stats", "--days", "0"]) == 2
    assert headline(found()) == "0 tokens cached in the last 7 days"

"""`kvchat stats`: the sums of some days as text, as JSON and as a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kvchat.figures.accounting import TurnFigures
from kvchat.figures.speed import SpeedSample
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, new_id, node, system_message
from kvchat.prompt.tools import ToolCall
from kvchat.store import Store
from kvchat.store.stats import cache_stats
from kvchat.text.format import duration
from whole_rows import add_nodes

DAY = 86400.0
TODAY = date(2026, 6, 21)
NOW = datetime(2026, 6, 21, 12).timestamp()
TITLE = "the secret lighthouse"
FIRST = TurnFigures(1_000, 0, 100, 1_000, ttft_ms=3_000.0, prompt_ms=2_000.0)
GOOD = TurnFigures(1_200, 1_099, 100, 100, ttft_ms=300.0, prompt_ms=202.0)
LOST = TurnFigures(1_400, 400, 100, 100, ttft_ms=2_100.0, prompt_ms=2_000.0, cause="restarted")
STOPPED = TurnFigures(1_600, 1_500, 3, 100, ttft_ms=310.0, prompt_ms=200.0, stopped=True)
SILENT = TurnFigures(ttft_ms=500.0)


def put(store: Store, turns: list[tuple[float, TurnFigures]]) -> None:
    """A conversation of answers with these figures, each begun so many days before `NOW`."""
    system = node(None, system_message("Keep the lamp."), NOW - 100 * DAY)
    made = Conversation(new_id(), system.id, NOW - 100 * DAY, NOW, title=TITLE)
    record = store.create(made, system)
    tip = store.tree(record.id)[record.head or ""]
    for number, (days, figures) in enumerate(turns):
        question = node(tip, Message(Role.USER, f"{TITLE} {number}?"), NOW - days * DAY)
        tip = node(question, Message(Role.ASSISTANT, "Yes."), NOW - days * DAY, figures=figures)
        record = replace(record, head=tip.id, turns=record.turns + 1)
        add_nodes(store, record, [question, tip])
        store.record_request(tip.id, body_sha256="0" * 64, server="http://127.0.0.1:8080", model="m")


@pytest.fixture
def data(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("kvchat.cli.stats.time", SimpleNamespace(time=lambda: NOW))
    return own_folders / "data"


@pytest.fixture
def week(data: Path) -> Path:
    store = Store.open(data)
    put(store, [(40, GOOD), (3, FIRST), (3, GOOD), (2, LOST), (0, STOPPED), (0, SILENT)])
    store.record_warmup("0" * 32, NOW - DAY, "http://127.0.0.1:8080", "m", SpeedSample(0, 640, 1.25))
    store.close()
    return data


def saved(data: Path) -> float:
    store = Store.open(data)
    found = cache_stats(store, NOW).totals.seconds_saved
    store.close()
    assert found is not None
    return found


async def test_the_week_fits_a_terminal_and_has_a_line_for_each_day(run: Any, week: Path) -> None:
    done = await run("stats", terminal=True)
    lines = done.out.replace("\r\n", "\n").splitlines()
    assert done.status == 0 and max(map(len, lines)) <= 80
    assert lines[0] == f"{duration(saved(week))} of prefill saved · last 7 days · 5 answers"
    head = lines.index(next(line for line in lines if line.startswith("day ")))
    assert lines[head].split() == ["day", "reuse", "cached", "new", "wasted", "saved"]
    days = [line.split() for line in lines[head + 1 : head + 8]]
    assert [int(words[1]) for words in days] == [(TODAY - timedelta(back)).day for back in range(6, -1, -1)]
    assert days[0][3:5] == ["no", "answers"]
    assert days[3][4:9] == ["100", "%", "1,099", "1,101", "0"], "█ but for one cell of rounding"
    assert days[4][3].count("░") > 10 and days[4][4:9] == ["31", "%", "400", "100", "900"]
    assert days[6][-2:] == ["0", "s"], "a stopped turn saves nothing"
    assert len({line.index("%") for line in lines[head + 1 :] if "%" in line}) == 1
    facts = {line[:12].strip(): line[12:] for line in lines[head + 9 :]}
    assert facts["reuse"] == "cached share of what was sent before; new text does not count"
    assert facts["waste"].split("  ") == ["server restarted", "1 answer", "900 tokens"]
    assert facts["TTFT"] == "0.50 s (median)" and facts["warm-up"] == "640 tokens in 1 request, 1.2 s"
    assert facts["unknown"] == "1 of 5 answers: too little reported" and TITLE not in done.out


async def test_json_has_numbers_and_kinds_under_the_keys_of_the_page(run: Any, week: Path) -> None:
    done = await run("stats", "--days", "8", "--json")
    found = json.loads(done.out)
    page = (Path(__file__).parents[2] / "docs" / "cache.md").read_text()
    for part in (found, found["warm_up"], found["waste"][0], found["days"][0]):
        assert all(f"`{key}`" in page for key in part)
    assert found["last_day"] == TODAY.isoformat() == found["days"][-1]["day"] and len(found["days"]) == 8
    assert (found["turns"], found["unknown_turns"]) == (5, 1)
    assert (found["cached_tokens"], found["new_tokens"], found["wasted_tokens"]) == (2_999, 1_301, 900)
    assert found["waste"] == [{"cause": "restarted", "turns": 1, "tokens": 900}]
    assert found["warm_up"] == {"requests": 1, "tokens": 640, "seconds": 1.25} and found["ttft_ms"] == 500.0
    for key in ("turns", "unknown_turns", "cached_tokens", "new_tokens", "wasted_tokens"):
        assert sum(day[key] for day in found["days"]) == found[key]
    assert sum(day["seconds_saved"] or 0 for day in found["days"]) == pytest.approx(found["seconds_saved"])
    assert found["days"][0]["reuse"] is None and found["days"][0]["seconds_saved"] is None


async def test_a_turn_is_one_answer_however_many_calls_it_took(run: Any, data: Path) -> None:
    store = Store.open(data)
    put(store, [(1, FIRST), (0, GOOD)])
    [record] = store.conversations()
    tree = store.tree(record.id)
    tip, call = tree[record.head or ""], ToolCall("id1", "read_file", '{"path": "a.txt"}')
    made = [node(tip, Message(Role.USER, "And the file?"), NOW)]
    for at in range(2):
        call = replace(call, id=f"id{at}")
        made.append(node(made[-1], Message(Role.ASSISTANT, "", calls=(call,)), NOW, figures=LOST if at else GOOD))
        made.append(node(made[-1], Message(Role.TOOL, "A lamp.", calls=(call,)), NOW))
    made.append(node(made[-1], Message(Role.ASSISTANT, "A lamp."), NOW, figures=GOOD))
    add_nodes(store, replace(record, head=made[-1].id), made)
    store.close()
    lines = (await run("stats")).out.splitlines()
    assert lines[0].endswith("last 7 days · 3 answers in 5 requests")
    assert next(line.split() for line in lines if line.startswith("waste"))[3:5] == ["1", "request"]
    found = json.loads((await run("stats", "--json")).out)
    assert (found["turns"], found["requests"], found["unknown_turns"]) == (3, 5, 0)
    assert [(day["turns"], day["requests"]) for day in found["days"][-2:]] == [(1, 1), (2, 4)]
    assert found["cached_tokens"] == 3 * 1_099 + 400


async def test_more_days_look_further_back_and_leave_out_the_empty_ones(run: Any, week: Path) -> None:
    done = await run("stats", "--days", "60")
    assert "last 60 days · 6 answers" in done.out
    assert done.out.count(" %") == 5, "four days with an answer, and all of them"
    today = (await run("stats", "--days", "1")).out
    assert "· today · 2 answers" in today and "total" not in today


async def test_the_picture_is_a_file_that_is_replaced_only_when_asked(run: Any, week: Path, tmp_path: Path) -> None:
    file = tmp_path / "week.svg"
    done = await run("stats", "--svg", file)
    assert (done.status, done.out) == (0, f"{file}\n")
    first = file.read_text()
    again = await run("stats", "--svg", file)
    assert again.status == 1 and "exists already" in again.err and "--force" in again.err and again.err.count("\n") == 1
    assert (await run("stats", "--svg", file, "--force")).status == 0
    piped = await run("stats", "--svg", "-")
    assert piped.out == first == file.read_text() and TITLE not in first
    assert f"{duration(saved(week))} of prefill saved" in "".join(ET.fromstring(first).itertext())
    assert (await run("stats", "--svg", tmp_path / "no" / "week.svg")).err.count("\n") == 1


async def test_without_answers_there_is_one_sentence(run: Any, data: Path, tmp_path: Path) -> None:
    done = await run("stats")
    assert (done.status, done.out) == (0, "No answers in the last 7 days.\n")
    assert json.loads((await run("stats", "--json")).out)["turns"] == 0
    done = await run("stats", "--svg", tmp_path / "none.svg")
    assert (done.status, done.err) == (1, "kvchat: No answers in the last 7 days.\n")
    assert not (tmp_path / "none.svg").exists()


async def test_a_server_that_reports_nothing_has_no_reuse_and_no_picture(run: Any, data: Path) -> None:
    store = Store.open(data)
    put(store, [(0, SILENT)])
    store.close()
    done = await run("stats")
    assert done.out.startswith("reuse unknown: too little reported by the servers · last 7 days · 1 answer\n")
    assert done.out.count("unknown") == 5 and " 0 " not in done.out and "none" not in done.out
    assert (await run("stats", "--svg", "-")).status == 1


@pytest.mark.parametrize("days", ["0", "-1", "x", "367", "1" * 15, "1" * 40])
async def test_days_that_make_no_sense_are_refused(run: Any, days: str) -> None:
    done = await run("stats", "--days", days)
    assert done.status == 2 and done.out == ""


def test_what_is_looked_for_is_found_by_the_time_of_the_answers(data: Path) -> None:
    store = Store.open(data)
    seen: list[str] = []
    rows = store.database.rows

    def noted(sql: str, parameters: Any = ()) -> Any:
        seen.append(sql)
        return rows(sql, parameters)

    store.database.rows = noted  # type: ignore[method-assign]
    store.answers(NOW)
    plan = " ".join(row[3] for row in rows(f"EXPLAIN QUERY PLAN {seen[0]}", (0.0,)))
    assert len(seen) == 1 and "node_figures" in plan and "SCAN" not in plan
    store.close()

"""The panel with the server's cache: what is held, by whom, how the turns went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from cache_samples import a_report
from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.reports.cache_report import HeldState, Holdings, TurnReport
from kvchat.ui.runs import plain
from kvchat.ui.widgets.panel_text import panel_lines
from kvchat.ui.widgets.status_text import Live

NOW = 1_800_000_000.0
REPORT = a_report(NOW)
HELD = Holdings(
    slots=3,
    window=8192,
    turns=tuple(turn for turn in REPORT.turns if turn.figures),
    speed=REPORT.speed,
    states=(
        HeldState("slot 0", "lighthouse log", 2119, NOW - 3, "a"),
        HeldState("slot 1", "weather", 2101, NOW - 4000, "b"),
        HeldState("parked", "soup", 1930, NOW - 90, "c"),
        HeldState("parked", "", 300),
    ),
)


def shown(held: Holdings = HELD, live: Live | None = None, width: int = 37) -> str:
    return "\n".join(plain(line).rstrip() for line in panel_lines(held, "a", live, width, NOW))


def test_it_names_what_each_slot_and_the_host_cache_hold() -> None:
    lines = shown().splitlines()
    slot = next(at for at, line in enumerate(lines) if line.startswith("slot 0"))
    assert lines[slot].endswith("2,119") and lines[slot + 1].strip() == "this conversation"
    assert lines[slot + 2].endswith("2,101") and lines[slot + 3].strip() == "weather · 1 h"
    assert lines[slot + 4].startswith("slot 2") and lines[slot + 4].endswith("empty")
    assert lines[slot + 5] == "host cache 2 prompts · 2.2k tokens"
    assert lines[slot + 7].split() == ["soup", "·", "1", "min", "1,930"]
    assert lines[slot + 8].split() == ["another", "client", "300"]


def test_the_newest_turn_stands_first_and_a_wasted_one_says_why() -> None:
    lines = shown().splitlines()
    turns = lines[next(at for at, line in enumerate(lines) if line.startswith("Last turns")) + 1 :]
    assert [turns[0].split()[0], turns[0].split()[-2:]] == ["4", ["0.14", "s"]] and "96 %" in turns[0]
    assert turns[1].startswith("3 █") and "░" in turns[1]
    assert turns[2].strip() == "1,323 wasted: another client"


def test_the_steps_of_a_turn_have_one_number() -> None:
    figures = [turn.figures for turn in HELD.turns]
    turns = [TurnReport("", one, goes_on=at in (1, 3)) for at, one in enumerate([*figures, *figures][:5])]
    lines = shown(Holdings(turns=tuple(turns))).splitlines()
    bars = [line for line in lines if " %" in line]
    assert [line[:2].strip() for line in bars] == ["3", "", "2", "", "1"]


def test_while_a_prompt_is_prefilled_its_slot_and_the_speed_tell_how_far() -> None:
    told = shown(live=Live(1.0, PromptProgress(2000, 500, 1500, elapsed_ms=10_000)))
    assert "1,000/1,500 100/s" in told
    assert next(line for line in told.splitlines() if line.startswith("slot 0")).endswith("1,500")


def test_an_answers_speed_is_told_while_it_comes() -> None:
    assert "decode   50.0 tok/s" in shown(live=Live(3.0, first_token=1.0, tokens=100))


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    told = shown(Holdings(turns=(TurnReport("", TurnFigures()),)))
    assert "this server does not tell" in told and "not reported" in told and "– %" in told
    assert told.count("not measured yet") == 2
    assert "none yet" in shown(Holdings())


@pytest.mark.parametrize("open_id", ["b", ""])
def test_only_the_open_conversation_is_this_one(open_id: str) -> None:
    lines = [plain(line) for line in panel_lines(HELD, open_id, None, 37, NOW)]
    assert sum("this conversation" in line for line in lines) == (open_id == "b")


NUMBERS = st.integers(0, 10**7)


@given(
    st.lists(st.tuples(st.sampled_from(["slot 0", "slot 1", "parked"]), st.text(max_size=40), NUMBERS), max_size=60),
    st.lists(st.builds(TurnFigures, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 1e9)), max_size=12),
    st.integers(37, 60),
)
def test_no_line_is_wider_than_the_panel(
    states: list[tuple[str, str, int]],
    turns: list[TurnFigures],
    width: int,
) -> None:
    held = replace(
        HELD,
        states=tuple(HeldState(*state, NOW) for state in states),
        turns=tuple(TurnReport("", turn) for turn in turns),
    )
    for line in panel_lines(held, "a", None, width, NOW):
        assert cell_len(plain(line)) <= width

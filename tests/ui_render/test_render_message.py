"""Titles, folds, endings, progress rows, the guard and the pace."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import PASSAGE, ContextBlock
from kvchat.prompt.message import Role, State
from kvchat.text.cache import answer_words
from kvchat.ui.runs import Run
from kvchat.ui.terminal.control_filter import ControlFilter
from kvchat.ui.widgets.transcript.render.message import Folds, TranscriptItem, context_summary, foot_rows, head_rows
from kvchat.ui.widgets.transcript.render.progress import reading_row, unknown_reading_row, waiting_row
from kvchat.ui.widgets.transcript.render.rows import text_of
from kvchat.ui.widgets.transcript.streaming import FRAME, REST, Pace


def _text(runs: list[Run]) -> str:
    return "".join(run.text for run in runs)


COST = TurnFigures(
    prompt_tokens=200,
    cached_tokens=150,
    predicted_tokens=31,
    new_tokens=50,
    ttft_ms=140.0,
    prompt_ms=100.0,
    predicted_ms=500.0,
)
WASTE = replace(COST, new_tokens=10, cause="restarted")


def test_an_answers_title_has_its_figures_at_the_right_and_its_place_among_versions() -> None:
    item = TranscriptItem("n", Role.ASSISTANT, "Model", figures=COST, siblings=(2, 3))
    (row,) = text_of(head_rows(item, 90, Folds()))
    assert row.startswith("Model  version 2/3 ") and len(row) == 90
    assert row.endswith("████▒▒ 75 % cached · TTFT 0.14 s · 62.0 tok/s · 31 tokens")
    (row,) = text_of(head_rows(item, 60, Folds(), selected=True))
    assert row.startswith("Model  version 2/3  ← →") and len(row) == 60


def test_the_cause_of_wasted_tokens_stands_before_the_other_figures() -> None:
    item = TranscriptItem("n", Role.ASSISTANT, "Model", figures=WASTE)
    (row,) = text_of(head_rows(item, 70, Folds()))
    assert "████░▒ 40 wasted: server restarted · 62.0 tok/s" in row


@pytest.mark.parametrize("figures", [COST, WASTE, replace(COST, ahead_tokens=3_766)])
@pytest.mark.parametrize("name", ["Model", "Qwen3-30B-A3B-2507.Q4_K_M-long"])
def test_a_title_keeps_the_name_and_the_speed(name: str, figures: TurnFigures) -> None:
    """At 80 columns, whatever else there is to say; the rest comes with the room."""
    (narrow,) = text_of(head_rows(TranscriptItem("n", Role.ASSISTANT, name, figures=figures), 62, Folds()))
    assert narrow.startswith(f"{name} ") and "62.0 tok/s" in narrow and cell_len(narrow) == 62
    (wide,) = text_of(head_rows(TranscriptItem("n", Role.ASSISTANT, name, figures=figures), 130, Folds()))
    assert all(words in wide for words in answer_words(figures))


def test_a_server_that_does_not_count_cached_tokens_has_no_bar() -> None:
    item = TranscriptItem("n", Role.ASSISTANT, "Model", figures=replace(COST, cached_tokens=None))
    (row,) = text_of(head_rows(item, 60, Folds()))
    assert row.endswith("  TTFT 0.14 s · 62.0 tok/s · 31 tokens") and "cached" not in row


def test_a_narrow_title_gives_up_the_figures_before_the_name() -> None:
    item = TranscriptItem("n", Role.ASSISTANT, "A model \x1b[2J with a long name", figures=COST)
    for width in (16, 24, 30, 80):
        (row,) = text_of(head_rows(item, width, Folds()))
        assert row.startswith("A model") and "\x1b" not in row and cell_len(row) == width


def test_context_is_summed_up_by_kind_and_source() -> None:
    passage, paste = ContextBlock("passage", "notes/lamp.md", "x"), ContextBlock("paste", "pasted 1", "x")
    stamped = [ContextBlock("time", "2026", "x"), passage, passage]
    assert context_summary(stamped) == "sent with: time, 2 passages from notes/lamp.md"
    assert context_summary([passage, ContextBlock("passage", "b.md", "y"), paste]) == (
        "sent with: 2 passages from 2 sources, 1 pasted text from pasted 1"
    )


def test_what_was_piped_in_is_called_what_it_is() -> None:
    block = ContextBlock("stdin", "stdin", "+turns = 12")
    item = TranscriptItem("n", Role.USER, "You", text="Review this.", blocks=(block,))
    folded, unfolded = (text_of(foot_rows(item, 80, Folds(context=context))) for context in (False, True))
    assert folded == ["▸ sent with: standard input", ""]
    assert unfolded[1:-1] == ["│ standard input", "│ +turns = 12"]


def test_memories_are_folded_to_their_number_and_unfolded_to_their_lines() -> None:
    blocks = (
        ContextBlock("memory", "profile of the user", "Prefers metric units."),
        ContextBlock("time", "t", "Monday"),
        ContextBlock("memory", "memories of earlier conversations", "Has a kiln.\nLikes \x1b[2Jtea. (2026-11)"),
    )
    item = TranscriptItem("n", Role.USER, "You", text="how hot?", blocks=blocks)
    folded, unfolded = (text_of(foot_rows(item, 80, Folds(context=context))) for context in (False, True))
    assert folded == ["▸ sent with: 3 memories, time", ""]
    assert unfolded[1:3] == ["│ profile of the user", "│ Prefers metric units."]
    assert unfolded[-4:-1] == ["│ memories of earlier conversations", "│ Has a kiln.", "│ Likes ␛[2Jtea. (2026-11)"]
    assert context_summary(blocks[:1]) == "sent with: 1 memory"


def test_a_summary_of_earlier_turns_is_called_what_it_is() -> None:
    block = ContextBlock("summary", "summary of 14 earlier turns", "They counted nights.")
    together = context_summary([block, ContextBlock("time", "t", "Monday")])
    assert together == "sent with: summary of 14 earlier turns, time"
    item = TranscriptItem("n", Role.USER, "You", text="and now?", blocks=(block,))
    folded, unfolded = (
        "\n".join(row.text for row in foot_rows(item, 80, Folds(context=context))) for context in (False, True)
    )
    assert "▸ sent with: summary of 14 earlier turns" in folded
    assert unfolded.count("summary of 14 earlier turns") == 2 and "They counted nights." in unfolded


def test_reasoning_streams_folded_with_a_count() -> None:
    item = TranscriptItem("n", Role.ASSISTANT, "M", reasoning="one two three", streaming=True, state=State.STREAMING)
    assert text_of(head_rows(item, 40, Folds()))[1] == "▸ thinking, 3 words"
    assert text_of(head_rows(item, 40, Folds(reasoning=True)))[1:3] == ["▾ thinking, 3 words", "│ one two three"]


def test_a_finished_message_ends_with_one_empty_row() -> None:
    assert text_of(foot_rows(TranscriptItem("n", Role.USER, "You", text="x"), 40, Folds())) == [""]


def test_the_reading_row_tells_reused_new_speed_and_time_left() -> None:
    row = _text(reading_row(110, total=3812, cached=3764, processed=3795, speed=312, seconds_left=0.1))
    assert row.endswith("3,764 cached · 31/48 new · 312 tok/s · 0.10 s left")
    assert row.count("█") > 30 and 1 <= row.count("▒") <= 8 and "░" not in row


def test_wasted_work_is_drawn_apart_and_named() -> None:
    runs = reading_row(130, total=3812, cached=2000, processed=3800, wasted=1764)
    row = _text(runs)
    assert "1,764 wasted" in row and "1,800/1,812 prefilled" in row and "speed unknown" in row
    assert row.index("█") < row.index("░") and {s.tone for s in runs if "░" in s.text} == {"wasted"}


def test_the_reading_row_never_jumps_while_it_counts() -> None:
    widths = {len(_text(reading_row(100, total=1500, cached=300, processed=n, speed=300))) for n in range(300, 1501, 7)}
    assert len(widths) == 1


def test_progress_rows_fit_any_width() -> None:
    for width in range(24, 130):
        for runs in (
            reading_row(width, total=99_999, cached=5, processed=50_000, speed=3.0, seconds_left=7200, wasted=9_000),
            unknown_reading_row(width, 75.0),
            waiting_row(width, "queued", 12.0, True),
        ):
            assert cell_len(_text(runs)) <= width


def test_what_is_unknown_is_shown_as_unknown() -> None:
    assert "progress unknown · 4.2 s · size unknown" in _text(unknown_reading_row(100, 4.2))
    assert _text(waiting_row(80, "queued", 12, True)) == "◌ waiting for the server, alive · 12.0 s"
    assert "not checked yet" in _text(waiting_row(80, "loading", 3, None))


def test_the_guard_makes_controls_visible_and_passes_clean_lines_on() -> None:
    guard, black = ControlFilter(), Color(0, 0, 0)
    clean = [Segment("a plain line · 漢字", Style(bold=True))]
    assert guard.apply(clean, black) is clean
    family = [Segment("👨\u200d👩\u200d👧")]
    assert guard.apply(family, black) == family
    dirty = [Segment("\x1b]52;c;UFdORUQ=\x07", Style(bold=True)), Segment("\x9b2J\u202e\x7f\n"), Segment("ok")]
    result = guard.apply(dirty, black)
    assert [segment.text for segment in result] == ["␛]52;c;UFdORUQ=␇", "\ufffd2J\ufffd␡ ", "ok"]
    assert result[0].style == Style(bold=True)
    assert [segment.text for segment in guard.apply([Segment("a\tb\nc")], black)] == ["a b c"], "a cell is a cell"


def test_a_dear_flush_is_followed_by_a_long_rest() -> None:
    pace = Pace()
    assert pace.delay(100.0) == 0
    pace.painted(100.0, 0.001)
    assert abs(pace.delay(100.0) - FRAME) < 1e-9
    pace.painted(200.0, 0.5)
    assert abs(pace.delay(200.2) - (REST * 0.5 - 0.2)) < 1e-9


def test_an_answer_that_called_a_tool_says_so_with_its_words_and_without() -> None:
    note = "The model called the tool f(\x1b[2J). kvchat has no tools."
    told = "The model called the tool f(␛[2J). kvchat has no tools."
    empty = TranscriptItem("n", Role.ASSISTANT, "M", state=State.EMPTY, note=note)
    assert text_of(foot_rows(empty, 120, Folds())) == [f"▲ The answer is empty: {told} · r retry", ""]
    whole = TranscriptItem("n", Role.ASSISTANT, "M", text="Let me look.", note=note)
    assert text_of(foot_rows(whole, 120, Folds())) == [f"▲ {told}", ""]


def test_keys_of_messages_are_named_with_the_way_there_while_the_focus_is_elsewhere() -> None:
    block = ContextBlock(PASSAGE, "[1] a.md", "x", "docs/a/a.md#1")
    half = TranscriptItem("n", Role.ASSISTANT, "M", text="Half [1].", state=State.CANCELLED, sources=((1, block),))

    def foot(item: TranscriptItem, has_keys: bool, width: int = 120) -> str:
        return "\n".join(text_of(foot_rows(item, width, Folds(), selected=True, has_keys=has_keys)))

    assert "■ Stopped · Tab, then c continue" in foot(half, False)
    assert "o open" not in foot(half, False)
    assert "■ Stopped · c continue" in foot(half, True)
    assert "o open" in foot(half, True)
    assert "■ Stopped · Tab, then c send “Continue.”" in foot(replace(half, goes_on=False), False)
    failed = replace(half, state=State.ERROR, note="out of memory")
    assert "│ c send “Continue.”   r retry   y copy " in foot(replace(failed, goes_on=False), True)
    assert "│ Tab, then c continue   r retry   y copy " in foot(failed, False)
    assert {cell_len(row) for row in foot(failed, False, 40).splitlines() if row[:1] in "╭│╰" and row} == {40}


def test_the_keys_that_messages_name_are_those_in_force() -> None:
    block = ContextBlock(PASSAGE, "[1] a.md", "x", "docs/a/a.md#1")
    half = TranscriptItem("n", Role.ASSISTANT, "M", text="Half [1].", state=State.LENGTH, sources=((1, block),) * 20)

    def key(id: str) -> str:
        return {"composer.messages": "F11", "transcript.source": "Alt+O"}.get(id, f"<{id.partition('.')[2]}>")

    def foot(item: TranscriptItem, has_keys: bool = True) -> str:
        return "\n".join(text_of(foot_rows(item, 90, Folds(), selected=True, has_keys=has_keys, key=key)))

    assert "▲ Cut at max tokens · <continue> continue · <regenerate> retry" in foot(half)
    assert "Alt+O shows all  Alt+O open" in foot(half)
    assert "· F11, then <continue> continue" in foot(half, False)
    failed = foot(replace(half, state=State.ERROR, note="out of memory"), False)
    assert "│ F11, then <continue> continue   <regenerate> retry   <copy> copy " in failed
    assert {cell_len(row) for row in failed.splitlines() if row[:1] in "╭│╰" and row} == {90}
    versions = replace(half, siblings=(1, 2))
    (row,) = text_of(head_rows(versions, 90, Folds(), selected=True, key=key))
    assert "version 1/2  <sibling_previous> <sibling_next>" in row


def test_a_cut_answer_names_its_limit_and_the_key_that_goes_on() -> None:
    def foot(state: State, text: str = "Half", **more: object) -> str:
        item = TranscriptItem("n", Role.ASSISTANT, "M", text=text, state=state, **more)  # type: ignore[arg-type]
        return "\n".join(text_of(foot_rows(item, 120, Folds())))

    figures = TurnFigures(predicted_tokens=160)
    assert foot(State.LENGTH, figures=figures) == "▲ Cut at max tokens (160) · c continue · r retry\n"
    assert foot(State.CANCELLED) == "■ Stopped · c continue\n"
    assert foot(State.INTERRUPTED) == "▲ Interrupted · c continue · r retry\n"
    assert "c continue   r retry   y copy" in foot(State.ERROR, note="out of memory")
    assert "c continue" in foot(State.CANCELLED, "", reasoning="I th")
    for state in (State.CANCELLED, State.INTERRUPTED, State.ERROR):
        assert "c continue" not in foot(state, "")
    for state in (State.DONE, State.EMPTY, State.CONTEXT_FULL):
        assert "c continue" not in foot(state)

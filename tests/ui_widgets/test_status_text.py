"""What the status line says in each case."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvchat.cache.causes.cause import Reason, Remedy
from kvchat.figures.accounting import NOISE, PromptProgress, TurnFigures
from kvchat.prompt.message import State
from kvchat.ui.runs import fit, plain, width_of
from kvchat.ui.widgets.bars import bar, sparkline
from kvchat.ui.widgets.status_text import Live, running, settled, warm_up_runs
from kvchat.values import Statement, statement

WIDTHS = (80, 100, 120, 200)


def turn(
    prompt: int,
    cached: int | None,
    new: int | None,
    *,
    ttft: float = 140,
    predicted: int | None = 31,
    prompt_ms: float | None = None,
) -> TurnFigures:
    if prompt_ms is None and cached is not None:
        prompt_ms = (prompt - cached) / 350 * 1000
    return TurnFigures(prompt, cached, predicted, new, ttft, prompt_ms, 500, 8192)


FIRST = turn(2206, 0, 2206, ttft=6310, prompt_ms=6200)
PERFECT = turn(3812, 3763, 48)
WASTED = turn(3900, 2465, 48, ttft=4300)
NO_CACHE = turn(2206, None, 40)
CANCELLED = TurnFigures(ttft_ms=None)


def because(other: str) -> TurnFigures:
    """Another conversation, named `other`, took the slot."""
    taken = statement(Reason.OTHER_CONVERSATION, {"name": other})
    return replace(WASTED, cause="slot_taken", evidence=taken, remedy=statement(Remedy.MORE_SLOTS, {"flag": "-np 2"}))


def said(*turns: TurnFigures, width: int = 120, **options: object) -> str:
    return plain(settled(turns, width, **options))  # type: ignore[arg-type]


def test_before_the_first_turn_nothing_was_read() -> None:
    assert said() == "ready"
    assert said(ready=False) == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_a_first_turn_is_told_in_the_same_words_as_any_other(width: int) -> None:
    assert said(FIRST, width=width) == "0 tokens cached · 2,206 new · TTFT 6.3 s"


def test_a_first_turn_on_a_shared_system_prompt_counts_only_what_was_prefilled() -> None:
    assert said(turn(2206, 1848, 2206)).startswith("1,848 tokens cached · 358 new")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_perfect_turn_has_its_figures_and_no_percentage(width: int) -> None:
    assert said(FIRST, PERFECT, PERFECT, width=width) == "3,763 tokens cached · 49 new · TTFT 0.14 s"


def test_wasted_tokens_are_one_sentence_with_cost_cause_and_key() -> None:
    line = said(FIRST, PERFECT, because("weather"))
    assert line == "1,387 wasted (4.0 s): “weather” took this conversation's slot.  F2 why"
    assert [p.tone for p in settled([FIRST, WASTED], 120) if "wasted" in p.text] == ["alert"]


def test_the_tokens_stand_once_in_the_sentence() -> None:
    line = said(FIRST, replace(because(""), evidence=statement(Reason.FOREIGN, {})))
    assert "1,387 wasted (4.0 s): another program used the model.  F2 why" in line and line.count("1,387") == 1


def test_a_cause_without_evidence_is_still_named_and_the_key_is_the_persons_own() -> None:
    line = said(FIRST, replace(WASTED, cause="restarted"), key="F6")
    assert "(4.0 s): server restarted." in line and line.endswith("F6 why")


def test_wasted_tokens_without_a_cause_are_still_told() -> None:
    assert said(FIRST, WASTED) == "1,387 tokens wasted (4.0 s), cause unknown.  F2 details"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (statement(Reason.UNKNOWN, {}), "cause unknown."),
        (
            statement(Reason.SAME_BEGINNING, {"tokens": 2400}),
            "wasted (4.0 s): the first 2,400 are the same, cause unknown.",
        ),
        (
            statement(Reason.FEWER_THAN_EXPECTED, {"cached": 60, "expected": 90}),
            "60 tokens were reused where 90 were expected, cause unknown.",
        ),
    ],
)
def test_a_key_that_tells_no_more_of_an_unknown_cause_does_not_say_why(reason: Statement, words: str) -> None:
    line = said(FIRST, replace(WASTED, cause="unknown", evidence=reason))
    assert words in line and line.endswith("F2 details") and "why" not in line


def test_once_seen_the_figures_come_back_and_still_own_up() -> None:
    line = said(FIRST, WASTED, seen=True)
    assert "2,465 tokens cached" in line and "1,387 wasted" in line and "again" not in line


@pytest.mark.parametrize(("extra", "mentioned"), [(0, False), (NOISE, False), (NOISE + 1, True)])
def test_the_noise_is_not_worth_a_word(extra: int, mentioned: bool) -> None:
    line = said(FIRST, turn(3812, 3764 - extra, 48))
    assert ("wasted" in line) is mentioned


def test_what_the_server_does_not_report_is_said_and_never_zero() -> None:
    line = said(FIRST, NO_CACHE)
    assert line == "2,206 prompt tokens · cached: not reported by this server · TTFT 0.14 s"
    assert said(NO_CACHE, width=80) == line


def test_a_turn_stopped_before_its_figures_says_so() -> None:
    assert said(FIRST, CANCELLED, state=State.CANCELLED) == "stopped before the server reported its figures"
    assert said(FIRST, CANCELLED, state=State.INTERRUPTED) == "cut off before the server reported its figures"


def test_after_a_stopped_turn_what_was_new_is_unknown_but_the_cache_is_not() -> None:
    line = said(FIRST, CANCELLED, turn(3812, 3700, None))
    assert line.startswith("3,700 tokens cached · 112 prefilled")


def test_a_stopped_turn_with_figures_is_told_like_any_other() -> None:
    assert said(FIRST, PERFECT, state=State.CANCELLED) == said(FIRST, PERFECT)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_sentence_fits_its_screen(width: int) -> None:
    cause = "the title request of another client took the slot and then a very long explanation follows it " * 3
    for turns in ([], [FIRST], [FIRST, PERFECT], [FIRST, because(cause)], [NO_CACHE], [FIRST, CANCELLED]):
        assert width_of(settled(turns, width)) <= width - 2
    warning = plain(settled([FIRST, because(cause)], width))
    assert "1,387 wasted (4.0 s)" in warning and warning.endswith("F2 why")


def test_a_cause_from_outside_cannot_carry_escapes() -> None:
    assert "\x1b" not in said(FIRST, because("slot \x1b[2J taken\nby x"))


def test_while_it_answers_the_numbers_keep_their_places() -> None:
    lines = [plain(running(Live(0.14 + n / 58.2, first_token=0.14, tokens=n), 120)) for n in (20, 178, 1780)]
    assert lines[1] == "answering ·   58.2 tok/s ·    178 tokens ·   3.2 s · TTFT 0.14 s"
    assert len({line.find("tok/s") for line in lines}) == 1
    assert len({line.find("TTFT") for line in lines}) == 1


def test_an_estimate_is_marked() -> None:
    assert "~31 tok" in plain(running(Live(1.0, first_token=0.1, tokens=31, estimated=True), 120))


def test_no_speed_is_claimed_from_the_first_instant() -> None:
    assert "– tok/s" in plain(running(Live(0.11, first_token=0.1, tokens=1), 120))


def test_while_the_prompt_is_read_it_says_how_far() -> None:
    live = Live(0.1, PromptProgress(3812, 3764, 3795, 60))
    assert plain(running(live, 120)) == "prefill ·  3,764 cached · 31/48 new ·  0.10 s"
    assert plain(running(live, 80)) == "prefill 31/48 (+3.8k cached) ·  0.10 s"


def test_a_long_read_says_what_is_left() -> None:
    assert plain(running(Live(2.0, PromptProgress(2206, 0, 706, 2000)), 120)).endswith("about 4.2 s left")


def test_waiting_and_stopping_are_said() -> None:
    assert "waiting for a free slot" in plain(running(Live(3, waiting="waiting for a free slot"), 120))
    assert "stopping…" in plain(running(Live(3, first_token=1, tokens=5, stopping=True), 120))
    assert "waiting for the server" in plain(running(Live(0.1), 120))


def test_reading_ahead_says_how_far_it_is() -> None:
    progress = PromptProgress(total=4000, cached=600, processed=1804)
    pieces = warm_up_runs(progress, 80)
    assert plain(pieces) == "warm-up ▕▒▒▒▒        ▏ 1,204/3,400"
    assert {piece.tone for piece in pieces} == {"quiet"}
    assert plain(warm_up_runs(progress, 26)) == "warm-up ▕▒   ▏ 1,204/3,400"
    assert plain(warm_up_runs(progress, 24)) == "warm-up 1,204/3,400"
    assert plain(warm_up_runs(None, 80)) == "warm-up …"


@pytest.mark.parametrize("room", [20, 32, 40, 80])
def test_reading_ahead_never_jumps(room: int) -> None:
    widths = {width_of(warm_up_runs(PromptProgress(4000, 600, done), room)) for done in range(600, 4001, 50)}
    assert len(widths) == 1


def test_the_sparkline_shows_the_last_turns_right_aligned() -> None:
    assert sparkline([0.0, None, 0.5, 1.0, 0.999], 8) == "   ▁·▅██"
    assert sparkline([0.0] * 20 + [1.0], 4) == "▁▁▁█"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.33, 0.47, 1.0, 1.7])
def test_a_bar_always_has_its_width(share: float) -> None:
    assert len(bar(share, 16)) == 16
    assert (bar(share, 16).strip() == "") is (share == 0)


def test_text_is_cut_by_cells() -> None:
    assert fit("漢字漢字", 5) == "漢字…"
    assert fit("abc", 0) == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_an_estimate_is_marked_and_its_noise_is_no_waste(width: int) -> None:
    guessed = replace(turn(3812, 3500, 48), estimated=True)
    line = said(FIRST, guessed, width=width)
    assert "~" in line and "wasted" not in line
    assert "~" not in said(FIRST, replace(guessed, estimated=None), width=width)


def test_an_estimate_of_much_that_was_read_again_is_told() -> None:
    assert "~1,387 tokens wasted" in said(FIRST, replace(WASTED, estimated=True))

"""The cache inspector."""

from __future__ import annotations

from datetime import UTC
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from screens_kit import Grower, Shown, Source, T, a_report, conversation, figures, opened, showing

from kvchat.cache.causes.cause import Reason, Remedy
from kvchat.chat.errors import ChatError
from kvchat.chat.events import Noticed, WarmthChanged
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.speed import SpeedFit
from kvchat.figures.stats import Answered, begins, span, stats
from kvchat.prompt.lint import lint
from kvchat.reports.cache_report import CacheReport, MessageCells, TurnReport
from kvchat.reports.warmth import Heat, Warmth
from kvchat.ui.screens.inspector import PATIENCE, InspectorScreen, cells_of
from kvchat.values import said

SERVER = SimpleNamespace(
    kind="llama.cpp",
    base_url="http://127.0.0.1:8080",
    host_class="loopback",
    model="/models/SmolLM2-135M.gguf",
    context_size=8192,
    slots=4,
    build="b7130",
    embedded=False,
)
SILENT = SimpleNamespace(
    kind="openai",
    base_url="http://box:1",
    host_class="lan",
    model="",
    context_size=None,
    slots=None,
    build="",
    embedded=False,
)
BARE = CacheReport("5e55" * 8, "lighthouse log", Warmth())
SIZES = [(80, 24), (120, 40), (200, 60)]


def inspector(report: CacheReport | ChatError | Source, server: object = SERVER) -> InspectorScreen:
    g = Grower()
    root = g.system()
    talk = opened(conversation("lighthouse log", id="5e55" * 8), g.tree, root.id)
    source = report if isinstance(report, Source) else Source(report, server)
    return InspectorScreen(talk, *source.parts, pin=lambda: None)


def of_turns(*costs: TurnFigures | None) -> CacheReport:
    return replace(BARE, turns=tuple(TurnReport(f"question {i + 1}", cost) for i, cost in enumerate(costs)))


def turn_line(shown: Shown, number: int) -> str:
    return next(line for line in shown.lines if line.strip(" │▌").startswith(f"{number} "))


# The turns.


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_each_turn_has_a_bar_and_its_numbers(size: tuple[int, int]) -> None:
    report = of_turns(figures(1848, 0, 1848, ttft=5280), figures(1916, 1868, 48), figures(2000, 613, 64))
    async with showing(inspector(report), size=size) as shown:
        first, second, third = (turn_line(shown, n) for n in (1, 2, 3))
        assert "▒▒▒" in first and "█" not in first
        assert first.split("▒")[-1].split()[:5] == ["0", "1,848", "0", "5.3", "s"]
        assert "█▒" in second and "░" not in second
        assert second.split("▒")[-1].split() == ["1,868", "48", "0", "0.14", "s", "333/s", "59/s", "│"]
        assert third.split("░")[-1].split()[:3] == ["613", "64", "1,323"]
        assert third.count("░") > third.count("█") > 0


@pytest.mark.parametrize("size", SIZES)
async def test_the_turn_under_the_cursor_tells_its_cause_and_what_helps(size: tuple[int, int]) -> None:
    async with showing(inspector(a_report()), size=size) as shown:
        assert "Turn 4: 1 token re-evaluated (normal for llama.cpp)." in shown.prose
        await shown.press("up")
        assert shown.cursor_line.strip(" │▌").startswith("3 ")
        assert (
            "Turn 3: ░ 1,323 tokens prefilled again (4.0 s): another program used the model: slot 0 holds 318 tokens "
            "that are not ours." in shown.prose
        )
        assert "→ Start the server with --parallel 2." in shown.prose
        assert "Predicted 1,936 cached tokens, server says 613." in shown.prose
        await shown.press("home")
        assert "Turn 1: the first turn: nothing to reuse yet." in shown.prose


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (
            replace(figures(2000, 613, 64), evidence=said(Reason.RESTARTED), remedy=said(Remedy.SEND_CACHE_PROMPT)),
            "(4.0 s): the server restarted. → Remove cache_prompt = false from the parameters.",
        ),
        (replace(figures(2000, 613, 64), cause="restarted"), "(4.0 s): server restarted."),
        (
            replace(
                figures(2000, 613, 64),
                evidence=said(Reason.OTHER_WINDOW, now=8192, before=4096),
                remedy=said(Remedy.KEEP_WINDOW, setting="server.context_size"),
            ),
            "(4.0 s): the model was loaded with a window of 8,192 tokens in place of 4,096. → Keep the setting "
            "server.context_size as it is",
        ),
        (figures(2000, 613, 64), "1,323 tokens prefilled again (4.0 s): cause unknown."),
        (figures(2000, 1936, 64), "Turn 2: nothing wasted."),
        (TurnFigures(2000, 1936, 20, None), "Turn 2: waste unknown: the previous turn was stopped"),
        (TurnFigures(ttft_ms=310), "Turn 2: waste not reported by this server."),
        (None, "Turn 2: no figures on this branch yet."),
    ],
)
async def test_a_turn_without_a_finding_says_what_its_figures_say(cost: TurnFigures | None, words: str) -> None:
    async with showing(inspector(of_turns(figures(1848, 0, 1848), cost))) as shown:
        assert words in shown.prose


@pytest.mark.parametrize("size", SIZES)
async def test_a_turn_that_called_tools_is_summed_beside_its_steps(size: tuple[int, int]) -> None:
    steps = [figures(1948, 1916, 32), figures(2100, 1949, 120), figures(2300, 2101, 199)]
    asked = ["question 2", "↳ read_file a.txt", "↳ read_file b.txt"]
    loop = [TurnReport(word, cost, goes_on=word[0] == "↳") for word, cost in zip(asked, steps, strict=True)]
    report = of_turns(figures(1916, 0, 1916))
    report = replace(report, turns=(*report.turns, *loop, TurnReport("question 3", figures(2400, 2350, 50))))
    async with showing(inspector(report), size=size) as shown:
        assert shown.cursor_line == turn_line(shown, 3) and "requests" not in shown.prose
        for at in (3, 2, 1):
            await shown.press("up")
            assert f"Turn 2, request {at} of 3: " in shown.prose
            assert "Turn 2 in 3 requests: 5,966 cached · 351 new · 31 wasted." in shown.prose
        assert shown.cursor_line == turn_line(shown, 2)
        await shown.press("up")
        assert "Turn 1: " in shown.prose and "requests" not in shown.prose


async def test_what_the_server_does_not_report_is_unknown_and_never_zero() -> None:
    report = of_turns(TurnFigures(ttft_ms=310), None)
    async with showing(inspector(report, SILENT)) as shown:
        assert turn_line(shown, 1).split()[2:] == ["not", "reported", "–", "–", "–", "0.31", "s", "–", "–", "│"]
        assert "no figures" in turn_line(shown, 2)
        assert "· unknown" in shown.line("~ estimate")
        assert "the last request has no figures" in shown.text
        assert "0 %" not in shown.text and " 0 " not in shown.text


async def test_a_long_conversation_begins_at_its_newest_turn_and_scrolls() -> None:
    report = of_turns(*(figures(2000 + i, 1990 + i, 10) for i in range(300)))
    async with showing(inspector(report)) as shown:
        assert turn_line(shown, 300) == shown.cursor_line
        await shown.press("home")
        assert turn_line(shown, 1) and " 300 " not in shown.text
        await shown.press("end")
        assert turn_line(shown, 300)


# Above them.


@pytest.mark.parametrize("size", SIZES)
async def test_the_newest_request_stands_above_everything(size: tuple[int, int]) -> None:
    async with showing(inspector(a_report()), size=size) as shown:
        assert "● warm · 2,119 tokens in the cache, used 4 min ago" in shown.text
        bar = shown.line("2,019 cached · 81 new · 0 wasted")
        assert bar.count("█") >= 20 and "▒▏" in bar and "░" not in bar
        assert "last request" in bar and "%" not in shown.text.partition("conversation")[0]


@pytest.mark.parametrize(
    ("warmth", "words"),
    [
        (
            Warmth(Heat.PARKED, 1930, 412, T - 7500),
            "◐ partly warm · 412 tokens to prefill · 1,930 in the cache, used 2 h ago",
        ),
        (Warmth(Heat.COLD, 0, 8120), "○ cold · 8,120 tokens to prefill"),
        (Warmth(), "· unknown"),
    ],
)
async def test_how_warm_the_conversation_is(warmth: Warmth, words: str) -> None:
    async with showing(inspector(a_report(warmth=warmth)), size=(120, 40)) as shown:
        assert words in shown.text


# The messages.


@pytest.mark.parametrize("size", SIZES)
async def test_each_message_has_its_tokens_and_what_became_of_them(size: tuple[int, int]) -> None:
    async with showing(inspector(a_report()), size=size) as shown:
        await shown.press("tab")
        for words, glyph, tokens in (
            ("0 system", "█", "1,810"),
            ("you     How many", "█", "38"),
            ("2 answer  ", "█", "171"),
            ("you     And", "▒", "81"),
        ):
            line = shown.line(words)
            assert glyph in line and f" {tokens} " in line and "░" not in line
        assert "Everything came from the cache." in shown.prose
        await shown.press("shift+tab")
        assert turn_line(shown, 1)


async def test_the_cursor_goes_to_where_the_prompts_part() -> None:
    report = a_report()
    async with showing(inspector(replace(report, turns=report.turns[:3]))) as shown:
        await shown.press("tab")
        assert "≠ 1 you" in shown.cursor_line
        assert "The prompt differs here from the cache, after 613 tokens." in shown.prose
        assert "held “You are a title generator.” sent “How many nights did the lamp turn?”" in shown.prose
        await shown.press("down")
        assert "The prompt differs in message 1 from the cache" in shown.prose


async def test_lengths_that_are_estimates_are_marked_and_unknown_ones_have_no_bar() -> None:
    cells = (MessageCells("s", "system", "Be brief.", 12), MessageCells("q", "user", "Why?"))
    async with showing(inspector(a_report(exact=False, messages=cells))) as shown:
        await shown.press("tab")
        assert "~12" in shown.line("system") and "not known" in shown.line("system")
        assert shown.line(" you ").rstrip(" │").endswith("–")
        assert "~ estimate" in shown.text


async def test_without_messages_there_is_a_word() -> None:
    async with showing(inspector(BARE)) as shown:
        assert "No request yet." in shown.text
        await shown.press("tab")
        assert "Tokens per message: not known yet." in shown.text


@pytest.mark.parametrize("width", [60, 64, 72, 80])
async def test_a_narrow_terminal_keeps_the_number_of_each_turn(width: int) -> None:
    async with showing(inspector(a_report()), size=(width, 24)) as shown:
        assert [turn_line(shown, number) for number in (1, 2, 3, 4)]


# The sums and the server.


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_a_tall_screen_shows_the_sums_below_the_turns(size: tuple[int, int]) -> None:
    async with showing(inspector(a_report()), size=size) as shown:
        assert turn_line(shown, 4) and shown.line("wasted by")
        assert shown.line("exact in 41 of 43 requests") and shown.line("slot 1")
        assert "send as is" not in shown.text, "how it was sent is told where something had to be brought back"


async def test_what_changes_by_itself_in_the_system_prompt_is_told_first() -> None:
    async with showing(inspector(a_report(warnings=lint("Today is 2026-11-21.")))) as shown:
        await shown.press("shift+tab")
        assert "! prompt “Today is 2026-11-21” in line 1 of the system prompt: A date or a time is soon" in shown.prose


async def test_sums_states_and_server_are_one_key_away_on_a_low_screen() -> None:
    wasted = {"other_client": (1, 1323), "other_window": (1, 900)}
    async with showing(inspector(a_report(here=replace(a_report().here, misses=wasted)))) as shown:
        assert "wasted by" not in shown.text
        await shown.press("shift+tab")
        seen = shown.prose
        await shown.press("end")
        seen += shown.prose
    for words in (
        "4,500 1,323 77 % 13.5 s",
        "48,201",
        "reuse cached share of what was sent before; new text does not count",
        "wasted by another client: 1 answer, 1,323 tokens; window changed: 1 answer, 900 tokens",
        "7 days server restarted: 2 answers, 3,100 tokens; another",
        "2 requests, 1,204 tokens, 3.1 s · 7 days: 9 requests, 8,120 tokens, 21 s",
        "prefill 350 tok/s at the start, 290 tok/s after 4k tokens (average of",
        "slot 0 lighthouse log · 2,119 tokens, used 4 min ago",
        "slot 1 weather · 2,101 tokens, used 1 h ago",
        "host cache of another client · 1,930 tokens",
        "cache A request goes to the slot",
        "llama.cpp · this machine · http://127.0.0.1:8080",
        "SmolLM2-135M · build b7130",
        "8,192 tokens a conversation · 4 slots",
    ):
        assert words in seen


@pytest.mark.parametrize("size", SIZES)
async def test_the_days_of_the_week_stand_below_their_sums(size: tuple[int, int]) -> None:
    week = span(T, 7, UTC)
    turns = [
        (0, figures(1000, 0, 1000)),
        (1, figures(1000, 899, 100)),
        (1, figures(1100, 999, 100)),
        (4, figures(2000, 400, 100)),
        (5, TurnFigures(ttft_ms=9.0)),
        (6, figures(1000, 940, 10)),
    ]
    found = stats([Answered(begins(week[day], UTC), ("http://a", "m"), turn) for day, turn in turns], {}, week, UTC)
    async with showing(inspector(a_report(days=found.days, warnings=())), size=size) as shown:
        if size[1] < 36:
            await shown.press("shift+tab")
        shares = shown.line("reuse by day")
        names = shown.lines[shown.lines.index(shares) - 1]
        assert names.strip(" │").split() == ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        assert shares.strip(" │").split()[3:] == ["–", "100", "%", "–", "–", "21", "%", "–", "95", "%"]
        for name, last in (("Sun", "–"), ("Mon", "%"), ("Thu", "%"), ("Sat", "%")):
            assert shares[names.index(name) + 2] == last
    async with showing(inspector(a_report()), size=(120, 40)) as shown:
        assert "reuse by day" not in shown.text


async def test_what_is_not_known_of_the_server_says_so() -> None:
    async with showing(inspector(BARE, None), size=(120, 40)) as shown:
        for name, words in (
            ("prediction", "nothing predicted yet"),
            ("prefill    ", "not measured yet"),
            ("wasted by", "nothing"),
            ("slots  ", "contents unknown"),
            ("cache  ", "unknown for this server"),
            ("server  ", "not connected"),
            ("conversation", "no answers yet"),
        ):
            assert words in shown.line(f"  {name}")
    async with showing(inspector(a_report(speed=SpeedFit(1 / 350, 0, 1)), SILENT), size=(200, 60)) as shown:
        assert "350 tok/s at the start (average of 1 request)" in shown.text
        assert "unknown tokens a conversation · unknown slots" in shown.text


# Its life.


async def test_it_looks_again_when_the_cache_changes_and_keeps_the_cursor() -> None:
    source = Source(a_report(), SERVER)
    async with showing(inspector(source)) as shown:
        await shown.press("home", "down")
        source.known = a_report(turns=(*a_report().turns, TurnReport("one more", figures(2300, 2120, 180))))
        for event in (Noticed("nothing to do with it"), WarmthChanged(), WarmthChanged()):
            source.tell(event)
        await shown.pilot.pause(PATIENCE * 1.5)
        assert len(source.asked) == 2
        assert turn_line(shown, 5) and shown.cursor_line.strip(" │▌").startswith("2 ")
        assert "2,120 cached · 180 new" in shown.text
        await shown.press("escape")
        source.tell(WarmthChanged())
        await shown.pilot.pause(PATIENCE * 1.5)
        assert shown.answers == [None] and len(source.asked) == 2


async def test_the_cursor_on_the_newest_turn_goes_along() -> None:
    source = Source(of_turns(figures(1848, 0, 1848)), SERVER)
    async with showing(inspector(source)) as shown:
        source.known = of_turns(figures(1848, 0, 1848), figures(1916, 1868, 48))
        source.tell(WarmthChanged())
        await shown.pilot.pause(PATIENCE * 1.5)
        assert shown.cursor_line.strip(" │▌").startswith("2 ")


async def test_a_conversation_that_cannot_be_read_is_a_sentence() -> None:
    async with showing(inspector(ChatError.of("This conversation is gone."))) as shown:
        assert "This conversation is gone." in shown.text
        await shown.press("tab", "up", "down", "escape")
        assert shown.answers == [None]


@pytest.mark.parametrize(
    ("cost", "cells"),
    [
        (figures(1000, 0, 1000), (0, 10, 0)),
        (figures(1000, 999, 0), (10, 0, 0)),
        (figures(1000, 990, 10), (9, 1, 0)),
        (figures(1000, 500, 100), (5, 1, 4)),
        (figures(500, 250, 0), (2, 0, 2)),
    ],
)
def test_a_bar_shows_all_that_is_more_than_noise(cost: TurnFigures, cells: tuple[int, int, int]) -> None:
    found = cells_of(cost, 1000, 10)
    assert sum(found) <= 10
    if cost.wasted_tokens == 1:
        assert found[2] == 0
    else:
        assert found == cells

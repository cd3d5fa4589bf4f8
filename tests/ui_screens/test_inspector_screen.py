"""The cache inspector."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from screens_kit import Grower, Shown, conversation, figures, opened, showing

from kvchat.cache.accounting import Totals, TurnFigures, totals
from kvchat.chat.live import OpenConversation
from kvchat.ui.screens.inspector import InspectorScreen, cells_of

SERVER = SimpleNamespace(kind="llama.cpp", base_url="http://127.0.0.1:8080", host_class="loopback",
                         model="/models/SmolLM2-135M.gguf", context_size=8192, slots=4, build="b7130", embedded=False)
SILENT = SimpleNamespace(kind="openai", base_url="http://box:1", host_class="lan", model="", context_size=None,
                         slots=None, build="", embedded=False)


def talk_of(*costs: TurnFigures | None) -> OpenConversation:
    g = Grower()
    at = g.system()
    for i, cost in enumerate(costs):
        at = g.answer(g.ask(at, f"question {i + 1}"), f"answer {i + 1}", cost=cost)
    return opened(conversation("lighthouse log", id="5e55" * 8), g.tree, at.id)


def turn_line(shown: Shown, number: int) -> str:
    return next(line for line in shown.lines if line.strip(" │").startswith(f"{number} "))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_each_turn_has_a_bar_and_its_numbers(size: tuple[int, int]) -> None:
    talk = talk_of(figures(1848, 0, 1848, ttft=5280), figures(1916, 1868, 48), figures(2000, 613, 64))
    async with showing(InspectorScreen(talk, server=SERVER), size=size) as shown:
        first, second, third = (turn_line(shown, n) for n in (1, 2, 3))
        assert "▒▒▒" in first and "█" not in first
        assert first.split("▒")[-1].split()[:5] == ["0", "1,848", "0", "5.3", "s"]
        assert "█▒" in second and "░" not in second
        assert second.split("▒")[-1].split() == ["1,868", "48", "0", "0.14", "s", "333/s", "59/s", "│"]
        assert third.split("░")[-1].split()[:3] == ["613", "64", "1,323"]
        assert third.count("░") > third.count("█") > 0


async def test_what_the_server_does_not_report_is_unknown_and_never_zero() -> None:
    talk = talk_of(TurnFigures(ttft_ms=310), None)
    async with showing(InspectorScreen(talk, server=SILENT, week=Totals())) as shown:
        assert turn_line(shown, 1).split()[2:] == ["not", "reported", "–", "–", "–", "0.31", "s", "–", "–", "│"]
        assert "no figures" in turn_line(shown, 2)
        assert "1 turn, not reported by this server" in shown.line("conversation   ")
        assert "no turns yet" in shown.line("last 7 days")
        assert "unknown tokens a conversation · unknown slots" in shown.text
        assert "unknown" in shown.line("model")
        assert "0 %" not in shown.text


async def test_totals_server_session_and_prefix_are_shown() -> None:
    talk = talk_of(figures(1848, 0, 1848), figures(1916, 1868, 48))
    week = totals([figures(50_000, 48_201, 1_799)])
    async with showing(InspectorScreen(talk, server=SERVER, week=week)) as shown:
        here = shown.line("conversation   ").split()
        assert here[2:9] == ["100", "%", "50", "%", "1,868", "0", "5.6"]
        assert "48,201" in shown.line("last 7 days")
        assert "llama.cpp · this machine · http://127.0.0.1:8080" in shown.text
        assert "SmolLM2-135M · build b7130" in shown.text
        assert "8,192 tokens a conversation · 4 slots" in shown.text
        assert "5e55" * 8 in shown.line("session")
        assert talk.path()[0].digest.hex()[:12] in shown.line("prefix")


async def test_without_a_server_and_without_turns_there_is_a_word_for_each() -> None:
    async with showing(InspectorScreen(talk_of())) as shown:
        assert "not connected" in shown.line("server")
        assert "Nothing has been asked yet." in shown.text
        await shown.press("escape")
        assert shown.answers == [None]


async def test_a_long_conversation_begins_at_its_newest_turn_and_scrolls() -> None:
    talk = talk_of(*(figures(2000 + i, 1990 + i, 10) for i in range(300)))
    async with showing(InspectorScreen(talk, server=SERVER)) as shown:
        assert turn_line(shown, 300)
        await shown.press("home")
        assert turn_line(shown, 1) and " 300 " not in shown.text
        await shown.press("end")
        assert turn_line(shown, 300)


@pytest.mark.parametrize(("cost", "cells"), [
    (figures(1000, 0, 1000), (0, 10, 0)),
    (figures(1000, 999, 0), (10, 0, 0)),
    (figures(1000, 990, 10), (9, 1, 0)),
    (figures(1000, 500, 100), (5, 1, 4)),
    (figures(500, 250, 0), (2, 0, 2)),
])
def test_a_bar_shows_all_that_is_more_than_noise(cost: TurnFigures, cells: tuple[int, int, int]) -> None:
    found = cells_of(cost, 1000, 10)
    assert sum(found) <= 10
    if cost.avoidable_tokens == 1:
        assert found[2] == 0
    else:
        assert found == cells

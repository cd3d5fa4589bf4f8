"""Header, status line and line of keys on a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widget import Widget

from kvchat.backends.dialect import HostClass, Reported, Waiting
from kvchat.cache.causes.cause import Reason
from kvchat.chat.conversations.live import LiveAnswer
from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.text.servers import model_name
from kvchat.ui.runs import plain, width_of
from kvchat.ui.widgets.header_text import HOSTS, HeaderState, left, meter
from kvchat.ui.widgets.status_text import Live
from kvchat.ui.widgets.statusline import Header, KeyBar, StatusLine, fitting, key_name, live_of
from kvchat.values import said

Hosting = Callable[..., Any]
READY = HeaderState("/models/SmolLM2-135M.gguf", "llama.cpp", "loopback", context_used=3812, context_size=8192)
KEYS = [("ctrl+n", "new"), ("ctrl+s", "list"), ("ctrl+r", "search"), ("f4", "export"), ("f1", "help")]
WIDTHS = (80, 100, 120, 200)


def line(widget: Widget) -> str:
    """The widget's line as it stands on the screen."""
    strip = widget.screen._compositor.render_strips()[widget.region.y]
    return strip.crop(widget.region.x, widget.region.right).text


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_header_has_model_and_place_left_and_the_meter_right(hosting: Hosting, width: int) -> None:
    header = Header()
    async with hosting(header).run_test(size=(width, 24)) as pilot:
        header.set_state(READY)
        await pilot.pause()
        text = line(header)
        assert len(text) == width
        assert text.startswith(" kvchat   SmolLM2-135M") and "this machine" in text
        assert text.endswith(f"▏ 3,812/8,192{' tokens' if width >= 100 else ''} ")


async def test_at_120_columns_the_header_is_as_drawn(hosting: Hosting) -> None:
    header = Header()
    async with hosting(header).run_test(size=(120, 24)) as pilot:
        header.set_state(READY)
        await pilot.pause()
        right = "context ▕███▊    ▏ 3,812/8,192 tokens "
        assert line(header) == " kvchat   SmolLM2-135M · llama.cpp · this machine".ljust(120 - len(right)) + right


def test_every_class_of_host_has_words() -> None:
    assert set(HOSTS) == {host.value for host in HostClass}


def test_a_cloud_server_is_never_quiet() -> None:
    pieces = left(HeaderState("gpt", "openai", "cloud"), 100)
    assert [p.tone for p in pieces if "cloud" in p.text] == ["badge"]
    quiet = left(HeaderState("m", "openai", "tailnet"), 100)
    assert [p.tone for p in quiet if "tailnet" in p.text] == ["quiet"]


def test_in_a_narrow_header_the_place_outlives_the_kind_and_the_end_of_the_name() -> None:
    state = HeaderState("a-very-long-model-name-that-does-not-fit-anywhere-Q4_K_M", "llama.cpp", "cloud")
    text = plain(left(state, 50))
    assert text.startswith("kvchat   a-very-long") and text.endswith("cloud ") and width_of(left(state, 50)) <= 50


def test_the_kind_of_server_gives_way_before_the_name() -> None:
    state = HeaderState("SmolLM2-135M-Instruct", "llama.cpp", "loopback")
    assert plain(left(state, 48)) == "kvchat   SmolLM2-135M-Instruct · this machine"
    assert plain(left(state, 60)) == "kvchat   SmolLM2-135M-Instruct · llama.cpp · this machine"


def test_the_title_comes_first_and_ends_before_it_hides_the_place() -> None:
    state = HeaderState("SmolLM2-135M-Instruct", "llama.cpp", "loopback", title="What do you sell in the workshop?")
    assert (
        plain(left(state, 100))
        == "What do you sell in the workshop?   SmolLM2-135M-Instruct · llama.cpp · this machine"
    )
    narrow = left(state, 48)
    assert plain(narrow) == "What do you sell i…   SmolLM2-13… · this machine" and width_of(narrow) <= 48
    assert [run.tone for run in narrow[:1]] == ["bright"]


def test_incognito_is_marked() -> None:
    assert "incognito" in plain(left(HeaderState("m", incognito=True), 100))


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("connecting", "llama.cpp on port"),  # the sentence says so
        ("starting", "llama.cpp on port"),
        ("lost", "connection lost"),
        ("none", "no server"),
    ],
)
def test_the_phases_of_the_connection(phase: str, words: str) -> None:
    text = plain(left(HeaderState("m", phase=phase, sentence="llama.cpp on port 8080 \x1b[2J"), 100))
    assert words in text and "port 8080" in text and "\x1b" not in text


def test_the_header_says_once_that_the_engine_starts() -> None:
    said = "Starting the built-in engine with SmolLM2-135M …"
    text = plain(left(HeaderState("m", phase="starting", sentence=said), 100))
    assert text.endswith(said) and text.lower().count("starting") == 1
    assert "starting engine…" in plain(left(HeaderState("m", phase="starting"), 100))


def test_the_meter_has_a_fixed_width_and_warns_when_nearly_full() -> None:
    states = [HeaderState(context_used=used, context_size=8192) for used in (None, 0, 12, 3812, 8192)]
    assert len({width_of(meter(state, 120)) for state in states}) == 1
    tones = [meter(HeaderState(context_used=used, context_size=8192), 120)[-2].tone for used in (3812, 7000, 8000)]
    assert tones == ["plain", "alert", "failure"]


def test_the_meter_warns_early_by_a_sign_and_then_by_a_stronger_one() -> None:
    shown = {
        used: plain(meter(HeaderState(context_used=used, context_size=1000), 120)).strip()[0]
        for used in (None, 0, 699, 700, 849, 850, 1000)
    }
    assert shown == {None: "c", 0: "c", 699: "c", 700: "△", 849: "△", 850: "▲", 1000: "▲"}


def test_an_unknown_window_is_a_dash_and_not_zero() -> None:
    assert plain(meter(HeaderState(context_used=3812), 120)) == "context  3,812/– tokens"
    about = meter(replace(READY, context_is_exact=False), 120)
    assert "▏~3,812/8,192" in plain(about) and width_of(about) == width_of(meter(READY, 120))
    assert "–/8,192" in plain(meter(HeaderState(context_size=8192), 120))
    assert meter(HeaderState(), 120) == []


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("/m/Qwen3-1.7B-Q4_K_M.gguf", "Qwen3-1.7B-Q4_K_M"),
        ("C:\\m\\a.GGUF", "a"),
        ("org/model:free", "model:free"),
        ("a\x1b[2Jb", "a␛[2Jb"),
        ("", ""),
    ],
)
def test_a_models_name(model: str, shown: str) -> None:
    assert model_name(model) == shown


async def test_a_name_with_markup_is_shown_as_it_is(hosting: Hosting) -> None:
    header, status, keys = Header(), StatusLine(), KeyBar([("f1", "[/x]")])
    async with hosting(header, status, keys).run_test(size=(100, 24)) as pilot:
        header.set_state(HeaderState("[b]model", sentence="[/s]"))
        status.set_aside("[/a]")
        await pilot.pause()
        assert "b]model" in line(header)
        assert "[/a]" in line(status) and "[/x]" in line(keys)


async def test_the_remark_stands_right_and_gives_way(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(80, 24)) as pilot:
        status.set_aside("memory: 2 noted (F5)")
        await pilot.pause()
        assert line(status).endswith("memory: 2 noted (F5) ")
        status.set_live(Live(3, waiting="waiting " * 8))
        await pilot.pause()
        assert "memory" not in line(status)


async def test_what_was_noted_stands_beside_the_remark_until_it_is_looked_at(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(120, 24)) as pilot:
        status.set_aside("3 turns: 12 s saved in all")
        status.set_memory("2 noted, 1 to confirm", "F5")
        await pilot.pause()
        assert line(status).endswith("3 turns: 12 s saved in all · memory: 2 noted, 1 to confirm (F5) ")
        status.set_memory("")
        await pilot.pause()
        assert line(status).endswith("3 turns: 12 s saved in all ")


async def test_in_a_narrow_line_what_was_noted_outlives_the_remark_and_then_its_own_words(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(80, 24)) as pilot:
        status.set_aside("3 turns: 12 s saved in all")
        status.set_memory("2 noted, 1 to confirm", "F5")
        status.set_live(Live(3, waiting="waiting for the server"))
        await pilot.pause()
        assert line(status).endswith("memory: 2 noted, 1 to confirm (F5) ") and "saved" not in line(status)
        status.set_live(Live(3, waiting="waiting for the server to load its model"))
        await pilot.pause()
        assert line(status).endswith(" memory F5 ")
        status.set_live(Live(3, waiting="waiting " * 8))
        await pilot.pause()
        assert "memory" not in line(status)


async def test_what_was_noted_has_no_markup(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(80, 24)) as pilot:
        status.set_memory("[/x]\x1b[2J", "")
        await pilot.pause()
        assert line(status).endswith("memory: [/x]␛[2J ")


WASTED = TurnFigures(3900, 2465, 31, 48, 4300, 4100, 500, 8192, evidence=said(Reason.OTHER_BRANCH))
FINE = TurnFigures(3990, 3931, 31, 59, 140, 170, 500, 8192)


async def test_a_warning_stays_until_it_was_seen_and_does_not_come_back(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(120, 24)) as pilot:

        async def shows(*turns: TurnFigures) -> str:
            status.set_turns(turns)
            await pilot.pause()
            return line(status)

        assert "took its slot.  F2 why" in await shows(WASTED)
        assert "took its slot" in await shows(WASTED)
        status.acknowledge()
        assert "took its slot" not in await shows(WASTED) and "1,387 wasted" in line(status)
        assert "wasted" not in await shows(WASTED, FINE)
        assert "took its slot" not in await shows(WASTED)
        assert "took its slot" in await shows(replace(WASTED, cached_tokens=2466))


async def test_reading_ahead_stands_quietly_at_the_right_and_gives_way_to_an_answer(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(120, 24)) as pilot:
        status.set_turns([FINE])
        status.set_aside("3 s saved so far")
        status.set_warm_up(True, PromptProgress(4000, 600, 1804))
        await pilot.pause()
        assert line(status).endswith("warm-up ▕▒▒▒▒        ▏ 1,204/3,400 ") and "cached" in line(status)
        status.set_live(Live(1, first_token=0.1, tokens=10))
        await pilot.pause()
        assert "warm-up" not in line(status)
        status.set_live(None)
        status.set_warm_up(False)
        await pilot.pause()
        assert line(status).endswith("saved so far ")


async def test_the_figures_come_back_after_the_answer(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(120, 24)) as pilot:
        status.set_live(Live(1, first_token=0.1, tokens=10))
        await pilot.pause()
        assert "answering" in line(status)
        status.set_live(None)
        await pilot.pause()
        assert "ready" not in line(status)
        status.set_ready(True)
        await pilot.pause()
        assert "ready" in line(status)


def test_a_running_answer_is_estimated_only_when_the_server_does_not_count() -> None:
    answer = LiveAnswer("n", 10.0, text="x" * 40, first_token_at=10.5)
    assert live_of(answer, 12.0) == Live(2.0, first_token=0.5, tokens=10, estimated=True)
    answer.reported = Reported(predicted_tokens=7)
    answer.waiting = Waiting("silent", 1.0)
    live = live_of(answer, 12.0)
    assert (live.tokens, live.estimated, live.waiting) == (7, False, "the answer pauses")


@pytest.mark.parametrize(
    ("key", "shown"),
    [("ctrl+n", "^N"), ("f4", "F4"), ("alt+down", "Alt+↓"), ("ctrl+pagedown", "^PgDn"), ("escape", "Esc")],
)
def test_names_of_keys(key: str, shown: str) -> None:
    assert key_name(key) == shown


@pytest.mark.parametrize("width", [20, 40, 80, 200])
async def test_the_line_of_keys_fits_and_always_ends_with_help(hosting: Hosting, width: int) -> None:
    bar = KeyBar(KEYS)
    async with hosting(bar).run_test(size=(width, 24)):
        text = line(bar)
        assert len(text) == width and text.rstrip().endswith("F1 help") and "…" not in text
        assert text.startswith(" ^N new") and ("F4 export" in text) is (width >= 80)


async def test_a_click_on_a_key_presses_it(hosting: Hosting) -> None:
    bar = KeyBar(KEYS)
    host = hosting(bar)
    pressed: list[str] = []
    host.bind("ctrl+s", "mark")
    host.action_mark = lambda: pressed.append("ctrl+s")
    async with host.run_test(size=(80, 24)) as pilot:
        at = line(bar).index("^S")
        await pilot.click(KeyBar, offset=(at, 0))
        await pilot.click(KeyBar, offset=(at - 1, 0))
        await pilot.pause()
        assert pressed == ["ctrl+s"]


def test_no_keys_is_no_line() -> None:
    assert fitting([], 80) == []

"""The engine's trouble, the first run, and renaming."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from screens_kit import Host, Shown, showing
from textual.app import ComposeResult
from textual.events import Key
from textual.keys import _character_to_key

from kvchat.ui.screens.conversations import rename_screen
from kvchat.ui.screens.servers import EngineTroubleScreen, WelcomePanel
from kvchat.ui.widgets.transcript.widget import Transcript

LOG = "\n".join(f"load: line {i}" for i in range(500)) + "\nerror: out of memory\n"


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], "restart"),
        (["r"], "restart"),
        (["m"], "models"),
        (["down", "enter"], "models"),
        (["escape"], None),
    ],
)
async def test_the_ways_out_of_an_engines_trouble(keys: list[str], answer: str | None) -> None:
    async with showing(EngineTroubleScreen("The engine ended.", LOG)) as shown:
        assert "The engine ended." in shown.text
        assert "error: out of memory" in shown.text, "the end of the log is what tells"
        assert "Choose another model" in shown.text
        await shown.press(*keys)
        assert shown.answers == [answer]


async def test_the_log_can_be_scrolled_with_the_keyboard() -> None:
    async with showing(EngineTroubleScreen("The engine ended.", LOG)) as shown:
        await shown.press("tab", "home")
        await shown.pilot.pause(0.4)
        assert "load: line 301" in shown.text and "out of memory" not in shown.text


async def test_trouble_without_a_log_is_a_sentence_and_the_ways_out() -> None:
    async with showing(EngineTroubleScreen("The engine ended.")) as shown:
        assert len([line for line in shown.lines if line]) < 10
        await shown.press("enter")
        assert shown.answers == ["restart"]


class Welcome(Host):
    def __init__(self, panel: WelcomePanel) -> None:
        super().__init__()
        self.panel = panel

    def compose(self) -> ComposeResult:
        yield self.panel

    def on_welcome_panel_way_chosen(self, event: WelcomePanel.WayChosen) -> None:
        self.answers.append(event.way)


MODELS = [
    SimpleNamespace(
        path=None, name=f"model-{i}", size=1_107_000_000, quantisation="Q4_K_M", context_length=1, source="x"
    )
    for i in range(5)
]


def panel(**more: object) -> WelcomePanel:
    return WelcomePanel(["llama.cpp 8080", "Ollama 11434"], folders=["~/models"], **more)  # type: ignore[arg-type]


async def test_the_first_run_says_what_was_asked_and_what_was_found() -> None:
    app = Welcome(panel(models=MODELS))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = Shown(app, pilot)
        assert "No model server answered on this machine (asked: llama.cpp 8080, Ollama 11434)." in shown.prose
        assert "5 found: model-0 Q4_K_M 1.1 GB" in shown.text
        assert "by its address" in shown.text
        assert "pip install" not in shown.text


@pytest.mark.parametrize(
    ("keys", "ways"),
    [
        (["1"], [1]),
        (["2"], [2]),
        (["3"], [3]),
        (["enter"], [1]),
        (["down", "enter"], [2]),
        (["down", "down", "up", "enter"], [2]),
    ],
)
async def test_the_three_ways_are_chosen_by_number_and_by_cursor(keys: list[str], ways: list[int]) -> None:
    app = Welcome(panel(models=MODELS))
    async with app.run_test(size=(80, 24)) as pilot:
        app.panel.focus()
        await pilot.press(*keys)
        assert app.answers == ways


async def test_a_digit_that_begins_a_sentence_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.ui.screens.kit.confirm.ConfirmScreen.alone_s", 86_400.0)
    for sentence in ("2 things", "10", "3. how", "1, then 2", "22"):
        written: list[str] = []

        class Writing(Welcome):
            def on_transcript_type_through(self, event: Transcript.TypeThrough) -> None:
                written.append(event.character)  # noqa: B023
                self.set_focus(None)

        app = Writing(panel(models=MODELS))
        async with app.run_test(size=(80, 24)) as pilot:
            app.panel.focus()
            for letter in sentence[:2]:
                app.post_message(Key(_character_to_key(letter), letter))
            await pilot.pause()
            assert (written, app.answers) == ([sentence[:2]], [])


async def test_the_server_used_last_is_the_first_row_where_it_is_off() -> None:
    app = Welcome(panel(last="127.0.0.1:9999"))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = Shown(app, pilot)
        ways = [line.strip("▌ ") for line in shown.lines if re.match(r"[▌ ]*\d  ", line)]
        assert ways[0].startswith("0  try 127.0.0.1:9999 again") and len(ways) == 4
        app.panel.focus()
        await pilot.press("enter", "down", "enter", "0")
        assert app.answers == [0, 1, 0]


async def test_a_click_on_a_way_chooses_it() -> None:
    app = Welcome(panel(models=MODELS))
    async with app.run_test(size=(60, 24)) as pilot:
        shown = Shown(app, pilot)
        row = next(y for y, line in enumerate(shown.lines) if "a server elsewhere" in line)
        await pilot.click(offset=(10, row))
        await pilot.click(offset=(10, row - 1))
        assert app.answers == [2, 1]


async def test_the_third_way_shows_the_exact_commands_and_the_folders() -> None:
    app = Welcome(panel(models=[], engine=False))
    async with app.run_test(size=(80, 30)) as pilot:
        shown = Shown(app, pilot)
        app.panel.focus()
        await shown.press("3")
        for command in (
            "pip install 'kvchat[embedded,pull]'",
            "kvchat pull Qwen/Qwen3-4B-GGUF",
            "llama-server -m MODEL.gguf",
            "~/models",
        ):
            assert command in shown.text
        assert "none on this disk yet, and the engine is not installed: 3" in shown.text
        await shown.press("3")
        assert "pip install" not in shown.text


async def test_a_missing_engine_is_said_beside_the_files() -> None:
    app = Welcome(panel(models=MODELS[:1], engine=False))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = Shown(app, pilot)
        assert "1 found: model-0 Q4_K_M 1.1 GB; the engine is not installed: 3" in shown.prose


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ([*"new name", "enter"], "new name"),
        (["end", *" 2", "enter"], "old name 2"),
        (["enter"], None),
        (["escape"], None),
        (["end", " ", "enter"], None),
    ],
)
async def test_renaming_answers_the_new_title_or_nothing(keys: list[str], answer: str | None) -> None:
    async with showing(rename_screen("old name")) as shown:
        await shown.press(*("space" if key == " " else key for key in keys))
        assert shown.answers == [answer]


async def test_an_empty_title_is_refused_with_a_sentence() -> None:
    async with showing(rename_screen("old name")) as shown:
        await shown.press("backspace", "enter")
        assert "Write a title" in shown.text and shown.answers == []

"""What the app writes to its terminal: little, and such that the terminal shows what the screen holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_kit import Drive
from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.geometry import Size
from textual.screen import Screen

from kvchat.ui.app import KvchatApp
from kvchat.ui.terminal.frame import Frame
from terminal_model import TerminalModel
from terminal_output import Terminal
from toyserver import ToyServer, tokens

MOST = 25_000
"""Octets of a start at 120x40, until the screen rests."""
TEXT = (
    "A list:\n\n- 日本語 and 👍\n- ● ◐ ○ ─│┌ …\n\n| a | b |\n|---|---|\n| 漢字 | x |\n\n"
    "```python\nx = 'é'  # 東京\n```\n"
    "[link](https://example.org) and **bold** and `code`. "
) * 2


class Watched:
    """Every update of the app, written as a whole to one terminal and as a change to the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frame = Frame()
        self.whole = self.changed = TerminalModel(1, 1)
        self.size = (0, 0)
        self.frames = self.octets = self.all_octets = 0
        display = KvchatApp._display
        watched = self

        def shown(app: KvchatApp, screen: Screen[object], renderable: RenderableType | None) -> None:
            fits = screen._compositor.size == app.size
            if isinstance(renderable, CompositorUpdate) and fits and not app._batch_count and app._running:
                watched.show(app, renderable)
            display(app, screen, renderable)

        monkeypatch.setattr(KvchatApp, "_display", shown)

    def show(self, app: KvchatApp, update: CompositorUpdate) -> None:
        if self.size != app.size:
            self.size = app.size
            self.whole, self.changed = TerminalModel(*self.size), TerminalModel(*self.size)
        everything = update.render_segments(app.console)
        self.whole.write(everything)
        change = self.frame.update(update, app.size).render_segments(app.console)
        self.changed.write(change)
        rows = enumerate(zip(self.changed.cells, self.whole.cells, strict=True))
        wrong = [
            (y, x, now, right)
            for y, row in rows
            for x, (now, right) in enumerate(zip(*row, strict=True))
            if now != right
        ]
        assert not wrong, wrong[:10]
        self.frames += 1
        self.octets, self.all_octets = self.octets + len(change), self.all_octets + len(everything)


@pytest.mark.slow
async def test_whatever_happens_the_terminal_shows_what_the_screen_holds(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")  # Rich keeps the codes of a style: a screenshot before made such ones
    watched = Watched(monkeypatch)
    server.on_chat(tokens(*(TEXT[at : at + 7] for at in range(0, len(TEXT), 7)), reasoning=["Thinking 漢字 …"]))
    async with drive(size=(110, 30)) as app:
        await app.say("東京 ☕ question, and a long line: " + "word 日本語 " * 30)
        for keys in (
            ["f1", "pagedown", "escape"],
            ["ctrl+p", "e", "x", "escape"],
            ["f2", "pagedown", "escape"],
            ["ctrl+s", "escape"],
            ["f3", "f3"],
            ["tab", "pageup", "home", "end", "escape"],
            ["ctrl+f", "w", "o", "r", "escape"],
            ["ctrl+n"],
            ["f9"],
        ):
            await app.press(*keys)
            await app.rest()
        await app.pilot.resize_terminal(70, 20)
        await app.rest()
        await app.pilot.resize_terminal(120, 40)
        await app.press("漢", "x", "y", "f1", "escape")
        await app.rest()
    assert watched.frames > 30 and watched.octets < watched.all_octets / 2


async def test_a_frame_for_the_size_before_is_not_written(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window was made narrower and the screen is not laid out anew yet: what is written beyond the edge stays."""
    async with drive(size=(110, 30)) as app:
        written: list[Size] = []
        update = Frame.update

        def noted(frame: Frame, change: CompositorUpdate, size: Size) -> CompositorUpdate:
            written.append(size)
            return update(frame, change, size)

        monkeypatch.setattr(Frame, "update", noted)
        app.chat.refresh()
        app.chat._on_timer_update()
        assert set(written) == {(110, 30)}
        app.app._size = Size(70, 20)
        app.chat.refresh()
        app.chat._on_timer_update()
        assert set(written) == {(110, 30)}


@pytest.mark.process
async def test_a_start_writes_little_to_the_terminal(tmp_path: Path, server: ToyServer) -> None:
    """Over ssh that is what the person waits for: it was 82 kB for an almost empty screen."""
    env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "NO_COLOR")}
    env |= {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "KVCHAT_DATA_DIR": str(tmp_path / "data"),
        "KVCHAT_CONFIG": str(tmp_path / "config.toml"),
    }
    with Terminal(["-m", "kvchat.cli", "--base-url", server.url], env) as terminal:
        await terminal.shows("newline")
        await terminal.shows("this machine")
        assert len(terminal.output) <= MOST
        await terminal.press("\x11")
        assert await terminal.ended() == 0

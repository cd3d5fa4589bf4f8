"""How the documents screen and a source look. A picture that changes is looked at before it is accepted with
--snapshot-update.

Everything in a picture stands still: the clock, the folders, the cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from documents_kit import SETUP, Library, Service, block, passage, service
from screens_kit import Host
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from kvchat.config.themes import load_themes
from kvchat.documents.collection import IndexingProgress
from kvchat.paths import own_themes
from kvchat.ui.screens.kit.filter_list import PAUSE_SECONDS
from kvchat.ui.screens.sources import SourceScreen, SourcesScreen

Picture = Callable[..., None]
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80", "120"])
THEMES = pytest.mark.parametrize("theme", ["kvchat-day", "ansi-dark"])


@pytest.fixture
def picture(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> Picture:
    """Compares the screen, after some keys, with the picture that was accepted."""
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _: None)

    def compare(screen: Screen[Any], *keys: str, size: tuple[int, int] = (80, 24), theme: str = "kvchat-night") -> None:
        app = Host()
        for known in load_themes([own_themes()])[0].values():
            app.register_theme(known)
        app.theme = theme
        app.animation_level = "none"

        async def run(pilot: Pilot[None]) -> None:
            app.push_screen(screen)
            await pilot.pause(0.1)
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            await pilot.pause(PAUSE_SECONDS * 2)

        assert snap_compare(app, terminal_size=size, run_before=run)

    return compare


def running() -> Service:
    source = service(retrieval="ask", collections=["handbook", "logbooks"])
    source.indexing["handbook"] = IndexingProgress(
        "handbook", 1204, 5310, 6_000_000, 12_000_000, 18_220, 40.0, "guide/setup.md"
    )
    source.library.passages = [
        passage("guide/setup.md", "12-40", SETUP, "setup.md > Install > Linux"),
        passage("guide/tides.pdf", "p3", "The oil floats on the tide."),
    ]
    return source


@SIZES
def test_the_list(picture: Picture, size: tuple[int, int]) -> None:
    picture(service().screen(), size=size)


@THEMES
def test_indexing(picture: Picture, theme: str) -> None:
    picture(running().screen(), theme=theme)


def test_nothing_there(picture: Picture) -> None:
    picture(Service().screen())


def test_the_report(picture: Picture) -> None:
    picture(service().screen(), "enter")


def test_a_search(picture: Picture) -> None:
    picture(running().screen(), "slash", "o", "i", "l", size=(120, 40))


@THEMES
def test_a_source(picture: Picture, theme: str) -> None:
    picture(SourceScreen(Service(Library()), block(3), number=3, query="lamp"), theme=theme)


def test_several_sources(picture: Picture) -> None:
    listed = [(1, block(1)), (12, block(12, "guide/tides.pdf", "p3", head=""))]
    picture(SourcesScreen(service(), listed, words="Sent with the question:"))

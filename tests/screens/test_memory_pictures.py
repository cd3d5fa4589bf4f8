"""How the memory screen looks. A picture that changes is looked at before it is accepted with --snapshot-update.

Everything in a picture stands still: the clock, the ids, the folder, the cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from memory_kit import SAMPLE, Book, Service, service
from screens_kit import Host
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from kvchat.config.themes import load_themes
from kvchat.paths import own_themes
from kvchat.ui.screens.kit.manager import PAUSE_SECONDS

Picture = Callable[..., None]


@pytest.fixture
def picture(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> Picture:
    """Compares the screen, after some keys, with the picture that was accepted."""
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _: None)
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _: None)

    def compare(
        source: Service, *keys: str, size: tuple[int, int], theme: str = "kvchat-night", **options: Any
    ) -> None:
        app = Host()
        for known in load_themes([own_themes()])[0].values():
            app.register_theme(known)
        app.theme = theme
        app.animation_level = "none"

        async def run(pilot: Pilot[None]) -> None:
            app.push_screen(source.screen(**options))
            await pilot.pause()
            await app.workers.wait_for_complete()
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            if "slash" in keys:
                await pilot.pause(PAUSE_SECONDS * 2)
                await app.workers.wait_for_complete()
                await pilot.pause()

        assert snap_compare(app, terminal_size=size, run_before=run)

    return compare


SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80", "120"])


@SIZES
def test_memories_and_what_waits_for_a_yes(picture: Picture, size: tuple[int, int]) -> None:
    picture(service(), size=size, fresh=(SAMPLE[2].id,))


@SIZES
def test_a_memory_is_edited(picture: Picture, size: tuple[int, int]) -> None:
    picture(service(), "down", "down", "down", "e", size=size)


@SIZES
def test_the_queue(picture: Picture, size: tuple[int, int]) -> None:
    picture(service(), "tab", "down", size=size)


@SIZES
def test_the_history(picture: Picture, size: tuple[int, int]) -> None:
    picture(service(), "down", "down", "e", "left", *" ever", "enter", "d", "u", "tab", "tab", "down", size=size)


@SIZES
def test_an_empty_memory(picture: Picture, size: tuple[int, int]) -> None:
    picture(Service(Book()), size=size)


def test_a_search_with_something_wrong_in_the_files(picture: Picture) -> None:
    source = service()
    source.book.problems = (
        "topics/lamp-log.md:3: the front matter is not closed; the page is left alone until it is.",
        "topics/persons.md:1: this is no UTF-8.",
    )
    picture(source, "slash", *"lamp", size=(80, 24))


def test_taking_back(picture: Picture) -> None:
    picture(service(), "U", size=(80, 24))


def test_what_was_done_stands_below(picture: Picture) -> None:
    picture(service(), "down", "down", "down", "d", size=(80, 24))


@pytest.mark.parametrize("theme", ["kvchat-day", "kvchat-contrast"])
def test_in_another_theme(picture: Picture, theme: str) -> None:
    picture(service(), "o", size=(100, 30), theme=theme)

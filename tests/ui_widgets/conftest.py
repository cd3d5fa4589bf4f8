"""A bare app around one widget, which records the messages the widget sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from textual.app import App, ComposeResult
from textual.message import Message
from textual.widget import Widget

from kvchat.chat.question import Question
from kvchat.config.themes import variable_defaults
from kvchat.reports.warmth import UNKNOWN, Warmth
from kvchat.ui.widgets.composer.widget import Composer
from kvchat.ui.widgets.sidebar import Sidebar

M = TypeVar("M", bound=Message)


class Host(App[None]):
    """Shows the widgets from top to bottom and keeps what they say in `said`."""

    CSS = "Screen { align-vertical: bottom; }"

    def __init__(self, *widgets: Widget) -> None:
        super().__init__()
        self.widgets = widgets
        self.said: list[Message] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield from self.widgets

    def _say(self, message: Message) -> None:
        self.said.append(message)

    on_composer_submitted = on_composer_slash_command = on_composer_draft_changed = on_composer_notice = _say
    on_composer_rested = _say
    on_composer_mentioning = on_composer_looked = on_composer_path_pasted = on_composer_paste_requested = _say
    on_sidebar_opened = _say

    def heard(self, kind: type[M]) -> list[M]:
        return [message for message in self.said if isinstance(message, kind)]

    @property
    def asked(self) -> list[Question]:
        """What was sent."""
        return [message.question for message in self.heard(Composer.Submitted)]


Hosting = Callable[..., Host]


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    yield


@pytest.fixture
def hosting() -> Hosting:
    """An app around the given widgets."""
    return Host


@pytest.fixture
def writing() -> Callable[..., tuple[Host, Composer]]:
    """An app around a focused composer with the given options."""

    def make(**options: object) -> tuple[Host, Composer]:
        composer = Composer(cursor_blink=False, **options)  # type: ignore[arg-type]
        host = Host(composer)
        host.call_later(composer.focus)
        return host, composer

    return make


@pytest.fixture
def listing() -> Callable[..., tuple[Host, Sidebar]]:
    """An app around a sidebar whose clock says `now`."""

    def make(now: Callable[[], float], warmth: Callable[[str], Warmth] = lambda _: UNKNOWN) -> tuple[Host, Sidebar]:
        sidebar = Sidebar(clock=now, warmth=warmth)
        return Host(sidebar), sidebar

    return make

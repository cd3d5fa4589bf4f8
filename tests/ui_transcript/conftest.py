"""An app with nothing but a transcript and a composer stand-in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.app import App, ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from kvchat.config.themes import variable_defaults
from kvchat.prompt.message import Role, State
from kvchat.ui.widgets.transcript.render.message import TranscriptItem
from kvchat.ui.widgets.transcript.widget import Transcript


class ActingScreen(Screen[None]):
    """Keeps what keys had it do: of each the name of the act and its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[object, ...]] = []

    def action_do(self, id: str, argument: str = "") -> None:
        self.done.append((id, argument) if argument else (id,))

    def action_sibling(self, step: int) -> None:
        self.done.append(("sibling", step))


class TranscriptApp(App[None]):
    """Shows items and keeps what the transcript posts."""

    CSS = "Input { height: 3; }"

    def __init__(self, items: Sequence[TranscriptItem] = ()) -> None:
        super().__init__()
        self._items = items
        self.posted: list[Message] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def get_default_screen(self) -> Screen[None]:
        return ActingScreen()

    @property
    def done(self) -> list[tuple[object, ...]]:
        """What keys had the screen do."""
        assert isinstance(self.screen, ActingScreen)
        return self.screen.done

    def compose(self) -> ComposeResult:
        yield Transcript()
        yield Input()

    def on_mount(self) -> None:
        self.transcript.set_items(self._items)
        self.transcript.focus()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def lines(self) -> list[str]:
        """What the transcript shows, line by line."""
        view = self.transcript
        return [view.render_line(y).text.rstrip() for y in range(view.size.height)]

    def of(self, kind: type[Message]) -> list[Message]:
        """What was posted of one kind."""
        return [message for message in self.posted if isinstance(message, kind)]


def _keeping(name: str):  # type: ignore[no-untyped-def]
    def handler(self: TranscriptApp, message: Message) -> None:
        self.posted.append(message)

    return handler


for _name in (
    "selected",
    "code_copy_requested",
    "branches_requested",
    "follow_changed",
    "type_through",
    "sources_requested",
):
    setattr(TranscriptApp, f"on_transcript_{_name}", _keeping(_name))


def question(number: int, text: str = "", **more: object) -> TranscriptItem:
    return TranscriptItem(f"q{number}", Role.USER, "You", "09:16", text or f"question {number}", **more)  # type: ignore[arg-type]


def answer(number: int, text: str = "", **more: object) -> TranscriptItem:
    return TranscriptItem(f"a{number}", Role.ASSISTANT, "Model", "", text or f"answer {number}", **more)  # type: ignore[arg-type]


def streaming(number: int, text: str = "") -> TranscriptItem:
    return TranscriptItem(f"a{number}", Role.ASSISTANT, "Model", "", text, state=State.STREAMING, streaming=True)


def turns(count: int) -> list[TranscriptItem]:
    """Questions and answers of very different heights."""
    items: list[TranscriptItem] = []
    for number in range(count):
        items.append(question(number))
        points = (f"- point {i} " + "word " * (number % 40) for i in range(number % 7 + 1))
        items.append(answer(number, "\n\n".join(points)))
    return items


@pytest.fixture
def make_app() -> type[TranscriptApp]:
    return TranscriptApp


class Items:
    """The makers above, for tests."""

    question = staticmethod(question)
    answer = staticmethod(answer)
    streaming = staticmethod(streaming)
    turns = staticmethod(turns)


@pytest.fixture
def items() -> type[Items]:
    return Items

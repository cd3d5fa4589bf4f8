"""The first run when no server was found: what was looked for, and three ways to one.

The rule: every way ends in a command that can be copied as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from kvchat.sanitize import one_line
from kvchat.text.format import size
from kvchat.ui.screens.models import FoundModel
from kvchat.ui.screens.tones import ACCENT, MUTED, STRONG, TONE_CLASSES, TONE_CSS, content
from kvchat.ui.widgets.transcript.widget import Transcript

Way = Literal[1, 2, 3]
WAYS: tuple[Way, ...] = (1, 2, 3)
WORDS = ("start the built-in engine with a model from this disk", "use a server elsewhere", "how to install one")
INDENT = 5

COMMANDS = (
    ("the built-in engine", "pip install 'kvchat[embedded]'"),
    ("with a model file", "kvchat --model FILE.gguf"),
    ("llama.cpp's own server", "llama-server -m MODEL.gguf --port 8080"),
    ("a server elsewhere", "kvchat --base-url http://HOST:PORT"),
)


class WelcomePanel(Widget, can_focus=True):
    """Shown in the place of the transcript. Posts `Chosen` with 1 (engine), 2 (server) or 3 (how to install)."""

    DEFAULT_CSS = (
        """
    WelcomePanel {
        width: 1fr; height: auto; max-width: 100; padding: 1 2; background: transparent;
    """
        + TONE_CSS
        + "}"
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = set(TONE_CLASSES)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("enter", "choose", "Choose", show=False),
        *(Binding(str(way), f"go({way})", f"Way {way}", show=False) for way in (1, 2, 3)),
    ]
    cursor: reactive[int] = reactive(0)
    commands_shown: reactive[bool] = reactive(False, layout=True)

    class Chosen(Message):
        """One of the ways was chosen."""

        def __init__(self, way: Way) -> None:
            super().__init__()
            self.way = way

    def __init__(self, asked: Sequence[str], *, models: Sequence[FoundModel] | None = None, engine: bool = True,
                 folders: Sequence[str] = (), id: str | None = None) -> None:
        """`asked`: the servers that were looked for, each as `llama.cpp 8080`; `models`: the files found, None while
        they are looked for; `engine`: whether the built-in engine is installed; `folders`: where files are looked
        for."""
        super().__init__(id=id)
        self._asked = asked
        self._models = models
        self._engine = engine
        self._folders = folders

    def set_models(self, models: Sequence[FoundModel], *, engine: bool = True) -> None:
        """What was found on the disk."""
        self._models = models
        self._engine = engine
        self.refresh(layout=True)

    def render(self) -> Content:
        return Content("\n").join(line for line, _ in self._lines(self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def _lines(self, width: int) -> list[tuple[Content, Way | None]]:
        """The lines of the panel in `width` cells, each with the way it stands for."""
        width = max(20, width)
        asked = ", ".join(one_line(name, 40) for name in self._asked)
        head = content(("No model server answered on this machine", STRONG),
                       (f" (asked: {asked})." if asked else ".", MUTED))
        lines: list[tuple[Content, Way | None]] = [(line, None) for line in (*head.wrap(width), content())]
        for way, words, about in zip(WAYS, WORDS, self._about(), strict=True):
            here = self.has_focus and WAYS[self.cursor] == way
            number = content(("▌ " if here else "  ", ACCENT), (str(way), ACCENT), "  ")
            told = [*content((words, STRONG if here else "")).wrap(width - INDENT),
                    *content((about, MUTED)).wrap(width - INDENT)]
            lines += [((content(" " * INDENT) if index else number) + line, way) for index, line in enumerate(told)]
        if self.commands_shown:
            lines += [(line, None) for line in (content(), *self._commands())]
        return lines

    def _about(self) -> tuple[str, str, str]:
        return self._found(), "kvchat --base-url http://HOST:PORT", "shows the exact commands"

    def _found(self) -> str:
        if self._models is None:
            return "looking for model files …"
        if not self._models:
            return "no model file found; 3 says where they are looked for"
        names = " · ".join(f"{one_line(m.name, 40)} {one_line(m.quantisation, 10)} {size(m.size)}".replace("  ", " ")
                           for m in self._models[:3])
        more = " · …" if len(self._models) > 3 else ""
        found = f"{len(self._models)} found: {names}{more}"
        return found if self._engine else f"{found}; the engine is not installed: 3"

    def _commands(self) -> list[Content]:
        lines = [content("     ", (f"{what:<24}", MUTED), command) for what, command in COMMANDS]
        if self._folders:
            lines.append(content("     ", ("GGUF files are looked for in", MUTED)))
            lines += [content("       ", one_line(folder, 90)) for folder in self._folders]
        return lines

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        """A character that is no command here is meant for the composer."""
        if event.is_printable and event.character and event.key not in self.screen.active_bindings:
            event.stop()
            self.post_message(Transcript.TypeThrough(event.character))

    def action_move(self, step: int) -> None:
        self.cursor = min(2, max(0, self.cursor + step))

    def action_choose(self) -> None:
        self.action_go(WAYS[self.cursor])

    def action_go(self, way: Way) -> None:
        self.cursor = WAYS.index(way)
        if way == 3:
            self.commands_shown = not self.commands_shown
        self.post_message(self.Chosen(way))

    def on_click(self, event: events.Click) -> None:
        lines = self._lines(self.content_size.width)
        row = event.y - self.gutter.top
        if 0 <= row < len(lines) and (way := lines[row][1]):
            self.action_go(way)

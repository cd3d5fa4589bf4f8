"""When the engine fails, and when no server was found: what happened, and what can be done.

The rule: one sentence, then the ways out, each with its key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Static

from kvchat.sanitize import clean
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, MUTED, content

Remedy = Literal["restart", "models"]
REMEDIES: tuple[tuple[str, str, Remedy], ...] = (
    ("r", "Restart the engine", "restart"),
    ("m", "Choose another model or server", "models"),
)
LOG_LINES = 200


class EngineTroubleScreen(ListModal[Remedy]):
    """Says why the engine ended and shows the end of its log. Result: "restart", "models" or None."""

    DEFAULT_CSS = """
    EngineTroubleScreen RowList { margin-top: 1; height: 2; }
    EngineTroubleScreen VerticalScroll {
        height: auto; max-height: 10; margin-top: 1; padding-left: 1; border-left: solid $foreground 20%;
        &:focus { border-left: solid $accent; }
    }
    EngineTroubleScreen:ansi VerticalScroll { border-left: solid ansi_bright_black; }
    """

    AUTO_FOCUS = ""

    def __init__(self, sentence: str, log: str = "") -> None:
        super().__init__()
        self.heading = "The engine stopped"
        self.hints = (("enter", "choose"), ("tab", "the log"), ("esc", "close"))
        self._sentence = clean(sentence).strip()
        self._log = "\n".join(clean(log).strip("\n").splitlines()[-LOG_LINES:])

    def body(self) -> Iterable[Widget]:
        yield Static(Content(self._sentence), classes="words")
        if self._log:
            with VerticalScroll():
                yield Static(content((self._log, MUTED)), classes="words")
        yield RowList(self._draw)

    def on_mount(self) -> None:
        self.rows.show(len(REMEDIES))
        for log in self.query(VerticalScroll):
            log.scroll_end(animate=False)

    def _draw(self, index: int, width: int) -> Content:
        key, label, _ = REMEDIES[index]
        return content((key, ACCENT), f"  {label}")

    def on_key(self, event: Key) -> None:
        for key, _, remedy in REMEDIES:
            if event.character == key:
                event.stop()
                self.finish(remedy)

    def choose(self, index: int) -> None:
        self.finish(REMEDIES[index][2])

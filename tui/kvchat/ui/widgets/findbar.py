"""Find in the open conversation: one line above the composer."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from kvchat.text.format import count
from kvchat.ui.bindings import bindings
from kvchat.ui.widgets.composer.widget import Composer
from kvchat.ui.widgets.transcript import Transcript


class FindBar(Horizontal):
    """A query and its matches: enter goes to the next one up, shift+enter or ↓ to the next one down, Esc closes."""

    DEFAULT_CSS = """
    FindBar {
        height: 1; display: none; padding: 0 1;
        &.-open { display: block; }
        & > .find-label { width: auto; color: $accent; }
        & > Input { width: 1fr; height: 1; border: none; padding: 0; background: transparent; }
        & > Input:focus { border: none; }
        & > .find-count { width: auto; color: $foreground 60%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("findbar")]

    def __init__(self, transcript: Transcript, composer: Composer) -> None:
        super().__init__()
        self._transcript = transcript
        self._composer = composer
        self._comes_back = False
        """Whether Enter goes back to the messages, from which it was opened."""
        self._found = 0
        """Matches of the query."""
        self._line = Input(placeholder="words", select_on_focus=True)
        self._count = Static(classes="find-count", markup=False)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    @property
    def comes_back(self) -> bool:
        """Whether it is open, and leaving it leads to the messages."""
        return self.is_open and self._comes_back

    async def open(self, query: str = "", *, comes_back: bool = False) -> None:
        """Show the line, with `query` or what was searched last. `comes_back`: closing it leads to the messages, not
        to the composer."""
        self._comes_back = comes_back
        self.add_class("-open")
        if not self._line.is_attached:  # most never look for anything
            await self.mount(Static(Content("find "), classes="find-label"), self._line, self._count)
        if query:
            self._line.value = query
        elif self._line.value:
            self._find(self._line.value)
        self._line.focus()

    def action_close(self) -> None:
        if self._comes_back:
            self._transcript.select_match()
        self.remove_class("-open")
        self._transcript.find("")
        (self._transcript if self._comes_back else self._composer).focus()

    async def go_on(self, step: int) -> None:
        """From the conversation: to the next match of what was looked for last."""
        if not self._line.value:
            await self.open(comes_back=True)
            return
        if not self.is_open:
            self._comes_back = True
            self.add_class("-open")
            self._find(self._line.value)
        self.action_step(step)

    def action_step(self, step: int) -> None:
        self._show_count(self._transcript.find_next(step))

    def _find(self, query: str) -> None:
        self._found = self._transcript.find(query)
        self._show_count(self._transcript.find_next(0) if self._found else 0)

    def _show_count(self, at: int) -> None:
        """The `at`-th (from 1) of the matches."""
        words = f"{count(at)}/{count(self._found)}" if self._found else "nothing found" if self._line.value else ""
        self._count.update(Content(words))

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self._find(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self._comes_back:
            self.action_step(-1)
        elif event.value:
            self._transcript.select_match()
            self._transcript.focus()
        else:
            self.action_close()

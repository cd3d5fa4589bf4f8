"""Jump letters: one on every target on the screen; typing it goes there or takes it.

Letters are drawn over the text and nothing moves for them; any other key only removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""In the order in which they are given out: where the fingers rest first."""


class Target(Struct, frozen=True):
    """What a letter leads to."""

    place: Hashable
    """Its row, by the widget's own name for it."""
    cell: int
    act: Callable[[], object]


class Letter(Struct, frozen=True):
    """A letter, or two, on a target."""

    text: str
    target: Target


class Jumpable(Protocol):
    """A widget with targets."""

    def jump_targets(self) -> Sequence[Target]:
        """What can be seen of them now, from top to bottom."""

    def show_letters(self, letters: Sequence[Letter]) -> None:
        """Draw these and no others."""


def labels(number: int) -> list[str]:
    """So many labels of one letter, and of two where there are more than letters: none begins with another one."""
    most = len(LETTERS)
    firsts = max(0, -(-(number - most) // (most - 1)))
    singles = LETTERS[: most - firsts]
    return [*singles, *(first + second for first in LETTERS[most - firsts :] for second in LETTERS)][:number]


def with_letters(strip: Strip, letters: Sequence[Letter], style: Style) -> Strip:
    """A row with its letters drawn over it."""
    for letter in letters:
        cell, end = letter.target.cell, letter.target.cell + len(letter.text)
        if end <= strip.cell_length:
            mark = Strip([Segment(letter.text, style)], len(letter.text))
            strip = Strip.join([strip.crop(0, cell), mark, strip.crop(end)])
    return strip


class JumpLetters(Widget, can_focus=True):
    """Has the keys while letters are shown; takes no room."""

    DEFAULT_CSS = "JumpLetters { width: 0; height: 0; }"

    class NothingThere(Message):
        """There is nothing on the screen to jump to."""

    def __init__(self, *widgets: Jumpable) -> None:
        super().__init__()
        self._widgets = widgets
        self._shown: dict[str, Target] = {}
        """What can still be typed."""
        self._typed = ""
        self._back: Widget | None = None
        """What had the focus."""

    def begin(self) -> None:
        """Show the letters; the next keys are for them."""
        found = [widget.jump_targets() for widget in self._widgets]
        targets = [target for some in found for target in some]
        if not targets:
            self.post_message(self.NothingThere())
            return
        self._back = self.screen.focused
        self._typed, self._shown = "", dict(zip(labels(len(targets)), targets, strict=True))
        self._show()
        self.screen.set_focus(self, scroll_visible=False)

    def leave(self) -> None:
        """Take the letters away."""
        if self._shown:
            self._shown = {}
            self._show()
        if self.screen.focused is self:
            self.screen.set_focus(self._back)

    def _show(self) -> None:
        letters = [Letter(text[len(self._typed) :], target) for text, target in self._shown.items()]
        for widget in self._widgets:
            widget.show_letters(letters)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        typed = self._typed + (event.character or "").lower()
        left = {text: target for text, target in self._shown.items() if text.startswith(typed)}
        if not event.is_printable or not left or typed in left:
            self.leave()
            if event.is_printable and typed in left:
                left[typed].act()
            return
        self._typed, self._shown = typed, left
        self._show()

    def on_focus(self) -> None:
        if not self._shown:  # the window was left meanwhile
            self.leave()

    def on_blur(self) -> None:
        if self.screen.focused is not self:
            self.leave()

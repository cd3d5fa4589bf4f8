"""The lines over the composer: the messages that wait in the open conversation, and what holds them.

Each has a line, in the order in which they are sent; where there are more than fit, the last line counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from kvchat.sanitize import one_line
from kvchat.ui.runs import Run, Runs, cut, fit, width_of
from kvchat.ui.tones import ThemeStyles

LOW = 30
"""Rows of the screen below which only FEW lines are shown."""
FEW, MANY = 3, 6
HINT = "↑ edits"


def queue_lines(texts: Sequence[str], held: str, most: int, width: int) -> list[Runs]:
    """What is shown of the queue in lines of `width` cells: what holds it, then at most `most` lines of messages."""
    lines: list[Runs] = [[Run(fit(held, width), "alert")]] if held else []
    shown = texts if len(texts) <= most else texts[: most - 1]
    for number, text in enumerate(shown, 1):
        head = [Run(f"queued {number}  ", "accent")]
        lines.append([*head, Run(fit(one_line(text), width - width_of(head)), "plain")])
    if len(shown) < len(texts):
        lines.append([Run(f"… and {len(texts) - len(shown)} more", "quiet")])
    if lines and not held:
        last = cut(lines[-1], width - len(HINT) - 2)
        gap = width - width_of(last) - len(HINT)
        lines[-1] = [*last, Run(" " * gap, "plain"), Run(HINT, "quiet")] if gap >= 2 else last
    return lines


class QueueLines(Widget):
    """Draws them; without any it takes no room."""

    DEFAULT_CSS = """
    QueueLines {
        display: none; height: auto; width: 1fr; padding: 0 1; background: transparent; color: $foreground;
        border-top: solid $rule;
    }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._tones = ThemeStyles(self)
        self._texts: Sequence[str] = ()
        self._held = ""

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def show(self, texts: Sequence[str], held: str = "") -> None:
        """The messages in their order; `held`: what holds them and what to do, in a clause."""
        if (tuple(texts), held) != (self._texts, self._held):
            self._texts, self._held = tuple(texts), held
            self.display = bool(texts)
            self.refresh(layout=True)

    def render(self) -> Content:
        width, most = self.content_size.width or self.app.size.width, MANY if self.app.size.height >= LOW else FEW
        return Content("\n").join(
            self._tones.content(line) for line in queue_lines(self._texts, self._held, most, width)
        )

"""The lines over the composer that tell of a question which waits for the user's word."""

from __future__ import annotations

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from kvchat.sanitize import clean, one_line
from kvchat.ui.runs import Run, Runs, cut, fit, width_of
from kvchat.ui.tones import ThemeStyles


def question_lines(title: str, gist: str, key: str, width: int) -> list[Runs]:
    """The title with the key that leads to the question, and under it what is asked, in lines of `width` cells."""
    hint = f"{key} answers" if key else "a click answers"
    head: Runs = cut([Run("? ", "accent"), Run(one_line(title), "accent")], width - len(hint) - 2)
    gap = max(2, width - width_of(head) - len(hint))
    lines: list[Runs] = [[*head, Run(" " * gap, "plain"), Run(hint, "accent")]]
    if gist:
        lines.append([Run("  ", "plain"), Run(fit(one_line(clean(gist)), width - 2), "plain")])
    return lines


class QuestionLine(Widget, can_focus=True):
    """Draws them; without a question it takes no room. Going to it, by a click or a key, posts `Wanted`."""

    DEFAULT_CSS = """
    QuestionLine {
        display: none; height: auto; width: 1fr; padding: 0 1; background: transparent; color: $foreground;
        border-top: solid $accent;
    }
    """
    ALLOW_SELECT = False

    class Wanted(Message):
        """The user wants to answer."""

    def __init__(self) -> None:
        super().__init__()
        self._tones = ThemeStyles(self)
        self._question = "", "", ""

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def show(self, title: str = "", gist: str = "", key: str = "") -> None:
        """A question that waits, and the key that leads to it; no title: none waits."""
        if (title, gist, key) != self._question:
            self._question = title, gist, key
            self.display = bool(title)
            self.refresh(layout=True)

    def on_focus(self) -> None:
        self.post_message(self.Wanted())

    def render(self) -> Content:
        width = self.content_size.width or self.app.size.width
        return Content("\n").join(self._tones.content(line) for line in question_lines(*self._question, width))

"""The theme chooser: the themes at the left, a conversation in the one under the cursor at the right.

The whole app shows the theme under the cursor; only a choice is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget

from kvchat.config.themes import AUTOMATIC
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.message import Role, State
from kvchat.reports.rail import Stretch, Where
from kvchat.ui.screens.kit import MUTED, FilterList, content, highlighted, kept
from kvchat.ui.widgets.transcript import Transcript, TranscriptItem

_ANSWER = """\
## The lamp

It turned **112 times**, as `lamp.log` says:

| night | turns |
|---|--:|
| 34 | 112 |
| 35 | 108 |

```python
turns = [night.turns for night in log]
print(max(turns))  # 112
```

> The keeper wrote it down at dawn.
"""
_SAMPLE = (
    TranscriptItem("question", Role.USER, "You", "09:16", "How often did the lamp turn?"),
    TranscriptItem(
        "answer",
        Role.ASSISTANT,
        "model",
        text=_ANSWER,
        figures=TurnFigures(prompt_tokens=3812, cached_tokens=3764, new_tokens=48, ttft_ms=140.0),
    ),
    TranscriptItem("asked", Role.USER, "You", "09:21", "And on the longest night?"),
    TranscriptItem("cut", Role.ASSISTANT, "model", text="That was night", state=State.LENGTH),
)
_RAIL = {"question": Stretch(Where.SLOT), "answer": Stretch(Where.SLOT), "asked": Stretch(Where.NOWHERE)}


class ThemeScreen(FilterList[str, str]):
    """The themes on one filtered list. Result: the name of the one to keep."""

    DEFAULT_CSS = """
    ThemeScreen {
        & #names { width: 30; }
        & Transcript { width: 1fr; height: 1fr; background: $background; margin-left: 1; }
    }
    """
    heading = "Theme"
    hints = (
        ("rows.up rows.down", "look at it"),
        ("type", "to filter"),
        ("rows.choose", "keep it"),
        ("dialog.close", "as before"),
    )
    placeholder = "filter"
    empty = "No theme has this name."

    def __init__(self, names: Sequence[str], chosen: str, worn: str) -> None:
        """`names`: those that there are, in their order. `chosen`: the one in the settings; `worn`: what the app wears
        now, and again where none is chosen."""
        super().__init__("-list -wide", first=chosen)
        self._names = names
        self._chosen = chosen
        self._worn = worn
        self._sample = Transcript()
        self._sample.can_focus = False

    def body(self) -> Iterable[Widget]:
        yield Horizontal(Vertical(*super().body(), id="names"), self._sample)

    def on_mount(self) -> None:
        self._sample.set_items(_SAMPLE)
        self._sample.following = False  # its beginning is shown
        self._sample.set_rail(_RAIL)

    def find(self, query: str) -> Iterable[str]:
        return (self._names[at] for at in kept(self._names, query))

    def cursor_moved(self, row: str | None) -> None:
        if self.is_up and row is not None:
            self.app.theme = self._worn if row == AUTOMATIC else row

    def result(self, row: str) -> str:
        return row

    def finish(self, result: str | None) -> None:
        if result is None and self.is_up:
            self.app.theme = self._worn
        super().finish(result)

    def draw(self, row: str, width: int) -> Content:
        words = " · as the terminal" if row == AUTOMATIC else ""
        used = " ✓" if row == self._chosen else ""
        return highlighted(content(row), self.query_text) + content((words + used, MUTED))

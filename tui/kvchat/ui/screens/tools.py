"""Choose the tools of a conversation, with what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, MUTED, content


class ToolsScreen(ListModal[tuple[str, ...]]):
    """The groups of tools, each to be switched on or off, and a row that takes them. Escape changes nothing."""

    DEFAULT_CSS = "ToolsScreen .words { margin-bottom: 1; }"
    heading = "Tools"

    def __init__(
        self, groups: Sequence[tuple[str, str]], chosen: Iterable[str], cost: Callable[[Sequence[str]], str]
    ) -> None:
        """`groups`: each with what it does. `cost`: what some of them cost, in words."""
        super().__init__(classes="-small")
        self.hints = (("rows.choose", "switch, use"), ("dialog.close", "cancel"))
        self._groups = groups
        self._chosen = set(chosen)
        self._cost = cost

    def body(self) -> Iterable[Widget]:
        yield Static("What the model may call here. Each call is asked for first.", classes="words", markup=False)
        yield RowList(self._draw, classes="-fits")

    def on_mount(self) -> None:
        self.rows.show(len(self._groups) + 1)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._groups if name in self._chosen)

    def _draw(self, index: int, width: int) -> Content:
        if index == len(self._groups):
            return content(("Use them" if self._names else "Use none", ACCENT), (f"  {self._cost(self._names)}", MUTED))
        name, words = self._groups[index]
        mark = "[x] " if name in self._chosen else "[ ] "
        return content((mark, ACCENT), name.ljust(max(len(one) for one, _ in self._groups)), (f"  {words}", MUTED))

    def choose(self, index: int) -> None:
        if index == len(self._groups):
            self.finish(self._names)
            return
        self._chosen ^= {self._groups[index][0]}
        self.rows.show(len(self._groups) + 1, cursor=index)

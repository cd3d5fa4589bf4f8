"""Choose the tools of a conversation, with what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache import Price
from kvchat.text.prices import in_brief
from kvchat.text.tools import tokens_about
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.kit import ACCENT, MUTED, ListModal, RowList, content


class ToolsScreen(ListModal[tuple[str, ...]]):
    """The groups of tools, each with what it costs and to be ticked, and a row that takes those. Escape changes
    nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tools")]
    DEFAULT_CSS = "ToolsScreen .words { margin-bottom: 1; }"
    heading = "Tools"

    def __init__(
        self, groups: Sequence[tuple[str, str]], chosen: Iterable[str], price: Callable[[Sequence[str]], Price]
    ) -> None:
        """`groups`: each with what it does. `price`: what some of them cost."""
        super().__init__(classes="-small")
        self.hints = (("tools.tick", "tick"), ("rows.choose", "use the ticked"), ("dialog.close", "cancel"))
        self._groups = groups
        self._chosen = set(chosen)
        self._price = price
        self._tokens = {name: tokens_about(price((name,))) for name, _ in groups}
        self._widest = [max(map(len, one)) for one in (self._tokens, self._tokens.values())]

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
            cost = in_brief(self._price(self._names))
            return content(("Use them" if self._names else "Use none", ACCENT), (f"  {cost}", MUTED))
        name, words = self._groups[index]
        mark = "[x] " if name in self._chosen else "[ ] "
        names, tokens = self._widest
        cost = f"  {self._tokens[name].rjust(tokens)}"
        return content((mark, ACCENT), name.ljust(names), (cost, ""), (f"  {words}", MUTED))

    def action_choose(self) -> None:
        self.finish(self._names)

    def action_tick(self) -> None:
        self.choose(self.rows.cursor or 0)

    def choose(self, index: int) -> None:
        if index == len(self._groups):
            self.finish(self._names)
            return
        self._chosen ^= {self._groups[index][0]}
        self.rows.show(len(self._groups) + 1, cursor=index)

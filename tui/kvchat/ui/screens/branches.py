"""The tree of a conversation: every branch, and the way to each.

What continues straight stays in its column. A branch that is not the current one (or, off the current branch, not the
newest) is indented, in a column of its own, above its parent's continuation. So a conversation with ten thousand
messages in a row is as narrow as one with two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.prompt.message import Node, Role, State, instructions_of
from kvchat.prompt.tree import Tree
from kvchat.reports.warmth import Heat, Warmth
from kvchat.sanitize import one_line
from kvchat.text.cache import opening_words
from kvchat.text.format import count, counted, moment
from kvchat.text.notes import note_sentence
from kvchat.text.tools import shown_call
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import ACCENT, BAD, MARK_TONES, MUTED, USER, ListModal, RowList, content, joined
from kvchat.ui.widgets.sidebar_rows import GLYPHS, mark_of

WIDE = 90
"""From this many cells on, a row shows the time too."""


class TreeRow(Struct, frozen=True):
    """A message and the lines in front of it."""

    node: Node
    lanes: str
    """Box drawing, two cells a column: heavy where the current branch runs."""
    current: bool
    """Whether it is on the current branch."""
    number: int = 1
    """Which of its siblings it is, from 1."""
    siblings: int = 1


def tree_rows(tree: Tree, head: str | None) -> list[TreeRow]:
    """All messages, parents before children, branches aside before the way that goes on."""
    path = {node.id for node in tree.path(head)}
    roots = tree.children(None)
    main_root = next((root for root in roots if root.id in path), roots[-1] if roots else None)
    aside = [root for root in roots if root is not main_root]
    order = [*aside, main_root] if main_root is not None else []
    todo: list[tuple[Node, tuple[bool, ...], bool, int, int]] = [
        (root, (), False, roots.index(root) + 1, len(roots)) for root in reversed(order)
    ]
    rows = []
    while todo:
        node, outer, first, number, count = todo.pop()
        children = tree.children(node.id)
        on = node.id in path
        rows.append(TreeRow(node, _lanes(outer, on, first, not children), on, number, count))
        if not children:
            continue
        main = next((child for child in children if child.id in path), children[-1])
        todo.append((main, outer, False, children.index(main) + 1, len(children)))
        inner = (*outer, main.id in path)
        for index in range(len(children) - 1, -1, -1):
            if children[index] is not main:
                todo.append((children[index], inner, True, index + 1, len(children)))
    return rows


def _lanes(outer: tuple[bool, ...], on: bool, first: bool, last: bool) -> str:
    """The columns in front of a row: those of the branches around it, then its own. True in `outer`: the current
    branch."""
    if not outer:
        return "┃ " if on else "└ " if last else "│ "
    columns = ["┃ " if heavy else "│ " for heavy in outer]
    if first:
        columns[-1] = "┠─" if outer[-1] else "├─"
        return "".join(columns) + ("─ " if last else "┬ ")
    return "".join(columns) + ("└ " if last else "│ ")


Branching = tuple[Literal["go", "fork"], str]

STATES: dict[State, str] = {
    State.STREAMING: "answering",
    State.LENGTH: "cut at max tokens",
    State.CONTEXT_FULL: "window full",
    State.CANCELLED: "stopped",
    State.INTERRUPTED: "interrupted",
    State.ERROR: "failed",
    State.EMPTY: "no text",
}


class BranchTreeScreen(ListModal[Branching]):
    """All branches, the current one heavy. Result: ("go", node id) or ("fork", node id)."""

    DEFAULT_CSS = "BranchTreeScreen RowList { margin-top: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("branches")]

    def __init__(
        self,
        tree: Tree,
        head: str | None,
        *,
        title: str = "",
        at: str | None = None,
        now: datetime | None = None,
        warmth: Callable[[str], Warmth] | None = None,
    ) -> None:
        """`warmth` tells what the server holds of the branch that ends in a message."""
        super().__init__(classes="-list -wide")
        self.heading = f"Branches · {one_line(title, 60)}" if title else "Branches"
        self.hints = (("rows.choose", "go there"), ("branches.fork", "fork"), ("dialog.close", "close"))
        self._rows = tree_rows(tree, head)
        self._tips = frozenset(leaf.id for leaf in tree.leaves())
        self._warmth = warmth
        self._at = at or head
        self._now = now or datetime.fromtimestamp(time.time()).astimezone()

    def body(self) -> Iterable[Widget]:
        words = (
            f"{counted(len(self._tips), 'branch', 'branches')}, {counted(len(self._rows), 'message')}. "
            "The heavy line is the branch in use."
        )
        yield Static(content((words, MUTED)), classes="words")
        yield RowList(self._draw)

    def on_mount(self) -> None:
        at = next((i for i, row in enumerate(self._rows) if row.node.id == self._at), 0)
        self.rows.show(len(self._rows), cursor=at)

    def _draw(self, index: int, width: int) -> Content:
        row = self._rows[index]
        node = row.node
        state = STATES.get(node.state, "")
        tokens = node.figures.predicted_tokens if node.figures else None
        right = self._mark(node) + content(
            (f"  {state}", BAD if node.state in (State.ERROR, State.INTERRUPTED) else MUTED) if state else "",
            (f"  {row.number}/{row.siblings}", ACCENT if row.current else MUTED) if row.siblings > 1 else "",
            (f"{count(tokens) + ' tok' if tokens is not None else '':>11}", MUTED),
            (f"{moment(node.created, self._now):>17}" if width >= WIDE else "", MUTED),
        )
        lanes = row.lanes
        if len(lanes) > width // 3:
            lanes = "… " + lanes[-(width // 3 // 2 * 2) :]
        heavy = ACCENT if row.current else MUTED
        tone = "" if row.current else MUTED
        who = USER if row.current and node.role is Role.USER else MUTED
        left = content((lanes, heavy), (f"{_who(node):<8}", who), (shown(_words(node), width), tone))
        return joined(left, right, width)

    def _mark(self, node: Node) -> Content:
        """At the end of a branch: how warm it is, and what going there would read."""
        if self._warmth is None or node.id not in self._tips:
            return content()
        warmth = self._warmth(node.id)
        if warmth.heat is Heat.UNKNOWN:
            return content()
        mark, cost = mark_of(warmth), opening_words(warmth)
        return content("  ", (GLYPHS[mark], MARK_TONES[mark]), (f" {cost}" if cost else "", MUTED))

    def choose(self, index: int) -> None:
        self.finish(("go", self._rows[index].node.id))

    def action_fork(self) -> None:
        if self.rows.cursor is not None:
            self.finish(("fork", self._rows[self.rows.cursor].node.id))


def _who(node: Node) -> str:
    return {Role.USER: "you", Role.ASSISTANT: "answer", Role.TOOL: "call"}.get(node.role, "system")


def _words(node: Node) -> str:
    if node.role is Role.SYSTEM:
        return instructions_of(node.text)
    call = shown_call(node.message.call) if node.message.calls else ""
    return call if node.role is Role.TOOL else node.text or call or note_sentence(node.note)

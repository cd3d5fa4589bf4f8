"""The tree of a conversation as lines, before it is drawn.

The rule: what goes on straight stays in its column. A branch that is not the current one (or, off the current branch,
not the newest) stands aside, in a column of its own, above the way its parent goes on. So a conversation with ten
thousand messages in a row is as narrow as one with two.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.prompt.message import Node
from kvchat.prompt.tree import Tree


@dataclass(frozen=True, slots=True)
class TreeRow:
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
        (root, (), False, roots.index(root) + 1, len(roots)) for root in reversed(order)]
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
    """The columns in front of a row: those it stands aside of, then its own. True in `outer`: the current branch."""
    if not outer:
        return "┃ " if on else "└ " if last else "│ "
    columns = ["┃ " if heavy else "│ " for heavy in outer]
    if first:
        columns[-1] = "┠─" if outer[-1] else "├─"
        return "".join(columns) + ("─ " if last else "┬ ")
    return "".join(columns) + ("└ " if last else "│ ")

"""The tree of a conversation: branches, siblings, tips. A value: every change gives a new node, never a new text."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator

from kvchat.prompt.message import Node, Role


class Tree:
    """The nodes of one conversation, its ancestors included. Nodes are added in any order.

    Children are ordered by creation time, then id, so that "2/3" means the same everywhere.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._children: dict[str | None, list[str]] = {}
        for node in self._nodes.values():
            self._children.setdefault(node.parent, []).append(node.id)
        for children in self._children.values():
            self._sort(children)
        self._walked: tuple[str, list[Node]] | None = None
        """The branch that was asked for last, until a node changes: a screen asks for it many times in a row."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __contains__(self, id: object) -> bool:
        return id in self._nodes

    def __getitem__(self, id: str) -> Node:
        return self._nodes[id]

    def put(self, node: Node) -> None:
        """Add `node`, or replace it by its settled form (same id, same parent)."""
        self._walked = None
        is_new = node.id not in self._nodes
        self._nodes[node.id] = node
        if is_new:
            insort(self._children.setdefault(node.parent, []), node.id, key=self._place)

    def _sort(self, children: list[str]) -> None:
        if len(children) > 1:
            children.sort(key=self._place)

    def _place(self, id: str) -> tuple[float, str]:
        return self._nodes[id].created, id

    def drop(self, id: str) -> None:
        """Remove a node without children. Raises ValueError if it has some."""
        if self._children.get(id):
            raise ValueError("a node with children cannot be dropped")
        self._walked = None
        self._children[self._nodes.pop(id).parent].remove(id)

    def path(self, head: str | None) -> list[Node]:
        """The branch that ends at `head`, root first; empty for None."""
        if head is None:
            return []
        walked = self._walked
        if walked is None or walked[0] != head:
            found = [self._nodes[head]]
            while (above := found[-1].parent) is not None:
                found.append(self._nodes[above])
            walked = self._walked = head, found[::-1]
        return [*walked[1]]

    def children(self, id: str | None) -> list[Node]:
        return [self._nodes[child] for child in self._children.get(id, ())]

    def width(self, id: str) -> int:
        """How many messages follow this one at once."""
        return len(self._children.get(id, ()))

    def siblings(self, id: str) -> list[Node]:
        """The node and its siblings of the same role, oldest first."""
        node = self._nodes[id]
        return [sibling for sibling in self.children(node.parent) if sibling.role is node.role]

    def version(self, id: str) -> tuple[int, int]:
        """Its place among its siblings of the same role, from 1, and how many there are."""
        if len(self._children[self._nodes[id].parent]) == 1:
            return 1, 1
        siblings = [sibling.id for sibling in self.siblings(id)]
        return siblings.index(id) + 1, len(siblings)

    def tip(self, id: str) -> str:
        """The end of the branch through `id` that was begun last."""
        while children := self._children.get(id):
            id = children[-1]
        return id

    def leaves(self) -> list[Node]:
        """The ends of all branches, oldest first."""
        ends = [node for node in self if not self._children.get(node.id)]
        return sorted(ends, key=lambda node: (node.created, node.id))

    def turn_of(self, id: str) -> tuple[Node, Node | None]:
        """The turn a message belongs to: its question, and the answer at `id` if that is one, a step of it or the last.

        Raises ValueError for the system message.
        """
        node = question = self._nodes[id]
        while question.role is not Role.USER:
            if question.parent is None:
                raise ValueError("the system message belongs to no turn")
            question = self._nodes[question.parent]
        return question, node if node.role is Role.ASSISTANT else None

"""A node of the compressed prefix trie. The rule: an edge is a range of a whole sequence, so nothing is ever copied.

A node holds the sequence that went through it last, from the root on; its edge are the tokens from its parent's end to
its own. Splitting and merging only move ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvchat.cache.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an owner's last request went on this branch, and when (seconds since the epoch)."""

    end: int
    at: float


class Node:
    """The tokens from the end of `parent` to `end`."""

    __slots__ = ("children", "end", "marks", "parent", "path", "pinned", "used")

    def __init__(self, path: Tokens, end: int, parent: Node | None) -> None:
        self.path = path
        """A sequence whose first `end` tokens lead here; it may be longer."""
        self.end = end
        self.parent = parent
        self.children: list[Node] = []
        self.used = 0
        """When a request last went through it, on the trie's count."""
        self.pinned = False
        self.marks: dict[str, Mark] = {}

    @property
    def length(self) -> int:
        """Tokens of the edge."""
        return self.end - (self.parent.end if self.parent else 0)

    def up(self) -> Iterator[Node]:
        """This node and those above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)

    def copied(self) -> dict[int, Node]:
        """Copies of this node and all below it, by the id of the original."""
        copies: dict[int, Node] = {}
        for node in self.walk():
            parent = copies.get(id(node.parent))
            copy = copies[id(node)] = Node(node.path, node.end, parent)
            copy.used, copy.pinned, copy.marks = node.used, node.pinned, dict(node.marks)
        for node in self.walk():
            copies[id(node)].children = [copies[id(child)] for child in node.children]
        return copies

    def come_first(self) -> None:
        """Be the first among its siblings: what was used last is looked at first."""
        if self.parent is not None and self.parent.children[0] is not self:
            self.parent.children.remove(self)
            self.parent.children.insert(0, self)

    def split(self, end: int) -> Node:
        """A new node above this one that ends at `end`, which lies inside the edge."""
        parent = self.parent
        assert parent is not None and parent.end < end < self.end
        upper = Node(self.path, end, parent)
        upper.children, upper.used = [self], self.used
        parent.children[parent.children.index(self)] = upper
        upper.marks = {owner: mark for owner, mark in self.marks.items() if mark.end <= end}
        self.marks = {owner: mark for owner, mark in self.marks.items() if mark.end > end}
        self.parent = upper
        return upper

    def merge_into(self, child: Node) -> None:
        """The single `child` takes this node's place and its edge."""
        parent = self.parent
        assert parent is not None and self.children == [child]
        parent.children[parent.children.index(self)] = child
        child.parent = parent
        child.used = max(child.used, self.used)
        for owner, mark in self.marks.items():
            child.receive(owner, mark)

    def shorten(self, end: int) -> None:
        """Forget what follows `end`, which lies inside the edge; only for a node without children."""
        self.end = end
        marks, self.marks = self.marks, {}
        for owner, mark in marks.items():
            self.receive(owner, mark)

    def drop(self) -> Node:
        """Take this node without children out; its parent. What its owners had is held as far as the parent."""
        parent = self.parent
        assert parent is not None and not self.children
        parent.children.remove(self)
        for owner, mark in self.marks.items():
            parent.receive(owner, mark)
        return parent

    def receive(self, owner: str, mark: Mark) -> None:
        """Take over a mark, as far as this node goes; of two on one path the longer and the later count."""
        old = self.marks.get(owner, mark)
        if self.end:
            self.marks[owner] = Mark(min(max(old.end, mark.end), self.end), max(old.at, mark.at))

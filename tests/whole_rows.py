"""Writes to a store for tests that make a conversation's whole row themselves, as no act of a person does."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node
from kvchat.store import Store


def put_row(store: Store, row: Conversation) -> None:
    store.change(row, lambda _: row)


def add_nodes(store: Store, row: Conversation, nodes: Sequence[Node]) -> None:
    """Also where no act could add them."""
    store.add(row, nodes, lambda _: row, late=True) if nodes else put_row(store, row)


def settle_node(store: Store, node: Node, row: Conversation) -> None:
    store.settle(node, row, lambda _: row)

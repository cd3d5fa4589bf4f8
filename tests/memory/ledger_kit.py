"""Conversations that any thread or process adds to, and extractions of them, without a model."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec.structs import replace

from kvchat.memory.entry import Act, Change, Entry, Kind, new_id
from kvchat.memory.ledger import ExtractionLedger, ExtractionRun
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Node, Role, State, node, system_message
from kvchat.prompt.message import new_id as new_node_id
from kvchat.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))  # forked.py

STAMP = 1_700_000_000.123
"""The stamp of every message: what is equal tells nothing."""


def begin(store: Store, **options: object) -> Conversation:
    """A new conversation without a message."""
    system = node(None, system_message(""), STAMP)
    return store.create(Conversation(new_node_id(), system.id, STAMP, STAMP, **options), system)


def capture(
    store: Store, id: str, below: str | None, texts: Sequence[str], stamp: float = STAMP, *, shown: str | None = None
) -> list[str]:
    """Questions and answers by turns, one below the other, under the message `below` (None: under the head), and the
    head moved there, by a window that showed the branch to `shown` (None: to the head); their ids."""
    record = store.conversation(id)
    above = store.tree(id)[below or record.head or ""]
    made: list[Node] = []
    for text in texts:
        role = Role.ASSISTANT if above.role is Role.USER else Role.USER
        above = node(above, Message(role, text), stamp)
        made.append(above)
    store.add(
        record,
        made,
        lambda row: replace(row, head=above.id, turns=row.turns + 1, updated=stamp),
        shown=shown or record.head,
    )
    return [one.id for one in made]


def path(store: Store, id: str, head: str | None = None) -> list[Node]:
    return store.tree(id).path(head or store.conversation(id).head)


def waiting(store: Store, id: str, head: str | None = None) -> list[str]:
    """The texts that wait on the branch to `head`, or on the one in use."""
    return [one.text for one in ExtractionLedger(store.database).pending(path(store, id, head))]


def fact(text: str, conversation: str = "", nodes: Sequence[str] = ()) -> Change:
    """What a finished extraction notes."""
    entry = Entry(
        new_id(),
        Kind.FACT,
        text,
        "topics/facts.md",
        STAMP,
        confidence=0.9,
        conversation=conversation,
        nodes=tuple(nodes),
        by="small",
    )
    return Change(Act.NOTED, None, entry, STAMP, "session")


def extract(store: Store, id: str, head: str | None = None, most: int = 1_000) -> list[str] | None:
    """Cover the first `most` of what waits, with one fact each; their ids, empty for nothing, None when somebody else
    was first."""
    ledger = ExtractionLedger(store.database)
    nodes = [one.id for one in ledger.pending(path(store, id, head))][:most]
    if not nodes:
        return []
    run = ExtractionRun(new_node_id(), id, STAMP, model="small", session="session", noted=len(nodes))
    changes = [fact(f"fact of {one}", id, [one]) for one in nodes]
    return nodes if ledger.cover(run, nodes, changes) else None


def extract_all(store: Store, id: str) -> None:
    """Go through every branch until nothing waits."""
    for leaf in store.tree(id).leaves():
        while extract(store, id, leaf.id) != []:
            pass


@contextmanager
def reading(store: Store) -> Iterator[sqlite3.Connection]:
    """The database past kvchat."""
    assert store.database.path is not None
    with closing(sqlite3.connect(store.database.path)) as connection:
        yield connection


def check_places(store: Store, id: str) -> tuple[set[str], set[str]]:
    """Every message is in exactly one place, with one fact if it is covered; the covered and the pending ones."""
    tree = store.tree(id)
    ledger = ExtractionLedger(store.database)
    with reading(store) as connection:
        runs = dict(connection.execute("SELECT id, noted FROM cell"))
        rows = connection.execute("SELECT node, cell FROM covered").fetchall()
        facts = Counter(row[0] for row in connection.execute("SELECT text FROM entry"))
        noted = connection.execute("SELECT count(*) FROM change WHERE act = 'noted'").fetchone()[0]
    covered = {row[0] for row in rows}
    pending = {one.id for leaf in tree.leaves() for one in ledger.pending(tree.path(leaf.id))}
    said = {one.id for one in tree if one.role is not Role.SYSTEM and one.state is not State.STREAMING}
    here = covered & said
    assert len(rows) == len(covered)
    assert not here & pending and here | pending == said
    assert Counter(run for _, run in rows) == Counter(runs)
    assert facts == Counter(f"fact of {one}" for one in covered) and noted == len(covered)
    return here, pending

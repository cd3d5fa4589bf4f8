"""Keep track of the messages that an extraction or an episode covers, those that are pending, and when these are due.

Every final question and answer since memory was introduced is either pending or covered by exactly one extraction; a
second ledger does the same for episodes. Pending is a query, never a stored list. A message is identified by its id,
never by its time; a copy of it, made when a branch is grown again, counts as the message itself. Nothing becomes due by
having waited: every time is counted from the end of the last answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.memory.entry import Change
from kvchat.memory.state import put_changes
from kvchat.prompt.message import Node, State
from kvchat.prompt.wire import whole_characters
from kvchat.store import tips
from kvchat.store.covering import mark
from kvchat.store.file.database import Database
from kvchat.store.jobs import JobReason
from kvchat.store.rows import columns, to_json

if TYPE_CHECKING:
    from kvchat.config import MemorySettings

_SINCE = "store.memory_since"
"""The key of the setting with the `node.seq` of the last message that no extraction is to cover."""

FACTS = "facts"
EMPTY = "empty"
EPISODE = "episode"
UNASKED = "-"
"""`ExtractionRun.model` where the messages were looked at and no model had to be asked. Messages that were passed over
for good have no run; in older stores one without a model."""
EXTRACTIONS, EPISODES = "covered", "in_episode"
"""The tables of the two ledgers."""


class ExtractionRun(Struct, frozen=True):
    """One extraction that succeeded."""

    id: str
    conversation: str
    created: float
    """Seconds since the epoch."""
    kind: str = FACTS
    """FACTS, or EMPTY where nothing was worth keeping; EPISODE for one of these."""
    model: str = ""
    session: str = ""
    """The run of kvchat in which it happened."""
    noted: int = 0
    """Entries that came of it, the proposed ones too."""
    refused: str = "[]"
    """What was found and not kept: a JSON list of [text, reason]."""


_FIELDS = ExtractionRun.__struct_fields__
_NEW = f"""+seq > coalesce((SELECT CAST(value AS INTEGER) FROM setting WHERE key = '{_SINCE}'), 0)
    AND NOT EXISTS (SELECT 1 FROM {{covered}} AS covered WHERE covered.node = node.id)"""
_SAID = "role IN ('user', 'assistant')"
_UNCOVERED = f"""
    SELECT node.id, role, node.created, text FROM json_each(?) AS step CROSS JOIN node ON node.id = step.value
    WHERE {_NEW} AND {_SAID} AND state != 'streaming' ORDER BY step.key"""
# Only ids and numbers are looked at first (hence the +), which the index over the ids holds: no message is read.
_OWNERS = f"""
    WITH new AS MATERIALIZED (SELECT id FROM node WHERE {_NEW} LIMIT :most)
    SELECT NULL, count(*) FROM new
    UNION ALL SELECT DISTINCT conversation, 0 FROM new CROSS JOIN node ON node.id = new.id WHERE {_SAID}"""
_FORKS = """
    SELECT id, forked_from, forked_from IN (SELECT id FROM conversation) FROM conversation
    WHERE forked_from IS NOT NULL"""
_WANTED = """
    SELECT id, head FROM conversation
    WHERE trashed IS NULL AND memory != 0 AND head IS NOT NULL AND id IN (SELECT value FROM json_each(?))
    ORDER BY updated, seq"""
_COVER = {
    EXTRACTIONS: "INSERT INTO covered SELECT id, ?, coalesce(conversation, ?), ? FROM node WHERE id = ?",
    EPISODES: "INSERT INTO in_episode(node, cell, mark) SELECT id, ?1, ?3 FROM node WHERE id = ?4",
}
_MARKED = {
    EXTRACTIONS: "SELECT node, conversation FROM covered WHERE mark = ?",
    EPISODES: "SELECT node, coalesce(node.conversation, cell.conversation) FROM in_episode"
    " JOIN node ON node.id = node LEFT JOIN cell ON cell.id = cell WHERE mark = ?",
}
SAMPLE = 20_000
"""Messages that wait of which the conversations are looked up first, where only some conversations are asked for."""
_ABOVE = """
    WITH RECURSIVE up(id, parent) AS (
        SELECT id, parent FROM node WHERE id IN (SELECT value FROM json_each(?))
        UNION SELECT node.id, node.parent FROM up JOIN node ON node.id = up.parent)
    SELECT id, parent FROM up"""
_FAMILY = """
    WITH RECURSIVE family(id) AS (
        SELECT conversation FROM node WHERE conversation IS NOT NULL AND id IN (SELECT value FROM json_each(?))
        UNION SELECT conversation.forked_from FROM family JOIN conversation ON conversation.id = family.id
            WHERE conversation.forked_from IS NOT NULL
        UNION SELECT conversation.id FROM family JOIN conversation ON conversation.forked_from = family.id)
    SELECT id FROM family"""


class ExtractionLedger:
    """Reads and writes the covered messages. Every method may raise StoreError."""

    def __init__(self, database: Database, of: str = EXTRACTIONS) -> None:
        """`of`: EXTRACTIONS or EPISODES."""
        self._db = database
        self._of = of

    def pending(self, path: Sequence[Node]) -> list[Node]:
        """The pending messages of a branch, which is given root first, in its order."""
        waiting = self._waiting([node.id for node in path])
        return [node for node in path if node.id in waiting and node.state is not State.STREAMING]

    def behind(self, limit: int | None = None, except_for: Collection[str] = ()) -> list[tuple[str, int]]:
        """The conversations whose branches in use have pending messages, and how many, longest untouched first; at most
        `limit`. Not those in the trash, nor where memory is switched off, nor `except_for`."""
        most = SAMPLE
        while True:
            owners, is_all = self._owners(None if limit is None else most)
            found = self._counted(self._with_forks(owners) - set(except_for), limit)
            if is_all or len(found) == limit:
                return found
            most *= 8

    def counts(self, conversations: Collection[str]) -> list[tuple[str, int]]:
        """How many messages wait in these, as `behind` tells it, leaving out where none do."""
        return self._counted(set(conversations))

    def _counted(self, conversations: set[str], limit: int | None = None) -> list[tuple[str, int]]:
        found, ends = list[tuple[str, int]](), tips.of_all(self._db)
        for id, head in self._db.rows(_WANTED, (to_json(conversations),)):
            if limit is not None and len(found) == limit:
                break
            if count := self._count([head, *ends.get(id, ())]):
                found.append((id, count))
        return found

    def _owners(self, most: int | None) -> tuple[set[str], bool]:
        """The conversations in which the messages were made that are not covered, or `most` of them; and whether that
        were all."""
        (_, seen), *rows = self._db.rows(_OWNERS.format(covered=self._of), {"most": -1 if most is None else most})
        return {id for id, _ in rows if id is not None}, most is None or seen < most

    def _with_forks(self, owners: set[str]) -> set[str]:
        """These conversations and those whose branches may begin in them: what was forked from them, or from one that
        is gone."""
        found = set(owners)
        forks: dict[str, list[str]] = {}
        for id, origin, is_there in self._db.rows(_FORKS):
            forks.setdefault(origin, []).append(id)
            if not is_there:
                found.add(id)
        todo = list(found)
        while todo:
            new = set(forks.get(todo.pop(), ())) - found
            found |= new
            todo += new
        return found

    def branches(self, conversation: str) -> list[str]:
        """The ends of a conversation's branches in use: its head, and those that another window continues."""
        head = self._db.row("SELECT head FROM conversation WHERE id = ?", (conversation,))
        return [id for id in [*(head or ()), *tips.of_all(self._db).get(conversation, ())] if id is not None]

    def _count(self, ends: Sequence[str]) -> int:
        above = self._above(ends)
        return len({id for end in ends for id in self._waiting(_chain(end, above))})

    def cover(
        self,
        run: ExtractionRun,
        nodes: Sequence[str],
        changes: Sequence[Change],
        write: Callable[[], object] = lambda: None,
    ) -> bool:
        """Store an extraction, the messages of one branch that it went through and what came of it, and write that by
        `write`, all or nothing. False, and nothing is stored, if one of them is not pending any more. Raises
        StaleChange, what `write` raises, and ValueError for messages that are on no one branch."""
        nodes = list(dict.fromkeys(nodes))
        with self._db.write(durable=True) as connection:
            above = self._above(nodes)
            if not nodes or any(id not in above for id in nodes):
                return False
            waiting = self._waiting(_branch_of(nodes, above))
            if any(id not in waiting for id in nodes):
                return False
            values = (getattr(run, name) for name in _FIELDS)
            connection.execute(
                f"INSERT INTO cell({columns(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})",
                [whole_characters(value) if isinstance(value, str) else value for value in values],
            )
            connection.executemany(_COVER[self._of], [(run.id, run.conversation, waiting[id], id) for id in nodes])
            put_changes(connection, changes, conversation=run.conversation, run=run.id)
            write()
        return True

    def begin_now(self) -> None:
        """Leave out for good all messages until now that are not covered."""
        with self._db.write(durable=True) as connection:
            connection.execute(
                "INSERT INTO setting SELECT ?, CAST(coalesce(max(seq), 0) AS TEXT) FROM node WHERE true"
                " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
                (_SINCE,),
            )

    def runs(self, conversation: str = "", limit: int = 50) -> list[ExtractionRun]:
        """The extractions, or the episodes, of one conversation if given, newest first."""
        rows = self._db.rows(
            f"SELECT {columns(_FIELDS)} FROM cell WHERE :it IN ('', conversation)"
            " AND (kind = :episode) = :wanted ORDER BY seq DESC LIMIT :limit",
            {"it": conversation, "limit": limit, "episode": EPISODE, "wanted": self._of == EPISODES},
        )
        return [ExtractionRun(*row) for row in rows]

    def covered_by(self, runs: Sequence[str]) -> set[str]:
        """The messages that these went through."""
        rows = self._db.rows(
            f"SELECT node FROM {self._of} WHERE cell IN (SELECT value FROM json_each(?))", (to_json(list(runs)),)
        )
        return {row[0] for row in rows}

    def examined(self, path: Sequence[Node]) -> set[str]:
        """Which messages of a branch an extraction looked at, but for those that were passed over."""
        rows = self._db.rows(
            "SELECT node FROM covered JOIN cell ON cell.id = covered.cell WHERE cell.model != ''"
            " AND node IN (SELECT value FROM json_each(?))",
            (to_json([node.id for node in path]),),
        )
        return {row[0] for row in rows}

    def _waiting(self, path: Sequence[str]) -> dict[str, bytes]:
        """The pending messages of a branch, root first, each with its mark."""
        rows = self._db.rows(_UNCOVERED.format(covered=self._of), (to_json(path),))
        marks = {id: mark(role, float(created), text) for id, role, created, text in rows}
        copies = self._copies(path, marks)
        return {id: known for id, known in marks.items() if id not in copies}

    def _copies(self, path: Sequence[str], marks: Mapping[str, bytes]) -> set[str]:
        """Which of the messages are copies of covered ones. A copy has the mark of its original, is in the same
        conversation or one forked from it, and is never above or below it; each original has one copy on a path.
        """
        place = {id: number for number, id in enumerate(path)}
        alike = {
            known: [row for row in self._db.rows(_MARKED[self._of], (known,)) if row[0] not in place]
            for known in set(marks.values())
        }
        originals = [node for rows in alike.values() for node, _ in rows]
        if not originals:
            return set()
        family = {row[0] for row in self._db.rows(_FAMILY, (to_json(path),))}
        joins = _joins(originals, self._above(originals), place)
        copies = set()
        for id, known in marks.items():
            for original in alike[known]:
                if original[1] in family and joins[original[0]] < place[id]:
                    alike[known].remove(original)
                    copies.add(id)
                    break
        return copies

    def _above(self, nodes: Sequence[str]) -> dict[str, str | None]:
        """The parents of these messages and of all above them."""
        return dict(self._db.rows(_ABOVE, (to_json(nodes),)))


def _chain(id: str, above: Mapping[str, str | None]) -> list[str]:
    """The branch that ends at `id`, root first."""
    found = []
    step: str | None = id
    while step is not None and step in above:
        found.append(step)
        step = above[step]
    return found[::-1]


def _branch_of(nodes: Sequence[str], above: Mapping[str, str | None]) -> list[str]:
    """The branch that ends at the lowest of the nodes. Raises ValueError when one of them is not on it."""
    branch = max((_chain(id, above) for id in nodes), key=len)
    if not set(nodes) <= set(branch):
        raise ValueError("The messages are not on one branch.")
    return branch


def _joins(nodes: Iterable[str], above: Mapping[str, str | None], place: Mapping[str, int]) -> dict[str, int]:
    """Where on a path each node's own branch joins it: the place of its nearest ancestor there, -1 for none."""
    joins: dict[str | None, int] = {None: -1}
    joins.update(place)
    for node in nodes:
        climbed = []
        step: str | None = node
        while step not in joins:
            climbed.append(step)
            step = above.get(step or "")
        joins.update(dict.fromkeys(climbed, joins[step]))
    return {node: joins[node] for node in nodes}


# When it is time


BYTES_PER_TOKEN = 4


def why_due(pending: Sequence[Node], settings: MemorySettings, *, left: bool = False) -> JobReason | None:
    """Why to extract from these messages once their server has rested; None: nothing is pending. `left`: the user went
    to another conversation."""
    if not pending:
        return None
    if len(pending) >= settings.most_messages:
        return JobReason.MOST
    if left:
        return JobReason.LEFT
    tokens = tokens_of(pending)
    worth = len(pending) >= settings.every_messages and tokens >= settings.worth_tokens
    return JobReason.ENOUGH if worth or tokens >= settings.every_tokens else JobReason.RESTS


def rest_of(why: str, settings: MemorySettings) -> float:
    """Seconds after the last answer before an extraction for this reason is due; one that failed rests as for RESTS."""
    if why in (JobReason.ASKED, JobReason.MOST, JobReason.LEFT):
        return 0.0
    return settings.rest_seconds if why == JobReason.ENOUGH else settings.idle_seconds


def tokens_of(nodes: Sequence[Node]) -> int:
    """About how many tokens messages have."""
    return sum(len(node.wire) for node in nodes) // BYTES_PER_TOKEN

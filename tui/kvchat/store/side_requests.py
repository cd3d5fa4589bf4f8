"""The ledger of side requests: what kvchat asked a server in addition to the chat, and what that cost.

Each has a row, whatever became of it; no row holds a text.
"""

from __future__ import annotations

from msgspec import Struct

from kvchat.figures.accounting import SideTotals
from kvchat.prompt.wire import whole_characters
from kvchat.store.file.database import Database
from kvchat.store.rows import columns


class SideRequest(Struct, frozen=True):
    """One request that is not the chat's."""

    kind: str
    """What for: the kind of its job."""
    subject: str
    """The conversation, or what else it was about."""
    created: float
    """Seconds since the epoch."""
    server: str
    """The server's base URL."""
    model: str
    outcome: str
    """What became of it, in a word or two."""
    prompt_tokens: int | None
    cached_tokens: int | None
    """Those of the prompt that the server had in its cache; None: it did not say."""
    predicted_tokens: int | None
    seconds: float


_FIELDS = SideRequest.__struct_fields__


class SideRequestRows:
    """The ledger. Every method may raise StoreError."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def record(self, request: SideRequest) -> None:
        values = [getattr(request, name) for name in _FIELDS]
        with self._db.write() as connection:
            connection.execute(
                f"INSERT INTO side_request({columns(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})",
                [whole_characters(value) if isinstance(value, str) else value for value in values],
            )

    def all(self, since: float = 0.0, kind: str = "", subject: str = "") -> list[SideRequest]:
        """Those since then (seconds since the epoch), of one kind and subject if given, oldest first."""
        rows = self._db.rows(
            f"SELECT {columns(_FIELDS)} FROM side_request WHERE created >= :since"
            " AND :kind IN ('', kind) AND :subject IN ('', subject) ORDER BY created, seq",
            {"since": since, "kind": kind, "subject": subject},
        )
        return [SideRequest(*row) for row in rows]

    def totals(self, since: float = 0.0, subject: str = "") -> SideTotals:
        """What they cost since then, in all or for one subject."""
        row = self._db.row(
            """SELECT count(*), coalesce(sum(max(0, prompt_tokens - cached_tokens)), 0),
                   coalesce(sum(predicted_tokens), 0), coalesce(sum(seconds), 0)
               FROM side_request WHERE created >= :since AND :subject IN ('', subject)""",
            {"since": since, "subject": subject},
        )
        return SideTotals(int(row[0]), int(row[1]), int(row[2]), float(row[3]))

"""Jobs: work that waits, survives the end of kvchat, and is done by one kvchat at a time.

One row per kind and subject. Whoever has claimed it has it until it says so, or is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, auto

from msgspec import Struct

from kvchat.prompt.wire import whole_characters
from kvchat.store.file.database import Database
from kvchat.store.presence.process_id import is_gone


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    """It failed too often: it waits for the user."""


class JobReason(StrEnum):
    """Why a job was put into the queue."""

    MOST = auto()
    """As many messages wait as may wait at most."""
    ENOUGH = auto()
    """Enough new messages."""
    LEFT = auto()
    """The conversation was left."""
    RESTS = auto()
    """The conversation rests."""
    ASKED = auto()
    """The user asked for it."""
    NEW_MEMORIES = auto()
    NEW_TEXTS = auto()
    """Texts without a vector."""


class Job(Struct, frozen=True):
    """One piece of work."""

    kind: str
    subject: str
    """What it is about: a conversation's id, for most."""
    due: float
    """When it may begin, in seconds since the epoch."""
    attempts: int = 0
    """How often it failed since it last succeeded."""
    state: JobState = JobState.WAITING
    why: str = ""
    """A `JobReason`; of one that failed, what the server or kvchat said of that."""
    created: float = 0.0


_STATES = {state.value: state for state in JobState}
_FREE = "(state != 'running' OR owner = :owner)"
"""What another kvchat runs is its own to end."""
_PUT = """
    INSERT INTO job(kind, subject, due, attempts, state, why, created, not_before)
    VALUES (:kind, :subject, :due, 0, 'waiting', :why, :now, 0)
    ON CONFLICT(kind, subject) DO UPDATE SET
        due = CASE WHEN state != 'waiting' OR why = 'asked' AND excluded.why != 'asked' THEN due
                   ELSE max(excluded.due, not_before) END,
        again = CASE state WHEN 'waiting' THEN NULL ELSE excluded.due END,
        why = CASE WHEN state = 'waiting' AND excluded.why != '' AND why != 'asked' THEN excluded.why ELSE why END"""


class JobRows:
    """The queue. Every method may raise StoreError."""

    def __init__(self, db: Database, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock

    def put(self, kind: str, subject: str, due: float, why: str = "") -> None:
        """A new job. One that waits gets this `due`, but not before its back-off ends, and stays as it is where the
        user asked for it; for one that runs or is paused it is noted that it was asked for again."""
        self._write(_PUT, kind, subject, due=due, why=whole_characters(why), now=self._clock())

    def all(self) -> list[Job]:
        """The whole queue, in the order of `due`."""
        rows = self._db.rows(
            "SELECT kind, subject, due, attempts, state, why, created FROM job ORDER BY due, created, kind, subject"
        )
        return [
            Job(kind, subject, float(due), attempts, _STATES.get(state, JobState.WAITING), why, float(created))
            for kind, subject, due, attempts, state, why, created in rows
        ]

    def claim(self, kind: str, subject: str) -> Job | None:
        """Take a job that waits, or that a kvchat had which is gone. None: somebody else has it, it is paused, or there
        is none."""
        with self._db.write() as connection:
            row = connection.execute(
                "SELECT due, attempts, state, why, created, owner FROM job WHERE kind = ? AND subject = ?",
                (kind, subject),
            ).fetchone()
            if row is None or _STATES.get(row[2]) is JobState.PAUSED or (row[2] == "running" and not is_gone(row[5])):
                return None
            connection.execute(
                "UPDATE job SET state = 'running', owner = ?, again = NULL WHERE kind = ? AND subject = ?",
                (self._db.owner, kind, subject),
            )
        return Job(kind, subject, float(row[0]), row[1], JobState.RUNNING, row[3], float(row[4]))

    def done(self, kind: str, subject: str) -> None:
        """The job is gone; or it waits once more, if it was put meanwhile."""
        values = {"kind": kind, "subject": subject, "owner": self._db.owner}
        with self._db.write() as connection:
            this = f"kind = :kind AND subject = :subject AND {_FREE}"
            connection.execute(f"DELETE FROM job WHERE {this} AND again IS NULL", values)
            connection.execute(
                "UPDATE job SET due = again, attempts = 0, state = 'waiting', why = '', owner = NULL,"
                f" again = NULL, not_before = 0 WHERE {this}",
                values,
            )

    def back(self, kind: str, subject: str, due: float, why: str, attempts: int) -> None:
        """The job waits again until `due`. With failed attempts that is a back-off, which `put` does not shorten."""
        self._write(
            "UPDATE job SET due = :due, attempts = :attempts, state = 'waiting', why = :why, owner = NULL,"
            " again = NULL, not_before = CASE WHEN :attempts > 0 THEN :due ELSE 0 END"
            f" WHERE kind = :kind AND subject = :subject AND {_FREE}",
            kind,
            subject,
            due=due,
            why=whole_characters(why),
            attempts=attempts,
        )

    def pause(self, kind: str, subject: str, why: str) -> None:
        """The job waits for the user."""
        self._write(
            "UPDATE job SET state = 'paused', why = :why, owner = NULL, again = NULL"
            f" WHERE kind = :kind AND subject = :subject AND {_FREE}",
            kind,
            subject,
            why=whole_characters(why),
        )

    def retry(self, kind: str, subject: str, due: float) -> None:
        """Let a job that is not running begin again at `due`, without its failures and its back-off."""
        self._write(
            "UPDATE job SET due = :due, attempts = 0, state = 'waiting', why = '', again = NULL, not_before = 0"
            " WHERE kind = :kind AND subject = :subject AND state != 'running'",
            kind,
            subject,
            due=due,
        )

    def recover(self) -> int:
        """Let the jobs wait again whose kvchat ended while they ran; how many there were."""
        running = "SELECT kind, subject, owner FROM job WHERE state = 'running'"
        if not any(is_gone(owner) for _, _, owner in self._db.rows(running)):
            return 0
        with self._db.write() as connection:
            gone = [row[:2] for row in connection.execute(running).fetchall() if is_gone(row[2])]
            connection.executemany(
                "UPDATE job SET state = 'waiting', owner = NULL, again = NULL WHERE kind = ? AND subject = ?", gone
            )
        return len(gone)

    def _write(self, sql: str, kind: str, subject: str, **values: object) -> None:
        with self._db.write() as connection:
            connection.execute(sql, {"kind": kind, "subject": subject, "owner": self._db.owner, **values})

"""Whether restored snapshots are of use, by model and build: some servers report success and reuse nothing.

The rule: a model whose snapshots never worked is not tried again with the same build; one accident does not count
against a model whose snapshots have worked.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from kvchat import paths
from kvchat.cache.causes.cause import Statement, statement_of, stored

FILE = "verdicts.json"
MOST = 50
MOST_FAILURES = 2
"""In a row, for a model whose snapshots have worked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    worked: bool = False
    failures: int = 0
    """In a row."""
    why: Statement | str | None = None
    """Why snapshots are not used any more; None while they are. A sentence where an earlier version stored it."""

    def after(self, worked: bool, why: Statement | None) -> Verdict:
        """The verdict after one more restore; `why` says what was wrong with it."""
        if worked:
            return Verdict(True, 0, self.why)
        failures = self.failures + 1
        enough = failures >= (MOST_FAILURES if self.worked else 1)
        return Verdict(self.worked, failures, why if enough else None)


class Verdicts:
    """The verdicts kept in a folder. The methods work on the disk: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._lock = threading.Lock()

    def get(self, key: str) -> Verdict:
        """What is known of a model and build (`CacheKind.key`)."""
        return self._read().get(key, Verdict())

    def put(self, key: str, verdict: Verdict) -> None:
        """Remember it over restarts. Raises PathError."""
        with self._lock:
            known = self._read()
            known.pop(key, None)
            known[key] = verdict
            kept = dict(list(known.items())[-MOST:])
            data = {key: [v.worked, v.failures, stored(v.why)] for key, v in kept.items()}
            paths.write_private(self._file, json.dumps(data).encode())

    def _read(self) -> dict[str, Verdict]:
        found: dict[str, Verdict] = {}
        try:
            for key, value in json.loads(self._file.read_bytes()).items():
                worked, failures, why = value
                found[key] = Verdict(bool(worked), int(failures), statement_of(why) or None)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            pass  # without the file every model is tried anew
        return found

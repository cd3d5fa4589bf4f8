"""Models whose saved states were of no use with a build of the server: they do not come back, or not as they were.

What was just saved and does not come back shows it at once; it is not tried again with the same build.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from kvchat import paths
from kvchat.values import Statement, statement_of, stored

FILE = "verdicts.json"
KEPT_VERDICTS = 50
"""The newest, of all models."""


class Verdicts:
    """What is known, kept in a folder. The methods work on the disk: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._lock = threading.Lock()

    def get(self, key: str) -> Statement | None:
        """Why snapshots are not used with a model and build (`CacheKind.key`); None while they are."""
        return self._read().get(key)

    def put(self, key: str, why: Statement) -> None:
        """Remember it over restarts. Raises PathError."""
        with self._lock:
            known = self._read()
            known.pop(key, None)
            kept = dict(list({**known, key: why}.items())[-KEPT_VERDICTS:])
            data = {key: stored(why) for key, why in kept.items()}
            paths.write_private(self._file, json.dumps(data).encode())

    def _read(self) -> dict[str, Statement]:
        found: dict[str, Statement] = {}
        try:
            for key, value in json.loads(self._file.read_bytes()).items():
                why = statement_of(value)
                if why:
                    found[key] = why
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            pass  # without the file every model is tried again
        return found

"""How much SQLite works: counted in instructions of its virtual machine, which do not depend on the machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

STEP = 100


class Work:
    """The instructions that all connections made meanwhile have carried out, to STEP exactly."""

    def __init__(self) -> None:
        self.instructions = 0

    def _step(self) -> int:
        self.instructions += STEP
        return 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        connect = sqlite3.connect

        def counting(*args: object, **options: object) -> sqlite3.Connection:
            connection = connect(*args, **options)  # type: ignore[call-overload]
            connection.set_progress_handler(self._step, STEP)
            return connection

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", counting)
            yield

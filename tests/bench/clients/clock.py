"""A clock that passes midnight in the middle of a conversation, for one client and no one else."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"
"""Of Debian's package libfaketime."""
BEFORE = timedelta(minutes=5)
STEP = timedelta(minutes=10)


class Clock:
    """Five minutes to midnight, and after `pass_midnight` five minutes past it.

    `environment` is what the client is started with; it changes where `kind` is "zone" (the time zone moves by 24
    hours, so that programs that are linked statically see another day too; theirs has another name then). A running
    client has its zone for good: it is ended and started again.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._file = folder / "clock"
        if kind == "zone":
            self.environment = {"TZ": "Etc/GMT+12"}
            return
        library = next(Path("/").glob(LIBRARY), None)
        if library is None:
            raise SystemExit("the case midnight needs libfaketime (Debian: apt-get install libfaketime)")
        now = datetime.now()
        self._offset = datetime.combine(now + timedelta(days=1), datetime.min.time()) - BEFORE - now
        self._file.write_text(f"{self._offset.total_seconds():+.0f}\n")
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",  # else the file is read at each look at the clock
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def pass_midnight(self) -> None:
        if self.kind == "zone":
            self.environment["TZ"] = "Etc/GMT-12"
        else:
            self._file.write_text(f"{(self._offset + STEP).total_seconds():+.0f}\n")

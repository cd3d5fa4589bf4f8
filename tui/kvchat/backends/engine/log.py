"""The engine's log: its last lines in memory, and what they say when the engine fails.

It is bounded, whatever the engine writes, and it never goes to a disk.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from kvchat.text.engine import EngineProblem, exit_in_words
from kvchat.text.problems import ProblemError

LINES = 500
TAIL = 20
"""Lines that go with an error."""
LINE_LENGTH = 500
"""Characters kept of a line."""

_ARCHITECTURE = re.compile(r"unknown model architecture: '([^']*)'")
_INCOMPLETE = re.compile(r"not within the file bounds|corrupted or incomplete|failed to read (?:key-value|tensor)")
_MEMORY = re.compile(
    r"failed to allocate|unable to allocate|cannot allocate|bad_alloc|out of memory|(?:not enough|insufficient) memory",
    re.IGNORECASE,
)
_ERROR = re.compile(r"^[\d.]{5,} E (.*)$")


class LogTail:
    """The last `LINES` lines of a stream of bytes."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add bytes as they come; lines may be split anywhere."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(_shown(line) for line in whole)
        if len(self._rest) > 4 * LINE_LENGTH:
            self._rest = self._rest[: 4 * LINE_LENGTH]  # the rest of an endless line is dropped

    def last(self, lines: int = LINES) -> list[str]:
        found = [*self._lines, _shown(self._rest)] if self._rest else list(self._lines)
        return found[-lines:] if lines > 0 else []


def _shown(line: bytes) -> str:
    return line[: 4 * LINE_LENGTH].decode("utf-8", "replace").rstrip("\r")[:LINE_LENGTH]


class EngineError(ProblemError):
    """The engine could not be started. `log`: the end of its log."""

    def __init__(self, problem: StrEnum, log: Sequence[str] = (), /, **arguments: object) -> None:
        super().__init__(problem, **arguments)
        self.log = [*log]


def start_failure(model: Path, log: Sequence[str], said: str, code: int | None) -> EngineError:
    """What went wrong in a start that failed: `said` is the child's own word, `code` its exit code, if known."""
    text, end = "\n".join(log), log[-TAIL:]
    if found := _ARCHITECTURE.search(text):
        return EngineError(EngineProblem.UNKNOWN_ARCHITECTURE, end, path=model, architecture=found[1])
    if _INCOMPLETE.search(text):
        return EngineError(EngineProblem.INCOMPLETE, end, path=model)
    if _MEMORY.search(text) or _MEMORY.search(said) or code == -signal.SIGKILL:
        return EngineError(EngineProblem.NO_MEMORY, end, path=model)
    if code is not None and code < 0:
        return EngineError(EngineProblem.BROKE_DOWN, end, path=model, exit=exit_in_words(code))
    reason = next((found[1] for line in log if (found := _ERROR.match(line))), said).strip().rstrip(".")
    return EngineError(EngineProblem.NOT_LOADED if reason else EngineProblem.SILENT, end, path=model, error=reason)

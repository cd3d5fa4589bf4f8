"""The engine's log: its last lines in memory, and the sentence they make when the engine fails.

The rule: it is bounded, whatever the engine writes, and it never goes to a disk.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path

OWN_WORDS = "The embedded engine "
"""What the child's own sentences begin with: they need no log to be understood."""
LINES = 500
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


def start_failure(model: Path, log: Sequence[str], said: str, code: int | None) -> str:
    """One sentence about a start that failed: `said` is the child's own word, `code` its exit code, if known."""
    if said.startswith(OWN_WORDS):
        return said
    text = "\n".join(log)
    if found := _ARCHITECTURE.search(text):
        return (f"The engine does not know the architecture '{found[1]}' of {model}: "
                "use another model, or a newer engine (pip install -U xllamacpp).")
    if _INCOMPLETE.search(text):
        return f"{model} is damaged or not completely downloaded: download it again."
    if _MEMORY.search(text) or _MEMORY.search(said) or code == -signal.SIGKILL:
        return f"There is not enough memory for {model}: use a smaller model or a smaller context."
    if code is not None and code < 0:
        return f"The engine broke down while it loaded {model} ({exit_in_words(code)})."
    errors = [found[1] for line in log if (found := _ERROR.match(line))]
    reason = errors[0] if errors else said or "it ended without a word"
    return f"The engine could not load {model}: {reason.strip().rstrip('.')}."


def exit_in_words(code: int) -> str:
    """An exit code as the person knows it: `exit code 1`, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

"""Writing a text, or changing a file, in the user's own editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from kvchat.paths import reason

KEPT_EVERY_S = 1.0
"""How often it is looked what the editor has saved."""

_PLUS_LINE = frozenset(
    {
        "vi",
        "vim",
        "nvim",
        "view",
        "gvim",
        "ex",
        "nano",
        "pico",
        "rnano",
        "emacs",
        "emacsclient",
        "mg",
        "jed",
        "joe",
        "jmacs",
        "ne",
        "micro",
        "kak",
        "mcedit",
        "gedit",
    }
)
_COLON_LINE = frozenset({"hx", "helix", "subl", "zed"})
_GOTO = frozenset({"code", "code-insiders", "codium", "cursor"})


class EditorError(Exception):
    """The editor could not be run, or gave up; the sentence says which and what to do."""


NO_FILE = "No file for another program can be made: {reason}. Free some space, or set $TMPDIR to a writable folder."


class OutsideText:
    """A text in a file of its own, for an editor."""

    def __init__(self, text: str) -> None:
        """Raises EditorError."""
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="kvchat-"))
            self.path = self._folder / "message.md"
            self.path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise EditorError(NO_FILE.format(reason=reason(error))) from None
        self._seen = self._version()
        self._saved: str | None = None
        self._has_ended_well = False

    def _version(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size

    @property
    def saved(self) -> str | None:
        """The text as the editor saved it last; None: it saved nothing yet. An editor that is about to save has
        emptied the file: that is not taken for the text before the editor has ended."""
        with suppress(OSError):
            if (seen := self._version()) != self._seen:
                text = self.path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
                if text or self._has_ended_well:
                    self._seen, self._saved = seen, text
        return self._saved

    async def edit(self, command: str, keep: Callable[[], Awaitable[bool]]) -> None:
        """Let the user write in `command`, else in $VISUAL, $EDITOR or vi. `keep` stores what is `saved`, and tells
        whether it is stored: the file is removed only then. Raises EditorError."""
        process: Process | None = None
        try:
            command, process = await _begun(command, self.path)
            while (status := await _ended(process)) is None:
                await keep()
            self._has_ended_well = status == 0
            if status:
                kept = "what it saved is kept" if self.saved is not None else "the text is as it was"
                raise EditorError(f"The editor {command} ended with status {status}; {kept}.")
        finally:
            if process is not None and process.returncode is None:  # kvchat ends, and the terminal with it
                process.terminate()
            if await keep():
                self.remove()

    def remove(self) -> None:
        """Remove the file; `saved` stays, and so does what a killed editor left next to it."""
        _ = self.saved
        self.path.unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()


async def _begun(command: str, path: Path, line: int | None = None) -> tuple[str, Process]:
    """`command`, else $VISUAL, $EDITOR or vi, and its process that has the file. Raises EditorError."""
    command = command or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(command)
        words = [*words, str(path)] if line is None else at_line(words, path, line)
        return command, await asyncio.create_subprocess_exec(*words)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EditorError(f"Cannot run the editor {command}: {why}. Set editor in the settings, or $EDITOR.") from None


async def _ended(process: Process) -> int | None:
    """The status of a process; None: it still runs a while later."""
    with suppress(TimeoutError):
        async with asyncio.timeout(KEPT_EVERY_S):
            return await process.wait()
    return None


async def opened(path: Path, line: int = 1, command: str = "") -> None:
    """Let the user edit a file in `command`, else in $VISUAL, $EDITOR or vi, from `line` on where the editor has an
    option for it. Raises EditorError."""
    command, process = await _begun(command, path, line)
    if status := await process.wait():
        raise EditorError(f"The editor {command} ended with status {status}.")


def at_line(command: list[str], path: Path, line: int) -> list[str]:
    """The command with the file, and the line in the form that this editor takes; an unknown one opens the file
    at its beginning."""
    name = Path(command[0]).stem.lower() if command else ""
    if name in _PLUS_LINE:
        return [*command, f"+{line}", str(path)]
    if name in _COLON_LINE:
        return [*command, f"{path}:{line}"]
    if name in _GOTO:
        return [*command, "--goto", f"{path}:{line}"]
    return [*command, str(path)]

"""Writing a text, or changing a file, in the person's own editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path

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


async def edited(text: str, command: str = "") -> str:
    """`text` as the person left it in `command`, else in $VISUAL, $EDITOR or vi. Raises EditorError."""
    command = command or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    path = await asyncio.to_thread(_written, text)
    try:
        process = await asyncio.create_subprocess_exec(*shlex.split(command), str(path))
        if status := await process.wait():
            raise EditorError(f"The editor {command} ended with status {status}; the message is as it was.")
        return await asyncio.to_thread(_read, path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EditorError(f"Cannot run the editor {command}: {why}. Set editor in the settings, or $EDITOR.") from None
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def opened(path: Path, line: int = 1, command: str = "") -> None:
    """Let the person edit a file in `command`, else in $VISUAL, $EDITOR or vi, from `line` on where the editor can be
    told. Raises EditorError."""
    command = command or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        process = await asyncio.create_subprocess_exec(*at_line(shlex.split(command), path, line))
        if status := await process.wait():
            raise EditorError(f"The editor {command} ended with status {status}.")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EditorError(f"Cannot run the editor {command}: {why}. Set editor in the settings, or $EDITOR.") from None


def at_line(command: list[str], path: Path, line: int) -> list[str]:
    """The command with the file, and the line in the way this editor understands; one that is not known opens the
    file at its beginning."""
    name = Path(command[0]).stem.lower() if command else ""
    if name in _PLUS_LINE:
        return [*command, f"+{line}", str(path)]
    if name in _COLON_LINE:
        return [*command, f"{path}:{line}"]
    if name in _GOTO:
        return [*command, "--goto", f"{path}:{line}"]
    return [*command, str(path)]


def _written(text: str) -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".md", prefix="kvchat-", encoding="utf-8", delete=False) as file:
        file.write(text)
    return Path(file.name)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")

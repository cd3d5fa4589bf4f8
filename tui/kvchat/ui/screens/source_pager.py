"""Handing the terminal to the person's editor or pager, and getting it back.

The rule: only a file that was looked at, or a text of kvchat's own, is handed over; the commands are the person's.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from kvchat.sanitize import clean
from kvchat.ui.terminal.editor import EditorError

_PLUS_LINE = frozenset({"less", "more", "most", "pg", "view", "vim", "vi", "nvim"})


async def handed_over(app: App[Any], act: Awaitable[None]) -> str:
    """Let `act` have the terminal; what went wrong in a sentence, else nothing."""
    trouble = ""
    try:
        with app.suspend(), app.batch_update():  # nothing may be raised in here
            try:
                await act
            except EditorError as error:
                trouble = str(error)
    except SuspendNotSupported:
        if asyncio.iscoroutine(act):
            act.close()
        return "This terminal cannot be handed to another program, so none can run in it."
    return trouble


async def paged(path: Path, line: int = 1) -> None:
    """Let the person read a file in $PAGER, else less, from `line` on where the pager can be told. Raises
    EditorError."""
    command = os.environ.get("PAGER") or ("less" if shutil.which("less") else "more")
    try:
        process = await asyncio.create_subprocess_exec(*at_line(shlex.split(command), path, line))
        if status := await process.wait():
            raise EditorError(f"The pager {command} ended with status {status}.")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EditorError(f"Cannot run the pager {command}: {why}. Set $PAGER.") from None


async def paged_text(text: str) -> None:
    """The same for a text, made safe to show. Raises EditorError."""
    try:
        path = await asyncio.to_thread(_written, clean(text))
    except OSError as error:
        raise EditorError(f"The text cannot be written for the pager: {error.strerror or error}.") from None
    try:
        await paged(path)
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def at_line(command: list[str], path: Path, line: int) -> list[str]:
    """The command with the file, and the line where this pager understands it."""
    name = Path(command[0]).stem.lower() if command else ""
    return [*command, *([f"+{line}"] if name in _PLUS_LINE and line > 1 else []), str(path)]


def _written(text: str) -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="kvchat-", encoding="utf-8", errors="replace",
                                     delete=False) as file:
        file.write(text + "\n")
    return Path(file.name)

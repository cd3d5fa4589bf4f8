"""Leave kvchat while something is not saved: the user says what becomes of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.conversations.unsaved import file_name
from kvchat.paths import last_resorts
from kvchat.sanitize import one_line
from kvchat.text.format import counted
from kvchat.ui.screens.export import WriteElsewhereScreen

if TYPE_CHECKING:
    from kvchat.transfer.formats import Source
    from kvchat.ui.controllers.workspace import Workspace
    from kvchat.ui.ending import Ending
    from kvchat.ui.screens.kit import Choice

NAMED = 3
"""Conversations that are named in the question."""
CHOICES: Sequence[Choice[str]] = (
    ("w", "Write them to a file, then quit", "write"),
    ("s", "Stay", "stay"),
    ("q", "Quit without saving", "quit"),
)


async def leave_unsaved(workspace: Workspace, ending: Ending, unsaved: Sequence[Source]) -> None:
    """Ask what to do with what is not saved, and do it. Only in a worker."""
    service = workspace.service

    async def write(path: Path) -> Path:
        await service.stop_all()  # what came of a running answer is in the file too
        return await service.conversations.unsaved.write(path)

    said = lines(unsaved, service.conversations.unsaved.reason)
    match await workspace.choose("Quit with unsaved messages?", said, CHOICES):
        case "quit":
            ending.leave(lets_go=True)
        case "write":
            suggested = f"{_writable_folder()}/{file_name(service.clock())}"
            path = await workspace.ask(WriteElsewhereScreen(suggested, write))
            if path is not None:
                ending.leave(f"The unsaved messages are in {path}.", lets_go=True)


def lines(unsaved: Sequence[Source], reason: str) -> list[str]:
    """What is not saved, and why."""
    names = [f"“{one_line(one.conversation.title, 30)}”" for one in unsaved[:NAMED]]
    more = [f"{len(unsaved) - NAMED:,} more"] if len(unsaved) > NAMED else []
    many = "1 conversation is" if len(unsaved) == 1 else f"{counted(len(unsaved), 'conversation')} are"
    return [f"{many} not saved: {', '.join([*names, *more])}.", *([reason] if reason else [])]


def _writable_folder() -> str:
    found = next((str(folder) for folder in last_resorts() if os.access(folder, os.W_OK)), "~")
    return "~" if found == os.path.expanduser("~") else found  # noqa: PTH111 - it never fails

"""Quitting while the disk refuses what was said: write it elsewhere, stay, or quit all the same."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.unsaved import file_name
from kvchat.sanitize import one_line
from kvchat.text.format import counted
from kvchat.transfer import FileExists, Source, TransferError
from kvchat.ui.screens.confirm import Choice, ConfirmScreen
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.modal import Modal
from kvchat.ui.screens.tones import BAD, content

if TYPE_CHECKING:
    from kvchat.ui.controllers.workspace import Workspace
    from kvchat.ui.ending import Ending

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
    match await workspace.ask(ConfirmScreen("Quit with unsaved messages?", said, CHOICES)):
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
    with suppress(RuntimeError):
        if os.access(Path.home(), os.W_OK):
            return "~"
    return tempfile.gettempdir()


class WriteElsewhereScreen(Modal[Path]):
    """Asks for a file and has it written; the result is its path."""

    def __init__(self, suggested: str, write: Callable[[Path], Awaitable[Path]]) -> None:
        super().__init__()
        self.heading = "Write unsaved messages"
        self.hints = (("enter", "write and quit"), ("esc", "stay"))
        self._suggested = suggested
        self._write = write

    def body(self) -> Iterable[Widget]:
        yield Static(Content("A JSON file with every branch and draft, readable by you only."), classes="words")
        yield FilterLine("a file, for instance ~/kvchat.json", one_line(self._suggested))
        yield Static(classes="words")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _changed(self) -> None:
        self._say("")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if not (text := event.value.strip()):
            self._say("Write the name of a file.")
            return
        try:
            self._begin(Path.home() / Path(text).expanduser())
        except RuntimeError:
            self._say("There is no such user's folder. Write the whole path.")

    @work(exclusive=True, group="write")
    async def _begin(self, path: Path) -> None:
        try:
            self.finish(await self._write(path))
        except FileExists:
            self._say(f"{one_line(path.name, 60)} is there already. Write another name.")
        except TransferError as error:
            self._say(one_line(error.sentence, 300))

    def _say(self, sentence: str) -> None:
        self.query(Static).last().update(content((sentence, BAD)))

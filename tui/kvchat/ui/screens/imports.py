"""Import conversations: ask for a file or folder, show the progress and the report.

The work runs off the loop. The first Esc stops it and what is done is kept; with the report on the screen Esc or Enter
closes, and the answer is the report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.errors import ChatError
from kvchat.sanitize import one_line
from kvchat.text import imports as words
from kvchat.ui.screens.kit import BAD, MUTED, STRONG, FilterLine, Modal, content

if TYPE_CHECKING:
    from kvchat.transfer.importing.files import ImportProgress
    from kvchat.transfer.importing.report import ImportReport

Told = Callable[["ImportProgress", "ImportReport"], None]
Run = Callable[[Path, Told, Callable[[], bool]], Awaitable["ImportReport"]]
"""Imports what is at a path: reports its progress to the second argument and asks the third whether to stop. Raises
ChatError."""

FROM = "ChatGPT, Claude, Open WebUI, llama.cpp, LM Studio, oterm, llm, aichat, OpenAI JSON, or another kvchat"


class ImportScreen(Modal["ImportReport"]):
    """`path`: what to import at once; empty: the user is asked."""

    DEFAULT_CSS = """
    ImportScreen VerticalScroll { height: auto; max-height: 50vh; }
    ImportScreen FilterLine { margin-top: 1; }
    """

    def __init__(self, run: Run, path: str = "") -> None:
        super().__init__(classes="-small")
        self.heading = "Import conversations"
        self.hints = (("enter", "import"), ("dialog.close", "cancel"))
        self._importer = run
        self._given = path
        self._at_work = False
        self._to_stop = False
        self._outcome: ImportReport | None = None

    def body(self) -> Iterable[Widget]:
        yield Static(content((f"From {FROM}: a file, a zip or a folder.", MUTED)), classes="words")
        yield FilterLine("for instance ~/Downloads/chatgpt.zip", one_line(self._given, 4096))
        with VerticalScroll():
            yield Static(classes="words", id="answer")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        if self._given:
            self._begin(self._given)

    @on(Input.Changed)
    def _changed(self) -> None:
        if not self._at_work and self._outcome is None:
            self._say([])

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self._begin(event.value.strip())

    def key_enter(self) -> None:
        """With the report in front."""
        if not self._at_work and self._outcome is not None and self._outcome.batch:
            self.finish(self._outcome)

    def action_close(self) -> None:
        if self._at_work:
            self._to_stop = True
            self._say(["Stopping…"])
        else:
            self.finish(self._outcome)

    def _begin(self, path: str) -> None:
        if not path:
            self._say([("Write the name of a file or folder.", BAD)])
            return
        self._at_work, self._to_stop, self._outcome = True, False, None
        self.query_one(Input).disabled = True
        self.show_hints((("dialog.close", "stop"),))
        self._import(Path(path))

    @work(exclusive=True, group="import")
    async def _import(self, path: Path) -> None:
        try:
            self._outcome = await self._importer(path, self._told, lambda: self._to_stop)
        except ChatError as error:
            self._say([(one_line(str(error), 500), BAD)])
        else:
            self._say_report(self._outcome)
        self._at_work = False
        if self._outcome is not None and self._outcome.batch:
            self.query_one(VerticalScroll).focus()  # to read it all; the file is done with
        else:
            self.query_one(Input).disabled = False
            self.query_one(Input).focus()

    def _told(self, progress: ImportProgress, report: ImportReport) -> None:
        if not self._to_stop:
            self._say([words.progress(progress.done, progress.total, report.taken + report.unchanged, "")])

    def _say_report(self, report: ImportReport) -> None:
        first, *rest = report.lines() or [""]
        tone = BAD if report.failed else STRONG
        said: list[str | tuple[str, str]] = [(one_line(first, 500), tone)]
        said += [one_line(line, 500) for line in rest]
        if report.stopped:
            said.append("Stopped. What was imported until then is kept.")
        if report.batch:
            said.append((f"{self.key('undo')} undoes it, once this is closed.", MUTED))
        self._say(said)
        if report.batch:
            self.show_hints((("enter", "close"),))
        else:
            self.show_hints(self.hints)

    def _say(self, lines: Iterable[str | tuple[str, str]]) -> None:
        self.query_one("#answer", Static).update(Content("\n").join(content(line) for line in lines))

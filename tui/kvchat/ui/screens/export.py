"""Ask where to write conversations: an export, or what is not saved when the user leaves kvchat.

The export screen writes nothing. It asks before a file is replaced, and its answer says whether it may be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on, work
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from kvchat.commands.acts import ExportRequest
from kvchat.prompt.conversation import Conversation
from kvchat.sanitize import one_line
from kvchat.text.format import home_path
from kvchat.transfer import FORMATS
from kvchat.transfer.formats import FileExists, TransferError, format_of
from kvchat.transfer.write import suggested_name
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.kit import BAD, MUTED, WASTED, AskScreen, FilterLine, LineError, Modal, content


class ChoiceLine(Widget, can_focus=True):
    """Words side by side, the chosen one in brackets, in as many rows as they need; left and right (or space) change
    it, and so does a click."""

    DEFAULT_CSS = """
    ChoiceLine {
        height: auto; width: 1fr;
        & > .choice--other { color: $foreground 60%; }
        & > .choice--chosen { text-style: bold; }
        & > .choice--focused { color: $accent; text-style: bold; }
        &:ansi > .choice--other { color: ansi_default; text-style: dim; }
        &:ansi > .choice--focused { color: ansi_cyan; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"choice--other", "choice--chosen", "choice--focused"}
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("choice")]
    chosen: reactive[int] = reactive(0)

    class Changed(Message):
        """Another word was chosen."""

        def __init__(self, choice: ChoiceLine) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> ChoiceLine:
            return self.choice

    def __init__(self, options: Sequence[str], chosen: int = 0, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._options = options
        self.set_reactive(ChoiceLine.chosen, chosen)

    def offer(self, options: Sequence[str], chosen: int) -> None:
        """Other words, with this one chosen."""
        self._options = options
        self.chosen = chosen
        self.refresh(layout=True)

    def render(self) -> Content:
        chosen = ".choice--focused" if self.has_focus else ".choice--chosen"
        return Content("\n").join(
            Content("  ").join(
                content(
                    (f"[{self._options[index]}]", chosen)
                    if index == self.chosen
                    else (f" {self._options[index]} ", ".choice--other")
                )
                for index in row
            )
            for row in self._rows(self.size.width)
        )

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def _rows(self, width: int) -> list[list[int]]:
        """The options by their numbers, row by row."""
        rows: list[list[int]] = []
        end = 0
        for index, word in enumerate(self._options):
            if not rows or end + len(word) + 2 > width:
                rows.append([])
                end = 0
            rows[-1].append(index)
            end += len(word) + 4
        return rows

    def action_step(self, step: int) -> None:
        self.chosen = (self.chosen + step) % len(self._options)

    def watch_chosen(self) -> None:
        self.post_message(self.Changed(self))

    def on_click(self, event: events.Click) -> None:
        start = 0
        for index in self._rows(self.size.width)[event.y]:
            end = start + len(self._options[index]) + 2
            if start <= event.x < end:
                self.chosen = index
            start = end + 2


NOTHING = "this conversation"
EMPTY = "This conversation has no messages yet. Choose all conversations to export those."


class ExportScreen(Modal[ExportRequest]):
    """Asks for format, extent and file. `folder` is that of the suggested file."""

    DEFAULT_CSS = """
    ExportScreen .field { height: auto; & Label { width: 12; color: $foreground 60%; } }
    ExportScreen:ansi .field Label { color: ansi_default; text-style: dim; }
    ExportScreen .note { margin: 0 0 1 13; }
    ExportScreen FilterLine { margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("fields")]

    def __init__(
        self,
        conversation: Conversation | None,
        *,
        conversations: int = 1,
        branches: int = 1,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.heading = "Export"
        self.hints = (
            ("choice.previous choice.next", "choose"),
            ("fields.previous fields.next", "next field"),
            ("fields.apply", "export"),
            ("dialog.close", "cancel"),
        )
        self._conversation = conversation
        self._conversations = conversations
        self._branches = branches
        self._folder = folder or Path.cwd()
        self._formats = list(FORMATS)
        self._suggested = ""
        self._agreed: Path | None = None
        """The existing file that the user was asked about: the next Enter replaces it."""

    def body(self) -> Iterable[Widget]:
        title = f"“{one_line(self._conversation.title, 40)}”" if self._conversation else NOTHING
        these = [title, f"all conversations ({self._conversations:,})"]
        yield self._field("What", ChoiceLine(these, id="which"))
        branches = ["this branch", f"all {self._branches:,} branches"] if self._branches > 1 else ["the only one"]
        yield self._field("Branches", ChoiceLine(branches, id="branches"))
        yield self._field("Format", ChoiceLine([format_of(name).name for name in self._formats], id="format"))
        yield Static(classes="words note", id="about")
        yield FilterLine("a file, for instance ~/chat.md")
        yield Static(classes="words", id="answer")

    @staticmethod
    def _field(label: str, widget: Widget) -> Horizontal:
        return Horizontal(Label(Content(label)), widget, classes="field")

    def on_mount(self) -> None:
        self._suggest()
        self._explain()
        self.query_one("#format", ChoiceLine).focus()

    # What is chosen now.

    @property
    def _format(self) -> str:
        return self._formats[self.query_one("#format", ChoiceLine).chosen]

    @property
    def _all_conversations(self) -> bool:
        return self.query_one("#which", ChoiceLine).chosen == 1

    @property
    def _is_empty(self) -> bool:
        """Whether what is chosen has no messages."""
        return self._conversation is None and not self._all_conversations

    @property
    def _all_branches(self) -> bool:
        return format_of(self._format).every_branch or self.query_one("#branches", ChoiceLine).chosen == 1

    @on(ChoiceLine.Changed)
    def _chosen(self) -> None:
        self._suggest()
        self._explain()

    def _suggest(self) -> None:
        """Suggest a file name for what is chosen, unless the user wrote another."""
        path = self.query_one(Input)
        if path.value not in ("", self._suggested):
            return
        if self._all_conversations:
            name = f"conversations.{self._format}"
        elif self._conversation is not None:
            name = suggested_name(self._conversation, self._format)
        else:
            name = ""
        path.value = self._suggested = home_path(self._folder / name) if name else ""

    def _explain(self) -> None:
        found = format_of(self._format)
        branches = " It always holds all branches." if found.every_branch else ""
        self.query_one("#about", Static).update(content((f"{found.title}.{branches}", MUTED)))
        self._say_where()

    # The file.

    def _path(self) -> Path | None:
        """The file that is meant; None when nothing is written or the home folder is not known."""
        text = self.query_one(Input).value.strip()
        if not text:
            return None
        try:
            path = Path(text).expanduser()
        except RuntimeError:
            return None
        return path if path.is_absolute() else self._folder / path

    @on(Input.Changed)
    def _say_where(self) -> None:
        self._agreed = None
        path = self._path()
        answer = self.query_one("#answer", Static)
        if path is None:
            answer.update(content((EMPTY if self._is_empty else "Write the name of a file.", BAD)))
            return
        trouble = _trouble(path)
        where = "" if str(path) == self.query_one(Input).value.strip() else f"Goes to {one_line(str(path))}"
        answer.update(content((trouble, BAD) if trouble else (where, MUTED)))

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        path = self._path()
        if self._is_empty:
            self.query_one("#answer", Static).update(content((EMPTY, BAD)))
            self.query_one("#which", ChoiceLine).focus()
            return
        if path is None or _trouble(path):
            self.query_one(Input).focus()
            return
        exists = path.exists() or path.is_symlink()
        if exists and self._agreed != path:
            self._agreed = path
            self.query_one(Input).focus()
            self.query_one("#answer", Static).update(
                content(
                    (f"{one_line(path.name, 60)} is there already. ", WASTED),
                    "Enter replaces it; or write another name.",
                )
            )
            return
        self.finish(ExportRequest(self._format, path, self._all_branches, self._all_conversations, exists))


def _trouble(path: Path) -> str:
    """Why nothing can be written there, in a sentence; empty if it can."""
    if not str(path).isprintable():
        return "This is not a usable file name: it holds control characters."
    try:
        if path.is_dir():
            return "This is a folder. Name a file in it."
        if not path.parent.is_dir():
            return f"There is no folder {one_line(str(path.parent), 120)}. Make it first, or choose another."
    except (OSError, ValueError) as error:
        return f"This is not a usable file name ({one_line(str(error), 80)})."
    return ""


class WriteElsewhereScreen(AskScreen[Path]):
    """Asks for a file and has it written; the result is its path."""

    def __init__(self, suggested: str, write: Callable[[Path], Awaitable[Path]]) -> None:
        super().__init__(
            "Write unsaved messages",
            "a file, for instance ~/kvchat.json",
            one_line(suggested),
            _whole_path,
            enter="write and quit",
            close="stay",
            above="A JSON file with every branch and draft, readable by you only.",
        )
        self._write = write

    def take(self, path: Path) -> None:
        self._begin(path)

    @work(exclusive=True, group="write")
    async def _begin(self, path: Path) -> None:
        try:
            self.finish(await self._write(path))
        except FileExists:
            self.refuse(f"{one_line(path.name, 60)} is there already. Write another name.")
        except TransferError as error:
            self.refuse(error.sentence)


def _whole_path(text: str) -> Path:
    """The path that was written. Raises LineError."""
    if not text.strip():
        raise LineError("Write the name of a file.")
    try:
        return Path.home() / Path(text.strip()).expanduser()
    except RuntimeError:
        raise LineError("There is no such user's folder. Write the whole path.") from None

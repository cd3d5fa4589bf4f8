"""Exporting: what, in which format, and where to.

The rule: the screen writes nothing. It asks before a file is replaced, and its answer says whether it may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from kvchat.prompt.conversation import Conversation
from kvchat.sanitize import one_line
from kvchat.text.format import counted
from kvchat.transfer import FORMATS, suggested_name
from kvchat.ui.screens.choice import ChoiceLine
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.modal import Modal
from kvchat.ui.screens.tones import AVOIDABLE, BAD, MUTED, content

NAMES = {"md": "Markdown", "html": "HTML", "json": "JSON (lossless)", "jsonl": "JSONL (OpenAI)"}


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export and where to."""

    format: str
    """A key of `FORMATS`."""
    path: Path
    """Absolute."""
    all_branches: bool = False
    all_conversations: bool = False
    overwrite: bool = False
    """The person agreed to replace the file that is there."""


class ExportScreen(Modal[ExportRequest]):
    """Asks for format, extent and file. `folder` is where the suggested file stands."""

    DEFAULT_CSS = """
    ExportScreen .field { height: 1; & Label { width: 12; color: $foreground 60%; } }
    ExportScreen:ansi .field Label { color: ansi_default; text-style: dim; }
    ExportScreen .note { margin: 0 0 1 13; }
    ExportScreen FilterLine { margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next", show=False),
        Binding("up", "app.focus_previous", "Previous", show=False),
        Binding("enter,ctrl+s", "export", "Export", show=False),
    ]

    def __init__(self, conversation: Conversation | None, *, conversations: int = 1, branches: int = 1,
                 folder: Path | None = None) -> None:
        super().__init__()
        self.heading = "Export"
        self.hints = (("←→", "choose"), ("↑↓", "next field"), ("enter", "export"), ("esc", "cancel"))
        self._conversation = conversation
        self._conversations = conversations
        self._branches = branches
        self._folder = folder or Path.cwd()
        self._formats = list(FORMATS)
        self._suggested = ""
        self._agreed: Path | None = None
        """The file the person was asked about and may be replaced."""

    def body(self) -> Iterable[Widget]:
        title = one_line(self._conversation.title, 40) if self._conversation else ""
        these = ([f"“{title}”"] if title else []) + [f"all {counted(self._conversations, 'conversation')}"]
        yield self._field("What", ChoiceLine(these, id="which"))
        branches = ["this branch", f"all {self._branches:,} branches"] if self._branches > 1 else ["the only one"]
        yield self._field("Branches", ChoiceLine(branches, id="branches"))
        yield self._field("Format", ChoiceLine([NAMES.get(name, name) for name in self._formats], id="format"))
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
        return self._conversation is None or self.query_one("#which", ChoiceLine).chosen == 1

    @property
    def _all_branches(self) -> bool:
        return FORMATS[self._format].every_branch or self.query_one("#branches", ChoiceLine).chosen == 1

    @on(ChoiceLine.Changed)
    def _chosen(self) -> None:
        self._suggest()
        self._explain()

    def _suggest(self) -> None:
        """Suggest a file name for what is chosen, unless the person wrote another."""
        path = self.query_one(Input)
        if path.value not in ("", self._suggested):
            return
        if self._conversation is None or self._all_conversations:
            name = f"conversations{FORMATS[self._format].suffix}"
        else:
            name = suggested_name(self._conversation, self._format)
        path.value = self._suggested = one_line(_home(self._folder / name))

    def _explain(self) -> None:
        found = FORMATS[self._format]
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
            answer.update(content(("Write the name of a file.", BAD)))
            return
        trouble = _trouble(path)
        answer.update(content((trouble, BAD) if trouble else (f"Goes to {one_line(str(path))}", MUTED)))

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_export()

    def action_export(self) -> None:
        path = self._path()
        if path is None or _trouble(path):
            self.query_one(Input).focus()
            return
        exists = path.exists() or path.is_symlink()
        if exists and self._agreed != path:
            self._agreed = path
            self.query_one(Input).focus()
            self.query_one("#answer", Static).update(content(
                (f"{one_line(path.name, 60)} is there already. ", AVOIDABLE),
                "Enter replaces it; or write another name."))
            return
        self.finish(ExportRequest(self._format, path, self._all_branches, self._all_conversations, exists))


def _home(path: Path) -> str:
    """The path with the home folder as ~."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)


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

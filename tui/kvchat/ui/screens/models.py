"""Choosing the model: one the server has, a file on this disk, or another server.

The rule: what is typed filters the list, and is offered as a server when it reads like an address.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from kvchat.display import one_line
from kvchat.numbers import count, size
from kvchat.ui.screens.filtering import FilterLine, highlighted, kept
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, MUTED, STRONG, content, joined, shown
from kvchat.ui.widgets.header_text import model_name

ModelChoice = tuple[Literal["model"], str] | tuple[Literal["file"], Path] | tuple[Literal["url"], str]


class FoundModel(Protocol):
    """A model file on disk, as `ChatService.model_files` gives them."""

    @property
    def path(self) -> Path: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def quantisation(self) -> str: ...
    @property
    def context_length(self) -> int | None: ...
    @property
    def source(self) -> str: ...


def address_of(text: str) -> str | None:
    """The base URL that `text` names, `http://` added where it is missing; None if it reads like no address."""
    text = text.strip()
    written = re.match(r"https?://", text, re.IGNORECASE)
    if not written:
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}(/\S*)?|localhost(/\S*)?", text):
            return None
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return text.rstrip("/") if usable and not any(char.isspace() for char in text) else None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the list: something to choose, or (without a choice) the name of a group."""

    words: str
    about: str = ""
    """Safe to show."""
    choice: ModelChoice | None = None
    current: bool = False


class ModelPicker(ListModal[ModelChoice]):
    """The server's models, the files on this disk, and an address. Result: ("model", name), ("file", path) or
    ("url", address)."""

    def __init__(self, models: Sequence[str], *, current: str = "", server: str = "",
                 files: Callable[[], Awaitable[Sequence[FoundModel]]] | None = None) -> None:
        super().__init__(classes="-list")
        self.heading = "Model and server"
        self.hints = (("enter", "use"), ("esc", "close"))
        self._find = files
        self._looking = files is not None
        self._trouble = ""
        self._server = [
            Line(model_name(name), choice=("model", name), current=name == current) for name in models
        ]
        self._group = f"On {one_line(server, 60)}" if server else "On the server"
        self._files: list[Line] = []
        self._current = current
        self._lines: list[Line] = []
        self._query = ""

    def body(self) -> Iterable[Widget]:
        yield FilterLine("filter, or the address of a server: http://HOST:PORT")
        yield RowList(self._draw)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._filter(keep=False)
        if self._find is not None:
            self._load(self._find)

    @work(exclusive=True, group="models", exit_on_error=False)
    async def _load(self, find: Callable[[], Awaitable[Sequence[FoundModel]]]) -> None:
        try:
            self._files = [_file_line(file, self._current) for file in await find()]
        except Exception as error:
            self._trouble = one_line(str(error), 120) or type(error).__name__
        self._looking = False
        self._filter(keep=True)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query = event.value
            self._filter(keep=False)

    def _filter(self, *, keep: bool) -> None:
        """Show what the filter keeps; with `keep` the cursor stays on its line."""
        chosen = self._lines[self.rows.cursor] if keep and self.rows.cursor is not None else None
        self._lines = []
        if address := address_of(self._query):
            self._lines += [Line("Another server"), Line(address, "connect", ("url", address))]
        self._add(self._group, self._server)
        looking = "looking …" if self._looking else self._trouble or "none found"
        self._add("Model files on this disk", self._files, looking)
        headings = {i for i, line in enumerate(self._lines) if line.choice is None}
        cursor = self._lines.index(chosen) if chosen in self._lines else next(
            (i for i, line in enumerate(self._lines) if line.current), 0)
        self.rows.empty = "Nothing of this name. An address is written like http://HOST:PORT."
        self.rows.show(len(self._lines), cursor=cursor, headings=headings)

    def _add(self, group: str, lines: Sequence[Line], instead: str = "") -> None:
        """Add a group with what the filter keeps of it."""
        found = [lines[i] for i in kept([f"{line.words} {line.about}".casefold() for line in lines], self._query)]
        filtering = bool(self._query.strip())
        if not found and (filtering or not instead):
            return
        if self._lines:
            self._lines.append(Line(""))
        self._lines.append(Line(group, "" if lines else instead))
        self._lines += found

    def _draw(self, index: int, width: int) -> Content:
        line = self._lines[index]
        about = content((line.about, MUTED))
        if line.choice is None:
            return joined(content((shown(line.words, width), STRONG)), about, width)
        name = highlighted(content(shown(line.words, width)), self._query)
        return joined(name + content(("  in use", ACCENT) if line.current else ""), about, width)

    def choose(self, index: int) -> None:
        if choice := self._lines[index].choice:
            self.finish(choice)


def _file_line(file: FoundModel, current: str) -> Line:
    window = f"{count(file.context_length)} ctx" if file.context_length else ""
    about = f"{one_line(file.quantisation, 10):<8}{size(file.size):>8}{window:>13}  {one_line(file.source, 14):<12}"
    return Line(one_line(file.name, 120), about, ("file", file.path), str(file.path) == current)

"""Choosing where a conversation goes on: a server and one of its models, a file on this disk, or an address.

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

from kvchat.chat.server.choice import ServerChoice
from kvchat.sanitize import one_line
from kvchat.text.format import count, size
from kvchat.ui.screens.filtering import FilterLine, highlighted, kept
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, STRONG, content, joined, shown
from kvchat.ui.widgets.header_text import HOSTS, model_name

ModelChoice = (tuple[Literal["model"], str] | tuple[Literal["file"], Path] | tuple[Literal["url"], str]
               | tuple[Literal["server"], str, str])
"""A model of the server in use; a model file; an address; a server by its name, and one of its models (empty: the one
it has loaded)."""
PHASES = {"idle": "not connected", "loading": "loading its model", "needs a key": "needs a key",
          "answers": "does not say what it is",
          "lost": "does not answer", "failed": "does not answer", "none": "not there", "connecting": "connecting …",
          "starting": "starting …"}
LOADED = {True: "loaded", False: "not loaded", None: ""}


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


@dataclass(frozen=True, slots=True)
class Group:
    """A heading and what stands under it."""

    words: str
    about: str
    lines: Sequence[Line]


class ModelPicker(ListModal[ModelChoice]):
    """Every server with its models, the files on this disk, and an address."""

    def __init__(self, servers: Sequence[ServerChoice], *, current: str = "",
                 look: Callable[[], Awaitable[Sequence[ServerChoice]]] | None = None,
                 files: Callable[[], Awaitable[Sequence[FoundModel]]] | None = None) -> None:
        """`current`: the model that answers here now. `look`: asks this machine's usual ports."""
        super().__init__(classes="-list")
        self.heading = "Model and server"
        self.hints = (("enter", "use"), ("esc", "close"))
        self._find, self._look = files, look
        self._looking = files is not None
        self._asking = look is not None
        self._trouble = ""
        self._engine_model = next((server.model for server in servers if server.current and server.embedded), "")
        self._servers = [_group(server, current) for server in servers]
        self._files: list[Line] = []
        self._current = current
        self._lines: list[Line] = []
        self._query = ""
        self._first: int | None = None
        """The first line that has what is typed in so many words."""

    def body(self) -> Iterable[Widget]:
        yield FilterLine("filter, or the address of a server: http://HOST:PORT")
        yield RowList(self._draw)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._filter(keep=False)
        if self._find is not None:
            self._load(self._find)
        if self._look is not None:
            self._ask(self._look)

    @work(exclusive=True, group="servers", exit_on_error=False)
    async def _ask(self, look: Callable[[], Awaitable[Sequence[ServerChoice]]]) -> None:
        try:
            self._servers = [_group(server, self._current) for server in await look()]
        finally:
            self._asking = False
            self._filter(keep=True)

    @work(exclusive=True, group="models", exit_on_error=False)
    async def _load(self, find: Callable[[], Awaitable[Sequence[FoundModel]]]) -> None:
        try:
            self._files = [_file_line(file, self._engine_model) for file in await find()]
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
        self._lines, self._first = [], None
        if address := address_of(self._query):
            self._lines += [Line("Another server"), Line(address, "connect", ("url", address))]
        for group in self._servers:
            self._add(group.words, group.lines, group.about)
        if self._asking:
            self._add("On this machine", (), "looking for servers …")
        looking = "looking …" if self._looking else self._trouble or "none found"
        self._add("Model files on this disk", self._files, "" if self._files else looking)
        headings = {i for i, line in enumerate(self._lines) if line.choice is None}
        again = [line.choice for line in self._lines]
        cursor = again.index(chosen.choice) if chosen is not None and chosen.choice in again else next(
            (i for i, line in enumerate(self._lines) if line.current), 0) if self._first is None else self._first
        self.rows.empty = "Nothing of this name. An address is written like http://HOST:PORT."
        self.rows.show(len(self._lines), cursor=cursor, headings=headings)

    def _add(self, group: str, lines: Sequence[Line], about: str = "") -> None:
        """Add a group with what the filter keeps of it; the name of a server keeps all of its models."""
        found = [lines[i] for i in kept([f"{line.words} {line.about} {group}".casefold() for line in lines],
                                        self._query)]
        filtering = bool(self._query.strip())
        if not found and (filtering or not about):
            return
        if self._lines:
            self._lines.append(Line(""))
        self._lines.append(Line(group, about))
        if self._first is None and filtering:
            named = self._query.strip().casefold()
            self._first = next((len(self._lines) + at for at, line in enumerate(found)
                                if named in f"{line.words} {group}".casefold()), None)
        self._lines += found

    def _draw(self, index: int, width: int) -> Content:
        line = self._lines[index]
        if line.choice is None:
            told = content((line.about, BAD if line.about in PHASES.values() else MUTED))
            return joined(content((shown(line.words, width), STRONG)), told, width)
        name = highlighted(content(shown(line.words, width)), self._query)
        return joined(name + content(("  in use", ACCENT) if line.current else ""), content((line.about, MUTED)), width)

    def choose(self, index: int) -> None:
        if choice := self._lines[index].choice:
            self.finish(choice)


def _file_line(file: FoundModel, current: str) -> Line:
    window = f"{count(file.context_length)} ctx" if file.context_length else ""
    about = f"{one_line(file.quantisation, 10):<8}{size(file.size):>8}{window:>13}  {one_line(file.source, 14):<12}"
    return Line(one_line(file.name, 120), about, ("file", file.path), str(file.path) == current)


def _group(server: ServerChoice, current: str) -> Group:
    """A server as a heading, with its models under it."""
    address = "" if server.embedded else one_line(server.base_url.partition("://")[2] or server.base_url, 60)
    title = server.profile or server.title
    words = " · ".join(filter(None, (one_line(title, 40), one_line(server.title, 30) if server.profile else "",
                                     address)))
    facts = [f"{count(server.context_size)} ctx" if server.context_size else "",
             f"{server.slots} slots" if server.slots and server.slots > 1 else "",
             f"{server.warm} warm" if server.warm else "",
             "" if server.host_class == "loopback" else HOSTS[server.host_class]]
    about = " · ".join(filter(None, [PHASES.get(server.phase, ""), *facts]))
    lines = [_model_line(server, model.id, model.loaded, model.size, model.about, current)
             for model in server.listing if model.chats]
    if not lines:
        lines = [Line(model_name(server.model) if server.model else "connect",
                      choice=("server", server.name, ""), current=server.current)]
    return Group(words or "This machine", about, lines)


def _model_line(server: ServerChoice, name: str, loaded: bool | None, octets: int | None, about: str,
                current: str) -> Line:
    facts = (one_line(about, 20), size(octets) if octets else "", LOADED[loaded])
    choice: ModelChoice = ("model", name) if server.current else ("server", server.name, name)
    return Line(model_name(name), " · ".join(filter(None, facts)), choice, server.current and name == current)

"""Choose where a conversation continues: a server and one of its models, a file on this disk, or an address; the first
run, when no server was found; and what can be done when the engine fails.

What is typed filters the list, and is offered as a server when it reads like an address. An error is one sentence, then
the ways out; every way ends in a key, or in a command that can be copied as it is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from textual import events, on, work
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.errors import ChatError
from kvchat.chat.server.choice import ModelChoice, ServerChoice, hub_name, written_path
from kvchat.sanitize import clean, one_line
from kvchat.text.format import count, counted, size
from kvchat.text.servers import FAILS, model_name
from kvchat.ui.bindings import binding
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import (
    ACCENT,
    BAD,
    MUTED,
    STRONG,
    TONE_CLASSES,
    TONE_CSS,
    ConfirmScreen,
    FilterLine,
    ListModal,
    RowList,
    content,
    highlighted,
    joined,
    kept,
)
from kvchat.ui.widgets.header_text import HOSTS
from kvchat.ui.widgets.transcript import Transcript

PHASES = {
    "idle": "not connected",
    "loading": "loading its model",
    "needs a key": "needs a key",
    "needs a password": "needs a user name and a password",
    "fails": FAILS,
    "answers": "does not say what it is",
    "lost": "does not answer",
    "failed": "does not answer",
    "none": "not there",
    "connecting": "connecting …",
    "starting": "starting …",
}
HUB, HUB_ABOUT = "From Hugging Face", "nothing is fetched before you have seen its size"
LOADED = {True: "loaded", False: "not loaded", None: ""}
STATES = {"sleeping": "sleeping", "loading": "being loaded", "failed": "failed to load"}


class FoundModel(Protocol):
    """A model file on disk, as `ServerChooser.model_files` gives them."""

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


class ModelLine(Struct, frozen=True):
    """A line of the list: something to choose, or (without a choice) the name of a group."""

    words: str
    about: str = ""
    """Safe to show."""
    choice: ModelChoice | None = None
    current: bool = False


class Group(Struct, frozen=True):
    """A heading and the lines under it."""

    words: str
    about: str
    lines: Sequence[ModelLine]


class ModelPicker(ListModal[ModelChoice]):
    """Every server with its models, the files on this disk, and an address."""

    def __init__(
        self,
        servers: Sequence[ServerChoice],
        *,
        current: str = "",
        look: Callable[[], Awaitable[Sequence[ServerChoice]]] | None = None,
        files: Callable[[], Awaitable[Sequence[FoundModel]]] | None = None,
        at: Callable[[Path], Awaitable[Sequence[FoundModel]]] | None = None,
        offers: Sequence[tuple[str, str]] = (),
        typed: str = "",
    ) -> None:
        """`current`: the model that answers here now. `look`: asks this machine's usual ports. `files`, `at`: the
        models on this disk, and those at a path. `offers`: models that can be fetched. `typed`: what the filter begins
        with."""
        super().__init__(classes="-list")
        self.heading = "Model and server"
        self.hints = (("rows.choose", "use"), ("dialog.close", "close"))
        self._find, self._look, self._at = files, look, at
        self._offers = [ModelLine(name, about, ("pull", name)) for name, about in offers]
        self._typed = typed
        self._named: tuple[Path, Sequence[ModelLine]] | None = None
        """The path that is typed, with what is there."""
        self._looking = files is not None
        self._asking = look is not None
        self._trouble = ""
        self._engine_model = next((server.model for server in servers if server.current and server.embedded), "")
        self._servers = [_group(server, current) for server in servers]
        self._files: list[ModelLine] = []
        self._current = current
        self._lines: list[ModelLine] = []
        self._query = ""
        self._first: int | None = None
        """The first line that contains the typed text literally."""

    def body(self) -> Iterable[Widget]:
        yield FilterLine("filter, http://HOST:PORT, path of a .gguf, or OWNER/REPO of Hugging Face", self._typed)
        yield RowList(self._draw)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._take(self._typed)
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
            self._take(event.value)

    def _take(self, typed: str) -> None:
        self._query, self._named = typed, None
        if self._at is not None and (path := written_path(typed)) is not None:
            self._named = path, [ModelLine(one_line(str(path), 120), "looking …", ("file", path))]
            self._look_at(path, self._at)
        self._filter(keep=False)

    @work(exclusive=True, group="path", exit_on_error=False)
    async def _look_at(self, path: Path, at: Callable[[Path], Awaitable[Sequence[FoundModel]]]) -> None:
        try:
            lines = [_file_line(file, self._engine_model) for file in await at(path)]
        except ChatError as error:
            lines = [ModelLine("", one_line(str(error), 200))]
        if self._named is not None and self._named[0] == path:
            self._named = path, lines
            self._filter(keep=False)

    def _filter(self, *, keep: bool) -> None:
        """Show what the filter keeps; with `keep` the cursor stays on its line."""
        chosen = self._lines[self.rows.cursor] if keep and self.rows.cursor is not None else None
        self._lines, self._first = [], None
        address = address_of(self._query)
        hub = hub_name(self._query) if address is None or "://" in self._query else None
        if address is not None and hub is None:
            self._lines += [ModelLine("Another server"), ModelLine(address, "connect", ("url", address))]
        if self._named is not None:
            self._lines += [ModelLine("At this path"), *self._named[1]]
            self._first = 1
        for group in self._servers:
            self._add(group.words, group.lines, group.about)
        if self._asking:
            self._add("On this machine", (), "looking for servers …")
        looking = "looking …" if self._looking else self._trouble or "none found"
        self._add("Model files on this disk", self._files, "" if self._files else looking)
        if hub is not None:
            self._lines += [ModelLine("")] if self._lines else []
            self._lines += [ModelLine(HUB, HUB_ABOUT), ModelLine(hub, "look for it there", ("pull", hub))]
        elif self._offers:
            self._add(HUB, self._offers, HUB_ABOUT)
        headings = {i for i, line in enumerate(self._lines) if line.choice is None}
        again = [line.choice for line in self._lines]
        cursor = (
            again.index(chosen.choice)
            if chosen is not None and chosen.choice in again
            else next((i for i, line in enumerate(self._lines) if line.current), 0)
            if self._first is None
            else self._first
        )
        self.rows.empty = "Nothing of this name. An address is written like http://HOST:PORT, a path like ~/model.gguf."
        self.rows.show(len(self._lines), cursor=cursor, headings=headings)

    def _add(self, group: str, lines: Sequence[ModelLine], about: str = "") -> None:
        """Add a group with what the filter keeps of it; the name of a server keeps all of its models."""
        found = [
            lines[i] for i in kept([f"{line.words} {line.about} {group}".casefold() for line in lines], self._query)
        ]
        filtering = bool(self._query.strip())
        if not found and (filtering or not about):
            return
        if self._lines:
            self._lines.append(ModelLine(""))
        self._lines.append(ModelLine(group, about))
        if self._first is None and filtering:
            named = self._query.strip().casefold()
            self._first = next(
                (len(self._lines) + at for at, line in enumerate(found) if named in f"{line.words} {group}".casefold()),
                None,
            )
        self._lines += found

    def _draw(self, index: int, width: int) -> Content:
        line = self._lines[index]
        if line.choice is None:
            status = content((line.about, BAD if line.about in PHASES.values() else MUTED))
            return joined(content((shown(line.words, width), STRONG)), status, width)
        name = highlighted(content(shown(line.words, width)), self._query)
        return joined(name + content(("  in use", ACCENT) if line.current else ""), content((line.about, MUTED)), width)

    def choose(self, index: int) -> None:
        if choice := self._lines[index].choice:
            self.finish(choice)


def _file_line(file: FoundModel, current: str) -> ModelLine:
    window = counted(file.context_length, "token") if file.context_length else ""
    about = f"{one_line(file.quantisation, 10):<8}{size(file.size):>8}{window:>16}  {one_line(file.source, 14):<12}"
    return ModelLine(one_line(file.name, 120), about, ("file", file.path), str(file.path) == current)


def _group(server: ServerChoice, current: str) -> Group:
    """A server as a heading, with its models under it."""
    address = "" if server.embedded else one_line(server.base_url.partition("://")[2] or server.base_url, 60)
    title = server.profile or server.title
    words = " · ".join(
        filter(None, (one_line(title, 40), one_line(server.title, 30) if server.profile else "", address))
    )
    facts = [
        f"{count(server.context_size)}-token window" if server.context_size else "",
        f"{server.slots} slots" if server.slots and server.slots > 1 else "",
        f"{server.warm} warm" if server.warm else "",
        "" if server.host_class == "loopback" else HOSTS[server.host_class],
    ]
    about = " · ".join(filter(None, [PHASES.get(server.phase, ""), *facts]))
    lines = [
        _model_line(server, model.id, STATES.get(model.state) or LOADED[model.loaded], model.size, model.about, current)
        for model in server.listing
        if model.chats
    ]
    if not lines:
        lines = [
            ModelLine(
                model_name(server.model) if server.model else "connect",
                choice=("server", server.name, ""),
                current=server.current,
            )
        ]
    return Group(words or "This machine", about, lines)


def _model_line(server: ServerChoice, name: str, state: str, octets: int | None, about: str, current: str) -> ModelLine:
    facts = (one_line(about, 20), size(octets) if octets else "", state)
    choice: ModelChoice = ("model", name) if server.current else ("server", server.name, name)
    return ModelLine(model_name(name), " · ".join(filter(None, facts)), choice, server.current and name == current)


Way = Literal[0, 1, 2, 3]
WAYS: tuple[Way, ...] = (0, 1, 2, 3)
WORDS = (
    "try {last} again",
    "start the built-in engine with a model",
    "use a server elsewhere",
    "how to install one",
)
INDENT = 5

COMMANDS = (
    ("the built-in engine", "pip install 'kvchat[embedded,pull]'"),
    ("a model to start with", "kvchat pull Qwen/Qwen3-4B-GGUF"),
    ("llama.cpp's own server", "llama-server -m MODEL.gguf"),
    ("a server elsewhere", "kvchat --base-url http://HOST:PORT"),
)


class WelcomePanel(Widget, can_focus=True):
    """Shown in the place of the transcript. Posts `WayChosen` with 0 (the server used last), 1 (engine), 2
    (server) or 3 (how to install)."""

    DEFAULT_CSS = (
        """
    WelcomePanel {
        width: 1fr; height: auto; max-width: 100; padding: 1 2; background: transparent;
    """
        + TONE_CSS
        + "}"
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = set(TONE_CLASSES)
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("rows.up", "move(-1)"),
        binding("rows.down", "move(1)"),
        binding("rows.choose", "choose"),
    ]
    cursor: reactive[int] = reactive(0)
    commands_shown: reactive[bool] = reactive(False, layout=True)

    class WayChosen(Message):
        """One of the ways was chosen."""

        def __init__(self, way: Way) -> None:
            super().__init__()
            self.way = way

    def __init__(
        self,
        asked: Sequence[str],
        *,
        models: Sequence[FoundModel] = (),
        engine: bool = True,
        folders: Sequence[str] = (),
        last: str = "",
        id: str | None = None,
    ) -> None:
        """`asked`: the servers that were looked for, each as `llama.cpp 8080`; `models`: the files found; `engine`:
        whether the built-in engine is installed; `folders`: where files are looked for; `last`: the server used last,
        which is off."""
        super().__init__(id=id)
        self._asked = asked
        self._models = models
        self._engine = engine
        self._folders = folders
        self._last = last
        self._ways = WAYS if last else WAYS[1:]
        self._held = ""
        """A digit that chooses, while a letter may follow."""

    def render(self) -> Content:
        return Content("\n").join(line for line, _ in self._lines(self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def _lines(self, width: int) -> list[tuple[Content, Way | None]]:
        """The lines of the panel in `width` cells, each with the way that it offers."""
        width = max(20, width)
        asked = ", ".join(one_line(name, 40) for name in self._asked)
        head = content(
            ("No model server answered on this machine", STRONG), (f" (asked: {asked})." if asked else ".", MUTED)
        )
        lines: list[tuple[Content, Way | None]] = [(line, None) for line in (*head.wrap(width), content())]
        for way, words, about in zip(WAYS, WORDS, self._about(), strict=True):
            if way not in self._ways:
                continue
            words = words.format(last=one_line(self._last, 60))
            here = self.has_focus and self._ways[self.cursor] == way
            number = content(("▌ " if here else "  ", ACCENT), (str(way), ACCENT), "  ")
            status = [
                *content((words, STRONG if here else "")).wrap(width - INDENT),
                *content((about, MUTED)).wrap(width - INDENT),
            ]
            lines += [((content(" " * INDENT) if index else number) + line, way) for index, line in enumerate(status)]
        if self.commands_shown:
            lines += [(line, None) for line in (content(), *self._commands(width))]
        return lines

    def _about(self) -> tuple[str, str, str, str]:
        last = "used last, and off; what you send waits until it is back"
        return last, self._found(), "by its address, http://HOST:PORT", "shows the exact commands"

    def _found(self) -> str:
        if not self._models:
            none = "none on this disk yet: takes the path of a .gguf, or fetches one from Hugging Face"
            return none if self._engine else "none on this disk yet, and the engine is not installed: 3"
        names = " · ".join(
            f"{one_line(m.name, 40)} {one_line(m.quantisation, 10)} {size(m.size)}".replace("  ", " ")
            for m in self._models[:3]
        )
        more = " · …" if len(self._models) > 3 else ""
        found = f"{len(self._models)} found: {names}{more}"
        return found if self._engine else f"{found}; the engine is not installed: 3"

    def _commands(self, width: int) -> list[Content]:
        lines = [
            content("     ", (f"{what:<24}", MUTED), command) for what, command in COMMANDS[1 if self._engine else 0 :]
        ]
        if self._folders:
            folders = content((f"GGUF files are looked for in {', '.join(map(one_line, self._folders))}", MUTED))
            lines += [content(" " * INDENT) + line for line in folders.wrap(width - INDENT)]
        return lines

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        """A character that is no command here is meant for the composer, and so is a digit that begins a sentence."""
        if not event.is_printable or not event.character or event.key in self.screen.active_bindings:
            return
        event.stop()
        way = next((way for way in self._ways if str(way) == event.character), None)
        if self._held or way is None:
            self.post_message(Transcript.TypeThrough(self._held + event.character))
            self._held = ""
        elif ConfirmScreen.alone_s:
            self._held = event.character
            self.set_timer(ConfirmScreen.alone_s, partial(self._go_alone, way))
        else:
            self.action_go(way)

    def _go_alone(self, way: Way) -> None:
        if self._held:
            self._held = ""
            self.action_go(way)

    def action_move(self, step: int) -> None:
        self.cursor = min(len(self._ways) - 1, max(0, self.cursor + step))

    def action_choose(self) -> None:
        self.action_go(self._ways[self.cursor])

    def action_go(self, way: Way) -> None:
        if way not in self._ways:
            return
        self.cursor = self._ways.index(way)
        if way == 3:
            self.commands_shown = not self.commands_shown
        self.post_message(self.WayChosen(way))

    def on_click(self, event: events.Click) -> None:
        lines = self._lines(self.content_size.width)
        row = event.y - self.gutter.top
        if 0 <= row < len(lines) and (way := lines[row][1]) is not None:
            self.action_go(way)


Remedy = Literal["restart", "models"]
REMEDIES: tuple[tuple[str, str, Remedy], ...] = (
    ("r", "Restart the engine", "restart"),
    ("m", "Choose another model or server", "models"),
)
LOG_LINES = 200


class EngineTroubleScreen(ConfirmScreen[Remedy]):
    """Says why the engine ended and shows the end of its log. Result: "restart", "models" or None."""

    DEFAULT_CSS = """
    EngineTroubleScreen RowList { margin-top: 1; height: 2; }
    EngineTroubleScreen VerticalScroll {
        height: auto; max-height: 10; margin-top: 1; padding-left: 1; border-left: solid $foreground 20%;
        &:focus { border-left: solid $accent; }
    }
    EngineTroubleScreen:ansi VerticalScroll { border-left: solid ansi_bright_black; }
    """

    AUTO_FOCUS = ""

    def __init__(self, sentence: str, log: str = "") -> None:
        super().__init__("The engine stopped", [clean(sentence).strip()], REMEDIES)
        self.remove_class("-small")
        self.hints = (("rows.choose", "choose"), ("tab", "the log"), ("dialog.close", "close"))
        self._log = "\n".join(clean(log).strip("\n").splitlines()[-LOG_LINES:])

    def body(self) -> Iterable[Widget]:
        yield Static(Content(self.gist), classes="words")
        if self._log:
            with VerticalScroll():
                yield Static(content((self._log, MUTED)), classes="words")
        yield RowList(self._draw)

    def on_mount(self) -> None:
        for log in self.query(VerticalScroll):
            log.scroll_end(animate=False)

"""Slash commands: what a text beginning with / means, and the list of matching commands above the composer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from kvchat.display import one_line
from kvchat.ui.widgets.cells import fit


class Command(NamedTuple):
    """A slash command as the app offers it; the name without the slash."""

    name: str
    description: str


class Parsed(NamedTuple):
    """`command` is None for an ordinary message, whose text is `text`; else `text` is the argument."""

    command: str | None
    text: str


def parse(text: str) -> Parsed:
    """What sending `text` means. // is a literal slash; // and a blank stays as it is, for it begins a comment."""
    if not text.startswith("/"):
        return Parsed(None, text)
    if text.startswith("//"):
        return Parsed(None, text if text[2:3].isspace() else text[1:])
    name, *argument = re.split(r"\s+", text[1:], maxsplit=1)
    return Parsed(name, argument[0].strip() if argument else "")


def typed_name(text: str) -> str | None:
    """The beginning of a command's name, while `text` is nothing but that."""
    if text.startswith("/") and not text.startswith("//") and not any(c.isspace() for c in text):
        return text[1:]
    return None


def matching(commands: Sequence[Command], typed: str) -> list[Command]:
    """The commands whose name begins with `typed`, the exact one first, then those that contain it."""
    typed = typed.casefold()
    begin = [c for c in commands if c.name.casefold().startswith(typed)]
    inside = [c for c in commands if typed in c.name.casefold() and c not in begin]
    return sorted(begin, key=lambda c: c.name.casefold() != typed) + inside


class SlashList(Widget):
    """The matching commands, one a line, drawn over the transcript just above the composer. Takes no focus."""

    DEFAULT_CSS = """
    SlashList {
        overlay: screen; constrain: none inside; display: none;
        height: auto; width: 1fr;
        background: $panel; color: $foreground;
        & .command--name { color: $foreground; text-style: bold; }
        & .command--description { color: $foreground 65%; }
        & .command--cursor {
            background: $block-cursor-background; color: $block-cursor-foreground; text-style: bold;
        }
        &:ansi { background: ansi_default; border: round ansi_bright_black; }
        &:ansi .command--description { color: ansi_default; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"command--name", "command--description", "command--cursor"}
    ALLOW_SELECT = False
    ROWS = 8

    class Chosen(Message):
        """A command was clicked."""

        def __init__(self, command: Command) -> None:
            super().__init__()
            self.command = command

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[Command] = []
        self.cursor = 0

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    @property
    def chosen(self) -> Command | None:
        """The command under the cursor."""
        return self.commands[self.cursor] if self.is_open and self.commands else None

    def show(self, commands: Sequence[Command]) -> None:
        """Show these; nothing to show closes the list. The cursor stays on its command when that is still there."""
        current = self.chosen
        self.commands = list(commands)
        self.cursor = self.commands.index(current) if current in self.commands else 0
        self.display = bool(commands)
        above = self.gutter.height + (self.parent.gutter.top if isinstance(self.parent, Widget) else 0)
        self.styles.offset = (0, -min(self.ROWS, len(self.commands)) - above)
        self.refresh(layout=True)

    def close(self) -> None:
        self.display = False

    def move(self, step: int) -> None:
        """Move the cursor, round at both ends."""
        self.cursor = (self.cursor + step) % max(1, len(self.commands))
        self.refresh()

    @property
    def _first(self) -> int:
        return max(0, min(self.cursor - self.ROWS // 2, len(self.commands) - self.ROWS))

    def render(self) -> Content:
        shown = self.commands[self._first : self._first + self.ROWS]
        width = self.content_size.width
        column = min(24, 4 + max((cell_len(one_line(c.name)) for c in self.commands), default=0))
        lines = []
        for index, command in enumerate(shown, self._first):
            name = fit(" /" + one_line(command.name), column)
            rest = fit(one_line(command.description), width - column - 2)
            name += " " * (column + 1 - cell_len(name))
            rest += " " * (width - cell_len(name) - cell_len(rest))
            if index == self.cursor:
                lines.append(Content.styled(name + rest, self.get_visual_style("command--cursor")))
            else:
                lines.append(Content.assemble(
                    (name, self.get_visual_style("command--name")),
                    (rest, self.get_visual_style("command--description"))))
        return Content("\n").join(lines)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        offset = event.get_content_offset(self)
        if offset is not None and self._first + offset.y < len(self.commands):
            self.post_message(self.Chosen(self.commands[self._first + offset.y]))

"""The list of matching slash commands above the composer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.message import Message

from kvchat.ui.widgets.composer.suggestions import Row, Suggestions


class Command(NamedTuple):
    """A slash command as the app offers it; the name without the slash."""

    name: str
    description: str


def typed_name(text: str) -> str | None:
    """The beginning of a command's name, while `text` is nothing but that."""
    if text.startswith("/") and not text.startswith("//") and not any(c.isspace() for c in text):
        return text[1:]
    return None


def argument_typed(text: str, name: str) -> tuple[str, str] | None:
    """While `text` is this command with words behind it: what precedes the last word, and that word."""
    if not text.startswith(f"/{name} ") or "\n" in text:
        return None
    last = text.rpartition(" ")[2]
    return text[1 : len(text) - len(last)], last


def matching(commands: Sequence[Command], typed: str) -> list[Command]:
    """The commands whose name begins with `typed`, the exact one first, then those that contain it."""
    typed = typed.casefold()
    begin = [c for c in commands if c.name.casefold().startswith(typed)]
    inside = [c for c in commands if typed in c.name.casefold() and c not in begin]
    return sorted(begin, key=lambda c: c.name.casefold() != typed) + inside


class SlashList(Suggestions[Command]):
    """The matching commands."""

    class Chosen(Message):
        """A command was clicked."""

        def __init__(self, command: Command) -> None:
            super().__init__()
            self.command = command

    def row_of(self, item: Command) -> Row:
        return Row(f"/{item.name}", item.description)

    def clicked(self, item: Command) -> None:
        self.post_message(self.Chosen(item))

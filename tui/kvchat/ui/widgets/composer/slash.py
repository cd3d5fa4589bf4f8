"""Slash commands in the composer: which is meant, and the list of those that match what is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from textual.message import Message

from kvchat.commands.slash import Parsed, parse
from kvchat.ui.widgets.composer.suggestions import SuggestionRow, Suggestions
from kvchat.ui.widgets.composer.text import ComposerText


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

    class CommandChosen(Message):
        """A command was clicked."""

        def __init__(self, command: Command) -> None:
            super().__init__()
            self.command = command

    def row_of(self, item: Command) -> SuggestionRow:
        return SuggestionRow(f"/{item.name}", item.description)

    def clicked(self, item: Command) -> None:
        self.post_message(self.CommandChosen(item))


class SlashCommands:
    """The commands on offer, with the list of those that match."""

    def __init__(self, area: ComposerText) -> None:
        """`area` has the text."""
        self._area = area
        self.offered: Sequence[Command] = ()
        self.arguments: Mapping[str, Callable[[], Sequence[str]]] = {}
        """What the words behind a command may be, by its name."""
        self.list = SlashList()

    def parsed(self) -> Parsed:
        """What the text means. What was pasted is text, as a log is, but for a line that is one of our commands."""
        found, pasted = parse(self._area.text), self._area.pasted_first
        is_ours = found.command is not None and self.known(found.command) is not None
        if "\n" in pasted.strip() or (len(pasted) > len(found.command or "") and not is_ours):
            return Parsed(None, self._area.text)
        return found

    def known(self, command: str) -> str | None:
        """The command on offer that this is, in any case."""
        return next((known.name for known in self.offered if known.name.casefold() == command.casefold()), None)

    def look(self) -> None:
        """The text was changed: list what it can become."""
        text, has_focus = self._area.text, self._area.has_focus
        typed = typed_name(text)
        if typed is None and has_focus and (words := self._arguments(text)):
            self.list.show(words, marks_first=False)
        else:
            self.list.show(matching(self.offered, typed) if typed is not None and has_focus else ())

    def _arguments(self, text: str) -> list[Command]:
        """The words that the one at the end of a command may become, each with the whole command."""
        for name, words in self.arguments.items() if text.startswith("/") else ():
            if (typed := argument_typed(text, name)) is not None:
                before, last = typed
                minus = "-" if last.startswith("-") else ""
                return [
                    Command(f"{before}{minus}{word}", "")
                    for word in words()
                    if word.startswith(last.removeprefix("-").removeprefix("#").casefold())
                    and word != last.removeprefix("-")
                ]
        return []

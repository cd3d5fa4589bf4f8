"""Slash commands: what a text that begins with / means, in the app and in plain mode."""

from __future__ import annotations

import re
from typing import NamedTuple

from kvchat.ui.action_table import ACTIONS, Action


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


def slash_commands() -> list[tuple[str, str]]:
    """Name without the slash, and what it does, of every slash command."""
    return [(name, action.help) for action in ACTIONS for name in (action.slash, action.also) if name]


def by_slash(name: str) -> Action | None:
    """The action of a slash command, without the slash; any case."""
    return next((action for action in ACTIONS if name and name.lower() in (action.slash, action.also)), None)

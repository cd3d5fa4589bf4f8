"""Slash commands and the user's snippets: what a text that begins with / means, in the app and in plain mode."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvchat.commands.actions import ACTIONS, Action
from kvchat.paths import pasted_path
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvchat.config.personas import Snippet
    from kvchat.config.problem import Problem

ELSEWHERE = {
    "add": "attach",
    "agents": "persona",
    "branch": "fork",
    "bye": "quit",
    "checkpoint": "keep",
    "compress": "compact",
    "config": "settings",
    "connect": "model",
    "context": "cache",
    "cost": "cache",
    "effort": "thinking",
    "file": "attach",
    "history": "list",
    "keys": "help",
    "load": "list",
    "login": "model",
    "mcp": "tools",
    "options": "parameters",
    "params": "parameters",
    "prompt": "system",
    "provider": "model",
    "rag": "documents",
    "redo": "regenerate",
    "reset": "new",
    "resume": "list",
    "retry": "regenerate",
    "rewind": "tree",
    "save": "export",
    "sessions": "list",
    "set": "settings",
    "share": "export",
    "shortcuts": "help",
    "status": "doctor",
    "summarize": "compact",
    "temperature": "parameters",
    "tokens": "cache",
    "upload": "attach",
    "usage": "cache",
}
"""Commands of other programs, and which of ours does that."""


class Parsed(NamedTuple):
    """`command` is None for an ordinary message, whose text is `text`; else `text` is the argument."""

    command: str | None
    text: str


def parse(text: str) -> Parsed:
    """What sending `text` means. // is a literal slash; // and a blank stays as it is, for it begins a comment. A first
    word with a second slash is a path, and text; that of a model file alone chooses the model."""
    if (path := _model_file(text)) is not None:
        return Parsed("model", path)
    if not text.startswith("/"):
        return Parsed(None, text)
    if text.startswith("//"):
        return Parsed(None, text if text[2:3].isspace() else text[1:])
    name, *argument = re.split(r"\s+", text[1:], maxsplit=1)
    if "/" in name:
        return Parsed(None, text)
    return Parsed(name, argument[0].strip() if argument else "")


def _model_file(text: str) -> str | None:
    """The path that `text` is, and nothing else, if it is one of a GGUF file."""
    name = re.match(r"/([^/\s]*)(?:\s|$)", text)
    if text.startswith("//") or (name is not None and not name[1].endswith(".gguf")):
        return None  # a command, whose argument may be a path
    path = pasted_path(text)
    return path if path is not None and path.lower().endswith(".gguf") else None


def slash_commands() -> list[tuple[str, str]]:
    """Name without the slash, and what it does, of every slash command."""
    return [(name, action.help) for action in ACTIONS for name in (action.slash, action.also) if name]


def by_slash(name: str) -> Action | None:
    """The action of a slash command, without the slash; any case."""
    return next((action for action in ACTIONS if name and name.lower() in (action.slash, action.also)), None)


def no_command(name: str, names: Iterable[str]) -> str:
    """That there is no such command, and which of `names` is meant, where that can be known."""
    import difflib

    ours = ELSEWHERE.get(name.lower()) or "".join(difflib.get_close_matches(name[:24].lower(), names, 1, 0.7))
    there_is = f"There is no command /{one_line(name, 24)}"
    return f"{there_is}; did you mean /{ours}?" if ours else f"{there_is} · // begins a message"


def snippets(folder: Path) -> tuple[dict[str, Snippet], list[Problem]]:
    """The snippets of a folder by name, and what is wrong there: one that is called as a command is not used."""
    from kvchat.config.personas import load_snippets
    from kvchat.config.problem import Problem

    found, problems = load_snippets(folder)
    taken = [name for name in found if by_slash(name)]
    problems += [
        Problem(folder / f"{name}.toml", None, None, f"/{name} is a command; give the snippet another name")
        for name in taken
    ]
    return {name: snippet for name, snippet in found.items() if name not in taken}, problems

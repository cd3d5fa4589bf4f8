"""The person's snippets as slash commands."""

from __future__ import annotations

from pathlib import Path

from kvchat.config.personas import Snippet, load_snippets
from kvchat.config.problem import Problem
from kvchat.ui.slash import by_slash


def snippets(folder: Path) -> tuple[dict[str, Snippet], list[Problem]]:
    """The snippets of a folder by name, and what is wrong there: one that is called as a command is not used."""
    found, problems = load_snippets(folder)
    taken = [name for name in found if by_slash(name)]
    problems += [
        Problem(folder / f"{name}.toml", None, None, f"/{name} is a command; give the snippet another name")
        for name in taken
    ]
    return {name: snippet for name, snippet in found.items() if name not in taken}, problems

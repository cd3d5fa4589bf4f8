"""Personas and snippets: the user's own TOML files, in folders next to the themes.

A persona is what a conversation begins with, a snippet a text to put into a message; `{{name}}` in it is a field to
fill in. Each is a file, which has its name.

A broken file is a problem with its line while the others load.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from kvchat.config.option import OptionKind, UnfitError, fitted, text, texts, wrong_entries
from kvchat.config.problem import Problem
from kvchat.config.server import tool_name
from kvchat.config.settings import changed_in, declared, sampling
from kvchat.config.toml import read_toml, toml_files, written_key
from kvchat.config.unknown import nearest
from kvchat.prompt.request import Parameters
from kvchat.sanitize import one_line

T = TypeVar("T")

SIZE_LIMIT = 64 * 1024
"""Bytes of one file."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Persona:
    """What a conversation begins with. What is left out is as in any new conversation."""

    name: str = ""
    about: str = text("", "What it is for, in the list.", example="Reviews code")
    system_prompt: str = text("", "The instructions.", example="You review code. Name the worst fault first.")
    profile: str = text("", "The server: a profile of the settings.", example="work")
    model: str = text("", "The model to ask for.", example="qwen3-8b")
    tools: tuple[str, ...] | None = texts("The tools that the model may call.", tool_name, example=("files",))
    first_message: str = text(
        "", "What the first message begins with; {{name}} in it is a field to fill in.", example="Review this: "
    )
    parameters: Parameters = field(default_factory=Parameters)

    def below(self, options: Container[str]) -> Persona:
        """The persona without what options of the command line gave for this run; `options`: the settings' paths."""
        return replace(
            self,
            model="" if "server.model" in options or "engine.model" in options else self.model,
            system_prompt="" if "system_prompt" in options else self.system_prompt,
        )


NOBODY = Persona()
"""A conversation begins as any new one."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text to be put into a message by /NAME."""

    name: str = ""
    about: str = text("", "What it is for, in the list of commands.", example="Explain code")
    text: str = text("", "The text; {{name}} in it is a field to fill in.", example="Explain this: {{code}}")


def load_personas(folder: Path) -> tuple[dict[str, Persona], list[Problem]]:
    """The personas of a folder by name, and what is wrong there."""
    return _load(folder, Persona, "personas", "system_prompt")


def load_snippets(folder: Path) -> tuple[dict[str, Snippet], list[Problem]]:
    """The snippets of a folder by name, and what is wrong there."""
    return _load(folder, Snippet, "snippets", "text")


def _load(folder: Path, kind: type[T], what: str, needed: str) -> tuple[dict[str, T], list[Problem]]:
    files, problems = toml_files(folder, what)
    found: dict[str, T] = {}
    for path in files:
        one, wrong = _read(path, kind, what, needed)
        problems += wrong
        if one is not None:
            found[path.stem] = one
    return found, problems


def _read(path: Path, kind: type[T], what: str, needed: str) -> tuple[T | None, list[Problem]]:
    """What one file says; None where it cannot be used. A persona without any setting is left out too."""
    otherwise = f"this {what[:-1]} is left out"
    file = read_toml(path, SIZE_LIMIT, otherwise)
    if file.problems:
        return None, list(file.problems)
    if not _NAME.fullmatch(path.stem):
        return None, [Problem(path, None, None, f"a name is made of letters, digits, - and _; {otherwise}")]
    options = {option.key: option for option in declared((), kind())}
    sections: tuple[str, ...] = ()
    if kind is Persona:
        options |= {option.key: option for option in sampling(("parameters",))}
        sections = ("parameters",)
    one: Any = kind(name=path.stem)  # type: ignore[call-arg]
    problems = []
    for name, value in file.values.items():
        table = value if name in sections and isinstance(value, Mapping) else None
        for key, inner in [((name,), value)] if table is None else [((name, key), item) for key, item in table.items()]:
            option, shown = options.get(key), one_line(".".join(key), 60)
            if option is None:
                near = nearest(key[-1], [known[-1] for known in options if known[:-1] == key[:-1]])
                has = ", ".join(known[-1] for known in options if known[:-1] == ()) + ", [parameters]" * bool(sections)
                problems.append(
                    file.problem(
                        key,
                        f"unknown setting {shown}"
                        + (f"; did you mean {near}?" if near else f"; a {what[:-1]} has {has}"),
                    )
                )
                continue
            try:
                fit = fitted(option.spec, inner)
                if option.spec.kind is OptionKind.TABLE and isinstance(fit, dict):
                    for entry, why in wrong_entries(option.spec, fit).items():
                        named = f"{shown}.{one_line(written_key(entry), 40)}"
                        problems.append(file.problem((*key, entry), f"{named} {why}"))
                        del fit[entry]
                one = changed_in(one, key, fit)
            except UnfitError as unfit:
                problems.append(file.problem(key, f"{shown} {unfit}; it is left out"))
    if one == kind(name=path.stem) or (kind is Snippet and not one.text.strip()):  # type: ignore[call-arg]
        problems.append(Problem(path, None, None, f"says nothing: it needs {needed}; {otherwise}"))
        return None, problems
    return one, problems

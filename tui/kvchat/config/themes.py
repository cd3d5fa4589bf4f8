"""Themes from TOML files: ours, and the user's own from the folder `themes` next to the settings file.

A theme is colours and nothing else. A file cannot bring code or style sheets, and a broken one is a problem
with its line while the others load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.config.option import kind_of
from kvchat.config.problem import Problem
from kvchat.config.source import Key
from kvchat.config.toml import TomlFile, problem_at, read_toml, toml_files
from kvchat.paths import own_themes
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from textual.theme import Theme

AUTOMATIC = "auto"
"""In place of a theme's name: a light or a dark one, as the terminal is."""
SIZE_LIMIT = 64 * 1024
"""Bytes of one theme."""

COLOURS = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
REQUIRED = ("primary", "foreground", "background")

OWN_VARIABLES = frozenset(
    {
        "cache-cached",  # tokens served from the cache; warm conversations
        "cache-evaluated",  # tokens read because they were new
        "cache-wasted",  # tokens read again without need
        "role-user",  # the word above the user's messages
        "role-assistant",  # the model's name above its answers
        "rule",  # thin lines
        "code-background",  # behind code
    }
)
"""What kvchat's style sheets use beyond Textual's own variables."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_COLOUR = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_STYLE = re.compile(
    r"(?:not )?(?:bold|dim|italic|underline|reverse|strike|none)"
    r"(?: (?:not )?(?:bold|dim|italic|underline|reverse|strike)){0,5}"
)
_OTHERWISE = "this theme is left out"


def load_themes(folders: Iterable[Path]) -> tuple[dict[str, Theme], list[Problem]]:
    """Every theme of these folders by name, later folders first in case of equal names, and what is wrong."""
    themes: dict[str, Theme] = {}
    problems: list[Problem] = []
    for folder in folders:
        files, trouble = toml_files(folder, "themes")
        problems += trouble
        read = [(path, *load_theme(path)) for path in files]
        problems += [problem for _, _, wrong in read for problem in wrong]
        here: dict[str, Path] = {}
        found = [(path, theme) for path, theme, _ in read if theme is not None]
        for path, theme in sorted(found, key=lambda one: one[0].stem != one[1].name):  # the one that is called like it
            if theme.name in here:
                text = f"{here[theme.name].name} has the name {theme.name} too; {_OTHERWISE}"
                problems.append(read_toml(path, SIZE_LIMIT).problem(("name",), text))
                continue
            here[theme.name] = path
            themes[theme.name] = theme
    return themes, problems


def own_theme(name: str) -> Theme | None:
    """The theme of this name that comes with kvchat: its file has its name. None: there is none."""
    path = own_themes() / f"{name}.toml"
    theme = load_theme(path)[0] if path.is_file() else None
    return theme if theme is not None and theme.name == name else None


def load_theme(path: Path) -> tuple[Theme | None, list[Problem]]:
    """The theme of one file; None where it lacks what a theme needs."""
    file = read_toml(path, SIZE_LIMIT, _OTHERWISE)
    if file.problems:
        return None, list(file.problems)
    reader = _ThemeReader(file)
    return reader.theme(), reader.problems


def plain_theme() -> Theme:
    """The theme for a terminal that is to show no colour. Only what is marked has a background of its own."""
    from textual.theme import BUILTIN_THEMES

    ground = BUILTIN_THEMES["ansi-dark"]
    return replace(
        ground,
        name="kvchat-plain",
        variables={
            **ground.variables,
            "border-blurred": "ansi_default",
            **{f"scrollbar{part}": "ansi_white" for part in ("", "-hover", "-active")},
            **{
                f"scrollbar-{part}": "ansi_default"
                for part in ("background", "background-hover", "background-active", "corner-color")
            },
        },
    )


def theme_problem(name: str, themes: Mapping[str, Theme], file: Path) -> list[Problem]:
    """What is wrong with the name of a theme in the settings `file`: nothing, or that there is none of this name."""
    from textual.theme import BUILTIN_THEMES

    known = [*themes, *BUILTIN_THEMES, AUTOMATIC]
    if name in known:
        return []
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "; /theme shows them all"
    return [problem_at(file, "theme", f"there is no theme {one_line(name, 40)}{hint}")]


def variable_defaults(theme: Theme) -> dict[str, str]:
    """kvchat's own variables for a theme that does not set them, made from its colours: for
    `App.get_theme_variable_defaults`."""
    colours = theme.to_color_system().generate()
    return {
        "cache-cached": colours["success"],
        "cache-evaluated": colours["primary"],
        "cache-wasted": "ansi_magenta" if theme.ansi else colours["warning"],
        "role-user": colours["accent"],
        "role-assistant": colours["primary"],
        "rule": colours["border-blurred"] if theme.ansi else colours["foreground-disabled"],
        "code-background": colours["surface"],
    }


class _ThemeReader:
    """One file on its way to a theme, and the problems met."""

    def __init__(self, file: TomlFile) -> None:
        self._file = file
        self.problems: list[Problem] = []

    def theme(self) -> Theme | None:
        from textual.theme import Theme

        values = dict(self._file.values)
        name, dark = values.pop("name", None), values.pop("dark", True)
        spelt = "colors" if "colors" in values and "colours" not in values else "colours"
        colours = self._colours(spelt, values.pop(spelt, None))
        variables = self._variables(values.pop("variables", {}))
        for key in values:
            self._wrong((key,), f"unknown setting {one_line(key, 60)}; a theme has name, dark, [colours], [variables]")
        if not isinstance(dark, bool):
            self._wrong(("dark",), "dark must be true or false; it is taken as true")
            dark = True
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._wrong(("name",), f'a theme needs a name such as name = "my-theme"; {_OTHERWISE}')
            return None
        missing = [colour for colour in REQUIRED if colour not in colours]
        if missing:
            self._wrong((spelt,), f"[{spelt}] must set {' and '.join(missing)}; {_OTHERWISE}")
            return None
        return Theme(name=name, dark=dark, variables=variables, **colours)  # type: ignore[arg-type]

    def _wrong(self, key: Key, text: str) -> None:
        self.problems.append(self._file.problem(key, text))

    def _colours(self, section: str, table: object) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, value in self._table(section, table).items():
            if key not in COLOURS:
                self._wrong((section, key), f"unknown colour {one_line(key, 60)}" + _meant(key, COLOURS))
            elif not isinstance(value, str) or not _COLOUR.fullmatch(value):
                self._wrong((section, key), f'{key} must be a colour such as "#7c9cf5"; it is left out')
            else:
                found[key] = value
        return found

    def _variables(self, table: object) -> dict[str, str]:
        found: dict[str, str] = {}
        known, given = _known_variables(), self._table("variables", table)
        for key, value in given.items():
            style = key.endswith("-style")
            if key not in known:
                self._wrong(("variables", key), f"unknown variable {one_line(key, 60)}" + _meant(key, sorted(known)))
            elif not isinstance(value, str) or not (_STYLE if style else _COLOUR).fullmatch(value):
                kind = 'a style such as "bold"' if style else 'a colour such as "#7c9cf5"'
                self._wrong(("variables", key), f"{key} must be {kind}; it is left out")
            else:
                found[key] = value
        return found

    def _table(self, section: str, table: object) -> dict[str, object]:
        if isinstance(table, dict):
            return table
        if table is not None:
            self._wrong((section,), f"{section} must be a section, [{section}], not {kind_of(table)}")
        return {}


@cache
def _known_variables() -> frozenset[str]:
    from textual.design import ColorSystem

    return frozenset(ColorSystem("#808080").generate()) | OWN_VARIABLES


def _meant(key: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key[:60].lower(), known, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else "; it is left out"

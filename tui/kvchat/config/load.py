"""From a settings file, the environment and the command line to `Settings`.

The rule: what is wrong becomes a `Problem` and leaves its default in place; nothing here raises on bad content.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kvchat.config.option import Kind, Option, UnfitError, fitted, from_text
from kvchat.config.problem import Problem
from kvchat.config.settings import BY_PATH, OPTIONS, SECTIONS, Settings, changed, value_of
from kvchat.config.source import Key
from kvchat.config.toml import SIZE_LIMIT, TomlFile, read_toml, written
from kvchat.display import one_line
from kvchat.prompt.request import RESERVED

_SHORT_VARIABLES = {"KVCHAT_BASE_URL": "server.base_url", "KVCHAT_MODEL": "server.model"}
_KEY_NAMES = ("api_key", "apikey", "key", "token", "password", "secret")
_KEYS_DEPTH = 4


def load(path: Path) -> tuple[Settings, list[Problem]]:
    """The settings of a file and what is wrong in it. A file that does not exist has none."""
    file = read_toml(path, SIZE_LIMIT)
    settings, problems = Settings(), list(file.problems)
    for key, value in _flat(file.values):
        problem, settings = _taken(file, settings, key, value)
        problems += problem
    if settings.server.api_key_command and (text := _foreign(path)):
        settings = changed(settings, "server.api_key_command", "")
        problems.append(file.problem(("server", "api_key_command"), text))
    return settings, sorted(problems, key=lambda p: (p.line or 0, p.column or 0))


def effective(
    settings: Settings, env: Mapping[str, str] = os.environ, overrides: Mapping[str, object] | None = None,
) -> tuple[Settings, list[Problem]]:
    """The settings with those of the environment (KVCHAT_SERVER_MODEL, KVCHAT_THEME ...) and then those of the command
    line put over them. `overrides` has values by path (`server.model`); None is one that was not given."""
    problems: list[Problem] = []
    for name, option in _variables():
        if given := env.get(name):
            try:
                settings = changed(settings, option.path, from_text(option.spec, given))
            except UnfitError as unfit:
                problems.append(Problem(None, None, None, f"{name} {unfit}; it is not used"))
    for path, value in (overrides or {}).items():
        if value is None:
            continue
        option = BY_PATH[path]
        try:
            value = from_text(option.spec, value) if isinstance(value, str) else fitted(option.spec, value)
            settings = changed(settings, path, value)
        except UnfitError as unfit:
            problems.append(Problem(None, None, None, f"{path} {unfit}; it is not used"))
    return settings, problems


def _variables() -> Iterator[tuple[str, Option]]:
    for option in OPTIONS:
        if option.spec.kind not in (Kind.TABLE, Kind.KEYS, Kind.TEXTS):
            yield option.variable, option
    for name, path in _SHORT_VARIABLES.items():
        yield name, BY_PATH[path]


def _flat(values: Mapping[str, object]) -> Iterator[tuple[Key, object]]:
    """Every setting of the file with its key; sections are opened."""
    for name, value in values.items():
        if name in ("server", "engine", "cache", "parameters") and isinstance(value, Mapping):
            yield from (((name, inner), item) for inner, item in value.items())
        else:
            yield (name,), value


def _taken(file: TomlFile, settings: Settings, key: Key, value: object) -> tuple[list[Problem], Settings]:
    path = ".".join(key)
    option = BY_PATH.get(path) if all("." not in part for part in key) else None
    if option is None:
        return [file.problem(key, _unknown(key, value))], settings
    try:
        fit = fitted(option.spec, value)
    except UnfitError as unfit:
        default = value_of(Settings(), option)
        used = "it is left out" if default in (None, "", ()) else f"the default, {written(default)}, is used"
        return [file.problem(key, f"{path} {unfit}; {used}")], settings
    if option.spec.kind is Kind.KEYS and isinstance(fit, Mapping):
        return _keys(file, settings, fit)
    if path == "parameters.extra" and isinstance(fit, dict):
        reserved = [name for name in fit if name in RESERVED]
        problems = [file.problem((*key, name), f"{path}.{name} cannot be set: kvchat sends this field itself")
                    for name in reserved]
        return problems, changed(settings, path, {n: v for n, v in fit.items() if n not in RESERVED})
    return [], changed(settings, path, fit)


def _keys(file: TomlFile, settings: Settings, table: Mapping[str, object]) -> tuple[list[Problem], Settings]:
    """[keys] with `transcript.edit = "x"` read as it is meant: as the action of that name, not as a table."""
    keys: dict[str, str] = {}
    problems: list[Problem] = []
    todo: list[tuple[Key, object]] = [((name,), value) for name, value in reversed(list(table.items()))]
    while todo:
        name, value = todo.pop()
        action = ".".join(name)
        if isinstance(value, Mapping) and len(name) < _KEYS_DEPTH:
            todo += [((*name, inner), item) for inner, item in reversed(list(value.items()))]
        elif isinstance(value, str):
            keys[action] = value
        elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            keys[action] = ",".join(value)
        else:
            said = f"keys.{one_line(action, 60)} must be a text of keys, such as \"ctrl+x, f5\"; the default is used"
            problems.append(file.problem(("keys", *name), said))
    return problems, replace(settings, keys=keys)


def _unknown(key: Key, value: object) -> str:
    name = one_line(".".join(key), 60)
    if len(key) == 1 and isinstance(value, Mapping):
        near = _nearest(key[0], [section for section in SECTIONS if "." not in section])
        return f"unknown section [{name}]" + (f"; did you mean [{near}]?" if near else "; it is not used")
    if key[0] in ("server", "engine", "cache", "parameters") and len(key) == 1:
        return f"{name} must be a section: [{name}] on a line of its own, its settings below"
    if key[-1].lower() in _KEY_NAMES:
        return (f"kvchat keeps no keys in files: remove {name}, put the key in an environment variable and its name in "
                "api_key_env, or set api_key_command")
    homes = [option for option in OPTIONS if option.name == key[-1] and option.path != ".".join(key)]
    if homes:
        home = homes[0].section
        where = f"under [{home}]" if home else "at the top, above the first [section]"
        return f"unknown setting {name}; {key[-1]} belongs {where}"
    section = key[0] if len(key) > 1 else ""
    here = [option.path for option in OPTIONS if option.section == section]
    near = _nearest(".".join(key), here) or _nearest(".".join(key), BY_PATH)
    return f"unknown setting {name}" + (f"; did you mean {near}?" if near else "; it is not used")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name[:80].lower(), list(known), 1, 0.7)
    return found[0] if found else None


def _foreign(path: Path) -> str | None:
    """Why a command in this file must not be run: someone else may have written it."""
    if not hasattr(os, "getuid"):
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_uid not in (os.getuid(), 0):
        return "server.api_key_command is not used: the file belongs to another user"
    if status.st_mode & stat.S_IWOTH:
        return f"server.api_key_command is not used: anyone may write to this file; run chmod go-w {path}"
    return None

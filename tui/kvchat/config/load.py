"""From a settings file, the environment and the command line to `Settings`.

The rule: what is wrong becomes a `Problem` and leaves its default in place; nothing here raises on bad content.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kvchat.config.option import Kind, Option, UnfitError, fitted, from_text, wrong_entries
from kvchat.config.problem import Problem
from kvchat.config.server import PROFILE_NAME, ServerSettings
from kvchat.config.settings import BY_PATH, OPTIONS, Settings, changed, changed_at, opens, option_at
from kvchat.config.source import Key
from kvchat.config.toml import SIZE_LIMIT, TomlFile, read_toml, written, written_key
from kvchat.config.unknown import nearest, unknown
from kvchat.sanitize import one_line

_SHORT_VARIABLES = {"KVCHAT_BASE_URL": "server.base_url", "KVCHAT_MODEL": "server.model"}
_KEYS_DEPTH = 4


def load(path: Path) -> tuple[Settings, list[Problem]]:
    """The settings of a file and what is wrong in it. A file that does not exist has none."""
    file = read_toml(path, SIZE_LIMIT)
    settings, problems = Settings(), list(file.problems)
    for key, value in _flat(file.values):
        problem, settings = _taken(file, settings, key, value)
        problems += problem
    for look in (_profiles, _commands, _default_profile):
        found, settings = look(file, settings)
        problems += found
    return settings, sorted(problems, key=lambda p: (p.line or 0, p.column or 0))


def effective(
    settings: Settings,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] | None = None,
) -> tuple[Settings, list[Problem]]:
    """The settings with those of the environment (KVCHAT_SERVER_MODEL, KVCHAT_THEME ...) and then those of the command
    line put over them. `overrides` has values by path (`server.model`); None is one that was not given."""
    problems: list[Problem] = []
    for name, option in _variables():
        if given := env.get(name):
            try:
                settings = _given(settings, option, given)
            except UnfitError as unfit:
                problems.append(Problem(None, None, None, f"{name} {unfit}; it is not used"))
    for path, value in (overrides or {}).items():
        if value is None:
            continue
        try:
            settings = _given(settings, BY_PATH[path], value)
        except UnfitError as unfit:
            problems.append(Problem(None, None, None, f"{path} {unfit}; it is not used"))
    return settings, problems


def variables_used(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the environment that are used, by the paths of the settings that they give."""
    found = {}
    for name, option in _variables():
        try:
            if given := env.get(name):
                from_text(option.spec, given)
                found[option.path] = name
        except UnfitError:
            pass
    return found


def _given(settings: Settings, option: Option, value: object) -> Settings:
    """The settings with one that was given for this run. Raises UnfitError."""
    value = from_text(option.spec, value) if isinstance(value, str) else fitted(option.spec, value)
    settings = changed(settings, option.path, value)
    if option.path == "default_profile" and (wrong := no_profile(settings)):
        raise UnfitError(wrong)
    return settings


def _variables() -> Iterator[tuple[str, Option]]:
    for option in OPTIONS:
        if option.spec.kind not in (Kind.TABLE, Kind.KEYS, Kind.TEXTS):
            yield option.variable, option
    for name, path in _SHORT_VARIABLES.items():
        yield name, BY_PATH[path]


def _flat(values: Mapping[str, object], above: Key = ()) -> Iterator[tuple[Key, object]]:
    """Every setting of the file with its key; sections are opened."""
    for name, value in values.items():
        key = (*above, name)
        if opens(key) and isinstance(value, Mapping):
            yield from _flat(value, key)
        else:
            yield key, value


def _taken(file: TomlFile, settings: Settings, key: Key, value: object) -> tuple[list[Problem], Settings]:
    path = one_line(".".join(key), 100)
    option = option_at(key)
    if option is None:
        return [file.problem(key, unknown(key, value))], settings
    try:
        fit = fitted(option.spec, value)
    except UnfitError as unfit:
        return [file.problem(key, f"{path} {unfit}; {_instead(option)}")], settings
    if option.spec.kind is Kind.KEYS and isinstance(fit, Mapping):
        return _keys(file, settings, fit)
    problems = []
    if option.spec.kind is Kind.TABLE and isinstance(fit, dict):
        wrong = wrong_entries(option.spec, fit)
        problems = [
            file.problem((*key, name), f"{path}.{one_line(written_key(name), 60)} {why}") for name, why in wrong.items()
        ]
        fit = {name: item for name, item in fit.items() if name not in wrong}
    return problems, changed_at(settings, key, fit)


def _instead(option: Option) -> str:
    """What happens without a setting that does not fit."""
    if option.default not in (None, "", ()):
        return f"the default, {written(option.default)}, is used"
    needed = option.holder[:1] == ("profiles",) and option.name == "base_url"
    return "the profile is left out" if needed else "it is left out"


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
            said = f'keys.{one_line(action, 60)} must be a text of keys, such as "ctrl+x, f5"; the default is used'
            problems.append(file.problem(("keys", *name), said))
    return problems, replace(settings, keys=keys)


def _profiles(file: TomlFile, settings: Settings) -> tuple[list[Problem], Settings]:
    """The profiles that have an address, in the order of the file; others are told and left out."""
    problems = []
    profiles = {}
    tables = file.values.get("profiles")
    for name, table in tables.items() if isinstance(tables, Mapping) else ():
        if not PROFILE_NAME.fullmatch(name) or not isinstance(table, Mapping):
            continue
        if name in settings.profiles and settings.profiles[name].base_url:
            profiles[name] = settings.profiles[name]
        elif table.get("base_url", "") == "":
            problems.append(file.problem(("profiles", name), f"profiles.{name} has no base_url; it is left out"))
    return problems, replace(settings, profiles=profiles)


def _commands(file: TomlFile, settings: Settings) -> tuple[list[Problem], Settings]:
    """Without the commands of a file that someone else may have written."""
    servers: dict[Key, ServerSettings] = {("server",): settings.server}
    servers |= {("profiles", name): server for name, server in settings.profiles.items()}
    keys = [(*section, "api_key_command") for section, server in servers.items() if server.api_key_command]
    why = _foreign(file.path) if keys else None
    if why is None:
        return [], settings
    for key in keys:
        settings = changed_at(settings, key, "")
    return [file.problem(key, f"{'.'.join(key)} is not used: {why}") for key in keys], settings


def _default_profile(file: TomlFile, settings: Settings) -> tuple[list[Problem], Settings]:
    if not (wrong := no_profile(settings)):
        return [], settings
    said = f"default_profile {wrong}; it is left out"
    return [file.problem(("default_profile",), said)], replace(settings, default_profile="")


def no_profile(settings: Settings) -> str | None:
    """What is wrong with the default profile; None: nothing."""
    name = settings.default_profile
    if not name or name in settings.profiles:
        return None
    near = nearest(name, settings.profiles)
    return f"names no profile that can be used: {one_line(name, 64)}" + (f" (did you mean {near}?)" if near else "")


def _foreign(path: Path) -> str | None:
    """Why a command in this file must not be run: someone else may have written it."""
    if not hasattr(os, "getuid"):
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_uid not in (os.getuid(), 0):
        return "the file belongs to another user"
    if status.st_mode & stat.S_IWOTH:
        return f"anyone may write to this file; run chmod go-w {path}"
    return None

"""From a settings file, the environment and the command line to `Settings`.

What is wrong becomes a `Problem`; nothing here raises on bad content. A default replaces a wrong matter of taste, but
never one that decides where a text goes: that bars the server that it names (`ServerSettings.wrong`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from kvchat.config.option import Option, OptionKind, UnfitError, fitted, from_text, wrong_entries
from kvchat.config.problem import Problem
from kvchat.config.server import PROFILE_NAME, ServerSettings
from kvchat.config.settings import BY_PATH, OPTIONS, Settings, changed, changed_at, opens, option_at
from kvchat.config.source import Key
from kvchat.config.toml import SIZE_LIMIT, TomlFile, read_toml, written, written_key
from kvchat.config.unknown import barred, nearest, unknown
from kvchat.paths import CONFIG_VARIABLE, DATA_VARIABLE
from kvchat.sanitize import one_line

_SHORT_VARIABLES = {"KVCHAT_BASE_URL": "server.base_url", "KVCHAT_MODEL": "server.model"}
_KEYS_DEPTH = 4
_DEFAULT_PROFILE: Key = ("default_profile",)
_PLACE_WORDS = {"HOST", "PORT", "ADDRESS", "PROFILE"}
_BARRED = "nothing is sent until that is corrected"


def load(path: Path) -> tuple[Settings, list[Problem]]:
    """The settings of a file and what is wrong in it. A file that does not exist has none."""
    file = read_toml(path, SIZE_LIMIT, _BARRED)
    settings, problems = Settings(), [structs.replace(problem, bars=WHOLE) for problem in file.problems]
    for key, value in _flat(file.values):
        problem, settings = _taken(file, settings, key, value)
        problems += problem
    for look in (_profiles, _commands, _default_profile):
        found, settings = look(file, settings)
        problems += found
    problems.sort(key=lambda p: (p.line or 0, p.column or 0))
    return _barred(settings, problems), problems


WHOLE: Key = ("server",)
"""What a settings file bars that cannot be read."""
UNREAD = ".".join(WHOLE)
"""Its name in `ServerSettings.wrong`."""


def _barred(settings: Settings, problems: Sequence[Problem]) -> Settings:
    """The settings with what is wrong with their servers."""
    for problem in problems:
        holder = problem.bars[:2] if problem.bars[:1] == ("profiles",) else WHOLE
        if problem.bars and (holder == WHOLE or holder[1] in settings.profiles):
            server = settings.server if holder == WHOLE else settings.profiles[holder[1]]
            wrong = {".".join(problem.bars): str(problem), **server.wrong}
            settings = changed_at(settings, (*holder, "wrong"), wrong)
        if problem.bars == _DEFAULT_PROFILE:
            settings = replace(settings, default_profile="")
    return settings


def effective(
    settings: Settings,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] | None = None,
) -> tuple[Settings, list[Problem]]:
    """The settings with those of the environment (KVCHAT_SERVER_MODEL, KVCHAT_THEME ...) and then those of the command
    line put over them. `overrides` has values by path (`server.model`); None is one that was not given."""
    problems: list[Problem] = []
    for name, option in _variables():
        if (given := env.get(name)) and (given.strip() or not option.spec.routes):
            try:
                settings = _given(settings, option, given)
            except UnfitError as unfit:
                problems.append(_unfit(name, option, unfit))
    problems += _unknown_variables(env)
    settings = _barred(settings, problems)
    for path, value in (overrides or {}).items():
        if value is None:
            continue
        try:
            settings = _given(settings, BY_PATH[path], value)
        except UnfitError as unfit:
            problems.append(Problem(None, None, None, f"{path} {unfit}; it is not used"))
    return settings, problems


def _unfit(name: str, option: Option, unfit: UnfitError) -> Problem:
    routes = option.spec.routes
    text = f"{name} {unfit}; {_BARRED if routes else 'it is not used'}"
    return Problem(None, None, None, text, option.key if routes else ())


def _unknown_variables(env: Mapping[str, str]) -> Iterator[Problem]:
    """The variables that are none and were probably meant to say where words go."""
    given = {name for name in env if name.startswith("KVCHAT_")} - {DATA_VARIABLE, CONFIG_VARIABLE}
    if not given:
        return
    routes = {name: option.spec.routes for name, option in _variables()} | {DATA_VARIABLE: True, CONFIG_VARIABLE: True}
    for name in sorted(given - routes.keys()):
        if name.endswith(("_KEY", "_TOKEN", "_SECRET")):
            continue  # a key, that api_key_env may name
        near = (nearest(name, map(str.lower, routes)) or "").upper()
        if routes.get(near) or not _PLACE_WORDS.isdisjoint(name.split("_")):
            meant = f" (did you mean {near}?)" if routes.get(near) else ""
            yield Problem(None, None, None, f"there is no variable {name}{meant}; {_BARRED}", (*WHOLE, name))


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
    if settings.server.wrong:
        settings = changed_at(settings, (*WHOLE, "wrong"), _still_wrong(settings.server.wrong, option, value))
    if option.path == "default_profile" and (wrong := no_profile(settings)):
        raise UnfitError(wrong)
    return settings


def _still_wrong(wrong: Mapping[str, str], given: Option, value: object) -> dict[str, str]:
    """What stays wrong with the server of the settings when a value is given for this run: an address overrides the
    default profile and the engine's model too, an empty one (`--model FILE`) all of the server."""
    settled = {given.path}
    if given.path == "server.base_url":
        settled = {given.path, "default_profile", "engine.model"} if value else wrong.keys() - {UNREAD}
    return {name: said for name, said in wrong.items() if name not in settled}


def _variables() -> Iterator[tuple[str, Option]]:
    for option in OPTIONS:
        if option.spec.kind not in (OptionKind.TABLE, OptionKind.KEYS, OptionKind.TEXTS):
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
        return [structs.replace(file.problem(key, unknown(key, value)), bars=barred(key, value))], settings
    try:
        fit = fitted(option.spec, value)
    except UnfitError as unfit:
        problem = file.problem(key, f"{path} {unfit}; {_instead(option)}")
        return [structs.replace(problem, bars=key if option.spec.routes else ())], settings
    if option.spec.kind is OptionKind.KEYS and isinstance(fit, Mapping):
        return _keys(file, settings, fit)
    problems = []
    if option.spec.kind is OptionKind.TABLE and isinstance(fit, dict):
        wrong = wrong_entries(option.spec, fit)
        problems = [
            file.problem((*key, name), f"{path}.{one_line(written_key(name), 60)} {why}") for name, why in wrong.items()
        ]
        fit = {name: item for name, item in fit.items() if name not in wrong}
    if option.spec.routes:
        problems = [structs.replace(problem, bars=key) for problem in problems]
    return problems, changed_at(settings, key, fit)


def _instead(option: Option) -> str:
    """What happens without a setting that does not fit."""
    if option.holder[:1] == ("profiles",) and option.name == "base_url":
        return "the profile is left out"
    if option.spec.routes:
        return _BARRED
    return "it is left out" if option.default in (None, "", ()) else f"the default, {written(option.default)}, is used"


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
    """The profiles that have an address, in the order of the file; others are problems and are left out."""
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
    return [
        structs.replace(file.problem(key, f"{'.'.join(key)} is not used: {why}"), bars=key) for key in keys
    ], settings


def _default_profile(file: TomlFile, settings: Settings) -> tuple[list[Problem], Settings]:
    if not (wrong := no_profile(settings)):
        return [], settings
    problem = file.problem(_DEFAULT_PROFILE, f"default_profile {wrong}; {_BARRED}")
    return [structs.replace(problem, bars=_DEFAULT_PROFILE)], settings


def no_profile(settings: Settings) -> str | None:
    """What is wrong with the default profile; None: nothing."""
    name = settings.default_profile
    if not name or name in settings.profiles:
        return None
    near = nearest(name, settings.profiles)
    return f"names no profile that can be used: {one_line(name, 64)}" + (f" (did you mean {near}?)" if near else "")


def _foreign(path: Path) -> str | None:
    """Why a command in this file must not be run: someone else may have written it."""
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_uid not in (os.getuid(), 0):
        return "the file belongs to another user"
    if status.st_mode & stat.S_IWOTH:
        return f"anyone may write to this file; run chmod go-w {path}"
    return None

"""The settings with where each comes from: the file, a variable of the environment, an option of the command line.

A variable or an option overrides the file for this run, whatever changes in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from kvchat.config.load import effective, load, variables_used
from kvchat.config.option import Option, OptionKind
from kvchat.config.problem import Problem
from kvchat.config.server import ServerSettings
from kvchat.config.settings import OPTIONS, Settings, changed_at, option_at, server_options, value_of
from kvchat.config.source import Key
from kvchat.config.toml import TomlFile, read_toml


class Layers(Struct, frozen=True):
    """The settings in force at the next start, and their origins."""

    settings: Settings
    problems: Sequence[Problem]
    file: TomlFile
    given: Mapping[str, str]
    """What gave a setting for this run, by its path: `--theme`, `KVCHAT_MODEL`. `server` covers all of its settings."""

    def given_by(self, option: Option) -> str:
        """The variable or option that gave a setting; empty: none did."""
        return self.given.get(option.path) or (self.given.get("server", "") if option.holder[:1] == ("server",) else "")

    @property
    def options(self) -> frozenset[str]:
        """The paths of the settings that options of the command line gave."""
        return frozenset(path for path, name in self.given.items() if name.startswith("--"))

    def line(self, key: Key) -> int | None:
        """The line of the file that sets `key`; None: none does."""
        keys = (key, (key[0], ".".join(key[1:]))) if key[0] == "keys" else (key,)
        found = next((entry for key in keys if (entry := self.file.source.entries.get(key))), None)
        return None if found is None else self.file.source.position(found.start)[0]

    def problem(self, key: Key) -> Problem | None:
        """What is wrong with the setting at `key` in the file, or below it."""
        line = self.line(key)
        return next(
            (
                problem
                for problem in self.problems
                if line is not None and problem.file == self.file.path and problem.line == line
            ),
            None,
        )

    def all(self) -> Iterator[Option]:
        """Every setting, in the order of the file: those of the servers that the user has named too, but for the
        keys, which stand one by one."""
        for option in OPTIONS:
            if option.spec.kind is not OptionKind.KEYS:
                yield option
            if option.key == _LAST_OF_SERVER:
                yield from (option for option in server_options(("server",)) if option.holder == _OWN_PARAMETERS)
                for name in self.settings.profiles:
                    yield from server_options(("profiles", name))

    def value(self, option: Option) -> object:
        """The value of a setting; its default where its profile is not there."""
        try:
            return value_of(self.settings, option)
        except KeyError:
            return option.default


_OWN_PARAMETERS = ("server", "parameters")
_LAST_OF_SERVER = [option.key for option in OPTIONS if option.section == "server"][-1]


def layered(path: Path, env: Mapping[str, str] = os.environ) -> Layers:
    """The settings of a file and of the environment, with where they come from."""
    settings, problems = load(path)
    whole, more = effective(settings, env)
    return Layers(whole, [*problems, *more], read_toml(path), variables_used(env))


AT_START = frozenset(
    {"plain", "mouse", "memory.folder", "documents.largest_file_mb", "documents.hidden", "documents.watch"}
)
_AT_START_SECTIONS = frozenset({"server", "profiles", "engine", "embeddings"})
_AT_ONCE = frozenset({"vision"})
"""What is in force at once of a server: it changes what is sent there, not how it is reached."""


def is_read_at_start(option: Option) -> bool:
    """Whether a setting is read once, when kvchat starts: the servers and files that it names are opened then."""
    return option.path in AT_START or (option.key[0] in _AT_START_SECTIONS and option.name not in _AT_ONCE)


def running(now: Settings, wanted: Settings) -> Settings:
    """The settings of a run that has `now`, when they are changed to `wanted`: what is read at the start stays."""
    for key in AT_START:
        option = option_at(tuple(key.split(".")))
        assert option is not None
        wanted = changed_at(wanted, option.key, value_of(now, option))
    profiles = {name: _seeing(server, wanted.profiles.get(name, server)) for name, server in now.profiles.items()}
    server = _seeing(now.server, wanted.server)
    return replace(wanted, server=server, profiles=profiles, engine=now.engine, embeddings=now.embeddings)


def _seeing(now: ServerSettings, wanted: ServerSettings) -> ServerSettings:
    return now if now.vision == wanted.vision else replace(now, vision=wanted.vision)

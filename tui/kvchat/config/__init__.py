"""Settings: a TOML file, the environment and the command line, and what is wrong in them."""

from __future__ import annotations

from kvchat.config.load import effective, load
from kvchat.config.option import Option, OptionKind
from kvchat.config.problem import ConfigError, Problem
from kvchat.config.secret import api_key
from kvchat.config.server import ServerSettings
from kvchat.config.settings import OPTIONS, EngineSettings, MemorySettings, Settings, changed, value_of
from kvchat.config.toml import TomlFile, problem_at, read_toml

__all__ = [
    "OPTIONS",
    "ConfigError",
    "EngineSettings",
    "MemorySettings",
    "Option",
    "OptionKind",
    "Problem",
    "ServerSettings",
    "Settings",
    "TomlFile",
    "api_key",
    "changed",
    "effective",
    "load",
    "problem_at",
    "read_toml",
    "value_of",
]

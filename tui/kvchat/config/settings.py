"""Every setting there is, with its default and its words for the person.

The rule: this module is the only list of settings. Keys for servers are never settings: only the name of an
environment variable or a command that prints one is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from urllib.parse import urlsplit

from kvchat.config.option import Kind, Option, Spec, flag, text, whole
from kvchat.prompt.request import RESERVED, Parameters


def _address(value: str) -> str | None:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if value and (not usable or not value.isprintable() or " " in value):
        return 'must be an address such as "http://127.0.0.1:8080"'
    return None


def _proxy(value: str) -> str | None:
    if value and not re.fullmatch(r"(?:https?|socks5h?)://[^\s/]+/?", value):
        return 'must be an address such as "http://127.0.0.1:3128"'
    return None


def _variable(value: str) -> str | None:
    if value and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return "must be the name of an environment variable, not the key itself"
    return None


def _command(value: str) -> str | None:
    try:
        shlex.split(value)
    except ValueError:
        return "has a quote that is not closed"
    return None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The model server to talk to."""

    base_url: str = text(
        "", "The server's address. Empty: a server on this machine, else the built-in engine.", _address,
        example="http://127.0.0.1:8080", shown=False)
    model: str = text("", "The model to ask for, as the server names it. Empty: the one it has loaded.",
                      example="qwen3-8b")
    api_key_env: str = text(
        "", "The name of the environment variable that holds the server's API key. The key itself is never kept.",
        _variable, example="KVCHAT_API_KEY", shown=False)
    api_key_command: str = text(
        "", "A command that prints the API key, as a password manager has one. It is run without a shell.", _command,
        example="pass show llm/key", shown=False)
    ca_file: str = text("", "A file of certificates to trust for https, in PEM form. Empty: the usual ones.",
                        example="~/certificates/home.pem")
    proxy: str = text("", "The proxy to reach the server through. Proxy variables of the environment are not used.",
                      _proxy, example="http://127.0.0.1:3128", shown=False)
    allow_plain_http_key: bool = flag(
        False, "Send the API key over http without encryption to a server on another machine.")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The built-in engine, used when no server answers."""

    model: str = text("", "The model file to load (GGUF).", example="~/models/qwen3-1.7b-q4_k_m.gguf")
    context_size: int = whole(
        0, "Tokens that fit in one conversation; more take more memory. 0: what the model was made for, at most 8192.",
        0, 1 << 20)
    slots: int = whole(1, "Conversations the engine keeps ready at the same time. Each takes memory.", 1, 64)
    threads: int = whole(0, "Threads to compute with. 0: decided by the machine's cores.", 0, 1024)
    batch_size: int = whole(
        512, "Tokens read at one go. Smaller: Esc stops the reading sooner. Larger: long prompts are read faster.",
        16, 8192)
    snapshots: bool = flag(True, "Keep what was read on disk, so that it need not be read again after a restart.")


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How the server's cache is looked after."""

    warm_up: bool = flag(
        True, "Read a conversation ahead while you look at it or type, so that the answer starts at once.")
    warm_up_on_battery: bool = flag(False, "Read ahead on battery power too.")
    detour: bool = flag(
        True, "Send a tiny request in between where that makes the server find a conversation it has parked.")
    salt: bool = flag(
        True, "Begin a new conversation's system prompt with a short tag where the server would otherwise put all "
              "conversations into one slot, and that costs more than reading the system prompt once.")
    compact_at: int = whole(85, "Percent of the window from which compacting the conversation is offered.", 30, 99)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run."""

    theme: str = text("kvchat-night", "The colours. The palette (Ctrl+P) lists the themes and shows each.")
    enter_sends: bool = flag(
        True, "Enter sends and Ctrl+J makes a new line; false: Enter makes a new line and Ctrl+J sends.")
    sidebar: bool = flag(True, "Show the list of conversations beside the conversation, where the window has room.")
    show_reasoning: bool = flag(False, "Show a model's reasoning unfolded.")
    time_stamp: bool = flag(
        True, "Tell the model the time: one line in a message, never in the system prompt, so that nothing is read "
              "again for it.")
    time_stamp_minutes: int = whole(
        10, "Minutes after which a message carries the time again. It always does when the date has changed.", 1, 10080)
    system_prompt: str = text(
        "", "The instructions that new conversations begin with. Empty: a short standard one.",
        example="Answer briefly.")
    editor: str = text("", "The editor for long messages (Ctrl+G). Empty: $VISUAL, else $EDITOR.", _command,
                       example="nano")
    mouse: bool = flag(True, "Use the mouse. false: the terminal selects text as usual.")
    notify: bool = flag(True, "Ring the terminal's bell when an answer ends while the window is not looked at.")
    server: ServerSettings = field(default_factory=ServerSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    parameters: Parameters = field(default_factory=Parameters)
    """Sampling parameters of new conversations."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys by action, where they differ from the defaults: `{"export": "f4,ctrl+e"}`."""


SECTIONS = {
    "server": "The model server. Options of the command line and KVCHAT_ variables come before these.",
    "engine": "The built-in engine, used when no server answers.",
    "cache": "How the server's cache is looked after.",
    "parameters": "How answers are sampled in new conversations. What is left out, the server decides.",
    "parameters.extra": "Further fields to send with each request, as they are.",
    "keys": "Keys of actions; several are separated by commas. The help (F1) has the names and the defaults.",
}

_PARAMETERS = {
    "temperature": Spec(Kind.NUMBER, "0 always takes the likeliest word; higher is freer.", 0, 5, example=0.7),
    "top_p": Spec(Kind.NUMBER, "Only the likeliest words that make up this share are considered.", 0, 1, example=0.95),
    "top_k": Spec(Kind.WHOLE, "Only this many of the likeliest words are considered. 0: all.", 0, 1 << 20, example=40),
    "min_p": Spec(Kind.NUMBER, "Words less likely than this share of the likeliest are left out.", 0, 1, example=0.05),
    "presence_penalty": Spec(Kind.NUMBER, "Above 0: avoids words that were said.", -2, 2, example=0.0),
    "frequency_penalty": Spec(Kind.NUMBER, "Above 0: avoids words the more often they were said.", -2, 2, example=0.0),
    "repeat_penalty": Spec(Kind.NUMBER, "Above 1: avoids repetition (llama.cpp).", 0, 10, example=1.0),
    "seed": Spec(Kind.WHOLE, "The same seed gives the same answer, on most servers.", -1, 2**32 - 1, example=42),
    "max_tokens": Spec(Kind.WHOLE, "An answer stops after this many tokens.", 1, 10_000_000, example=1024),
    "stop": Spec(Kind.TEXTS, "An answer stops before any of these texts.", example=["###"]),
    "extra": Spec(Kind.TABLE, SECTIONS["parameters.extra"] + f" Not: {', '.join(sorted(RESERVED))}."),
}


def _options() -> tuple[Option, ...]:
    defaults = Settings()
    found = [Option("", item.name, item.default, item.metadata["spec"])
             for item in fields(Settings) if "spec" in item.metadata]
    for name, section in (("server", defaults.server), ("engine", defaults.engine), ("cache", defaults.cache)):
        found += [Option(name, item.name, item.default, item.metadata["spec"]) for item in fields(section)]
    found += [Option("parameters", name, getattr(defaults.parameters, name), spec)
              for name, spec in _PARAMETERS.items()]
    return (*found, Option("", "keys", {}, Spec(Kind.KEYS, SECTIONS["keys"])))


OPTIONS = _options()
"""Every setting, in the order of the file."""
BY_PATH: Mapping[str, Option] = {option.path: option for option in OPTIONS}


def value_of(settings: Settings, option: Option) -> object:
    """The value of a setting."""
    holder = getattr(settings, option.section) if option.section else settings
    found: object = getattr(holder, option.name)
    return found


def changed(settings: Settings, path: str, value: object) -> Settings:
    """The settings with one of them changed; `value` must be fitted. Raises KeyError for an unknown path."""
    from dataclasses import replace

    option = BY_PATH[path]
    if not option.section:
        return replace(settings, **{option.name: value})  # type: ignore[arg-type]
    holder = getattr(settings, option.section)
    assert is_dataclass(holder) and not isinstance(holder, type)
    return replace(settings, **{option.section: replace(holder, **{option.name: value})})  # type: ignore[arg-type]

"""The settings of one model server: of `[server]`, and of each profile.

A profile has exactly the settings of `[server]`. Keys for servers are never settings: only where one is to
be had is: an environment variable's name, an entry of the keyring, or a command that prints it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from kvchat.config.option import choice, flag, one_of, table, text, texts, whole
from kvchat.prompt.request import Parameters, reserved
from kvchat.sanitize import one_line

PROFILE_NAME = re.compile(r"(?!.*\.gguf\Z)[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
"""What a profile may be called; never as a model file is, whose path can stand in the same places."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")
_OWN_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of the connection and of the body's form, which kvchat sends as they must be."""
_NO_SESSION = frozenset({"accept", "authorization", "cookie", "user-agent", "x-request-id"})
"""Headers that cannot carry a session's id; a request's id must differ from request to request."""
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SESSION_FIELDS = frozenset({"session_id", "prompt_cache_key", "litellm_session_id", "cache_salt", "extra_key"})
"""Fields closed to parameters that may carry a session's id: it stays the same as long as the conversation lives."""
_DURATION = re.compile(r"-?(?:\d{1,9}|(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h))+)")


def _kinds() -> tuple[str, ...]:
    from kvchat.backends.kinds import KINDS  # hardly ever set

    return "", *KINDS


def _is_kind(value: str) -> str | None:
    return one_of(_kinds())(value)


def _address(value: str) -> str | None:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if value and (not usable or not value.isprintable() or " " in value):
        return 'must be an address such as "http://127.0.0.1:9931"'
    return None


def _proxy(value: str) -> str | None:
    if value and not re.fullmatch(r"(?:https?|socks5h?)://[^\s/]+/?", value):
        return 'must be an address such as "http://127.0.0.1:3128"'
    return None


def _variable(value: str) -> str | None:
    if value and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return "must be the name of an environment variable, not the key itself"
    return None


def tool_name(name: str) -> str | None:
    """The check of a tool's or a group's name. Those of MCP servers are known by their file alone."""
    return None if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name.strip()) else "must be the name of a tool or of a group"


def command(value: str) -> str | None:
    """The check of a command line."""
    try:
        shlex.split(value)
    except ValueError:
        return "has a quote that is not closed"
    return None


def _keyring(value: str) -> str | None:
    service, slash, user = value.rpartition("/")
    if value and not (service and slash and user and value.isprintable()):
        return 'must be the service and the user name of the key, such as "llm/me", not the key itself'
    return None


def _duration(value: str) -> str | None:
    if value and not _DURATION.fullmatch(value):
        return 'must be a time such as "30m" or "24h", seconds such as "600", or "-1" for ever'
    return None


def _header_name(value: str) -> str | None:
    if not _HEADER.fullmatch(value):
        return "is no name that a header can have"
    if value.lower() in _OWN_HEADERS:
        return "cannot be set: kvchat sends this header itself"
    if value.lower() == "x-conversation-id":
        return "cannot be set: with it, llama.cpp goes on with an answer that was stopped"
    return None


def _header(name: str, value: object) -> str | None:
    if wrong := _header_name(name):
        return wrong
    if not isinstance(value, str):
        return "must be a text in quotes"
    if not _HEADER_VALUE.fullmatch(value) or len(value) > 8192:
        return "must be a text of one line, of plain ASCII characters, without spaces at its ends"
    return None


def _session_header(value: str) -> str | None:
    if _header_name(value) or value.lower() in _NO_SESSION:
        return f'must hold names of headers, such as "X-Session-ID"; "{one_line(value, 40)}" cannot be one of them'
    return None


def _session_field(value: str) -> str | None:
    closed = value not in _SESSION_FIELDS and (reserved(value) is not None or value in Parameters.__struct_fields__)
    if closed or not _FIELD.fullmatch(value):
        return f'must hold names of fields, such as "session_id"; "{one_line(value, 40)}" cannot be one of them'
    return None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A model server to talk to."""

    base_url: str = text(
        "",
        "The server's address. Empty: a server on this machine, else the built-in engine.",
        _address,
        example="http://127.0.0.1:9931",
        shown=False,
        routes=True,
    )
    model: str = text(
        "",
        "The model to ask for, as the server names it. Empty: the one it has loaded.",
        example="qwen3-8b",
        routes=True,
    )
    kind: str = text(
        "",
        "The server kind: llama.cpp, ollama, vllm … (a wrong one lists all). Empty: found out by its answers.",
        _is_kind,
        example="ollama",
        words=_kinds,
        routes=True,
    )
    api_key_env: str = text(
        "",
        "The name of the environment variable that holds the server's API key. The key itself is never kept.",
        _variable,
        example="KVCHAT_API_KEY",
        shown=False,
        routes=True,
    )
    api_key_command: str = text(
        "",
        "A command that prints the API key, as a password manager has one. It is run without a shell.",
        command,
        example="pass show llm/key",
        shown=False,
        routes=True,
    )
    api_key_keyring: str = text(
        "",
        "Where the system's keyring has the API key: service/username, as `keyring set SERVICE USERNAME` stored "
        "it. Needs the package keyring.",
        _keyring,
        example="llm/me",
        shown=False,
        routes=True,
    )
    headers: Mapping[str, str] = table(
        "Headers to send with every request to this server, to no other one. `kvchat config show` hides their values.",
        _header,
        example={"X-Team": "research"},
    )
    ca_file: str = text(
        "",
        "A file of certificates to trust for https, in PEM form. Empty: the usual ones.",
        example="~/certificates/home.pem",
        routes=True,
    )
    proxy: str = text(
        "",
        "The proxy to reach the server through. Proxy variables of the environment are not used.",
        _proxy,
        example="http://127.0.0.1:3128",
        shown=False,
        routes=True,
    )
    allow_plain_http_key: bool = flag(
        False, "Send the API key over http without encryption to a server on another machine."
    )
    locality: Literal["auto", "local", "cloud"] = choice(
        "auto",
        "local: a server on the internet that is your own; cloud: never taken for local; auto: by its address.",
        ("auto", "local", "cloud"),
        routes=True,
    )
    timeout: int = whole(0, "Seconds to wait for a connection. 0: 2 on this machine, else 5.", 0, 600)
    session_headers: tuple[str, ...] | None = texts(
        "The headers that tell a router which conversation it is, so that it stays on the replica that holds its "
        "cache. Left out: the usual ones, to local servers only; []: none.",
        _session_header,
        example=("X-Session-ID",),
    )
    session_fields: tuple[str, ...] | None = texts(
        "The fields of a request that tell it. Left out: what this kind of server knows; []: none.",
        _session_field,
        example=("session_id",),
    )
    context_size: int = whole(
        0,
        "Tokens of the window to ask for with each request, where the server takes that (Ollama's num_ctx). 0: the "
        "server's own.",
        0,
        1 << 24,
    )
    vision: Literal["auto", "yes", "no"] = choice(
        "auto",
        "Whether the server's models see images. auto: as the server says; yes: also where it says nothing.",
        ("auto", "yes", "no"),
    )
    keep_alive: str = text(
        "",
        "How long the model stays loaded, where the server takes that with a request (Ollama, LM Studio). Empty: "
        "the server's own.",
        _duration,
        example="30m",
    )
    tools: tuple[str, ...] | None = texts(
        "The tools that the model may call in new conversations on this server. Left out: the general ones; []: none.",
        tool_name,
        example=("files",),
    )
    snapshots: bool = flag(
        True,
        "Let a llama-server that was started with --slot-save-path save the states of conversations in its "
        "folder, so that a return to one prefills nothing. It cannot delete them: up to 8 files stay there.",
    )
    snapshot_folder: str = text(
        "",
        "That folder, where it is on this machine: its files are then checked by digest, and go with their "
        "conversations.",
        example="~/slots",
    )
    parameters: Parameters = field(default_factory=Parameters)
    """Sampling parameters of new conversations on this server, put over the general ones."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with how this server was named, by the setting that says it: while there is something, nothing is
    sent by these settings. No setting itself."""

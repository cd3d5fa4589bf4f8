"""The MCP servers that the user has configured: the `mcpServers` file that other programs read too."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.sanitize import one_line

LARGEST = 1 << 20
"""Bytes of the file."""
_VARIABLE = compiled_later(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class McpError(Exception):
    """Why a server gave nothing, as a sentence."""


class McpRefusedError(McpError):
    """A server's own answer: an error of its protocol, or a status that is one."""


class McpServer(Struct, frozen=True):
    """One server: a program, or an address."""

    name: str
    command: tuple[str, ...] = ()
    """Empty: it is at `url`."""
    env: Mapping[str, str] = {}
    folder: str = ""
    """Where the program starts; empty: in the home folder, wherever kvchat did: a name in the command line would be
    another file in each folder."""
    url: str = ""
    headers: Mapping[str, str] = {}
    fault: str = ""
    """Why it cannot be used, as a sentence."""

    @property
    def shown(self) -> str:
        """The command line whole, with the names of variables that it is given, or the address without what may be a
        key."""
        if self.fault:
            return self.fault
        if not self.command:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        where = f" (in {self.folder})" if self.folder else ""
        return " ".join([*(f"{name}=…" for name in sorted(self.env)), shlex.join(self.command)]) + where

    @property
    def digest(self) -> str:
        """Of all that decides what is started; another one needs another yes."""
        said = json.dumps([self.command, sorted(self.env.items()), self.folder])
        return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()


def read_servers(file: Path) -> dict[str, McpServer]:
    """The servers of a file by their names, those that are switched off left out, those that are wrong with their
    fault; none where there is no file. Raises McpError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise McpError(f"{file} cannot be read: {error.strerror}.") from None
    if len(data) > LARGEST:
        raise McpError(f"{file} has more than 1 MB: that is no file of MCP servers.")
    try:
        found = json.loads(data)
    except json.JSONDecodeError as error:
        raise McpError(f"{file} is not JSON: line {error.lineno}: {error.msg}.") from None
    except (ValueError, RecursionError):
        raise McpError(f"{file} is not JSON.") from None
    servers = found.get("mcpServers", found.get("servers")) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise McpError(f'{file} has no table "mcpServers".')
    read: dict[str, McpServer] = {}
    for name, given in servers.items():
        try:
            if (server := _server(file, name, given)) is not None:
                read[name] = server
        except McpError as error:
            read[name] = McpServer(name, fault=str(error))
    return read


def _server(file: Path, name: str, given: object) -> McpServer | None:
    where = f"{file}: the server {one_line(name, 40)}"
    if not isinstance(given, dict):
        raise McpError(f"{where} is no table.")
    if given.get("disabled") is True or given.get("enabled") is False:
        return None
    command, url = given.get("command"), given.get("url", given.get("serverUrl"))
    arguments = given.get("args", [])
    if isinstance(command, str) and command.strip() and isinstance(arguments, list):
        line = tuple(_filled(one, where) for one in (command, *map(str, arguments)))
        folder = given.get("cwd")
        return McpServer(name, line, _texts(given, "env", where), _filled(folder, where) if folder else "")
    if isinstance(url, str) and _is_address(url := _filled(url, where)):
        return McpServer(name, url=url, headers=_texts(given, "headers", where))
    raise McpError(f"{where} has neither a command, with its args as a list, nor a url.")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _texts(given: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    found = given.get(key) or {}
    if not isinstance(found, dict):
        raise McpError(f"{where}: {key} is no table.")
    return {str(name): _filled(value, where) for name, value in found.items()}


def _filled(value: object, where: str) -> str:
    """A value with the variables of the environment that it names. Raises McpError for one that is not set."""
    text = str(value)
    for found in _VARIABLE.finditer(text):
        if found[1] not in os.environ and found[2] is None:
            raise McpError(f"{where} names the environment variable {found[1]}, which is not set.")
    return _VARIABLE.sub(lambda found: os.environ.get(found[1], found[2] or ""), text)

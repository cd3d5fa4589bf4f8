"""The MCP servers that the user has configured: the `mcpServers` file that other programs read too.

It is read as editors and other programs write it: with comments and commas too many, with `~` and variables in its
values, with a whole command line as the command. What is shown, agreed to and started is what comes out of that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.sanitize import one_line

LARGEST = 1 << 20
"""Bytes of the file."""
LONGEST_TIMEOUT = 3600.0
"""Seconds; a larger `timeout` is in milliseconds."""
_VARIABLE = compiled_later(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$([A-Z_][A-Z0-9_]*)")
_INPUT = compiled_later(r"\$\{(?:input|command|config):([^}]*)\}")
_COMMENT = compiled_later(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = compiled_later(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_HTTP = ("http", "https", "sse", "streamable-http", "streamablehttp", "streamable_http", "remote")
"""Types of an entry, as programs write them, that say that it is at its address."""


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
    timeout: float | None = None
    """Seconds that a call may take without a sign of progress; None: the usual."""
    fault: str = ""
    """Why it cannot be used, as a sentence."""
    is_off: bool = False
    """Whether that is because its entry says so."""

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
    """The servers of a file by their names, those that are wrong with their fault; none where there is no file, or
    nothing in it. Raises McpError."""
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
        text = _plain_json(data.decode(json.detect_encoding(data)))
        found = json.loads(text) if text.strip() else {"mcpServers": {}}
    except json.JSONDecodeError as error:
        raise McpError(f"{file} is not JSON: line {error.lineno}: {error.msg}.") from None
    except (ValueError, RecursionError):
        raise McpError(f"{file} is not JSON.") from None
    if (servers := _table(found)) is None:
        raise McpError(f'{file} has no table "mcpServers".')
    read: dict[str, McpServer] = {}
    for name, given in servers.items():
        try:
            read[name] = _server(file, name, given)
        except McpError as error:
            read[name] = McpServer(name, fault=str(error))
    return read


def _plain_json(text: str) -> str:
    """JSON without the comments and the trailing commas that editors let stand, its lines as they were."""

    def blank(found: re.Match[str]) -> str:
        return found[1] or "\n" * found[0].count("\n")

    return _COMMA.sub(blank, _COMMENT.sub(blank, text))


def _table(found: object) -> Mapping[str, Any] | None:
    """The servers of a file, by the name that one of the programs that share it gives their table."""
    if not isinstance(found, dict):
        return None
    inner = found.get("mcp")
    tables = (found.get("mcpServers"), found.get("servers"), inner.get("servers") if isinstance(inner, dict) else None)
    return next((one for one in tables if isinstance(one, dict)), None)


def _server(file: Path, name: str, given: object) -> McpServer:
    where = f"{file}: the server {one_line(name, 40)}"
    if not isinstance(given, dict):
        raise McpError(f"{where} is no table.")
    for key, value in (("disabled", True), ("enabled", False)):
        if given.get(key) is value:
            fault = f'{where} is switched off: "{key}" is {json.dumps(value)}. Change that to use it.'
            return McpServer(name, fault=fault, is_off=True)
    url = next((found for key in ("url", "serverUrl", "httpUrl") if (found := given.get(key))), None)
    kind = str(given.get("type") or given.get("transport") or "").lower()
    if (line := _line(given, where)) and not (url and kind in _HTTP):
        folder = _filled(cwd, where) if (cwd := given.get("cwd")) else ""
        if folder and not Path(folder).is_absolute():
            folder = str(Path.home() / folder)
        return McpServer(name, line, _texts(given, "env", where), folder, timeout=_timeout(given))
    if isinstance(url, str) and _is_address(url := _filled(url, where)):
        return McpServer(name, url=url, headers=_texts(given, "headers", where), timeout=_timeout(given))
    if url:
        raise McpError(f"{where} has a url that is no address: it begins with http:// or https://.")
    raise McpError(f"{where} has neither a command nor a url. Give it one of them.")


def _line(given: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The command line of an entry; empty: it has none. Raises McpError."""
    command, arguments = given.get("command"), given.get("args")
    rest: list[str] = []
    if isinstance(command, list):
        first = [_text(one, "command", where) for one in command]
    elif isinstance(command, str) and command.strip():
        first = [command]
    else:
        return ()
    try:
        if isinstance(arguments, str):
            rest = shlex.split(arguments)
        elif isinstance(arguments, list):
            rest = [_text(one, "args", where) for one in arguments if one is not None]
        elif arguments is not None:
            raise McpError(f"{where}: args is neither a list nor a text.")
        first = [_filled(one, where) for one in first]
        if len(first) == 1 and len(first[0].split()) > 1 and shutil.which(first[0]) is None:
            first = [_filled(one, where) for one in shlex.split(str(command))]  # a whole command line
    except ValueError:
        raise McpError(f"{where}: its command line has a quotation mark without its other one.") from None
    return (*first, *(_filled(one, where) for one in rest))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _timeout(given: Mapping[str, Any]) -> float | None:
    """Seconds: programs that read such files take them as they are (up to an hour), or milliseconds."""
    found = given.get("timeout")
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < float("inf"):
        return None
    return min(LONGEST_TIMEOUT, found if found <= LONGEST_TIMEOUT else found / 1000)


def _texts(given: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    """A table of texts; what is null is left out. Raises McpError."""
    found = given.get(key) or {}
    if not isinstance(found, dict):
        raise McpError(f"{where}: {key} is no table.")
    texts = {str(name): _text(value, key, where) for name, value in found.items() if value is not None}
    return {name: _filled(value, where) for name, value in texts.items()}


def _text(value: object, key: str, where: str) -> str:
    """A text; numbers and truth values as JSON writes them. Raises McpError."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return json.dumps(value)
    raise McpError(f"{where}: {key} has a value that is neither text nor a number, true or false.")


def _filled(value: object, where: str) -> str:
    """A value with the home folder for `~`, and with the variables of the environment that it names: `${NAME}`,
    `${NAME:-otherwise}`, and `$NAME` where that is set. Raises McpError for one that is not."""
    text = str(value)
    if found := _INPUT.search(text):
        raise McpError(
            f"{where} asks for the input {one_line(found[1], 40)}, which kvchat does not have: write the value, or "
            "${NAME} for a variable of the environment."
        )

    def fill(found: re.Match[str]) -> str:
        name, otherwise, bare = found.groups()
        if bare:
            return os.environ.get(bare, found[0])
        if name == "userHome":
            return str(Path.home())
        if name not in os.environ and otherwise is None:
            raise McpError(
                f"{where} names the environment variable {name}, which is not set. Set it before kvchat starts, or "
                f"write ${{{name}:-otherwise}}."
            )
        return os.environ.get(name, otherwise or "")

    text = _VARIABLE.sub(fill, text)
    before, equals, path = text.partition("=")
    if equals and before.startswith("-") and path.startswith("~/"):
        return f"{before}={_at_home(path)}"
    return _at_home(text)


def _at_home(text: str) -> str:
    return f"{Path.home()}{text[1:]}" if text == "~" or text.startswith("~/") else text

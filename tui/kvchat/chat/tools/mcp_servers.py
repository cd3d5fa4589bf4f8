"""The tools of the user's MCP servers: found, named, listed and called.

What a server listed is kept in the store, so a conversation begins with its tools before the server runs, and with the
same bytes whatever order it lists them in. A program is started only after the user's yes to its command line.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kvchat.chat.errors import ChatError
from kvchat.chat.events import Noticed
from kvchat.chat.ground import Ground
from kvchat.chat.tools.tool import ToolError, must_be_shown, shown_address
from kvchat.mcp.configured import McpError, McpServer, read_servers
from kvchat.prompt.context import RESULT, ContextBlock, guarded
from kvchat.prompt.offered_tools import own_tools
from kvchat.prompt.tools import Permission, ToolDefinition
from kvchat.prompt.wire import canonical
from kvchat.sanitize import one_line
from kvchat.text.problems import ChatProblem
from kvchat.values import decode, encode

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.mcp.client import McpClient

STARTS_S = 60.0
"""Seconds that a server may take to start and to list its tools: some fetch themselves first."""
MOST_TOOLS = 128
LONGEST_CALL = 20_000
"""Characters of the arguments of a call, as JSON."""
LONGEST_NAME = 64
AGREED = "programs agreed"
"""The setting of the store with the digests of the command lines that the user agreed to: a JSON list."""
LISTED = "tools listed "
"""Begins the settings of the store with what a server listed."""


class ListedTool(Struct, frozen=True):
    """A tool of a server."""

    own_name: str
    """As the server calls it."""
    definition: ToolDefinition


class McpServers:
    """The servers of the user's file."""

    def __init__(self, ground: Ground, usual_file: Path | None) -> None:
        """`usual_file`: where the settings name none."""
        self._ground = ground
        self._usual_file = usual_file
        self._clients: dict[str, tuple[McpServer, McpClient]] = {}
        self._lists: dict[str, tuple[ListedTool, ...]] = {}
        self._agreed: set[str] = set()
        """Digests of this run."""

    def configured(self) -> dict[str, McpServer]:
        """The servers of the file, by the names that stand for all of their tools. Raises ChatError."""
        named = self._ground.settings.mcp_file
        try:
            file = Path(named).expanduser() if named else self._usual_file
            return {} if file is None else {group_name(one.name): one for one in read_servers(file).values()}
        except (McpError, RuntimeError) as error:  # `~` of a user that there is not
            raise ChatError(ChatProblem.TOOL_SERVERS, why=str(error)) from None

    def known(self) -> dict[str, McpServer]:
        """Those that are not switched off, to choose from: a file that cannot be read is told, and has none."""
        try:
            return {name: one for name, one in self.configured().items() if not one.is_off}
        except ChatError as error:
            self._ground.events.tell(Noticed(str(error), "warning"))
            return {}

    def named(self, name: str) -> list[ToolDefinition]:
        """The tools of this name, of a server or of one tool of one, as they were listed last; none: there is none.
        Raises ChatError where a server was never asked for its tools."""
        if (group := self.group_of(name)) is None:
            return []
        if (server := self.configured()[group]).is_off:
            raise ChatError(ChatProblem.TOOL_SERVERS, why=server.fault)
        if not (listed := self._listed(group)):
            raise ChatError(ChatProblem.TOOLS_NOT_LISTED, name=group)
        tools = [one.definition for one in listed]
        return tools if name.strip().lower() == group else [one for one in tools if one.name == name.strip()]

    def group_of(self, name: str) -> str | None:
        """The server that a name stands for, or belongs to."""
        if own_tools(name):
            return None
        given = name.strip().lower()
        return max((one for one in self.configured() if f"{given}__".startswith(f"{one}__")), key=len, default=None)

    def behind(self, names: Sequence[str]) -> dict[str, McpServer]:
        """The servers behind these names. Raises ChatError."""
        groups = set(filter(None, map(self.group_of, names)))
        return {name: server for name, server in self.configured().items() if name in groups} if groups else {}

    # -- the user's word

    def to_agree(self, names: Sequence[str]) -> dict[str, McpServer]:
        """The servers behind these names whose command line the user has not agreed to. Raises ChatError."""
        return {name: one for name, one in self.behind(names).items() if not self.may_start(one)}

    async def agree(self, server: McpServer, *, keep: bool = True) -> None:
        """The user's yes to a command line. Without `keep`, and in an incognito run, for this one only; what is kept
        is read again each time, for another window may take it back."""
        if keep and not self._ground.incognito:
            await self._ground.keep_setting(AGREED, json.dumps(sorted({*self._kept(), server.digest})))
        else:
            self._agreed.add(server.digest)

    async def forget(self) -> None:
        """Take back every yes to a command line; what runs goes on until kvchat ends."""
        self._agreed.clear()
        await self._ground.keep_setting(AGREED, None)

    def may_start(self, server: McpServer) -> bool:
        """Whether a server is none that is started, or the user agreed to its command line."""
        return not server.command or server.digest in self._agreed or server.digest in self._kept()

    def _kept(self) -> list[str]:
        try:
            found = decode(self._ground.setting(AGREED) or "[]", list[str])
        except ValueError:
            return []
        return found

    # -- what they list

    async def list_tools(self, names: Sequence[str]) -> None:
        """Ask the servers behind these names for their tools. Raises ChatError."""
        for group, server in self.behind(names).items():
            await self._list(group, server)

    async def _list(self, group: str, server: McpServer) -> None:
        if server.fault:
            raise ChatError(ChatProblem.TOOL_SERVERS, why=server.fault)
        if not self.may_start(server):
            raise ChatError(ChatProblem.TOOLS_NOT_LISTED, name=group)
        try:
            async with asyncio.timeout(STARTS_S):
                found = await self._client(group, server).tools()
        except McpError as error:
            raise ChatError(ChatProblem.TOOL_SERVER_FAILED, name=group, why=str(error)) from None
        except TimeoutError:
            why = f"It did not answer for {STARTS_S:.0f} seconds."
            raise ChatError(ChatProblem.TOOL_SERVER_FAILED, name=group, why=why) from None
        listed = {one.definition.name: one for one in filter(None, (_listed(group, one) for one in found))}
        if not listed:
            raise ChatError(ChatProblem.TOOL_SERVER_FAILED, name=group, why="It has no tool that can be offered.")
        self._lists[group] = tuple(listed[name] for name in sorted(listed)[:MOST_TOOLS])
        if not self._ground.incognito:
            await self._ground.keep_setting(LISTED + group, encode(self._lists[group]))

    def _listed(self, group: str) -> tuple[ListedTool, ...]:
        if group not in self._lists:
            try:
                kept = decode(self._ground.setting(LISTED + group) or "[]", tuple[ListedTool, ...])
            except (ValueError, RecursionError):
                kept = ()
            self._lists[group] = kept
        return self._lists[group]

    def _client(self, group: str, server: McpServer) -> McpClient:
        """The client of a server as it is configured now."""
        before = self._clients.get(group)
        if before is not None and before[0] == server:
            return before[1]
        from kvchat.mcp.client import McpClient

        if before is not None:
            self._ground.in_background(before[1].aclose())
        if server.command:
            from kvchat.mcp.stdio import StdioTransport

            client = McpClient(StdioTransport(server))
        else:
            from kvchat.mcp.streamable_http import StreamableHttpTransport

            client = McpClient(StreamableHttpTransport(server))
        self._clients[group] = server, client
        return client

    # -- calls

    def tool(self, name: str) -> McpTool | None:
        """What carries out the calls of a tool; None: it is gone."""
        for group, server in self.known().items():
            for one in self._listed(group) if name.startswith(f"{group}__") else ():
                if one.definition.name == name:
                    return McpTool(self, group, server, one)
        return None

    async def call(self, group: str, server: McpServer, own_name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a call. Raises McpError."""
        return await self._client(group, server).call(own_name, given)

    async def aclose(self) -> None:
        """End the programs and the sessions."""
        await asyncio.gather(*(client.aclose() for _, client in self._clients.values()), return_exceptions=True)
        self._clients.clear()


class McpTool:
    """Carries out the calls of one tool of a server."""

    def __init__(self, servers: McpServers, group: str, server: McpServer, listed: ListedTool) -> None:
        self._servers = servers
        self._group = group
        self._server = server
        self._listed = listed

    def permission(self, given: Mapping[str, Any]) -> Permission:
        if not self._servers.may_start(self._server):
            raise ToolError(
                f"The command line of the MCP server {self._group} is not agreed to. The user can do that with "
                f"/tools {self._group}."
            )
        if self._server.fault:
            raise ToolError(self._server.fault)
        must_be_shown(json.dumps(given, ensure_ascii=False), LONGEST_CALL)
        where = f"the MCP server {self._group}" if self._server.command else shown_address(self._server.shown)
        definition = self._listed.definition
        terms = f"{self._server.digest} {self._server.url} {canonical(definition.wire()).decode()}"
        return Permission(definition.name, goes_to=where, group=self._group, terms=terms)

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        try:
            result = await self._servers.call(self._group, self._server, self._listed.own_name, given)
        except McpError as error:
            raise ToolError(str(error)) from None
        if result.get("resultType") == "input_required":
            raise ToolError(f"{self._group} asks for more than a call brings, and kvchat gives no more.")
        text = "\n\n".join(filter(None, map(_text, _items(result)))) or _structured(result)
        if result.get("isError") is True:
            text = f"The call failed. {text}"
        return [ContextBlock(RESULT, self._listed.definition.name, text or "It gave nothing.")]


# -- names and definitions --------------------------------------------------------------------------------------------


def group_name(name: str) -> str:
    """The name that stands for a server in kvchat: letters that servers of models take, none of kvchat's own, and no
    `__`, which stands behind it in the names of its tools."""
    given = name.strip().lower()
    plain = _within(24, given, re.sub(r"[^a-z0-9-]+", "_", given).strip("_") or "mcp")
    return f"mcp_{plain}" if own_tools(plain) or plain in ("none", "forget") else plain


def _within(most: int, name: str, plain: str) -> str:
    """`plain`, which stands for a name; where it is another one, or longer than `most`, it ends with a digest of the
    name, so that two stay two."""
    if plain == name and len(plain) <= most:
        return plain
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:4]
    return f"{plain[: most - 5].rstrip('_')}_{digest}"


def _listed(group: str, found: Mapping[str, Any]) -> ListedTool | None:
    """A tool as it is offered; None: it cannot be."""
    own, schema = found.get("name"), found.get("inputSchema")
    if not isinstance(own, str) or not own or not isinstance(schema, dict):
        return None
    try:
        parameters = _lean(schema)
        assert isinstance(parameters, dict)
        properties = parameters.get("properties")
        parameters |= {"type": "object", "properties": properties if isinstance(properties, dict) else {}}
        name, said = f"{group}__{own}", guarded(str(found.get("description") or "").strip())
        definition = ToolDefinition(_within(LONGEST_NAME, name, re.sub(r"[^a-zA-Z0-9_-]", "_", name)), said, parameters)
        written = canonical(definition.wire()).decode()
    except (ValueError, TypeError, RecursionError):
        return None
    return ListedTool(own, definition) if guarded(written) == written else None


def _lean(schema: object) -> object:
    """A JSON schema without what says nothing to a model, its words made safe to quote."""
    if isinstance(schema, list):
        return [_lean(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    lean = {}
    for name, value in schema.items():
        is_text = isinstance(value, str)
        if not (is_text and name in ("title", "$schema")):
            lean[str(name)] = guarded(value) if is_text and name == "description" else _lean(value)
    return lean


# -- results ----------------------------------------------------------------------------------------------------------


def _items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = result.get("content")
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def _text(item: Mapping[str, Any]) -> str:
    """What a model reads of one part of a result."""
    resource = item.get("resource")
    text = item.get("text") if not isinstance(resource, dict) else resource.get("text")
    if isinstance(text, str):
        return text
    kind = one_line(str(item.get("type") or "part"), 40)
    where = item.get("uri") or (resource.get("uri") if isinstance(resource, dict) else "")
    return f"[{kind}, not shown{f': {one_line(str(where), 300)}' if where else ''}]"


def _structured(result: Mapping[str, Any]) -> str:
    found = result.get("structuredContent")
    return "" if found is None else json.dumps(found, ensure_ascii=False)

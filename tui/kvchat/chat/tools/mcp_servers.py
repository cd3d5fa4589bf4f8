"""The tools of the user's MCP servers: found, named, listed and called.

What a server listed is kept in the store, so a conversation begins with its tools before the server runs, and with the
same bytes whatever order it lists them in. A program is started only after the user's yes to its command line.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerProgressed, Noticed
from kvchat.chat.ground import Ground
from kvchat.chat.tools.mcp_definitions import ListedTool, UnusableTool, group_name, listed_tool
from kvchat.chat.tools.mcp_results import is_failure, result_text
from kvchat.chat.tools.tool import ToolError, must_be_shown, shown_address
from kvchat.mcp.configured import McpError, McpServer, read_servers
from kvchat.prompt.context import RESULT, ContextBlock
from kvchat.prompt.offered_tools import own_tools
from kvchat.prompt.tools import Permission, ToolDefinition
from kvchat.prompt.wire import canonical
from kvchat.text.problems import ChatProblem
from kvchat.text.tools import too_many_words, unusable_words
from kvchat.values import decode, encode

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.mcp.client import McpClient
    from kvchat.mcp.messages import CallProgress

STARTS_S = 60.0
"""Seconds that a server may take to start and to list its tools: some fetch themselves first."""
MOST_TOOLS = 128
LONGEST_CALL_S = 3600.0
"""Seconds that a call may take with signs of progress."""
LONGEST_CALL = 20_000
"""Characters of the arguments of a call, as JSON."""
AGREED = "programs agreed"
"""The setting of the store with the digests of the command lines that the user agreed to: a JSON list."""
LISTED = "tools listed "
"""Begins the settings of the store with what a server listed."""
LISTED_AT = "tools listed at "
"""Begins those with where a list is from, and when it was made."""
RECENT_S = 24 * 3600.0
"""How long a list is taken for what the server still has, where a question would have to wait for another one."""


class _ListOrigin(Struct, frozen=True):
    """Where a kept list is from."""

    source: str
    """Of the server as it was configured."""
    at: float
    """Seconds since the epoch."""


class McpServers:
    """The servers of the user's file."""

    def __init__(self, ground: Ground, usual_file: Path | None) -> None:
        """`usual_file`: where the settings name none."""
        self._ground = ground
        self._usual_file = usual_file
        self._clients: dict[str, tuple[McpServer, McpClient]] = {}
        self._lists: dict[str, tuple[ListedTool, ...]] = {}
        self._left_out: dict[str, str] = {}
        """By servers: what they list and kvchat does not offer, in words."""
        self._starting: set[asyncio.Task[None]] = set()
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
        """Those that are not switched off, by name, to choose from: none of a file that cannot be read, which is
        shown."""
        try:
            return {name: one for name, one in self.configured().items() if not one.is_off}
        except ChatError as error:
            self._say(str(error))
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
        """The name of the server that is called `name`, or that has the tool of this name; None: there is none."""
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

    async def list_tools(self, names: Sequence[str], *, recent: bool = False) -> None:
        """Ask the servers behind these names for their tools; with `recent` only those that have not listed them within
        RECENT_S, as they are configured now. Raises ChatError."""
        for group, server in self.behind(names).items():
            if not (recent and self._is_recent(group, server, names)):
                await self._list(group, server)

    def left_out(self, names: Sequence[str]) -> list[str]:
        """What the servers behind these names list and kvchat does not offer, a text for each that was asked."""
        return [words for group in self.behind(names) if (words := self._left_out.get(group))]

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
        read = [listed_tool(group, one) for one in found]
        unusable = [one for one in read if isinstance(one, UnusableTool)]
        listed = {one.definition.name: one for one in read if isinstance(one, ListedTool)}
        if not listed:
            why = "It lists no tool." if not found else unusable_words([(one.name, one.why) for one in unusable])
            raise ChatError(ChatProblem.TOOL_SERVER_FAILED, name=group, why=why)
        names = sorted(listed)
        self._lists[group] = tuple(listed[name] for name in names[:MOST_TOOLS])
        said = [f"{group}: {unusable_words([(one.name, one.why) for one in unusable])}"] if unusable else []
        if names[MOST_TOOLS:]:
            said.append(too_many_words(group, [listed[name].own_name for name in names[MOST_TOOLS:]], MOST_TOOLS))
        self._left_out[group] = " ".join(said)
        if said:
            self._say(self._left_out[group])
        if not self._ground.incognito:
            await self._ground.keep_setting(LISTED + group, encode(self._lists[group]))
            origin = _ListOrigin(_source(server), self._ground.timestamp())
            await self._ground.keep_setting(LISTED_AT + group, encode(origin))

    def _is_recent(self, group: str, server: McpServer, names: Sequence[str]) -> bool:
        """Whether the kept list of a server has these tools, and need not be made again."""
        try:
            origin = decode(self._ground.setting(LISTED_AT + group), _ListOrigin)
        except ValueError:
            return False
        age = self._ground.timestamp() - origin.at
        if origin.source != _source(server) or not self.may_start(server) or not 0 <= age < RECENT_S:
            return False
        return bool(self._listed(group)) and all(self.named(name) for name in names if self.group_of(name) == group)

    def _say(self, words: str) -> None:
        self._ground.events.tell(Noticed(words, "warning"))

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

    def start_programs(self, tools: Sequence[str]) -> None:
        """Start the programs behind these tools that the user agreed to, so that they are there when the model calls
        one: many take ten seconds."""

        async def start(client: McpClient) -> None:
            with suppress(McpError):  # the call says it
                await self._begin(client)

        with suppress(ChatError):
            for group, server in self.configured().items():
                wanted = server.command and any(name.startswith(f"{group}__") for name in tools)
                if wanted and not server.fault and self.may_start(server):
                    task = asyncio.create_task(start(self._client(group, server)))
                    self._starting.add(task)
                    task.add_done_callback(self._starting.discard)

    @staticmethod
    async def _begin(client: McpClient) -> None:
        """Begin a connection; that is no part of the time that a call may take. Raises McpError."""
        try:
            async with asyncio.timeout(STARTS_S):
                await client.begin()
        except TimeoutError:
            raise McpError(f"It did not start within {STARTS_S:.0f} seconds.") from None

    def tool(self, name: str) -> McpTool | None:
        """What carries out the calls of a tool; None: it is gone."""
        for group, server in self.known().items():
            for one in self._listed(group) if name.startswith(f"{group}__") else ():
                if one.definition.name == name:
                    return McpTool(self, group, server, one)
        return None

    async def call(self, conversation: OpenConversation, tool: McpTool, given: Mapping[str, Any]) -> Any:
        """The result of a call, as JSON has it. The progress that the server reports is shown, and begins the wait
        again. Raises McpError; TimeoutError after `seconds` without progress."""
        client = self._client(tool.group, tool.server)
        await self._begin(client)
        loop, seconds = asyncio.get_running_loop(), self.seconds(tool.server)
        ends = loop.time() + max(LONGEST_CALL_S, seconds)
        async with asyncio.timeout(seconds) as limit:

            def progressed(progress: CallProgress) -> None:
                limit.reschedule(min(ends, loop.time() + seconds))
                self._show(conversation, progress.sentence)

            return await client.call(tool.listed.own_name, given, progressed)

    def seconds(self, server: McpServer) -> float:
        """How long a call of a server may take without a sign of progress."""
        return server.timeout or self._ground.settings.tool_seconds

    def _show(self, conversation: OpenConversation, words: str) -> None:
        """Show how far a call is."""
        live = conversation.live
        if live is not None and live.waiting is not None and live.waiting.words != words:
            live.waiting = replace(live.waiting, words=words)
            self._ground.events.tell(AnswerProgressed(conversation.id, live.node))

    async def aclose(self) -> None:
        """End the programs and the sessions."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*(client.aclose() for _, client in self._clients.values()), return_exceptions=True)
        self._clients.clear()


def _source(server: McpServer) -> str:
    """Stands for what answers under a server's name: its program, or its address."""
    return hashlib.sha256(f"{server.digest} {server.url}".encode(errors="surrogatepass")).hexdigest()


class McpTool:
    """Carries out the calls of one tool of a server."""

    def __init__(self, servers: McpServers, group: str, server: McpServer, listed: ListedTool) -> None:
        self._servers = servers
        self.group = group
        self.server = server
        self.listed = listed

    def permission(self, given: Mapping[str, Any]) -> Permission:
        if not self._servers.may_start(self.server):
            raise ToolError(
                f"The command line of the MCP server {self.group} is not agreed to. The user can do that with "
                f"/tools {self.group}."
            )
        if self.server.fault:
            raise ToolError(self.server.fault)
        must_be_shown(json.dumps(given, ensure_ascii=False), LONGEST_CALL)
        where = f"the MCP server {self.group}" if self.server.command else shown_address(self.server.shown)
        definition = self.listed.definition
        terms = f"{self.server.digest} {self.server.url} {canonical(definition.wire()).decode()}"
        return Permission(definition.name, goes_to=where, group=self.group, terms=terms, about=definition.description)

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        name = self.listed.definition.name
        try:
            result = await self._servers.call(conversation, self, given)
        except McpError as error:
            raise ToolError(str(error)) from None
        except TimeoutError:
            seconds = self._servers.seconds(self.server)
            raise ToolError(f"{name} gave no sign for {seconds:g} s, and was ended.") from None
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            raise ToolError(f"{self.group} asks for more than a call brings, and kvchat gives no more.")
        text = result_text(result)
        if is_failure(result):
            text = f"The call failed. {text}"
        return [ContextBlock(RESULT, name, text or "It gave nothing.")]

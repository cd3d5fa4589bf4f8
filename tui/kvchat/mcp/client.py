"""What is asked of a server: its tools, and a call of one; whichever form of the protocol it speaks.

Two forms are spoken: revision 2026-07-28, in which each request stands for itself, and the one before, which begins
with `initialize`. Each way to a server says which it tries first; what the server refuses, it gets in the other.
Source: modelcontextprotocol.io, revisions 2025-06-18 and 2026-07-28.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import count
from typing import Any, Protocol

from kvchat.mcp.configured import McpError, McpRefusedError
from kvchat.sanitize import one_line

MODERN, INITIALIZE = "2026-07-28", "2025-06-18"
"""The revisions; the second is asked for, whichever older one a server then speaks."""
MOST_PAGES = 50
TELLS_S = 1.0
"""Seconds that a server is told for that a call was given up."""
LARGEST = 8 << 20
"""Bytes of an answer."""
_META = "io.modelcontextprotocol/"
_OURS = {"name": "kvchat", "version": "1"}
"""No more is told of who asks."""

Message = Mapping[str, Any]


class Form(StrEnum):
    """A form of the protocol."""

    EACH_ALONE = MODERN
    INITIALIZED = INITIALIZE


class Transport(Protocol):
    """The way to a server."""

    @property
    def forms(self) -> Sequence[Form]:
        """In the order in which they are tried."""

    async def ask(self, message: Message, form: Form) -> Message:
        """The answer to a request: with a `result` or an `error`. Raises McpError; ConnectionLostError where nothing of
        what was agreed before is known any more."""

    async def tell(self, message: Message) -> None:
        """Send what has no answer. Raises McpError."""

    async def aclose(self) -> None:
        """End it."""


class ConnectionLostError(McpError):
    """The server knows nothing of this connection any more, and has not carried out what was asked."""


class McpClient:
    """One server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ids = count(1)
        self._form: Form | None = None
        self._beginning = asyncio.Lock()

    async def tools(self) -> list[Mapping[str, Any]]:
        """All tools, as they are listed. Raises McpError."""
        found: list[Mapping[str, Any]] = []
        cursor: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            result = await self._asked("tools/list", cursor)
            listed = result.get("tools")
            found += [one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict)]
            if not isinstance(following := result.get("nextCursor"), str) or not following:
                break
            cursor = {"cursor": following}
        return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a call. Raises McpError. It is not asked for a second time, whatever becomes of it."""
        return await self._asked("tools/call", {"name": name, "arguments": arguments})

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _asked(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(2):
            async with self._beginning:
                form = self._form = self._form or await self._begun()
            try:
                return await self._raw(method, params, form)
            except ConnectionLostError:
                self._form = None
        raise McpError("It forgets its connections.")

    async def _begun(self) -> Form:
        """The form that the server speaks. Raises McpError."""
        refused: McpRefusedError | None = None
        for form in self._transport.forms:
            try:
                if form is Form.EACH_ALONE:
                    await self._raw("tools/list", {}, form)
                else:
                    offered = {"protocolVersion": INITIALIZE, "capabilities": {}, "clientInfo": _OURS}
                    await self._raw("initialize", offered, form)
                    await self._transport.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
            except McpRefusedError as error:
                refused = refused or error
            else:
                return form
        raise refused or McpError("It speaks no form of the protocol that kvchat knows.")

    async def _raw(self, method: str, params: Mapping[str, Any], form: Form) -> Mapping[str, Any]:
        id = next(self._ids)
        if form is Form.EACH_ALONE:
            own = {f"{_META}protocolVersion": MODERN, f"{_META}clientInfo": _OURS, f"{_META}clientCapabilities": {}}
            params = {**params, "_meta": own}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        try:
            answer = await self._transport.ask(message, form)
        except asyncio.CancelledError:
            given_up = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
            with suppress(McpError, TimeoutError):
                async with asyncio.timeout(TELLS_S):
                    await self._transport.tell(given_up)
            raise
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict):
            raise McpRefusedError(one_line(str(error.get("message") or error.get("code") or "It failed"), 300))
        if not isinstance(result, dict):
            raise McpError("It does not answer as an MCP server does.")
        return result

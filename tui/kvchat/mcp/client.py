"""What is asked of a server: its tools, and a call of one; whichever form of the protocol it speaks.

Two forms are spoken: revision 2026-07-28, in which each request is complete in itself, and the one before, which begins
with `initialize`. Each way to a server says which it tries first; what the server refuses, it gets in the other.
Source: modelcontextprotocol.io, revisions 2025-06-18 and 2026-07-28.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import count
from typing import Any, Protocol

from kvchat.mcp.configured import McpError, McpRefusedError
from kvchat.mcp.messages import CallProgress, Message, progress_of, words_of

MODERN, INITIALIZE = "2026-07-28", "2025-06-18"
"""The revisions; the second is asked for, whichever older one a server then speaks."""
MOST_PAGES = 50
TELLS_S = 1.0
"""Seconds that the notice of a cancelled call may take."""
_META = "io.modelcontextprotocol/"
_OURS = {"name": "kvchat", "version": "1"}
"""What is sent of who asks: no more."""

Hears = Callable[[Message], None]
"""Called with what a server says while it is asked: notifications."""


class Form(StrEnum):
    """A form of the protocol."""

    EACH_ALONE = MODERN
    INITIALIZED = INITIALIZE


class Transport(Protocol):
    """The way to a server."""

    @property
    def forms(self) -> Sequence[Form]:
        """In the order in which they are tried."""

    async def ask(self, message: Message, form: Form, hears: Hears) -> Message:
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
        self._usual: Form | None = None
        """The form that it spoke last; it is tried first when the connection begins again."""
        self._beginnings = 0
        self._beginning = asyncio.Lock()

    async def begin(self) -> None:
        """Begin the connection, unless it is there. Raises McpError."""
        await self._spoken()

    async def tools(self) -> list[Any]:
        """All tools, as they are listed. Raises McpError."""
        found: list[Any] = []
        page: Any = None
        params: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            result = await self._asked("tools/list", params)
            table = result if isinstance(result, dict) else {"tools": result}
            before, page = page, table.get("tools")
            cursor = table.get("nextCursor")
            leads_to_itself = page == before and cursor == params.get("cursor")
            if not isinstance(page, list) or leads_to_itself:
                break
            found += page
            if not isinstance(cursor, str) or not cursor:
                break
            params = {"cursor": cursor}
        return found

    async def call(
        self, name: str, arguments: Mapping[str, Any], progressed: Callable[[CallProgress], None] | None = None
    ) -> Any:
        """The result of a call, as JSON has it. Raises McpError. It is asked for a second time only where the server
        said that it knows nothing of the connection. `progressed`: called with how far the server is."""
        return await self._asked("tools/call", {"name": name, "arguments": arguments}, progressed)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _asked(
        self, method: str, params: Mapping[str, Any], progressed: Callable[[CallProgress], None] | None = None
    ) -> Any:
        lost: ConnectionLostError | None = None
        for _ in range(2):
            form, begun = await self._spoken()
            try:
                return await self._raw(method, params, form, progressed)
            except ConnectionLostError as error:
                lost = error
                if begun == self._beginnings:  # else it began again meanwhile
                    self._form = None
        raise McpRefusedError(str(lost))

    async def _spoken(self) -> tuple[Form, int]:
        """The form of the connection, which begins where it is not there, and how often one began. Raises McpError."""
        async with self._beginning:
            if self._form is None:
                self._form = self._usual = await self._begun()
                self._beginnings += 1
            return self._form, self._beginnings

    async def _begun(self) -> Form:
        """The form that the server speaks. Raises McpError."""
        refused: list[McpRefusedError] = []
        for form in sorted(self._transport.forms, key=lambda form: form is not self._usual):
            try:
                if form is Form.EACH_ALONE:
                    await self._raw("tools/list", {}, form)
                else:
                    offered = {"protocolVersion": INITIALIZE, "capabilities": {}, "clientInfo": _OURS}
                    await self._raw("initialize", offered, form)
                    await self._transport.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
            except McpRefusedError as error:
                refused.append(error)
            else:
                return form
        raise refused[0]

    async def _raw(
        self,
        method: str,
        params: Mapping[str, Any],
        form: Form,
        progressed: Callable[[CallProgress], None] | None = None,
    ) -> Any:
        id = next(self._ids)
        meta: dict[str, Any] = {} if progressed is None else {"progressToken": id}
        if form is Form.EACH_ALONE:
            meta |= {f"{_META}protocolVersion": MODERN, f"{_META}clientInfo": _OURS, f"{_META}clientCapabilities": {}}
        message = {
            "jsonrpc": "2.0",
            "id": id,
            "method": method,
            "params": {**params, **({"_meta": meta} if meta else {})},
        }

        def hears(notification: Message) -> None:
            if progressed is not None and (progress := progress_of(notification, id)) is not None:
                progressed(progress)

        try:
            answer = await self._transport.ask(message, form, hears)
        except asyncio.CancelledError:
            given_up = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
            with suppress(McpError, TimeoutError):
                async with asyncio.timeout(TELLS_S):
                    await self._transport.tell(given_up)
            raise
        if (error := answer.get("error")) is not None:
            raise McpRefusedError(words_of(error) or "It failed, and does not say why.")
        return answer.get("result")

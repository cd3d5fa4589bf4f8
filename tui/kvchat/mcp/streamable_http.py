"""A server at an address: a POST for each message, answered by JSON or by a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from kvchat.backends.dialect import BackendError, ServerOptions
from kvchat.backends.http.endpoint import open_endpoint
from kvchat.backends.http.stream import EVENT_STREAM, Event, SseParser, StreamTooLargeError
from kvchat.backends.http.transport import Exchange
from kvchat.mcp.client import LARGEST, MODERN, ConnectionLostError, Form, Message
from kvchat.mcp.configured import McpError, McpRefusedError, McpServer

SESSION = "mcp-session-id"


class StreamableHttpTransport:
    """The way to an address. A redirection is not followed: it may lead what is sent elsewhere."""

    forms = (Form.EACH_ALONE, Form.INITIALIZED)

    def __init__(self, server: McpServer) -> None:
        self._server = server
        parts = urlsplit(server.url)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._path = (quote(parts.path, safe="/%:@!$&'()*+,;=~-._") or "/") + (f"?{parts.query}" if parts.query else "")
        self._session = ""
        self._version = ""
        """Of what was initialized."""

    async def ask(self, message: Message, form: Form) -> Message:
        begins = message["method"] == "initialize"
        if begins:
            self._session = self._version = ""
        headers = {}
        if form is Form.EACH_ALONE:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            if "name" in message["params"]:
                headers["mcp-name"] = _plain(message["params"]["name"])
        try:
            async with await self._exchange("POST", message, headers) as exchange:
                head = await exchange.head()
                is_stream = head.content_type == EVENT_STREAM
                answer = await (_streamed(exchange, message["id"]) if is_stream else _whole(exchange))
        except BackendError as error:
            raise McpError(error.sentence) from None
        if head.status == 404 and self._session:
            self._session = self._version = ""
            raise ConnectionLostError("It does not know this session.")
        if answer is None:
            if head.is_good:
                raise McpError(f"{self._server.shown} does not answer as an MCP server does.")
            raise McpRefusedError(f"{self._server.shown} answers with the status {head.status}.")
        if begins:
            result = answer.get("result")
            self._session = head.headers.get(SESSION, "")
            self._version = str(result.get("protocolVersion", "")) if isinstance(result, dict) else ""
        return answer

    async def tell(self, message: Message) -> None:
        if not self._version:  # nothing is told where each request stands for itself
            return
        try:
            async with await self._exchange("POST", message, {}) as exchange:
                await exchange.head()
        except BackendError as error:
            raise McpError(error.sentence) from None

    async def aclose(self) -> None:
        """Give up the session, where there is one."""
        if not self._session:
            return
        try:
            async with asyncio.timeout(1.0), await self._exchange("DELETE", None, {}) as exchange:
                await exchange.head()
        except (BackendError, TimeoutError):
            pass
        self._session = ""

    async def _exchange(self, method: str, message: Message | None, more: Mapping[str, str]) -> Exchange:
        """Raises BackendError."""
        headers = {"accept": f"application/json, {EVENT_STREAM}", "content-type": "application/json"}
        headers |= {"mcp-protocol-version": self._version} if self._version else {}
        headers |= {SESSION: self._session} if self._session else {}
        body = None if message is None else json.dumps(message).encode()
        return Exchange(
            await open_endpoint(self._base, options=ServerOptions(headers=self._server.headers)),
            method,
            self._path,
            headers={**headers, **more},
            body=body,
        )


async def _whole(exchange: Exchange) -> Message | None:
    """The message that is the body; None: it is none."""
    return _message(await exchange.body(LARGEST))


async def _streamed(exchange: Exchange, id: int) -> Message | None:
    """The answer to a request out of a stream of events; what else comes in it is passed over."""
    parser = SseParser(answer_limit=LARGEST)
    try:
        while (chunk := await exchange.chunk()) is not None:
            for piece in parser.feed(chunk):
                found = _message(piece.data.encode()) if isinstance(piece, Event) else None
                if found is not None and found.get("id") == id and "method" not in found:
                    return found
    except StreamTooLargeError:
        pass
    return None


def _message(data: bytes) -> Message | None:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and ("result" in found or "error" in found) else None


def _plain(name: str) -> str:
    """A name as a header has it."""
    import base64

    if name.isascii() and name.isprintable() and name == name.strip():
        return name
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="

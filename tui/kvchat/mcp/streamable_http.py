"""A server at an address: a POST for each message, answered by JSON or by a stream of events."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct

from kvchat.backends.dialect import BackendError, ServerOptions, Trouble
from kvchat.backends.errors import NotConnectedError
from kvchat.backends.http.endpoint import open_endpoint
from kvchat.backends.http.stream import EVENT_STREAM, Event, Piece, SseParser, Stray, StreamTooLargeError
from kvchat.backends.http.transport import Exchange, ResponseHead
from kvchat.mcp.client import INITIALIZE, MODERN, ConnectionLostError, Form, Hears
from kvchat.mcp.configured import McpError, McpRefusedError, McpServer
from kvchat.mcp.messages import (
    TOO_LARGE,
    Message,
    is_answer,
    is_request,
    meant_id,
    messages_in,
    reply_to,
    says_unknown_session,
    words_in,
    words_of,
)
from kvchat.sanitize import one_line

SESSION = "mcp-session-id"
LARGEST = 8 << 20
"""Bytes of an answer."""
MOST_REDIRECTIONS = 3
MOST_REPLIES = 32
"""Replies to a server's own requests that are on their way at a time; what is more is left out."""
_EVENTS = re.compile(rb"\s*(?:data|event|id|retry)?:")
"""How a stream of events begins."""


class _Answer(Struct):
    """What came of a POST."""

    head: ResponseHead
    message: Message | None = None
    """The answer; None: there is none."""
    words: str = ""
    """Of a body that is none."""

    @property
    def refusal(self) -> str:
        """The server's words where it refuses; empty where it has none, and for a result."""
        if self.message is None:
            return self.words
        error = self.message.get("error")
        return "" if error is None else words_of(error if "jsonrpc" in self.message else self.message)


class StreamableHttpTransport:
    """The way to an address. A redirection that keeps the method is followed within the origin; any other would lead
    what is sent elsewhere."""

    forms = (Form.EACH_ALONE, Form.INITIALIZED)

    def __init__(self, server: McpServer) -> None:
        self._server = server
        parts = urlsplit(server.url)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._path = _path(parts)
        self._session = ""
        self._version = ""
        """Of what was initialized."""
        self._open: set[int] = set()
        """Ids of the requests that wait for an answer."""
        self._replies: set[asyncio.Task[None]] = set()

    async def ask(self, message: Message, form: Form, hears: Hears) -> Message:
        begins = message["method"] == "initialize"
        if begins:
            self._session = self._version = ""
        session, headers = self._session, dict[str, str]()
        if form is Form.EACH_ALONE:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            if "name" in message["params"]:
                headers["mcp-name"] = _plain(message["params"]["name"])
        self._open.add(message["id"])
        try:
            answer = await self._answer(message, headers, hears)
        except BackendError as error:
            raise McpError(self._sentence(error)) from None
        finally:
            self._open.discard(message["id"])
        if form is Form.INITIALIZED and not begins and _is_lost(answer, session):
            if self._session == session:  # else another request began a new one
                self._session = self._version = ""
            raise ConnectionLostError(self._refused(answer))
        if answer.message is None or (answer.refusal and "jsonrpc" not in answer.message and not answer.head.is_good):
            raise McpRefusedError(self._refused(answer))
        if begins:
            result = answer.message.get("result")
            self._session = answer.head.headers.get(SESSION, "")
            self._version = str((result.get("protocolVersion") if isinstance(result, dict) else "") or INITIALIZE)
        return answer.message

    def _sentence(self, error: BackendError) -> str:
        """A failure in words that fit a server of tools."""
        if isinstance(error, NotConnectedError):
            return (
                f"No server answers at {self._server.shown} ({error.arguments['reason']}). Start it, or check its url."
            )
        if error.trouble is Trouble.CUT:
            return f"{self._server.shown} closed the connection before its answer was whole."
        return error.sentence

    def _refused(self, answer: _Answer) -> str:
        """A refusal as a sentence."""
        if answer.message is not None and "jsonrpc" in answer.message:
            return answer.refusal or "It failed, and does not say why."
        if answer.head.is_good and not answer.refusal:
            return f"{self._server.shown} does not answer as an MCP server does."
        words = f": {answer.refusal}" if answer.refusal else "."
        return f"{self._server.shown} answers with the status {answer.head.status}{words}"

    async def tell(self, message: Message) -> None:
        if not self._version:  # no session where each request is complete in itself
            return
        try:
            async with await self._exchange("POST", message, {}) as exchange:
                await exchange.head()
        except BackendError as error:
            raise McpError(self._sentence(error)) from None

    async def aclose(self) -> None:
        """Give up the session, where there is one."""
        for reply in self._replies:
            reply.cancel()
        if self._replies:
            await asyncio.wait(self._replies)
        if not self._session:
            return
        try:
            async with asyncio.timeout(1.0), await self._exchange("DELETE", None, {}) as exchange:
                await exchange.head()
        except (BackendError, TimeoutError):
            pass
        self._session = ""

    async def _answer(self, message: Message, headers: Mapping[str, str], hears: Hears) -> _Answer:
        """Raises BackendError, McpError."""
        for _ in range(MOST_REDIRECTIONS):
            async with await self._exchange("POST", message, headers) as exchange:
                head = await exchange.head()
                if not 300 <= head.status < 400:
                    return await self._read(exchange, head, message["id"], hears)
                self._path = self._moved(head)
        raise McpError(f"{self._server.shown} leads in a circle.")

    def _moved(self, head: ResponseHead) -> str:
        """The path that a redirection leads to. Raises McpError where it is not followed."""
        if not (location := head.headers.get("location", "")):
            raise McpRefusedError(f"{self._server.shown} answers with the status {head.status}.")
        try:
            target = urljoin(self._base + self._path, location)
            parts = urlsplit(target)
            is_near = (parts.scheme, parts.netloc) == tuple(self._base.split("://", 1))
        except ValueError:
            target, is_near = "", False
        if is_near and head.status in (307, 308):
            return _path(parts)
        raise McpError(
            f"{self._server.shown} leads to {one_line(target or location, 300)}: if you trust that address, write it "
            "as the url of this server into your mcp.json."
        )

    async def _read(self, exchange: Exchange, head: ResponseHead, id: int, hears: Hears) -> _Answer:
        """Raises BackendError, McpError."""
        try:
            chunk = await exchange.chunk()
            if head.content_type == EVENT_STREAM and (chunk or b"").lstrip()[:1] not in (b"{", b"["):
                events = _parser()
                while chunk is not None:
                    if (found := self._taken(events.feed(chunk), id, hears)) is not None:
                        return _Answer(head, found)
                    chunk = await exchange.chunk()
                found = self._taken(events.feed(b"\n\n"), id, hears)  # the last one may lack its end
                if found is None and head.is_good:
                    raise McpRefusedError(f"{self._server.shown} ended its stream without an answer.")
                return _Answer(head, found)
            body = chunk or b""
            if chunk is not None:
                body += await exchange.body(LARGEST + 1 - len(body))
            if len(body) > LARGEST:
                raise McpError(TOO_LARGE)
            if _EVENTS.match(body):  # a stream that is called JSON
                return _Answer(head, self._taken(_parser().feed(body + b"\n\n"), id, hears))
        except StreamTooLargeError:
            raise McpError(TOO_LARGE) from None
        found = self._of_request(messages_in(body), id, hears)
        return _Answer(head, found, "" if found is not None else words_in(body))

    def _taken(self, pieces: Iterator[Piece], id: int, hears: Hears) -> Message | None:
        for piece in pieces:
            data = piece.data if isinstance(piece, Event) else piece.text if isinstance(piece, Stray) else ""
            if (found := self._of_request(messages_in(data), id, hears)) is not None:
                return found
        return None

    def _of_request(self, messages: Sequence[Message], id: int, hears: Hears) -> Message | None:
        """The answer to a request out of messages that came for it: by its id, or by none that is another's."""
        for message in messages:
            if is_answer(message):
                if meant_id(message.get("id")) not in self._open - {id}:
                    return message
            elif is_request(message):
                self._reply(reply_to(message))
            else:
                hears(message)
        return None

    def _reply(self, message: Message) -> None:
        async def send() -> None:
            with suppress(BackendError):
                async with await self._exchange("POST", message, {}) as exchange:
                    await exchange.head()

        if len(self._replies) < MOST_REPLIES:
            task = asyncio.create_task(send())
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

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
            takes_redirections=True,
        )


def _is_lost(answer: _Answer, session: str) -> bool:
    """Whether a server says that it knows nothing of the connection, by a status or by words."""
    if answer.message is not None and answer.message.get("error") is None:
        return False
    if says_unknown_session(answer.refusal):
        return True
    return bool(session) and (answer.head.status in (404, 410) or (answer.head.status == 400 and not answer.refusal))


def _parser() -> SseParser:
    return SseParser(line_limit=LARGEST, event_limit=LARGEST)


def _path(parts: SplitResult) -> str:
    return (quote(parts.path, safe="/%:@!$&'()*+,;=~-._") or "/") + (f"?{parts.query}" if parts.query else "")


def _plain(name: str) -> str:
    """A name as a header has it."""
    import base64

    if name.isascii() and name.isprintable() and name == name.strip():
        return name
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="

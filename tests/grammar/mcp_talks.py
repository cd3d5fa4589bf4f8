"""A grammar of MCP servers: by a seed, one that lists tools and answers calls in one of the ways that servers do, as a
program and at an address, with what must come of it.

    async with Addresses() as addresses:
        faults = await held(Talk(seed), addresses, folder)

The ways are those of public reports: ids that come back as another type or not at all, sessions that are forgotten by
any status, answers in streams and batches, with notifications and requests between, errors in any form, lists with odd
schemas, results that are no list of texts. The oracle: the right result or one sentence, within `HANGS_S`, no exception
but the client's own, and no call carried out twice.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from kvchat.chat.errors import ChatError
from kvchat.chat.tools import mcp_servers
from kvchat.chat.tools.mcp_servers import McpServers
from kvchat.chat.tools.tool import ToolError
from kvchat.config import Settings
from kvchat.mcp import stdio

HANGS_S = 8.0
"""Seconds after which an answer does not come any more."""
INSISTS_S = 4.0
"""Seconds that a server waits for the answer to a request of its own."""
OLD, MODERN = "2025-06-18", "2026-07-28"
NAME = "shed"

Json = Any
Message = dict[str, Json]


# -- what is drawn -----------------------------------------------------------------------------------------------------

IDS: dict[str, Callable[[Json], Json]] = {
    "number": lambda id: id,
    "text": str,
    "float": float,
    "float as text": lambda id: str(float(id)),
    "zero": lambda _: 0,
    "zero as text": lambda _: "0",
    "null": lambda _: None,
    "word": lambda _: "response",
}
FORGETTING: tuple[tuple[int, str], ...] = (
    (404, "Session not found"),
    (404, ""),
    (410, "Gone"),
    (400, "Bad Request: No valid session ID provided"),
    (400, "Bad Request: Server not initialized"),
    (400, "Invalid or expired session"),
    (400, ""),
    (401, "Session expired"),
    (409, "Unknown session id"),
    (422, "Mcp-Session-Id header is required"),
    (500, "session does not exist"),
    (503, "Unknown session"),
    (200, "Session not found"),
    (200, "No valid session"),
    (200, "Received request before initialization was complete"),
)
REFUSING_FORM: tuple[tuple[int, Json], ...] = (
    (400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Unsupported protocol version"}}),
    (400, b"Bad Request: no session"),
    (404, b"not found"),
    (405, b""),
    (406, {"error": "Not Acceptable"}),
    (500, b"<html><body>Internal Server Error</body></html>"),
    (202, b""),
    (200, b""),
    (204, b""),
    (200, {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32000, "message": "Not initialized"}}),
    (200, {"error": "initialize first"}),
    (200, b"[]"),
    (200, b"null"),
)
WORDS = "The roof is off until noon"
"""Of every refusal that must be passed on."""
REFUSALS: tuple[tuple[int, Json], ...] = (
    (401, {"error": WORDS}),
    (401, {"error": "invalid_token", "error_description": WORDS}),
    (401, WORDS.encode()),
    (403, {"error": WORDS}),
    (403, {"detail": WORDS}),
    (403, {"message": WORDS}),
    (429, {"error": WORDS}),
    (429, {"error": {"message": WORDS, "type": "rate_limit"}}),
    (500, {"error": {"code": 500, "message": WORDS}}),
    (502, WORDS.encode()),
    (200, {"error": WORDS}),
)
CUTS = (
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: working\n\n",
    b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {"jsonrpc": "2.0", "id"',
)
"""How an answer ends before it is whole."""
ERRORS: tuple[Json, ...] = (
    {"code": -32602, "message": WORDS},
    {"message": WORDS},
    {"code": "E1", "message": WORDS, "data": [1]},
    {"message": {"text": WORDS}},
    {"code": 1, "data": {"detail": WORDS}},
    WORDS,
    [WORDS],
)
SCHEMAS: tuple[Json, ...] = (
    {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    {"type": "object"},
    {},
    None,
    True,
    "left out",
    {"type": "object", "properties": None},
    {"type": "object", "properties": {"what": {"$ref": "#/$defs/Text"}}, "$defs": {"Text": {"type": "string"}}},
    {"type": "object", "properties": {"what": {"type": "uuid"}}, "additionalProperties": False},
    {"type": ["object", "null"], "properties": {"what": True}},
    {"anyOf": [{"type": "object", "properties": {"what": {"type": "string"}}}, {"type": "null"}]},
    {"type": "object", "properties": {"what": {"default": {"title": "Old", "$schema": "a", "description": "b"}}}},
    {"type": "object", "properties": {"what": {"enum": [{"title": "A"}, "b", None]}, "title": {"type": "string"}}},
    {"type": "object", "properties": {"what": {"const": {"title": "A"}, "examples": [{"title": "B"}]}}},
    {"type": "object", "properties": {"default": {"title": "Default", "type": "string"}, "what": {}}},
)
USELESS: tuple[Json, ...] = (
    "text",
    None,
    {"inputSchema": {"type": "object"}},
    {"name": 5, "inputSchema": {"type": "object"}},
    {"name": "", "inputSchema": {}},
    {"name": "odd", "inputSchema": "object"},
    {"name": "lists", "inputSchema": [1]},
)
BETWEEN: tuple[Json, ...] = (
    {"method": "notifications/message", "params": {"level": "info", "data": "Looking."}},
    {"method": "notifications/message"},
    {"method": "notifications/tools/list_changed"},
    {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1, "total": 3, "message": "a"}},
    {"method": "notifications/progress", "params": {"progressToken": None, "progress": "half"}},
    {"method": "notifications/progress", "params": [1]},
    {"method": "notifications/unknown", "params": None},
    {"method": 7},
    {"jsonrpc": "2.0"},
    5,
    "text",
    None,
)
REQUESTS = ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "unknown/thing")
NOISE = (
    b"Listening on stdio",
    b"",
    b"{not json",
    b"[1]",
    b"\xff\xfe",
    b"{}",
    b"5",
    b"INFO: \x1b[32mready\x1b[0m",
    b"[[[[",
)


def _result(kind: str, text: str) -> Json:
    """A result of this kind that says `text`."""
    part = {"type": "text", "text": text}
    blob = base64.b64encode(text.encode()).decode()
    return {
        "texts": lambda: {"content": [part]},
        "two": lambda: {"content": [part, {"type": "text", "text": "And a hoe."}]},
        "picture": lambda: {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}, part]},
        "string": lambda: {"content": text},
        "object": lambda: {"content": part},
        "strings": lambda: {"content": [text]},
        "null between": lambda: {"content": [None, part]},
        "untyped": lambda: {"content": [{"text": text}]},
        "old": lambda: {"toolResult": text},
        "old object": lambda: {"toolResult": {"found": text}},
        "structured": lambda: {"content": [], "structuredContent": {"found": text}},
        "structured alone": lambda: {"structuredContent": {"found": [text]}},
        "structured beside": lambda: {
            "content": [{"type": "text", "text": "1 result."}],
            "structuredContent": {"found": [{"name": text}]},
        },
        "structured again": lambda: {"content": [part], "structuredContent": {"result": text}},
        "structured as text": lambda: {
            "content": [{"type": "text", "text": json.dumps({"found": text})}],
            "structuredContent": {"found": text},
        },
        "resource": lambda: {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": text}}]},
        "blob": lambda: {
            "content": [{"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "blob": blob}}]
        },
        "json blob": lambda: {
            "content": [{"type": "resource", "resource": {"uri": "a:b", "mimeType": "application/json", "blob": blob}}]
        },
        "octets": lambda: {
            "content": [{"type": "resource", "resource": {"mimeType": "application/octet-stream", "blob": blob}}]
        },
        "json part": lambda: {"content": [{"type": "json", "json": {"found": text}}]},
        "object as text": lambda: {"content": [{"type": "text", "text": {"found": text}}]},
        "bare": lambda: {"found": text},
        "only text": lambda: text,
        "only parts": lambda: [part],
        "failed": lambda: {"content": [part], "isError": True},
    }[kind]()


RESULTS = (
    *("texts", "two", "picture", "string", "object", "strings", "null between", "untyped", "old", "old object"),
    *("structured", "structured alone", "structured beside", "structured again", "structured as text", "resource"),
    *("blob", "json blob", "octets", "json part", "object as text", "bare", "only text", "only parts", "failed"),
)


class Call:
    """A call, how it is answered, and what must come of it."""

    def __init__(self, rng: random.Random, word: str, at_address: bool) -> None:
        self.word = word
        self.text = f"Three rakes, {word}."
        self.kind = rng.choices(["result", "error", "refusal", "cut"], [16, 4, *([2, 1] if at_address else [0, 0])])[0]
        """`cut`: it is carried out, and then the connection ends."""
        self.result = rng.choice(RESULTS)
        self.error = rng.choice(ERRORS)
        self.status = rng.choice([200, 200, 200, 400, 500]) if at_address else 200
        self.refusal = rng.choice(REFUSALS)
        self.before = [rng.choice(BETWEEN) for _ in range(rng.choice([0, 0, 1, 2, 5]))]
        self.asks = [rng.choice(REQUESTS) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        self.insists = rng.random() < 0.7

    def message(self) -> Message:
        return {"result": _result(self.result, self.text)} if self.kind == "result" else {"error": self.error}

    def fault(self, text: str | None, sentence: str) -> str:
        """What is wrong with what came of it; empty: nothing. `text`: None where it gave a sentence."""
        if self.kind == "result":
            if text is None or text.count(self.word) != 1:
                return f"result ({self.result}): {(text or sentence)[:120]!r}"
            if self.result in ("two", "structured beside") and not re.search("And a hoe|1 result", text):
                return f"result ({self.result}) without its other part: {text[:120]!r}"
            return "" if (self.result == "failed") == text.startswith("The call failed") else f"failed: {text[:80]!r}"
        if self.kind == "cut":
            is_sentence = text is None and sentence.endswith(".") and "\n" not in sentence
            return "" if is_sentence else f"cut: {(text or sentence)[:120]!r}"
        said = self.error if self.kind == "error" else self.refusal
        if text is not None or WORDS not in sentence or "\n" in sentence or len(sentence) > 600:
            return f"{self.kind} ({said}): {(text or sentence)[:160]!r}"
        if self.kind == "refusal" and self.refusal[0] != 200 and str(self.refusal[0]) not in sentence:
            return f"refusal ({said}) without its status: {sentence[:160]!r}"
        return ""


class Talk:
    """A server, and what is asked of it."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.seed = seed
        self.at_address = rng.random() < 0.5
        self.is_modern = rng.random() < 0.25
        self.id_of = rng.choice([*IDS, *["number"] * 6])
        self.lacks_id = rng.random() < 0.03
        self.echoes_method = rng.random() < 0.05
        self.nulls = rng.random() < 0.1
        self.batches = rng.random() < 0.1
        self.calls = [Call(rng, f"w{seed}x{at}y", self.at_address) for at in range(rng.choice([1, 1, 2, 3]))]
        self.tools, self.schema = self._tools()
        self.pages = rng.choice([1, 1, 1, 2, 5])
        self.cursor_loops = rng.random() < 0.03
        # A program
        self.noise = [rng.choice(NOISE) for _ in range(rng.choice([0, 0, 1, 3]))]
        self.line_end = rng.choice([b"\n", b"\n", b"\r\n"])
        self.cut = rng.random() < 0.2
        # An address
        self.session = rng.random() < 0.7 and not self.is_modern
        self.refuses_form = rng.choice(REFUSING_FORM)
        self.forgets_at = rng.randrange(len(self.calls)) if self.session and rng.random() < 0.4 else None
        self.forgetting = rng.choice(FORGETTING)
        self.redirects = rng.choices(["", "307", "308", "302", "elsewhere"], [20, 2, 2, 1, 1])[0]
        self.location = rng.choice(["relative", "absolute"])
        self.framing = rng.choice(["json", "json", "sse", "sse", "sse", "sse as json", "json as sse"])
        self.sse_end = rng.choice(["\n", "\n", "\r\n", "\r"])
        self.sse_extras = rng.random() < 0.3
        self.sse_unfinished = rng.random() < 0.1
        self.data_lines = rng.random() < 0.1
        self.label = rng.choice(["", "; charset=utf-8", ";charset=UTF-8"])
        self.is_capital = rng.random() < 0.1

        self.carried_out: Counter[str] = Counter()
        self.initialized = 0
        self.known_session = ""
        self.has_forgotten = False
        self.unanswered: list[str] = []
        """Requests of the server that got no answer."""
        self._pending: dict[Json, asyncio.Event] = {}
        self._asked = 0

    def _tools(self) -> tuple[list[Json], Json]:
        schema = self.rng.choice(SCHEMAS)
        look = {"name": "look", "description": self.rng.choice(["Look.", "", None, 5])}
        if schema != "left out":
            look["inputSchema"] = schema
        count = self.rng.choice([0, 0, 1, 3, 3, 127, 128, 200, 300])
        plain = {"type": "object", "properties": {}}
        more: list[Json] = [{"name": f"tool_{at:03}", "inputSchema": plain} for at in range(count)]
        more += self.rng.sample(USELESS, self.rng.choice([0, 0, 0, 1, 2]))
        tools = [look, *more]
        self.rng.shuffle(tools)
        return tools, schema

    @property
    def is_lost(self) -> bool:
        """Whether it is somewhere else, so that nothing can come of it but a sentence."""
        return self.at_address and self.redirects in ("302", "elsewhere")

    # -- what it answers

    def answer_to(self, message: Message) -> Message:
        """Without an id."""
        method, params = message["method"], message.get("params") or {}
        is_modern = MODERN in json.dumps(params.get("_meta") or {})
        if method == "initialize":
            if self.is_modern:
                return {"error": self.rng.choice([{"code": -32601, "message": "Method not found"}, "unknown method"])}
            self.initialized += 1
            return {"result": {"protocolVersion": OLD, "capabilities": {"tools": {}}, "serverInfo": {"name": NAME}}}
        if is_modern is not self.is_modern and not self.is_modern:
            return {"error": {"code": -32602, "message": "Received request before initialization was complete"}}
        if method == "tools/list":
            return {"result": self._page(params.get("cursor"))}
        if method == "tools/call":
            call = self.call_of(message)
            self.carried_out[call.word] += call.kind == "result"
            return call.message()
        return {"error": {"code": -32601, "message": "Method not found"}}

    def call_of(self, message: Message) -> Call:
        word = message["params"]["arguments"]["what"]
        return next(one for one in self.calls if one.word == word)

    def _page(self, cursor: Json) -> Json:
        at = int(cursor) if cursor else 0
        size = max(1, -(-len(self.tools) // self.pages))
        page: Json = {"tools": self.tools[at * size : (at + 1) * size]}
        if (at + 1) * size < len(self.tools):
            page["nextCursor"] = str(at + 1)
        elif self.cursor_loops:
            page["nextCursor"] = str(at)
        elif self.nulls:
            page["nextCursor"] = None
        return page

    def shaped(self, message: Message, answer: Message) -> Message:
        shaped: Message = {"jsonrpc": "2.0", "id": IDS[self.id_of](message["id"]), **answer}
        if self.lacks_id:
            del shaped["id"]
        if self.echoes_method:
            shaped["method"] = message["method"]
        if self.nulls:
            shaped.setdefault("error", None)
        return shaped

    def between(self, message: Message) -> list[Json]:
        """What is said before the answer to a call; its progress as the client asked to have it."""
        if message["method"] != "tools/call":
            return []
        said: list[Json] = []
        for one in self.call_of(message).before:
            if isinstance(one, dict) and one.get("method") == "notifications/progress":
                token = (message["params"].get("_meta") or {}).get("progressToken")
                if isinstance(one.get("params"), dict) and token is not None:
                    one = {**one, "params": {**one["params"], "progressToken": token}}
            said.append({"jsonrpc": "2.0", **one} if isinstance(one, dict) else one)
        return said

    def own_requests(self, message: Message) -> list[Message]:
        if message["method"] != "tools/call":
            return []
        made = []
        for method in self.call_of(message).asks:
            self._asked += 1
            id: Json = self.rng.choice([f"own-{self._asked}", self._asked, 1000 + self._asked, message["id"]])
            if id in self._pending:
                id = f"own-{self._asked}"
            self._pending[id] = asyncio.Event()
            made.append({"jsonrpc": "2.0", "id": id, "method": method, "params": {}})
        return made

    def heard(self, answer: Message) -> None:
        """An answer of the client's to a request of the server."""
        if (waiting := self._pending.get(answer.get("id"))) is not None:
            waiting.set()

    async def insist(self, message: Message, requests: list[Message]) -> None:
        if not requests or not self.call_of(message).insists:
            return
        for one in requests:
            try:
                async with asyncio.timeout(INSISTS_S):
                    await self._pending[one["id"]].wait()
            except TimeoutError:
                self.unanswered.append(one["method"])


# -- as a program ------------------------------------------------------------------------------------------------------


class Talking:
    """A talk in the place of a `Program`."""

    last_words = "The program has ended."
    has_exited = False

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._written: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        for line in talk.noise:
            self._written.put_nowait(line)

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._written.get()

    async def write(self, line: bytes) -> None:
        self.reply(line)

    def reply(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" not in message:
            self._talk.heard(message)
        elif "id" in message:
            task = asyncio.create_task(self._answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Message) -> None:
        said, requests = self._talk.between(message), self._talk.own_requests(message)
        for one in [*said, *requests]:
            self._put(one)
        await self._talk.insist(message, requests)
        shaped = self._talk.shaped(message, self._talk.answer_to(message))
        self._put([{"jsonrpc": "2.0", "method": "notifications/a"}, shaped] if self._talk.batches else shaped)

    def _put(self, message: Json) -> None:
        self._written.put_nowait(json.dumps(message).encode() + self._talk.line_end.removesuffix(b"\n"))

    async def end(self, **_: object) -> None:
        for task in self._tasks:
            task.cancel()


# -- at an address -----------------------------------------------------------------------------------------------------


class Addresses:
    """One listening server for every talk, by its path; and another place, where nothing may arrive."""

    def __init__(self) -> None:
        self.talks: dict[str, Talk] = {}
        self.strays = 0
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        for handler in (self._handle, self._stray):
            self._servers.append(await asyncio.start_server(handler, "127.0.0.1", 0, limit=1 << 22))
        self.url, self.elsewhere = (f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in self._servers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    async def _stray(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.strays += 1
        writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = first.split(" ", 2)
            await _Visit(self, self.talks[path.split("/")[1]], headers, writer).answer(method, path, body)
        except (OSError, asyncio.IncompleteReadError, KeyError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()


class _Visit:
    """One request of a talk at an address."""

    def __init__(
        self, addresses: Addresses, talk: Talk, headers: Mapping[str, str], writer: asyncio.StreamWriter
    ) -> None:
        self._addresses = addresses
        self._talk = talk
        self._headers = headers
        self._writer = writer

    async def answer(self, method: str, path: str, body: bytes) -> None:
        talk = self._talk
        if talk.redirects and path.endswith("/mcp"):
            self._redirect(path)
        elif method != "POST":
            self._whole(405, b"")
        elif isinstance(message := json.loads(body), dict) and "method" in message and "id" in message:
            await self._request(message)
        else:
            if "method" not in message:
                talk.heard(message)
            self._whole(202, b"")
        await self._writer.drain()

    def _redirect(self, path: str) -> None:
        there = {"elsewhere": f"{self._addresses.elsewhere}/mcp"}.get(self._talk.redirects)
        near = path + "/" if self._talk.location == "relative" else f"{self._addresses.url}{path}/"
        status = {"elsewhere": 307}.get(self._talk.redirects) or int(self._talk.redirects)
        self._whole(status, b"", {"Location": there or near})

    async def _request(self, message: Message) -> None:
        talk = self._talk
        is_modern = self._headers.get("mcp-protocol-version", "") == MODERN
        if is_modern and not talk.is_modern:
            status, value = talk.refuses_form
            self._whole(status, value if isinstance(value, bytes) else json.dumps(value).encode())
            return
        more: dict[str, str] = {}
        if message["method"] == "initialize" and talk.session:
            talk.known_session = f"s{talk.initialized + 1}"
            more = {"Mcp-Session-Id": talk.known_session}
        elif talk.session and not self._is_known(message):
            self._forgotten(message)
            return
        if message["method"] == "tools/call" and (call := talk.call_of(message)).kind == "refusal":
            status, value = call.refusal
            self._whole(status, value if isinstance(value, bytes) else json.dumps(value).encode())
            return
        if message["method"] == "tools/call" and (call := talk.call_of(message)).kind == "cut":
            talk.carried_out[call.word] += 1
            self._writer.write(talk.rng.choice(CUTS))
            return
        status = talk.call_of(message).status if message["method"] == "tools/call" else 200
        await self._say(message, 200 if talk.framing.startswith("sse") else status, more)

    def _is_known(self, message: Message) -> bool:
        talk = self._talk
        if message["method"] == "tools/call" and not talk.has_forgotten:
            at = talk.calls.index(talk.call_of(message))
            if at == talk.forgets_at:
                talk.has_forgotten, talk.known_session = True, ""
        return bool(talk.known_session) and self._headers.get("mcp-session-id") == talk.known_session

    def _forgotten(self, message: Message) -> None:
        status, words = self._talk.forgetting
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": words}}
        if status == 200:
            error["id"] = IDS[self._talk.id_of](message["id"])
        forms = [json.dumps(error).encode()] if status == 200 else [json.dumps(error).encode(), words.encode()]
        self._whole(status, self._talk.rng.choice(forms) if words else b"")

    async def _say(self, message: Message, status: int, more: Mapping[str, str]) -> None:
        talk = self._talk
        if talk.framing.startswith("json"):
            answer = talk.answer_to(message)
            shaped = talk.shaped(message, answer)
            if "error" in answer and status == 200 and talk.rng.random() < 0.3:
                status = 400
            if "result" in answer:
                status = 200
            value: Json = [{"jsonrpc": "2.0", "method": "notifications/a"}, shaped] if talk.batches else shaped
            self._whole(status, json.dumps(value).encode(), more, "text/event-stream" if "sse" in talk.framing else "")
            return
        kind = "application/json" if talk.framing.endswith("json") else "text/event-stream"
        self._head(200, kind, more)
        for one in talk.between(message):
            self._event(one)
        requests = talk.own_requests(message)
        for one in requests:
            self._event(one)
        await self._writer.drain()
        # A stream that is called JSON is whole before it can be read.
        if kind == "text/event-stream":
            await talk.insist(message, requests)
        shaped = talk.shaped(message, talk.answer_to(message))
        batch: Json = [shaped, {"jsonrpc": "2.0", "method": "notifications/a"}] if talk.batches else shaped
        self._event(batch, is_last=True)

    def _event(self, value: Json, is_last: bool = False) -> None:
        talk, end = self._talk, self._talk.sse_end
        lines = []
        if talk.sse_extras:
            lines += [": keep-alive", "", "id: 7", "retry: 1000", "event: message"]
        text = json.dumps(value, indent=1 if talk.data_lines else None)
        lines += [f"data: {line}" for line in text.split("\n")]
        closing = "" if is_last and talk.sse_unfinished else end
        self._writer.write((end.join(lines) + end + closing).encode())

    def _whole(self, status: int, body: bytes, more: Mapping[str, str] | None = None, label: str = "") -> None:
        self._head(status, label or "application/json", {**(more or {}), "Content-Length": str(len(body))})
        self._writer.write(body)

    def _head(self, status: int, label: str, more: Mapping[str, str]) -> None:
        label = (label.title() if self._talk.is_capital else label) + self._talk.label
        fields = {"Content-Type": label, "Connection": "close", **more}
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self._writer.write("\r\n".join(lines).encode())


# -- the client's side -------------------------------------------------------------------------------------------------


class _Ground:
    """What the tools of MCP servers stand on, without a store."""

    incognito = True

    def __init__(self, file: Path) -> None:
        self.settings = Settings(mcp_file=str(file))
        self.said: list[str] = []
        self.events = self
        self.background: set[asyncio.Task[None]] = set()

    def tell(self, event: Any) -> None:
        self.said.append(getattr(event, "text", ""))

    def setting(self, key: str) -> str:
        return ""

    async def keep_setting(self, key: str, value: str | None) -> None:
        pass

    def in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)


async def held(talk: Talk, addresses: Addresses, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hold a talk: list the tools, and call. What went wrong, one line each."""
    file = folder / "mcp.json"
    url = f"{addresses.url}/{talk.seed}/mcp"
    entry = {"url": url} if talk.at_address else {"command": "shed"}
    file.write_text(json.dumps({"mcpServers": {NAME: entry}}))
    addresses.talks[str(talk.seed)] = talk
    with monkeypatch.context() as patched:
        as_program(patched, talk)
        ground = _Ground(file)
        servers = McpServers(ground, None)  # type: ignore[arg-type]
        for server in servers.configured().values():
            await servers.agree(server)
        try:
            return await _faults(talk, servers, ground)
        finally:
            await servers.aclose()
            del addresses.talks[str(talk.seed)]


def as_program(patched: pytest.MonkeyPatch, talk: Talk) -> None:
    """Have what is started be this talk."""

    async def start(*_: object) -> Talking:
        return Talking(talk)

    patched.setattr(stdio.Program, "start", start)


async def _faults(talk: Talk, servers: McpServers, ground: _Ground) -> list[str]:
    try:
        async with asyncio.timeout(HANGS_S):
            await servers.list_tools([NAME])
    except ChatError as error:
        if talk.is_lost:
            return [] if "url" in str(error) else [f"list: what to do is not said: {str(error)[:200]}"]
        return [f"list: {str(error)[:200]}"]
    except TimeoutError:
        return ["list: no answer"]
    except Exception as error:
        return [f"list: {type(error).__name__}: {str(error)[:100]}"]
    if talk.is_lost:
        return ["list: a server that is somewhere else was followed"]
    faults = [*_listing_faults(talk, servers, ground)]
    for call in talk.calls:
        faults += [f"call: {fault}" for fault in [await _call_fault(servers, call)] if fault]
    faults += [f"carried out {times} times: {word}" for word, times in talk.carried_out.items() if times > 1]
    faults += [f"no answer to {method}" for method in talk.unanswered]
    if talk.session and talk.initialized > 1 + talk.has_forgotten:
        faults.append(f"initialized {talk.initialized} times")
    return faults


def _listing_faults(talk: Talk, servers: McpServers, ground: _Ground) -> list[str]:
    faults = []
    offered = {one.name: one for one in servers.named(NAME)}
    names = {one["name"] for one in talk.tools if _is_useful(one)}
    most = mcp_servers.MOST_TOOLS
    if len(offered) != min(most, len(names)):
        faults.append(f"list: {len(offered)} of {len(names)} tools are offered")
    for left, what in ((len(names) - most, "tools"), (len(talk.tools) - len(names), "unusable")):
        if left > 0 and not any(NAME in one and str(left) in one for one in ground.said):
            faults.append(f"list: {left} {what} are left out, and {ground.said} is said")
    if (look := offered.get(f"{NAME}__look")) is not None:
        given, properties = talk.schema, look.parameters.get("properties")
        if look.parameters.get("type") != "object" or not isinstance(properties, dict):
            faults.append(f"list: {look.parameters} is no schema of an object")
        for name, one in ((given.get("properties") or {}) if isinstance(given, dict) else {}).items():
            for key in ("default", "enum", "const", "examples"):
                if isinstance(one, dict) and key in one and (properties or {}).get(name, {}).get(key) != one[key]:
                    faults.append(f"list: a value was changed: {one[key]}")
    return faults


def _is_useful(tool: Json) -> bool:
    return (
        isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and tool["name"] != ""
        and isinstance(tool.get("inputSchema"), dict | bool | None)
    )


async def _call_fault(servers: McpServers, call: Call) -> str:
    tool = servers.tool(f"{NAME}__look")
    if tool is None:
        return "the tool is not there"
    try:
        async with asyncio.timeout(HANGS_S):
            blocks = await tool.run(SimpleNamespace(id="c", live=None), {"what": call.word})  # type: ignore[arg-type]
    except ToolError as error:
        return call.fault(None, str(error))
    except TimeoutError:
        return "no answer"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return call.fault("\n".join(one.text for one in blocks), "")

"""A passthrough in front of a real server that writes down every request and what its answer cost.

The rule: nothing is changed but the connection: each request has one of its own, so that a request and its answer are
told apart without reading the answer's form.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

TIMINGS = re.compile(rb'"timings":(\{[^{}]*\})')
LARGE = 1 << 24


@dataclass(slots=True)
class Passed:
    """One request that went through, and its answer as far as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    answer: bytearray = field(default_factory=bytearray, repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    @property
    def timings(self) -> Mapping[str, Any] | None:
        """The server's own figures of this request, as it said them last; None where it said none."""
        found = TIMINGS.findall(bytes(self.answer))
        return json.loads(found[-1]) if found else None


class Passthrough:
    """`async with Passthrough(url) as replica`: what is sent to `replica.url` goes to `url`."""

    def __init__(self, *urls: str) -> None:
        self._servers = [(parts.hostname or "", parts.port or 80) for parts in map(urlsplit, urls)]
        self.passed: list[Passed] = []
        self.url = ""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._visit, "127.0.0.1", 0, limit=LARGE)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def forget(self) -> None:
        self.passed.clear()

    def _server_for(self, this: Passed) -> tuple[str, int]:
        return self._servers[0]

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the two has gone
        finally:
            self._open.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head[:-4].split("\r\n")
        method, path, _ = line.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await _body(reader, headers)
        self.passed.append(this := Passed(method, path, headers, body))
        kept = {
            name: value
            for name, value in headers.items()
            if name not in ("connection", "transfer-encoding", "content-length", "expect", "keep-alive")
        }
        kept |= {"connection": "close", "content-length": str(len(body))}
        server, out = await asyncio.open_connection(*self._server_for(this), limit=LARGE)
        try:
            out.write(
                "\r\n".join([line, *(f"{name}: {value}" for name, value in kept.items()), "", ""]).encode("latin-1")
                + body
            )
            gone = asyncio.ensure_future(reader.read(1))
            try:
                while True:
                    chunk = asyncio.ensure_future(server.read(65536))
                    await asyncio.wait({chunk, gone}, return_when=asyncio.FIRST_COMPLETED)
                    if not chunk.done():
                        chunk.cancel()  # the client hung up: so do we
                        return
                    if not (data := chunk.result()):
                        return
                    this.answer += data
                    writer.write(data)
                    await writer.drain()
            finally:
                gone.cancel()
        finally:
            out.close()


class SessionRouter(Passthrough):
    """The smallest router that knows sessions: it hashes X-Session-ID; requests without one go to all in turn."""

    def add(self, url: str) -> None:
        """One server more from now on."""
        self._servers += Passthrough(url)._servers

    def _server_for(self, this: Passed) -> tuple[str, int]:
        session = this.headers.get("x-session-id")
        number = zlib.crc32(session.encode()) if session else len(self.passed) + len(self.passed) // 5
        return self._servers[number % len(self._servers)]


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length") or 0))
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)

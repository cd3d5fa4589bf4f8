"""A proxy that records when requests to a server begin and end, in one order for all of them.

It forwards one request per connection and closes it afterwards; a client that goes away ends the request upstream too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(eq=False)
class Recorded:
    """One request for an answer."""

    body: dict[str, Any]
    began: int
    """Its place in the order of all beginnings and ends."""
    beside: int
    """Other requests for an answer in flight when it began."""
    ended: int | None = None
    answer: bytes = b""
    raw: bytes = b""
    """The body as it went over the wire."""

    @property
    def messages(self) -> bytes:
        """The messages array as it went over the wire, without its brackets."""
        start = self.raw.index(b'"messages":[') + len(b'"messages":[')
        _, end = json.JSONDecoder().raw_decode(self.raw[start - 1 :].decode())
        return self.raw[start - 1 :].decode()[1 : end - 1].encode()

    @property
    def replies(self) -> dict[int, str]:
        """The text of each answer, as it came."""
        found: dict[int, str] = {}
        for line in self.answer.split(b"\n"):
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:]).get("choices", ()):
                    at, text = choice["index"], choice.get("delta", {}).get("content")
                    found[at] = found.get(at, "") + (text or "")
        return found

    @property
    def is_background(self) -> bool:
        return "json_schema" in json.dumps(self.body.get("response_format") or {})

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its end."""
        return b"data: [DONE]" in self.answer

    @property
    def figures(self) -> dict[str, Any]:
        """The server's last word about the prompt: `prompt_n`, `cache_n`."""
        found: dict[str, Any] = {}
        for line in self.answer.split(b"\n"):
            if line.startswith(b"data: {"):
                with contextlib.suppress(ValueError):
                    found = json.loads(line[6:]).get("timings") or found
        return found


@dataclass
class Recorder:
    base_url: str
    upstream: str
    requests: list[Recorded] = field(default_factory=list)
    clock: int = 0

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    @property
    def chats(self) -> list[Recorded]:
        return [request for request in self.requests if not request.is_background]

    @property
    def background(self) -> list[Recorded]:
        return [request for request in self.requests if request.is_background]

    def in_flight(self) -> list[Recorded]:
        return [request for request in self.requests if request.ended is None]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request: Recorded | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
            length = lengths[0] if lengths else 0
            body = await reader.readexactly(length)
            if b"/chat/completions" in lines[0]:
                request = Recorded(json.loads(body), self.tick(), len(self.in_flight()), raw=body)
                self.requests.append(request)
            kept = [line for line in lines[:-2] if not line.lower().startswith(b"connection:")]
            url = urlsplit(self.upstream)
            up_reader, up_writer = await asyncio.open_connection(url.hostname, url.port)
            up_writer.write(b"\r\n".join([*kept, b"Connection: close", b"", b""]) + body)
            try:
                await self.relay(reader, writer, up_reader, request)
            finally:
                up_writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if request is not None:
                request.ended = self.tick()
            writer.close()

    async def relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamReader,
        request: Recorded | None,
    ) -> None:
        gone = asyncio.create_task(reader.read(1))
        try:
            while True:
                part = asyncio.create_task(upstream.read(65536))
                await asyncio.wait({gone, part}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    part.cancel()
                    return
                if not part.result():
                    return
                if request is not None:
                    request.answer += part.result()
                writer.write(part.result())
                await writer.drain()
        finally:
            gone.cancel()


@asynccontextmanager
async def recording(upstream: str) -> AsyncIterator[Recorder]:
    """A recorder in front of the server at `upstream`."""
    recorder = Recorder("", upstream)
    server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    recorder.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield recorder
    finally:
        server.close()

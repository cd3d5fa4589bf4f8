"""A proxy that lies: where it is told to, it answers with another conversation's words and says that nothing came from
the cache, as a server whose host cache mixes states up (llama.cpp#27148). All else goes through as it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

STRANGE = "The secret word of the other room is Zordanmir, as I have told you twice by now."
OURS = frozenset({b"host", b"connection", b"accept-encoding"})
"""Headers of this proxy's own."""


class Liar:
    """In front of the server at `upstream`."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.base_url = upstream, ""
        self.lies = 0
        """How many of the next answers are lies."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head[:-4].split(b"\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
            body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
            url = urlsplit(self.upstream)
            up_reader, up_writer = await asyncio.open_connection(url.hostname, url.port)
            sent = [b": ".join(pair) for pair in headers.items() if pair[0] not in OURS]
            up_writer.write(
                b"\r\n".join([first, b"Host: " + url.netloc.encode(), b"Connection: close", *sent, b"", body])
            )
            try:
                if b"/chat/completions" in first and self.lies:
                    self.lies -= 1
                    writer.write(_with_lies(await up_reader.read()))
                else:
                    await _relay(reader, writer, up_reader)
                await writer.drain()
            finally:
                up_writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: asyncio.StreamReader) -> None:
    """Pass an answer on as it comes, until it ends or the client goes away."""
    gone = asyncio.create_task(reader.read(1))
    try:
        while not gone.done():
            part = asyncio.create_task(upstream.read(65536))
            await asyncio.wait({gone, part}, return_when=asyncio.FIRST_COMPLETED)
            if not part.done() or not part.result():
                part.cancel()
                return
            writer.write(part.result())
            await writer.drain()
    finally:
        gone.cancel()


def _with_lies(answer: bytes) -> bytes:
    """A whole answer, chunked as llama-server sends it, with other words and no cached tokens."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    said, strange = b"", STRANGE
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        said, rest = said + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    found = []
    for line in said.split(b"\n"):
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            _deny(event)
            for choice in event.get("choices", ()):
                if choice.get("delta", {}).get("content"):
                    choice["delta"]["content"], strange = strange, ""
            line = b"data: " + json.dumps(event).encode()
        found.append(line)
    body = b"\n".join(found)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def _deny(event: Any) -> None:
    """Say of all in an event that nothing of it was cached."""
    for value in event.values() if isinstance(event, dict) else event if isinstance(event, list) else ():
        _deny(value)
    if isinstance(event, dict):
        if "cache_n" in event:
            event["prompt_n"] += event["cache_n"]
        event |= {name: 0 for name in ("cache_n", "cached_tokens") if name in event}
        if isinstance(progress := event.get("prompt_progress"), dict):
            progress["cache"] = 0


@asynccontextmanager
async def lying(upstream: str) -> AsyncIterator[Liar]:
    liar = Liar(upstream)
    server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
    liar.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield liar
    finally:
        server.close()

"""A proxy before the server that lets all bytes through as they are and keeps every POST."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from exchange import Exchange

NOT_PASSED_ON = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect"}
LARGEST = 1 << 24


class RecordingProxy:
    """The proxy, in a thread of its own: `with RecordingProxy(upstream, file) as proxy`, then `proxy.url`.

    Each finished POST is a line of `file` and an entry of `records`.
    """

    def __init__(self, upstream: str, file: Path) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._file = file
        self._active: dict[int, Exchange] = {}
        self._numbers = 0
        self.records: list[dict[str, Any]] = []
        self.url = ""

    def __enter__(self) -> RecordingProxy:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        serving = asyncio.start_server(self._handle, "127.0.0.1", 0, limit=LARGEST)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @property
    def is_busy(self) -> bool:
        """Whether a request is in flight."""
        return bool(self._active)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until `condition` holds, at most so long: whether it did."""
        end = time.monotonic() + seconds
        while not (held := condition()) and time.monotonic() < end:
            time.sleep(0.1)
        return held

    def wait_for_rest(self, quiet: float, seconds: float) -> None:
        """Wait until no request was in flight for `quiet` seconds on end, at most `seconds`."""
        end = time.monotonic() + seconds
        since, count = time.monotonic(), self._numbers
        while time.monotonic() < min(since + quiet, end):
            if self._active or self._numbers != count:
                since, count = time.monotonic(), self._numbers
            time.sleep(0.1)

    def _begin(self, path: str, headers: dict[str, str], body: bytes) -> Exchange:
        self._numbers += 1
        exchange = Exchange(self._numbers, path, headers.get("user-agent", ""), body, time.time())
        exchange.overlap.update(self._active)
        for other in self._active.values():
            other.overlap.add(exchange.number)
        self._active[exchange.number] = exchange
        return exchange

    def _end(self, exchange: Exchange) -> None:
        exchange.ended = time.time()
        record = exchange.record()
        with self._file.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.records.append(record)
        del self._active[exchange.number]

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = None
        try:
            method, path, headers, body = await _request(reader)
            if method == "POST":
                exchange = self._begin(path, headers, body)
            await self._relay(f"{method} {path}", headers, body, reader, writer, exchange)
        except (asyncio.IncompleteReadError, OSError, ValueError):
            if exchange:
                exchange.aborted = True
        finally:
            if exchange:
                self._end(exchange)
            writer.close()

    async def _relay(
        self,
        what: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        exchange: Exchange | None,
    ) -> None:
        """Pass a request on, and its response back as it comes. A client that goes away ends the request upstream."""
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port, limit=LARGEST)
        passed = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name not in NOT_PASSED_ON)
        head = f"{what} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nConnection: close\r\n{passed}"
        gone = asyncio.ensure_future(reader.read(1))
        try:
            up_writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin1") + body)
            await up_writer.drain()
            while True:
                read = asyncio.ensure_future(up_reader.read(65536))
                await asyncio.wait({read, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not read.done():
                    read.cancel()
                    raise ConnectionError("the client went away")
                if not (data := read.result()):
                    return
                if exchange:
                    exchange.raw += data
                writer.write(data)
                await writer.drain()
        finally:
            gone.cancel()
            up_writer.close()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes]:
    """(method, path, headers by lower-case name, body) of the next request."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif length := headers.get("content-length"):
        body = await reader.readexactly(int(length))
    return method, path, headers, body

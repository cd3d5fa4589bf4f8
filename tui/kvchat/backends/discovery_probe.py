"""A small HTTP/1.1 client for looking at servers of this machine: one GET after the other, with a limit on everything.

The rule: whatever the other side sends, there is a `Heard` or an exception, at most a limit's worth of bytes is read,
and the connection is closed without waiting. No redirect is followed and nothing but GET can be sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.backends.recognise import Response

HEAD_LIMIT, BODY_LIMIT = 32 * 1024, 128 * 1024
"""Bytes. The longest real answers are lists of many models and properties with a long chat template."""
LARGE = 16 * 1024
"""Bytes of JSON that are read in a thread, so that the screen does not wait."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?\r\n\Z")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0]*)\r\n\Z")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
_START = b"HTTP/"
_FAILURES = (OSError, EOFError)


class NotHttpError(Exception):
    """What came is not HTTP/1.x, or more of it than any model server says."""


@dataclass(frozen=True, slots=True)
class Heard(Response):
    """An answer whose JSON was read once: it is looked at by every dialect."""

    json: object = None

    @property
    def value(self) -> object:
        return self.json


class Line:
    """A connection to one server, made when it is needed and kept while the server keeps it."""

    def __init__(self, address: str, port: int, authority: str) -> None:
        self._address = address
        self._port = port
        self._authority = authority
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address, self._port, limit=HEAD_LIMIT)

    async def get(self, path: str) -> Heard:
        """The answer to a GET of `path`. Raises OSError, EOFError (closed without an answer), NotHttpError."""
        kept = self._streams is not None
        try:
            return await self._asked(path)
        except _FAILURES:
            self.close()
            if not kept:
                raise
        except NotHttpError:
            self.close()
            raise
        return await self._asked(path)  # the server had given up the connection that was kept

    def close(self) -> None:
        """Close the connection at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _asked(self, path: str) -> Heard:
        await self.open()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._authority}\r\nUser-Agent: kvchat\r\nAccept: */*\r\n"
                     "Accept-Encoding: identity\r\n\r\n".encode("ascii"))
        try:
            minor, status, headers = await _head(reader)
            body, whole = await _body(reader, status, headers)
        except (asyncio.LimitOverrunError, ValueError):
            raise NotHttpError from None
        options = headers.get("connection", "").lower()
        if not whole or "close" in options or (minor == 0 and "keep-alive" not in options):
            self.close()
        return await _heard(status, headers, body)


async def _heard(status: int, headers: Mapping[str, str], body: bytes) -> Heard:
    response = Response(status, headers, body)
    if status != 200 or body[:64].lstrip()[:1] not in (b"{", b"["):
        return Heard(status, headers, body)
    value = await asyncio.to_thread(_value, response) if len(body) > LARGE else response.value
    return Heard(status, headers, body, value)


def _value(response: Response) -> object:
    return response.value


async def _head(reader: asyncio.StreamReader) -> tuple[int, int, dict[str, str]]:
    """The minor version, the status and the headers of an answer; interim answers are skipped."""
    left = HEAD_LIMIT
    while True:
        first = await reader.readexactly(len(_START))
        if first != _START:  # seen at once, though no line may ever end
            raise NotHttpError
        match = _STATUS.match(first + await reader.readuntil(b"\r\n"))
        if match is None:
            raise NotHttpError
        headers: dict[str, str] = {}
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            left -= len(line)
            field = _FIELD.match(line.decode("latin-1"))
            if field is None or left < 0:
                raise NotHttpError
            name = field[1].lower()
            value = field[2].strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        left -= len(first)
        status = int(match[2])
        if status >= 200:
            return int(match[1]), status, headers


async def _body(reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """The body, at most BODY_LIMIT bytes of it, and whether its end was found without the connection's end."""
    if status in (204, 304):
        return b"", True
    if (coding := headers.get("transfer-encoding")) is not None:
        if coding.lower() != "chunked" or "content-length" in headers:
            raise NotHttpError
        return await _chunks(reader)
    if (length := headers.get("content-length")) is None:
        return await _up_to(reader, BODY_LIMIT), False
    if not length.isascii() or not length.isdecimal():
        raise NotHttpError
    if len(length) > 12 or int(length) > BODY_LIMIT:
        return await _up_to(reader, BODY_LIMIT), False
    return await reader.readexactly(int(length)), True


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    body = bytearray()
    while True:
        size = _SIZE.match(await reader.readuntil(b"\r\n"))
        if size is None:
            raise NotHttpError
        count = int(size[1], 16)
        if count == 0:
            for _ in range(32):  # trailers
                if await reader.readuntil(b"\r\n") == b"\r\n":
                    return bytes(body), True
            raise NotHttpError
        if len(body) + count > BODY_LIMIT:
            return bytes(body), False
        body += await reader.readexactly(count)
        if await reader.readexactly(2) != b"\r\n":
            raise NotHttpError


async def _up_to(reader: asyncio.StreamReader, limit: int) -> bytes:
    body = bytearray()
    while len(body) < limit and (part := await reader.read(limit - len(body))):
        body += part
    return bytes(body)

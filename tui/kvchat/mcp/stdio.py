"""The talk with a server that is a program: a line of JSON each way, for as long as kvchat needs it.

What it writes that is no message is passed over: programs greet, and warn.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable

from msgspec import Struct

from kvchat.backends.http.transport import unskippable
from kvchat.mcp.client import ConnectionLostError, Form, Hears
from kvchat.mcp.configured import McpError, McpServer
from kvchat.mcp.messages import TOO_LARGE, Message, is_answer, is_request, meant_id, messages_in, reply_to
from kvchat.mcp.program import OverlongLine, Program

_FIRST_ID = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d{1,18})')
_LAST_ID = re.compile(rb'"id"\s*:\s*"?(\d{1,18})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_FIRST_METHOD = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"')


class _OpenRequest(Struct):
    answer: asyncio.Future[Message]
    hears: Hears


class StdioTransport:
    """The way to a program, which starts with the first request; one that has ended is started again."""

    # It may take as long to start as it likes, so that silence says nothing: with what every program knows first.
    forms = (Form.INITIALIZED, Form.EACH_ALONE)

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._starting = asyncio.Lock()
        self._talk: _Talk | None = None
        self._endings: set[asyncio.Task[None]] = set()
        """Readers of programs, until nothing is left of these."""
        self._last_words = ""

    async def ask(self, message: Message, form: Form, hears: Hears) -> Message:
        async with self._starting:
            if self._talk is not None and self._talk.program.has_exited:
                await self._ended()
            if self._talk is None:
                self._talk = talk = _Talk(await Program.start(self._server))
                talk.reading = asyncio.create_task(self._read(talk))
                self._endings.add(talk.reading)
                talk.reading.add_done_callback(self._endings.discard)
                if form is Form.INITIALIZED and message["method"] != "initialize":
                    raise ConnectionLostError("It was started anew.")  # and knows nothing of what was agreed before
            talk = self._talk
        opened = _OpenRequest(asyncio.get_running_loop().create_future(), hears)
        talk.open[message["id"]] = opened
        try:
            try:
                await talk.program.write(json.dumps(message).encode())
            except McpError:  # it has ended, and has not read this
                await self._ended()
                raise ConnectionLostError(self._last_words) from None
            return await opened.answer
        except asyncio.CancelledError:
            if talk.is_unnumbered:  # the late answer would be taken for that to the next request
                self._part_from(talk)
            raise
        finally:
            if opened.answer.done() and not opened.answer.cancelled():
                opened.answer.exception()  # it has been heard, whether or not it was waited for
            talk.open.pop(message["id"], None)

    async def tell(self, message: Message) -> None:
        if self._talk is None:
            raise McpError(self._last_words)
        await self._talk.program.write(json.dumps(message).encode())

    async def _ended(self) -> None:
        """Wait until nothing is left of programs that are ending."""
        if self._endings:
            await asyncio.wait(self._endings)

    async def aclose(self) -> None:
        for reader in self._endings:
            reader.cancel()
        await self._ended()

    def _part_from(self, talk: _Talk) -> None:
        if self._talk is talk:
            self._talk = None
        if talk.reading is not None:
            talk.reading.cancel()

    async def _read(self, talk: _Talk) -> None:
        """Hand over what it answers until it ends, then end what is left of it."""
        try:
            async for line in talk.program.lines():
                talk.take(line)
        finally:
            if self._talk is talk:
                self._talk = None
            await unskippable(talk.program.end(at_once=not talk.has_answered))
            self._last_words = talk.program.last_words
            talk.fail(talk.open.values(), self._last_words)


class _Talk:
    """The talk with one program, from its start to its end."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.open: dict[int, _OpenRequest] = {}
        """Requests by their ids."""
        self.reading: asyncio.Task[None] | None = None
        self.has_answered = False
        self.is_unnumbered = False
        """Whether it gave an answer without the id of a request."""

    def take(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            self._overlong(line)
            return
        for message in messages_in(line):
            if is_answer(message):
                self._answered(message)
            elif is_request(message):
                self.program.reply(json.dumps(reply_to(message)).encode())
            else:
                for opened in self.open.values():
                    opened.hears(message)

    def _answered(self, message: Message) -> None:
        self.has_answered = True
        id = meant_id(message.get("id"))
        opened = self.open.get(id) if id is not None else None
        if opened is None and len(self.open) == 1:
            [(waiting, opened)] = self.open.items()
            if id is not None and 0 < id < waiting:  # of a request that was given up
                return
            self.is_unnumbered = True
        if opened is not None and not opened.answer.done():
            opened.answer.set_result(message)

    def _overlong(self, line: OverlongLine) -> None:
        """Refuse the answer that was too long: that of its id, else those that are waited for."""
        if _FIRST_METHOD.search(line.head):
            return
        found = _FIRST_ID.search(line.head) or _LAST_ID.search(line.tail)
        opened = self.open.get(int(found[1])) if found else None
        self.fail([opened] if opened is not None else self.open.values(), TOO_LARGE)

    @staticmethod
    def fail(requests: Iterable[_OpenRequest], why: str) -> None:
        for opened in requests:
            if not opened.answer.done():
                opened.answer.set_exception(McpError(why))

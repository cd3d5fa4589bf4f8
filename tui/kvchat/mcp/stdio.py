"""The talk with a server that is a program: a line of JSON each way, for as long as kvchat needs it.

What it writes that is no message is passed over: programs greet, and warn.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kvchat.backends.http.transport import unskippable
from kvchat.mcp.client import ConnectionLostError, Form, Message
from kvchat.mcp.configured import McpError, McpServer
from kvchat.mcp.program import OverlongLine, Program


class StdioTransport:
    """The way to a program, which starts with the first request; one that has ended starts anew."""

    # It may take as long to start as it likes, so that silence says nothing: with what every program knows first.
    forms = (Form.INITIALIZED, Form.EACH_ALONE)

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._starting = asyncio.Lock()
        self._program: Program | None = None
        self._readers: set[asyncio.Task[None]] = set()
        """Of the program, and of those that are ending."""
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._last_words = ""

    async def ask(self, message: Message, form: Form) -> Message:
        async with self._starting:
            if self._program is not None and self._program.has_exited:
                await self._ended()
            if self._program is None:
                self._program = program = await Program.start(self._server)
                reader = asyncio.create_task(self._read(program))
                self._readers.add(reader)
                reader.add_done_callback(self._readers.discard)
                if form is Form.INITIALIZED and message["method"] != "initialize":
                    raise ConnectionLostError("It was started anew.")  # and knows nothing of what was agreed before
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[message["id"]] = answer
        try:
            try:
                await self.tell(message)
            except McpError:  # it has ended, and has not read this
                await self._ended()
                raise ConnectionLostError(self._last_words) from None
            return await answer
        finally:
            if answer.done() and not answer.cancelled():
                answer.exception()  # it has been heard, whether or not it was waited for
            self._answers.pop(message["id"], None)

    async def tell(self, message: Message) -> None:
        if self._program is None:
            raise McpError(self._last_words)
        await self._program.write(json.dumps(message).encode())

    async def _ended(self) -> None:
        """Wait until nothing is left of programs that are ending."""
        if self._readers:
            await asyncio.wait(self._readers)

    async def aclose(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await self._ended()

    async def _read(self, program: Program) -> None:
        """Hand over what it answers until it ends, then end what is left of it."""
        try:
            async for line in program.lines():
                self._take(program, line)
        finally:
            self._program, (waiting, self._answers) = None, (self._answers, {})
            await unskippable(program.end())
            self._last_words = program.last_words
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(McpError(self._last_words))

    def _take(self, program: Program, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(McpError("Its answer has more than 8 MB, and kvchat reads no more."))
            return
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if "method" not in message:
            answer_to = self._answers.get(message["id"]) if isinstance(message.get("id"), int) else None
            if answer_to is not None and not answer_to.done():
                answer_to.set_result(message)
        elif "id" in message:
            is_ping = message["method"] == "ping"
            said = {"result": {}} if is_ping else {"error": {"code": -32601, "message": "kvchat offers nothing."}}
            program.reply(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode())

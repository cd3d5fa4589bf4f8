"""A toy model server for tests: scripted answers, byte for byte, and a record of what clients did.

    async with ToyServer() as server:
        server.on_chat(tokens("Hello", " there", prompt=40, cached=32))
        ...
    assert server.posts == 1

An answer is an async function of a `Visit`; `tokens`, `raw`, `reply`, `hang`, `drop` and `reset` make the common ones.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Answer = Callable[["Visit"], Awaitable[None]]
REASONS = {
    200: "OK",
    301: "Moved",
    302: "Found",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


@dataclass
class Visit:
    """One request, as it came, and the way to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    head: bytes
    """The request line and headers as sent."""
    writer: asyncio.StreamWriter = field(repr=False)
    gone: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when the client has closed the connection."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_chat(self) -> bool:
        """Whether an answer is asked for: the calls that follow a llama.cpp server's cache are not known here."""
        return (
            self.method == "POST"
            and not self.path.endswith(("/apply-template", "/tokenize"))
            and (not self.path.startswith("/slots/"))
        )

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


def raw(data: bytes, cuts: Iterable[int] = (), *, then: str = "close") -> Answer:
    """Exactly `data`, flushed at every offset in `cuts`; then `close`, `hang` (until the client goes) or `reset`."""

    async def answer(visit: Visit) -> None:
        start = 0
        for cut in [*sorted(set(cuts)), len(data)]:
            await visit.send(data[start:cut])
            start = cut
            await asyncio.sleep(0)
        if then == "hang":
            await visit.gone.wait()
        elif then == "reset":
            abort(visit.writer)

    return answer


def reply(
    status: int,
    value: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    content_type: str = "application/json",
    server: str = "",
) -> Answer:
    """A complete answer; `value` is bytes as they are, or JSON."""
    body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
    fields = {"Content-Type": content_type, "Content-Length": str(len(body)), "Connection": "close", **(headers or {})}
    if server:
        fields["Server"] = server
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
    return raw("\r\n".join(lines).encode() + body)


def error(status: int, message: str, type: str = "server_error", **extra: object) -> Answer:
    """An error in the shape that OpenAI-like servers use."""
    return reply(status, {"error": {"code": status, "message": message, "type": type, **extra}})


def loading() -> Answer:
    """What llama.cpp says until its model is loaded."""
    return error(503, "Loading model", "unavailable_error")


def hang() -> Answer:
    """Never a byte; ends when the client goes."""

    async def answer(visit: Visit) -> None:
        await visit.gone.wait()

    return answer


def drop() -> Answer:
    """The connection is closed without an answer."""
    return raw(b"")


def reset() -> Answer:
    """The connection is reset without an answer."""
    return raw(b"", then="reset")


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection by RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


def chunked(data: bytes) -> bytes:
    """`data` as one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def event(value: object) -> bytes:
    """`value` as a server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def sse(events: Iterable[bytes], *, end: bool = True, then: str = "close") -> Answer:
    """An event stream of ready-made events, in one HTTP chunk each; without `end` the last chunk is missing."""
    data = SSE_HEAD + b"".join(map(chunked, events)) + (b"0\r\n\r\n" if end else b"")
    return raw(data, then=then)


def tokens(
    *texts: str,
    delay: float = 0.0,
    prompt: int = 20,
    cached: int = 0,
    prompt_ms: float = 10.0,
    ms_per_token: float = 20.0,
    reasoning: Sequence[str] = (),
    finish: str | None = "stop",
    model: str = "toy",
    progress: bool = True,
    hang_after: int | None = None,
) -> Answer:
    """A llama.cpp answer of `texts`, one every `delay` seconds, with progress, timings and usage.

    `finish=None` leaves the finish out, `hang_after=n` says nothing more after n texts until the client goes.
    """

    def timings(predicted: int) -> dict[str, object]:
        return {
            "cache_n": cached,
            "prompt_n": prompt - cached,
            "prompt_ms": prompt_ms,
            "predicted_n": predicted,
            "predicted_ms": predicted * ms_per_token,
        }

    def part(delta: Mapping[str, object], **extra: object) -> dict[str, object]:
        choice = {"finish_reason": None, "index": 0, "delta": dict(delta)}
        return {"choices": [choice], "model": model, "object": "chat.completion.chunk", **extra}

    async def answer(visit: Visit) -> None:
        async def say(value: object) -> None:
            if not visit.gone.is_set():
                await visit.send(chunked(event(value)))

        await visit.send(SSE_HEAD)
        role = {"role": "assistant", "content": None}
        for processed in (cached, prompt) if progress else ():
            await say(
                part(
                    role,
                    prompt_progress={
                        "total": prompt,
                        "cache": cached,
                        "processed": processed,
                        "time_ms": prompt_ms if processed == prompt else 0,
                    },
                )
            )
        deltas = [{"reasoning_content": text} for text in reasoning] + [{"content": text} for text in texts]
        for count, delta in enumerate(deltas):
            if count == hang_after:
                await visit.gone.wait()
            if visit.gone.is_set():
                return
            await say(part(delta, timings=timings(count + 1)))
            if delay:
                await asyncio.sleep(delay)
        if hang_after is not None and hang_after >= len(deltas):
            await visit.gone.wait()
        if finish is not None:
            await say({**part({}), "choices": [{"finish_reason": finish, "index": 0, "delta": {}}]})
            total = prompt + len(deltas)
            await say(
                {
                    "choices": [],
                    "model": model,
                    "usage": {
                        "prompt_tokens": prompt,
                        "completion_tokens": len(deltas),
                        "total_tokens": total,
                        "prompt_tokens_details": {"cached_tokens": cached},
                    },
                    "timings": timings(len(deltas)),
                }
            )
            await visit.send(chunked(b"data: [DONE]\n\n"))
        await visit.send(b"0\r\n\r\n")

    return answer


def calls(
    *arguments: str, text: str = "", name: str = "read_file", finish: str = "tool_calls", prompt: int | None = 30
) -> Answer:
    """An answer that calls a tool, once for each of these arguments; `prompt=None` reports no figures."""

    def part(delta: dict[str, object], reason: str | None = None, **extra: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event({"choices": [choice], "model": "toy", "object": "chat.completion.chunk", **extra})

    made = [
        {"index": at, "id": f"call{at:05}", "type": "function", "function": {"name": name, "arguments": one}}
        for at, one in enumerate(arguments)
    ]
    timings = {"cache_n": 0, "prompt_n": prompt, "prompt_ms": 10.0, "predicted_n": 9, "predicted_ms": 90.0}
    deltas = [part({"content": text})] if text else []
    deltas += [part({"tool_calls": [one]}) for one in made]
    return sse([*deltas, part({}, finish, **({"timings": timings} if prompt is not None else {}))])


def several(
    *answers: Sequence[str], prompt: int = 20, cached: int = 0, turns: Sequence[int] = (), hang_after: int | None = None
) -> Answer:
    """What llama.cpp answers to `n`: the answers' texts mixed, each with its number, its finish and its figures in one
    go. `turns`: whose text comes next; the rest in turn. `hang_after=n` says nothing more after n texts until the
    client goes; an answer whose texts were all said by then has ended."""

    def part(at: int, delta: Mapping[str, object], finish: str | None = None, **extra: object) -> bytes:
        choice = {"finish_reason": finish, "index": at, "delta": dict(delta)}
        return event({"choices": [choice], "model": "toy", "object": "chat.completion.chunk", **extra})

    def timings(predicted: int) -> dict[str, object]:
        return {
            "cache_n": cached,
            "prompt_n": prompt - cached,
            "prompt_ms": 10.0,
            "predicted_n": predicted,
            "predicted_ms": predicted * 20.0,
        }

    def end(at: int) -> list[bytes]:
        count = len(answers[at])
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": count,
            "total_tokens": prompt + count,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return [part(at, {}, "stop"), event({"choices": [], "model": "toy", "usage": usage, "timings": timings(count)})]

    async def answer(visit: Visit) -> None:
        async def say(data: bytes) -> None:
            if not visit.gone.is_set():
                await visit.send(chunked(data))

        assert visit.json.get("n", 1) == len(answers)
        await visit.send(SSE_HEAD)
        for at in range(len(answers)):
            for processed in (cached, prompt) if at == 0 else (prompt,):
                await say(
                    part(
                        at,
                        {"role": "assistant", "content": None},
                        prompt_progress={"total": prompt, "cache": cached, "processed": processed, "time_ms": 10},
                    )
                )
        said, order, count = [0] * len(answers), list(turns), 0
        longest = max(map(len, answers))
        order += [at for _ in range(longest) for at in range(len(answers))]
        for at in order:
            if said[at] == len(answers[at]):
                continue
            if count == hang_after:
                await visit.gone.wait()
                return
            said[at] += 1
            count += 1
            await say(part(at, {"content": answers[at][said[at] - 1]}, timings=timings(said[at])))
            for data in end(at) if said[at] == len(answers[at]) else ():
                await say(data)
        if hang_after is not None:
            await visit.gone.wait()
            return
        await say(b"data: [DONE]\n\n")
        await visit.send(b"0\r\n\r\n")

    return answer


class ToyServer:
    """A server on a free loopback port. `kind` is what it pretends to be: `llama.cpp` or `openai`."""

    def __init__(
        self, kind: str = "llama.cpp", *, model: str = "toy", context_size: int = 4096, slots: int = 1
    ) -> None:
        self.visits: list[Visit] = []
        """Every request, in order of arrival."""
        self.open = 0
        """Connections that the client has not closed and the server has not finished."""
        self.port = 0
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[Any]] = set()
        self._chat: list[Answer] = [tokens("Hello")]
        self._routes: dict[str, Answer] = {"/health": reply(200, {"status": "ok"})}
        entry: dict[str, object] = {"id": model, "object": "model", "owned_by": "someone"}
        if kind == "llama.cpp":
            entry |= {"owned_by": "llamacpp", "meta": {"n_ctx": context_size}}
            self._routes["/props"] = reply(
                200,
                {
                    "default_generation_settings": {"n_ctx": context_size},
                    "total_slots": slots,
                    "model_alias": model,
                    "build_info": "b1-toy",
                    "chat_template_caps": {"supports_preserve_reasoning": False},
                },
                server="llama.cpp",
            )
        self._routes["/v1/models"] = reply(200, {"object": "list", "data": [entry]})

    def on(self, path: str, answer: Answer) -> None:
        """Answer GETs of `path` so."""
        self._routes[path] = answer

    def on_chat(self, *answers: Answer) -> None:
        """Answer chat requests so, one after the other; the last one stays."""
        self._chat = list(answers)

    @property
    def chats(self) -> list[Visit]:
        """The chat requests so far."""
        return [visit for visit in self.visits if visit.is_chat]

    @property
    def posts(self) -> int:
        return len(self.chats)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, looked at after each arrival and each close. Fails after 10 s."""
        async with asyncio.timeout(120):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_closed(self) -> None:
        """Wait until no connection is open."""
        await self.until(lambda: self.open == 0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Listen; after a `stop`, at the same address as before."""
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End listening and every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in set(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.open += 1
        self._changed.set()
        watcher: asyncio.Task[None] | None = None
        try:
            visit = await self._read(reader, writer)
            watcher = asyncio.create_task(_watch(reader, visit))
            self.visits.append(visit)
            self._changed.set()
            await self._answer_to(visit)(visit)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass  # the server stops: a connection's end is not an error
        finally:
            if watcher is not None:
                watcher.cancel()
            writer.close()
            self.open -= 1
            self._handlers.discard(task)
            self._changed.set()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Visit:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Visit(method, path, headers, body, head, writer)

    def _answer_to(self, visit: Visit) -> Answer:
        if visit.is_chat:
            return self._chat.pop(0) if len(self._chat) > 1 else self._chat[0]
        return self._routes.get(visit.path, error(404, "File Not Found", "not_found_error"))


async def _watch(reader: asyncio.StreamReader, visit: Visit) -> None:
    """Set `visit.gone` when the client closes its side."""
    try:
        while await reader.read(4096):
            pass
    except OSError:
        pass
    visit.gone.set()

"""Discovery: how long it takes with 0, 1 and 12 servers and with ports that misbehave, and what it costs the screen.

    python tests/bench/discovery_bench.py [RUNS] [--paint]

The servers run in a process of their own. Wall: median and worst. CPU: of the event loop's thread; some 9 ms per
100 ms are the bench's own looking. Stretch: the most CPU time in one go. `--paint` also measures the first paint of
the app, with a server named (nothing to discover) and without one. Nothing is asserted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kvchat.backends.discovery import FoundServer, discover
from toyserver import ToyServer

PAINT = "--paint" in sys.argv
RUNS = next((int(argument) for argument in sys.argv[1:] if argument.isdecimal()), 20)
PORTS = 10
"""How many ports are asked where nothing listens."""
CLOSING = "12 that keep no connection"
STEPS, STEP = 60, 30_000
"""What a first paint is made of here: steps of work with a look at the loop in between."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00garbage\xff" * 100 + b"\r\n\r\n")
    await reader.read()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"[1,2.5,{}," * 6000)
        await writer.drain()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n":
        writer.write(bytes([byte]))
        if not reader.at_eof():
            await asyncio.sleep(1)


def one_by_one() -> Talk:
    """A server that answers one request after the other, each after 20 ms, one connection at a time."""
    turn = asyncio.Lock()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with turn:
            head = await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.02)
            body = b'{"object":"list","data":[{"id":"tiny"}]}' if b"/v1/models " in head else b"{}"
            status = b"200 OK" if b"/v1/models " in head or b"/health " in head else b"404 Not Found"
            writer.write(
                b"HTTP/1.0 %s\r\nServer: BaseHTTP/0.6\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
            )
            writer.close()

    return talk


def model_server(number: int) -> Talk:
    """A server that keeps its connections, as most do: every third one is not llama.cpp."""
    listing = {"object": "list", "data": [{"id": f"model-{number}", "owned_by": "llamacpp" if number % 3 else "me"}]}
    known: dict[str, object] = {"/v1/models": listing}
    if number % 3:
        known["/props"] = {
            "default_generation_settings": {"n_ctx": 8192},
            "total_slots": 4,
            "chat_template": "x" * 999,
            "build_info": "b1",
        }
    answers = {path: json.dumps(value).encode() for path, value in known.items()}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
            body = answers.get(path, b'{"error":{"code":404,"message":"File Not Found"}}')
            status, name = "200 OK" if path in answers else "404 Not Found", "llama.cpp" if number % 3 else "other"
            writer.write(
                f"HTTP/1.1 {status}\r\nServer: {name}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )

    return talk


TALKS: dict[str, Callable[[], Talk]] = {
    "silent": lambda: silent,
    "garbage": lambda: garbage,
    "endless": lambda: endless,
    "one byte a second": lambda: dripping,
    "20 ms, one by one": one_by_one,
}


def serve(pipe: Connection) -> None:
    """In the other process: start everything, and tell the ports."""
    logging.disable()  # connections that are closed on the way are what this is about
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    async def guarded(talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)  # type: ignore[misc]
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    closing = [ToyServer("llama.cpp" if number % 3 else "openai") for number in range(12)]
    for server in closing:
        await server.__aenter__()
    ports: dict[str, list[int]] = {"good": [], CLOSING: [server.port for server in closing]}
    talks = [
        *(("good", model_server(number)) for number in range(12)),
        *((name, make()) for name, make in TALKS.items()),
    ]
    for name, talk in talks:
        listener = await asyncio.start_server(lambda r, w, talk=talk: guarded(talk, r, w), "127.0.0.1", 0)
        ports.setdefault(name, []).append(listener.sockets[0].getsockname()[1])
    pipe.send(ports)
    await asyncio.Event().wait()


async def stalls(longest: list[float]) -> None:
    """Note the most CPU time that was spent between two turns of the loop that were due 1 ms apart."""
    longest.append(0.0)
    last = time.thread_time()
    while True:
        await asyncio.sleep(0.001)
        now = time.thread_time()
        longest[-1] = max(longest[-1], now - last)
        last = now


async def measured(name: str, ports: list[int]) -> None:
    walls: list[float] = []
    cpus: list[float] = []
    longest: list[float] = []
    found: list[FoundServer] = []
    for _ in range(RUNS + 1):
        watch = asyncio.create_task(stalls(longest))
        await asyncio.sleep(0)
        wall, cpu = time.perf_counter(), time.thread_time()
        found = await discover(ports)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
        watch.cancel()
    print(
        f"{name:30} found {len(found):2}  wall {statistics.median(walls[1:]) * 1000:6.1f} ms, worst "
        f"{max(walls[1:]) * 1000:6.1f}  CPU {statistics.median(cpus[1:]) * 1000:5.1f} ms  stretch "
        f"{statistics.median(longest[1:]) * 1000:4.1f} ms, worst {max(longest[1:]) * 1000:5.1f}"
    )
    if len(found) == 1 and found[0].kind:
        print(f"{'':30} {found[0].title}, {found[0].model}, known after {found[0].seconds * 1000:.0f} ms")


async def dummy_paint() -> float:
    """Seconds that work with looks at the loop in between takes, as a first paint does."""
    began = time.perf_counter()
    for _ in range(STEPS):
        sum(range(STEP))
        await asyncio.sleep(0)
    return time.perf_counter() - began


async def beside(name: str, ports: list[int]) -> None:
    alone, both = [], []
    for _ in range(RUNS * 2):
        alone.append(await dummy_paint())
        looking = asyncio.create_task(discover(ports))
        await asyncio.sleep(0)
        both.append(await dummy_paint())
        await looking
    ratio = statistics.median(both) / statistics.median(alone)
    print(
        f"work of {statistics.median(alone) * 1000:.0f} ms beside {name:12} ratio {ratio:.2f}, "
        f"of the quickest {min(both) / min(alone):.2f}"
    )


def first_paint() -> None:
    from start_bench import painted  # in this folder; it reads RUNS from the same place

    folder = Path(tempfile.mkdtemp())
    try:
        figures: dict[str, list[float]] = {"named": [], "discovered": []}
        for _ in range(RUNS + 1):
            figures["named"].append(painted(folder, b"essage")[0])
            figures["discovered"].append(painted(folder, b"essage", "--base-url", "")[0])
    finally:
        shutil.rmtree(folder)
    named, discovered = (statistics.median(figures[name][1:]) for name in ("named", "discovered"))
    print(
        f"first paint: {named * 1000:.0f} ms with a server named, {discovered * 1000:.0f} ms without; "
        f"ratio {discovered / named:.2f}"
    )


async def main(ports: dict[str, list[int]]) -> None:
    good = ports["good"]
    closed = list(range(1, PORTS + 1))
    await measured("0 servers, 10 closed ports", closed)
    await measured("1 server, 9 closed ports", [*good[1:2], *closed[1:]])
    await measured("12 servers", good)
    for name in (CLOSING, *TALKS):
        await measured(name, ports[name])
    await measured("12 servers and those that fail", [*good, *(ports[name][0] for name in TALKS)])
    for name, group in (("0 servers", closed), ("1 server", good[:1]), ("12 servers", good)):
        await beside(name, group)


if __name__ == "__main__":
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    asyncio.run(main(ours.recv()))
    process.terminate()
    if PAINT:
        first_paint()

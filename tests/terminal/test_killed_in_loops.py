"""kill -9 at a random instant of a loop of calls: what is found then is a history that a strict server takes, what was
carried out is never told as not, nor the other way round, and nothing that was sent is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, create_subprocess_exec
from pathlib import Path

import pytest

from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.tools import INTERRUPTED, NOT_CARRIED_OUT
from kvchat.store import Store
from strict_history import check_sent, check_tree
from terminal_output import Terminal
from toyserver import ToyServer, Visit, calls, tokens
from tries import tries

pytestmark = pytest.mark.process

KILLS = tries("loop_kills", 6)
PROGRAM = """
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    result = {"protocolVersion": "2025-06-18", "capabilities": {}}
    if message["method"] == "tools/list":
        schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
        result = {"tools": [{"name": "do", "inputSchema": schema}]}
    elif message["method"] == "tools/call":
        what = message["params"]["arguments"]["what"]
        with open(sys.argv[1], "a") as done:
            done.write(what + "\\n")
        time.sleep(0.03)
        result = {"content": [{"type": "text", "text": "did " + what}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
"""It notes what it does, and is at it for a moment."""


class Model(ToyServer):
    """A server that calls again and again, each time for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.on_chat(self._answer)

    async def _answer(self, visit: Visit) -> None:
        asked = visit.json
        if not asked.get("tools") or asked.get("tool_choice") == "none" or "response_format" in asked:
            await tokens('{"facts": []}', prompt=60)(visit)
            return
        made = range(self.count, self.count + random.Random(self.count).choice([1, 1, 2, 4]))
        self.count = made.stop
        await calls(*(json.dumps({"what": f"w{number}."}) for number in made), name="box__do")(visit)


@pytest.fixture
def done(own_folders: Path) -> Path:
    """Where the program notes what it did."""
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "does.py").write_text(PROGRAM)
    line = {"command": sys.executable, "args": [str(own_folders / "does.py"), str(own_folders / "done.txt")]}
    (own_folders / "config" / "mcp.json").write_text(json.dumps({"mcpServers": {"box": line}}))
    (own_folders / "config" / "config.toml").write_text("[parameters]\n")
    (own_folders / "done.txt").write_text("")
    return own_folders / "done.txt"


async def ask(model: Model, done: Path, seconds: float, chance: random.Random, *, is_first: bool) -> None:
    options = ("--no-stdin", "--tools", "box", "--allow", "box", "Do all?")
    command = (sys.executable, "-m", "kvchat.cli", "--base-url", model.url, "ask", *options)
    process = await create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    before = model.count
    await model.until(lambda: model.count > before)
    await asyncio.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def app(
    model: Model, done: Path, seconds: float, chance: random.Random, *, is_first: bool, plain: bool = False
) -> None:
    before, enter = done.read_text(), ["\r"] if plain else []
    arguments = ["-m", "kvchat.cli", "--base-url", model.url, *(["--plain"] if plain else [])]
    with Terminal(arguments, os.environ | {"TERM": "xterm-256color"}) as terminal:
        await terminal.shows("You:" if plain else "newline")
        await terminal.press("/tools box", "\r")
        if is_first:
            await terminal.shows("y or n" if plain else "enter choose")
            await terminal.press("y", *enter)
        await terminal.shows("Each call is asked")
        await terminal.shows("no: " if plain else "esc stop the answer", "Do all?", "\r")
        if chance.random() < 0.8:
            await terminal.press("c", *enter)
            async with asyncio.timeout(60):
                while done.read_text() == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)
        terminal.process.kill()


async def plain(model: Model, done: Path, seconds: float, chance: random.Random, *, is_first: bool) -> None:
    await app(model, done, seconds, chance, is_first=is_first, plain=True)


def told(results: list[Node]) -> dict[str, str]:
    """What the history says of each thing that was called for."""
    return {one.message.call.given()["what"]: json.loads(one.wire)["content"] for one in results}


@pytest.mark.parametrize("way", [ask, plain, app])
async def test_killed_in_a_loop_of_calls(own_folders: Path, done: Path, way) -> None:
    chance = random.Random(way.__name__)
    for kill in range(KILLS):
        async with Model() as model:
            model.count = kill * 10_000
            await way(model, done, chance.uniform(0, 0.6), chance, is_first=kill == 0)
            carried_out = {what for what in done.read_text().split() if int(what[1:-1]) >= kill * 10_000}
            store = Store.open(own_folders / "data")
            record = max(store.conversations(), key=lambda row: row.created)
            tree = store.tree(record.id)
            path = tree.path(record.head)
            check_tree(tree)
            assert path[1].text == "Do all?"
            assert not [one for one in tree if one.state is State.STREAMING]
            says = told([one for one in tree if one.role is Role.TOOL])
            assert {what for what, text in says.items() if f"did {what}" in text} <= carried_out
            for what in carried_out:
                assert f"did {what}" in says[what] or says[what] == INTERRUPTED, (what, says[what])
            assert {*says.values()} <= {INTERRUPTED, NOT_CARRIED_OUT} | {
                text for what, text in says.items() if f"did {what}" in text
            }
            stored = [json.loads(one.wire) for one in tree]
            sent = [message for visit in model.chats for message in visit.json["messages"]]
            results = [one for one in sent if one["role"] == "tool"]
            assert all(one in stored for one in results), "what a model was told is what is stored"
            check_sent(model)
            store.close()
        async with ToyServer() as server:
            server.on_chat(tokens("Enough.", prompt=60))
            command = (
                sys.executable,
                "-m",
                "kvchat.cli",
                "--base-url",
                server.url,
                "ask",
                "--no-stdin",
                "-c",
                "Go on?",
            )
            process = await create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
            assert await process.wait() == 0
            check_sent(server)

"""What a conversation with tools costs a server that really calls them: each request's figures, then the sums.

    python tests/bench/tool_bench.py URL [--token-ids]

Three turns that look something up by `read_file` (`a.txt` and `b.txt`), one that does not, a restart of kvchat, and one
more. How often a model calls is its own matter. `new`: tokens of a prompt that the conversation had not sent or received
before; `excess`: what was prefilled beyond them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import Role
from kvchat.store import Store

SYSTEM = "You are a careful assistant for a small workshop. Answer in one or two short sentences. " + " ".join(
    f"Rule {i}: when asked about item {i}, state its shelf as {(i * 7) % 40} and its price as {i * 3 + 2} coins."
    for i in range(1, 64)
)
SHELVES = {
    name: " ".join(f"Place {i} of list {name} holds {i * k} parts, row {i + k}." for i in range(1, 21))
    for name, k in (("a.txt", 3), ("b.txt", 7))
}
BEFORE = (
    "Please look up the shelves, number one.",
    "Now look up the shelves again, number two.",
    "And look up the shelves a last time, number three.",
    "Thanks, which item is the cheapest one?",
)
AFTER = ("Back again: is item three in stock?",)


async def play(settings: Settings, data: Path, questions: tuple[str, ...], id: str = "") -> str:
    """Ask these questions in a conversation, a new one without an id; its id."""
    service = ChatService(Store.open(data), settings, lanes=data / "lanes", snapshots=data / "snapshots")
    try:
        service.tools.give(["read_file"])
        await service.servers.reach()
        service.begin_background()
        id = id or (await service.new_conversations.create(SYSTEM, tools=["files"], reuse=False)).id
        conversation = await service.conversations.open(id)
        begun = len(conversation.path())
        for question in questions:
            await service.turns.send(id, Question(question))
            await service.conversations.wait(id)
        for node in service.conversations.get(id).path()[begun:]:
            if node.role is Role.ASSISTANT:
                show(node.figures, "call" if node.message.calls else "answer")
    finally:
        await service.aclose()
    return id


SUMS = [0, 0, 0]


def show(figures: object, kind: str) -> None:
    prompt, cached, new = (getattr(figures, name) or 0 for name in ("prompt_tokens", "cached_tokens", "new_tokens"))
    SUMS[0], SUMS[1], SUMS[2] = SUMS[0] + 1, SUMS[1] + prompt - cached, SUMS[2] + new
    print(f"{kind:7} prompt {prompt:6,}  cached {cached:6,}  evaluated {prompt - cached:6,}  new {new:6,}")


async def main(url: str, token_ids: bool) -> None:
    settings = changed(changed(Settings(), "server.base_url", url), "cache.token_ids", token_ids)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in SHELVES.items():
            Path(name).write_text(text + "\n")
        id = await play(settings, Path(folder) / "data", BEFORE)
        await play(settings, Path(folder) / "data", AFTER, id)
        os.chdir("/")
    requests, evaluated, new = SUMS
    print(f"{requests} requests, evaluated {evaluated:,}, new {new:,}, excess {evaluated - new:,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--token-ids", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.url, given.token_ids))

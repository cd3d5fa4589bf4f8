"""What the model server is sent in a long conversation, byte for byte, in order: the same on every run.

    python tests/bench/wire_log.py OUT.jsonl

A conversation of twelve turns is driven through the whole app by keys: with memory that is added to, gone through for
and recalled, documents that are searched and mentioned, an edited question, another answer, a second conversation in
between and a compaction. The clock stands still but for seven minutes a turn, ids are counted, the server answers what
it is told to. OUT.jsonl gets a line for each request that carries a prompt (kind, path, SHA-256 of the body, body) in
the order of arrival; looking, tokenising and templates are left out. Printed are the requests of each kind and the
SHA-256 of the log: a change of kvchat that should change nothing on the wire leaves it as it is. Reading ahead is off.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "screens"))
from app_kit import Clock, Driven, driving
from llama_app import LlamaServer, own_folders, searching, settings_of

from toyserver import Visit

STEP = timedelta(minutes=7)
FACTS = {
    "facts": [{"turns": [1], "text": "I prefer metric units.", "kind": "preference", "topic": "", "confidence": 0.9}]
}
SUMMARY = "The keeper asked about the lamp, the signals, the paint and the stairs of the tower."
ANSWER = "Answer {number}: it stands in the handbook of the lighthouse, as the keeper wrote it down. "
MORE = "Tell me all of it, at length, as you would tell a guest who came by boat and stays for the night. "


@contextmanager
def counted_ids() -> Iterator[None]:
    """Ids of messages, conversations and memories are numbers that count up."""
    ids, letters = count(1), count()

    def choice(alphabet: str) -> str:
        number, place = divmod(next(letters), 8)
        return alphabet[number // len(alphabet) ** (7 - place) % len(alphabet)]

    with (
        patch("kvchat.prompt.message.uuid", SimpleNamespace(uuid4=lambda: UUID(int=next(ids)))),
        patch("kvchat.memory.entry.secrets", SimpleNamespace(choice=choice)),
    ):
        yield


def kind_of(body: Mapping[str, Any]) -> str:
    """What a request is for."""
    if "messages" not in body:
        return "reading"
    if "response_format" in body:
        return "extraction"
    return "compaction" if "summary" in str(body["messages"][-1]["content"]).lower() else "chat"


class Teller:
    """What the server says: the answers are numbered."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self, body: Mapping[str, Any]) -> str:
        match kind_of(body):
            case "extraction":
                return json.dumps(FACTS)
            case "compaction":
                return SUMMARY
            case _:
                return ANSWER.format(number=next(self._numbers)) * 3


class Driver:
    """A person who waits for each answer."""

    def __init__(self, app: Driven, server: LlamaServer, clock: Clock) -> None:
        self.app, self._server, self._clock = app, server, clock

    async def ask(self, text: str) -> None:
        await self.app.write(text)
        await self.answered("enter")

    async def answered(self, *keys: str) -> None:
        """Press keys and wait for what is then asked and answered."""
        self._clock.now += STEP
        before = self._server.posts
        await self.app.press(*keys)
        if self.app.front == "ConfirmScreen":
            await self.app.press("y")
        await self.sent(before)

    async def sent(self, before: int) -> None:
        """Until one more request than `before` was answered, and all is at rest."""
        await self.app.until(lambda: self._server.posts > before and not self._server.open)
        await self.app.settled()
        await self.app.until(lambda: not self._server.open)

    async def remembers(self) -> None:
        """Have the open conversation gone through for memories now: else kvchat would choose the moment."""
        before = self._server.posts
        await self.app.command("/memory now")
        await self.sent(before)

    async def shows(self, words: str) -> None:
        await self.app.until(lambda: words in self.app.prose)


async def talk(app: Driven, server: LlamaServer, clock: Clock, folder: Path) -> None:
    person = Driver(app, server, clock)
    await searching(app, folder)
    await app.command("/remember The lamp has a red glass.")
    await app.until(lambda: app.noticed("Remembered"))
    await person.ask("I prefer metric units. How fast does the lamp turn?")
    await person.ask("What sounds in fog, and how often? Tell me of the horn and of the mast.")
    await person.ask("Which paint is on @handbook/tower/paint.md and when? ")
    await person.remembers()
    await person.shows("memory: 1 noted")
    await person.ask("Which units do I prefer, metric units or others?")
    await person.ask("What colour has the glass of the lamp?")

    await app.select(-2)
    await app.press("e")
    if app.front == "ConfirmScreen":
        await app.press("y")
    await app.until(lambda: app.draft)
    await person.ask(" I keep a red boat at the pier.")
    await app.select(-1)
    await person.answered("r")

    await person.remembers()

    await app.press("ctrl+n")
    await person.shows("ready")
    await person.ask("I live in a stone house on Hvar. How many stairs are there, in metric units?")
    await person.ask("And how high is one?")
    await person.remembers()
    await app.press("f9")
    await person.shows("sent with: ")

    for number in range(6, 10):
        await person.ask(f"Question {number} about the tower. " + MORE)
    await app.command("/compact")
    await app.opens("ConfirmScreen")
    await person.answered()
    await person.ask("How many stairs of granite are there?")
    for number in range(11, 13):
        await person.ask(f"Question {number} about the tower. " + MORE)


async def logged(folder: Path) -> list[Visit]:
    """The requests with a prompt that the conversation made."""
    clock = Clock()
    async with LlamaServer(Teller()) as server:
        settings = settings_of(
            server,
            documents__watch=False,
            cache__warm_up=False,
            memory__consolidate=False,
            memory__rest_seconds=3600,
            memory__idle_seconds=86400,
        )
        async with driving(
            folder / "data", server, clock=clock, settings=settings, size=(120, 40), background=True, ahead=True
        ) as app:
            await talk(app, server, clock, folder)
        return server.chats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.jsonl")
    options = parser.parse_args()
    with own_folders() as folder, counted_ids():
        visits = asyncio.run(logged(folder))
    kinds = [kind_of(visit.json) for visit in visits]
    lines = [
        json.dumps(
            {
                "kind": kind,
                "path": visit.path,
                "sha256": hashlib.sha256(visit.body).hexdigest(),
                "body": visit.body.decode(),
            },
            ensure_ascii=False,
        )
        + "\n"
        for kind, visit in zip(kinds, visits, strict=True)
    ]
    log = "".join(lines).encode()
    options.out.write_bytes(log)
    print(", ".join(f"{kind} {number}" for kind, number in Counter(kinds).items()))
    print(f"sha256 {hashlib.sha256(log).hexdigest()}  {len(visits)} requests, {len(log):,} bytes")


if __name__ == "__main__":
    main()

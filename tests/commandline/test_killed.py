"""kill -9 in the middle of an answer: the question is there, and the answer has what was written of it."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from kvchat.prompt.message import Role, State
from kvchat.store import Store
from toyserver import SSE_HEAD, ToyServer, chunked, event
from tries import tries

MOMENTS = tries("kill_moments", 8)
STEP = 0.01


async def written(database: Path, length: int) -> None:
    """Wait until this many bytes of the running answer are in the database."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as db:
        while (db.execute("SELECT sum(length(text)) FROM delta").fetchone()[0] or 0) < length:  # noqa: ASYNC110
            await asyncio.sleep(STEP)


async def test_killed_at_random_moments_it_lost_next_to_nothing(environment, own_folders):
    folder = Path(environment["KVCHAT_DATA_DIR"])
    chance = random.Random(7)
    for moment in range(MOMENTS):
        sent: list[str] = []

        async def stream(visit, sent=sent):
            await visit.send(SSE_HEAD)
            for number in range(10_000):
                if visit.gone.is_set():
                    return
                word = f"w{number} "
                await visit.send(chunked(event({"choices": [{"index": 0, "delta": {"content": word}}]})))
                sent.append(word)
                await asyncio.sleep(STEP)

        async with ToyServer() as server:
            server.on_chat(stream)
            command = (sys.executable, "-m", "kvchat.cli", "--base-url", server.url, "ask", f"question {moment}")
            process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
            await process.stdout.readexactly(2)
            await asyncio.sleep(chance.uniform(0, 1.5))
            must = "".join(sent)
            await written(folder / "kvchat.db", len(must))
            process.send_signal(signal.SIGKILL)
            await process.wait()
        everything = "".join(sent)

        store = Store.open(folder)
        record = store.conversations()[0]
        question, answer = store.tree(record.id).path(record.head)[1:]
        store.close()
        assert (question.role, question.text) == (Role.USER, f"question {moment}")
        assert answer.state is State.INTERRUPTED
        assert answer.text.startswith(must)
        assert everything.startswith(answer.text)
        assert json.loads(answer.wire)["content"] == answer.text
        with sqlite3.connect(folder / "kvchat.db") as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)

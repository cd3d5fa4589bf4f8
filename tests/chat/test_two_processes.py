"""Two real processes on one conversation, through random interleavings of what a person does in two windows.

After every step the stored fields are those that were given last, whoever gave them; every request that came was built
on settled messages, exactly as they are stored; and each act ended in one of the ways it may end in.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kvchat.prompt.conversation import title_of
from kvchat.prompt.message import Role, State
from kvchat.store import Store
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event

pytestmark = pytest.mark.process

STEPS = 14
PATIENCE_S = 120
"""A step that takes longer has hung."""
RUNNING, TRASH, GIVEN_UP = "still running", "in the trash", "not sent"


class Window:
    """One of the processes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self._process = name, process
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = 0
        self.events: list[tuple[str, str]] = []
        self.heard = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "event" in said:
                self.events.append((said["event"], said["id"]))
            else:
                self._asked.pop(said["n"]).set_result(said)
            self.heard.set()
        for left in self._asked.values():
            left.set_exception(AssertionError(f"the process of {self.name} has ended"))
        self.heard.set()

    def begin(self, do: str, **options: object) -> asyncio.Future[dict[str, Any]]:
        """Have it do something; what becomes of it comes later."""
        assert self._process.stdin is not None
        self._numbers += 1
        n = self._numbers
        answer = self._asked[n] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"n": n, "do": do, **options}).encode() + b"\n")
        return answer

    async def does(self, do: str, **options: object) -> Any:
        """Have it do something that is never refused."""
        answer = await self.begin(do, **options)
        assert "refused" not in answer, (self.name, do, options, answer)
        return answer["gives"]

    async def until(self, holds: Any) -> None:
        """Until it holds, looked at after each line of the process."""
        while not holds():
            self.heard.clear()
            await self.heard.wait()

    def count(self, kind: str, id: str) -> int:
        return self.events.count((kind, id))

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading


class Model:
    """The model server: each reply says its first half, and the other when it is released. What comes over the wire is
    compared with what is stored, in the moment in which it comes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.wrong: list[str] = []
        self.asked: dict[str, Reply] = {}
        """The replies by their questions, each of which is asked once."""
        self.holds = True
        """Whether replies wait to be released."""

    async def __call__(self, visit: Visit) -> None:
        contents = [message["content"] for message in visit.json["messages"]]
        question = contents[-1].rpartition("]\n\n")[2]
        self.wrong += [f"{question}: {what}" for what in self._check(visit, question)]
        reply = self.asked[question] = Reply(f"r{len(self.asked)} ")

        def part(text: str, finish: str | None = None) -> bytes:
            return chunked(event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}))

        await visit.send(SSE_HEAD + part(reply.first))
        if not self.holds:
            reply.released.set()
        ends = [asyncio.create_task(reply.released.wait()), asyncio.create_task(visit.gone.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if not visit.gone.is_set():
            await visit.send(part(reply.second) + part("", "stop") + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _check(self, visit: Visit, question: str) -> list[str]:
        tree = self._store.tree(visit.json["session_id"])
        asked = next((node for node in tree if node.role is Role.USER and node.text == question), None)
        if asked is None or question in self.asked:
            return ["it is not stored, or was asked before"]
        path = tree.path(asked.id)
        wrong = [f"{node.text!r} is history while it streams" for node in path if node.state is State.STREAMING]
        wrong += ["an empty reply is history" for node in path if not node.text]
        if b'"messages":[' + b",".join(node.wire for node in path) + b"]" not in visit.body:
            wrong.append("other bytes were sent than are stored")
        return wrong


@dataclass
class Reply:
    first: str
    second: str = "and the rest"
    released: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Play:
    """One conversation, and what is expected of it."""

    chance: random.Random
    windows: list[Window]
    model: Model
    store: Store
    id: str
    title: str = ""
    memory: bool = True
    trashed: bool = False
    asked: list[str] = field(default_factory=list)
    """The questions that were stored."""
    running: dict[str, str] = field(default_factory=dict)
    """The question that a window is answered, by its name."""
    waiting: dict[str, tuple[str, asyncio.Future[dict[str, Any]]]] = field(default_factory=dict)
    overtaken: set[str] = field(default_factory=set)
    """Windows that were answered themselves while their question waited for the other's reply."""
    forks: list[tuple[Window, str]] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)
    """How the acts ended, for the message of a failure, and to see that all ways were gone."""

    def way(self, window: Window, act: str, how: str) -> None:
        self.ways.append(f"{window.name} {act}: {how}")

    # -- the steps

    async def step(self) -> None:
        window = self.chance.choice(self.windows)
        acts = ["send"] * 5 + ["release"] * 4 + ["edit", "rename", "memory", "fork", "stop", "delete", "look", "look"]
        act = "restore" if self.trashed and self.chance.random() < 0.6 else self.chance.choice(acts)
        await getattr(self, f"do_{act}")(window)
        await self.settle_waiting()
        self.check()

    async def do_send(self, window: Window) -> None:
        if window.name in self.waiting:
            return  # a window has one message on its way
        text = f"question {len(self.asked)} {self.chance.getrandbits(32):x}"
        waits = window.count("waits", self.id)
        answer = window.begin("send", id=self.id, text=text)
        await window.until(lambda: answer.done() or window.count("waits", self.id) > waits)
        if answer.done():
            await self.sent(window, "send", text, answer.result())
        else:
            others = [name for name in self.running if name != window.name]
            assert others and not self.trashed, "it waits, and nothing runs elsewhere"
            self.waiting[window.name] = text, answer
            self.overtaken.discard(window.name)
            self.way(window, "send", "waits")

    async def sent(self, window: Window, act: str, text: str, answer: dict[str, Any]) -> None:
        """What became of a question: it is being answered, or there was a reason."""
        refused = answer.get("refused")
        if refused is None:
            assert window.name not in self.running and not self.trashed
            self.title = self.title or title_of(text)
            self.asked.append(text)
            self.running[window.name] = text
            self.overtaken |= {window.name} & self.waiting.keys()
            await window.until(lambda: self._has_text(window))
            self.way(window, act, "answered")
            return
        still_running = window.name in self.running or (act == "waited" and window.name in self.overtaken)
        reasons = {RUNNING: still_running, TRASH: self.trashed, GIVEN_UP: act == "gave up"}
        assert any(reason in refused and holds for reason, holds in reasons.items()), (refused, reasons)
        self.way(window, act, refused)

    def _has_text(self, window: Window) -> bool:
        """Whether something of the reply that began last has come."""
        told = [kind for kind, id in window.events if id == self.id]
        begun = len(told) - 1 - told[::-1].index("began") if "began" in told else len(told)
        return "text" in told[begun:]

    async def do_edit(self, window: Window) -> None:
        path = (await window.does("state", id=self.id))["path"]
        questions = [node for node in path if node["role"] == "user"]
        if not questions:
            return
        text = f"edited {len(self.asked)} {self.chance.getrandbits(32):x}"
        answer = await window.begin("edit", id=self.id, node=self.chance.choice(questions)["id"], text=text)
        await self.sent(window, "edit", text, answer)

    async def do_release(self, window: Window) -> None:
        """Let a reply come to its end."""
        for owner in self.windows:
            if text := self.running.get(owner.name):
                ended = owner.count("ended", self.id)
                self.model.asked[text].released.set()
                await owner.until(lambda owner=owner, ended=ended: owner.count("ended", self.id) > ended)
                del self.running[owner.name]
                self.way(owner, "reply", "whole")
                return

    async def do_stop(self, window: Window) -> None:
        await window.does("stop", id=self.id)
        await self.stopped(window)

    async def stopped(self, window: Window) -> None:
        """A window's reply was ended, and its question waits no longer."""
        self.running.pop(window.name, None)
        if window.name in self.waiting:
            text, answer = self.waiting.pop(window.name)
            await self.sent(window, "gave up", text, await answer)

    async def do_rename(self, window: Window) -> None:
        self.title = f"title {self.chance.getrandbits(32):x}"
        await window.does("rename", id=self.id, title=self.title)

    async def do_memory(self, window: Window) -> None:
        self.memory = self.chance.random() < 0.5
        await window.does("memory", id=self.id, on=self.memory)

    async def do_delete(self, window: Window) -> None:
        self.trashed = True
        await window.does("delete", id=self.id)
        await self.stopped(window)

    async def do_restore(self, window: Window) -> None:
        self.trashed = False
        await window.does("restore", id=self.id)

    async def do_fork(self, window: Window) -> None:
        path = (await window.does("state", id=self.id))["path"]
        if path:
            fork = await window.does("fork", id=self.id, node=path[-1]["id"])
            assert self.store.conversation(fork).forked_from == self.id
            self.forks.append((window, fork))

    async def do_look(self, window: Window) -> None:
        """As the app does it every two seconds. What the window shows is still a branch, and the same or longer."""
        before = (await window.does("state", id=self.id))["path"]
        await window.does("look")
        after = (await window.does("state", id=self.id))["path"]
        assert [node["id"] for node in after][: len(before)] == [node["id"] for node in before]
        self.way(window, "look", "same" if len(after) == len(before) else "followed")

    async def settle_waiting(self) -> None:
        """Until each question that waits waits for a reply that streams."""
        for window in self.windows:
            while window.name in self.waiting:
                text, answer = self.waiting[window.name]
                if answer.done():
                    del self.waiting[window.name]
                    await self.sent(window, "waited", text, answer.result())
                    continue
                state = await window.does("state", id=self.id)
                tip = state["path"][-1]["id"] if state["path"] else ""
                if state["waits"] and self.store.is_streaming(tip):
                    break
                await asyncio.sleep(0.01)

    # -- what must hold

    def check(self) -> None:
        assert self.model.wrong == []
        record = self.store.conversation(self.id)
        if self.title:
            assert record.title == self.title
        assert (record.memory, record.trashed is not None) == (self.memory, self.trashed)
        assert record.turns == len(self.asked)

    async def end(self) -> None:
        """Everything comes to its end; then each window and each fork can go on."""
        if self.trashed:
            await self.do_restore(self.windows[0])
        while self.running or self.waiting:
            await self.do_release(self.windows[0])
            await self.settle_waiting()
        self.check()
        tree = self.store.tree(self.id)
        for text in self.asked:
            question = next(node for node in tree if node.text == text)
            reply = self.model.asked[text]
            (answer,) = tree.children(question.id)[:1]
            whole = reply.first + reply.second
            assert (answer.text, answer.state) in ((whole, State.DONE), (reply.first, State.CANCELLED))
        for window in self.windows:
            await window.does("look")
            path = (await window.does("state", id=self.id))["path"]
            stored = [(node.id, node.text, node.state) for node in tree.path(path[-1]["id"])[1:]] if path else []
            assert [(node["id"], node["text"], node["state"]) for node in path] == stored
        for window, fork in self.forks:
            await window.does("open", id=fork)
            text = f"in a fork {self.chance.getrandbits(32):x}"
            await window.does("send", id=fork, text=text)
            await window.until(lambda text=text: text in self.model.asked)
            ended = window.count("ended", fork)
            self.model.asked[text].released.set()
            await window.until(lambda window=window, fork=fork, ended=ended: window.count("ended", fork) > ended)
        assert self.model.wrong == []


@asynccontextmanager
async def two_windows(folder: Path) -> AsyncIterator[tuple[list[Window], Model, Store]]:
    async with ToyServer(slots=4) as server:
        store, windows = Store.open(folder), []
        model = Model(store)
        server.on_chat(model)
        try:
            for name in ("one", "other"):
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    str(Path(__file__).parents[1] / "window_process.py"),
                    str(folder),
                    server.url,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                windows.append(Window(name, process))
            for window in windows:
                await window.until(lambda window=window: window.events)
            yield windows, model, store
        finally:
            for window in windows:
                await window.end()
            store.close()


async def interleaved(folder: Path, seeds: range) -> set[str]:
    """Play each of these interleavings; the ways in which acts ended."""
    ways: set[str] = set()
    async with two_windows(folder) as (windows, model, store):
        for seed in seeds:
            id = await windows[0].does("create")
            for window in windows:
                await window.does("open", id=id)
            play = Play(random.Random(seed), windows, model, store, id)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    for _ in range(STEPS):
                        await play.step()
                    await play.end()
            except (AssertionError, TimeoutError, StopIteration) as error:
                steps = "\n".join(play.ways)
                raise AssertionError(f"interleaving {seed}: {error!r}\n{steps}") from error
            ways |= {way.partition(" ")[2] for way in play.ways}
    return ways


LEGAL = {
    "send: answered",
    "send: waits",
    "waited: answered",
    "look: same",
    "look: followed",
    "edit: answered",
    "reply: whole",
    "gave up: The message was not sent.",
    "send: This conversation is in the trash, so nothing was sent.",
}


async def test_interleavings_of_two_processes(tmp_path):
    ways = await interleaved(tmp_path / "data", range(50))
    assert ways >= LEGAL, LEGAL - ways


async def test_two_processes_with_a_queue_send_each_message_once(tmp_path):
    async with two_windows(tmp_path / "data") as (windows, model, store):
        id = await windows[0].does("create")
        for window in windows:
            await window.does("open", id=id)
        texts: set[str] = set()
        for number in range(12):
            window = windows[number % 2]
            if number % 4 == 0:
                await window.does("look")
            texts.add(f"message {number}")
            await window.does("queue", id=id, text=f"message {number}")
            if number == 0:
                await window.until(lambda: "message 0" in model.asked)
        model.holds = False
        model.asked["message 0"].released.set()
        async with asyncio.timeout(PATIENCE_S):
            windows[1].heard = windows[0].heard  # what either tells is looked at
            await windows[0].until(lambda: sum(window.count("ended", id) for window in windows) == len(texts))
        assert model.wrong == [] and model.asked.keys() == texts and store.queue.of(id) == []
        line = [node.text for node in store.tree(id).path(store.conversation(id).head) if node.role is Role.USER]
        assert sorted(line) == sorted(texts) and line[0] == "message 0"


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("KVCHAT_FULL"), reason="six minutes: run with KVCHAT_FULL=1")
async def test_many_interleavings_of_two_processes(tmp_path):
    await interleaved(tmp_path / "data", range(50, 550))

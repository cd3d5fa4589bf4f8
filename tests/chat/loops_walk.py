"""Random acts on conversations whose model calls tools, in one window or two, with an end at any moment: Esc, a quit, a
kill, a server that dies. What the server got, and what is stored, is checked after each act.

Run as a script for long walks: `python tests/chat/loops_walk.py --walks 200`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from kvchat.backends.dialect import BackendError
from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerProgressed, AnswerStarted, ConversationChanged, ToolAsked
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.tools.files import ReadFile
from kvchat.chat.tools.steps import ToolSteps
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.config import Settings, changed
from kvchat.prompt.context import RESULT, ContextBlock
from kvchat.prompt.message import Role, State
from kvchat.prompt.tools import NOT_CARRIED_OUT, Decision
from kvchat.store import Store
from strict_history import check_tree, fault_of
from toyserver import SSE_HEAD, ToyServer, Visit, abort, chunked, error, event, reply, several

ACTS = {
    "ask": 30, "edit": 8, "regenerate": 8, "answer again": 4, "fork": 6, "delete": 5, "undo": 8, "walk": 4, "answers": 4,
    "several again": 2, "compact": 4, "go on": 6, "queue": 5, "tools": 2, "system": 2, "warm up": 3, "side request": 4,
    "new": 3, "restart": 3,
}  # fmt: skip
ENDS = {"": 12, "stop": 6, "quit": 3, "kill": 5, "dies": 3, "other": 6}
"""What comes in between, at a moment by lot; `other` is an act in the other window."""
STRANDED = 30.0
"""Seconds after which an act that does not end is a fault."""


class NothingError(Exception):
    """There is nothing to do that to."""


class Script:
    """What the model says, by lot, in pieces; each answer has words of its own."""

    def __init__(self, chance: random.Random, stuck: asyncio.Event) -> None:
        self.chance, self.stuck = chance, stuck
        self.count = 0
        self.calls = 0
        self.said: list[str] = []
        """The words of answers that were sent whole."""

    async def __call__(self, visit: Visit) -> None:
        self.count += 1
        word = f"word{self.count}"
        asked = visit.json
        if asked.get("n", 1) > 1:
            await several(*[[f"{word} ", f"of {at}"] for at in range(asked["n"])])(visit)
            return
        may_call = bool(asked.get("tools")) and asked.get("tool_choice") != "none"
        ways = {"text": 6, "calls": 14 if may_call else 0, "broken": 3 if may_call else 0, "error": 1, "empty": 1}
        way = self.chance.choices(tuple(ways), tuple(ways.values()))[0]
        if way == "error":
            await error(500, "out of luck")(visit)
            return
        deltas: list[dict[str, Any]] = []
        if way == "text" or self.chance.random() < 0.3:
            deltas += [{"content": f"{word} "}, {"content": "is said"}]
        if self.chance.random() < 0.2:
            deltas.insert(0, {"reasoning_content": f"I think of {word}."})
        if way in ("calls", "broken"):
            deltas += self._calls(broken=way == "broken")
        finish = "tool_calls" if way in ("calls", "broken") else self.chance.choice(["stop", "stop", "stop", "length"])
        end = self.chance.choices(["whole", "cut", "hang", "reset"], [20, 1, 2, 1])[0]
        if end != "whole":
            deltas = deltas[: self.chance.randint(0, len(deltas))]
        await visit.send(SSE_HEAD)
        for delta in deltas:
            await visit.send(chunked(self._event(delta)))
            await asyncio.sleep(0)
        if end == "hang" and may_call:  # what is sent beside an answer is given up after minutes
            self.stuck.set()
            await visit.gone.wait()
        elif end == "reset":
            abort(visit.writer)
        elif end == "whole":
            timings = {"cache_n": 0, "prompt_n": 30, "prompt_ms": 10.0, "predicted_n": 9, "predicted_ms": 90.0}
            await visit.send(
                chunked(self._event({}, finish, timings=timings)) + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
            )

    def _event(self, delta: dict[str, Any], finish: str | None = None, **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({"choices": [choice], "model": "toy", "object": "chat.completion.chunk", **more})

    def _calls(self, *, broken: bool) -> list[dict[str, Any]]:
        count = self.chance.choice([1, 1, 2, 3, 6])
        made = []
        nameless = self.chance.random() < 0.2
        for at in range(count):
            self.calls += 1
            arguments = json.dumps({"path": f"{self.calls}.txt"})
            if self.chance.random() < 0.1:
                arguments = self.chance.choice(["{}", '{"path": 7}', '{"path": "../x"}'])
            if broken and at == count - 1:
                arguments = self.chance.choice([arguments[:-2], "[1]", "7"])
            name = "shell" if self.chance.random() < 0.1 else "read_file"
            id = {} if nameless else {"id": f"id{self.calls:07}"}
            half = len(arguments) // 2
            made.append(
                {"index": at, **id, "type": "function", "function": {"name": name, "arguments": arguments[:half]}}
            )
            made.append({"index": at, "function": {"arguments": arguments[half:]}})
        return [{"tool_calls": [one]} for one in made]


class LoopsWalk:
    """Acts of one user in two windows on one store."""

    def __init__(self, folder: Path, server: ToyServer, seed: int) -> None:
        self.folder, self.server = folder, server
        self.chance = random.Random(seed)
        self._stuck = asyncio.Event()
        self.script = Script(random.Random(seed + 1), self._stuck)
        server.on_chat(self.script)
        server.on("/apply-template", reply(200, {"prompt": "a prompt"}))
        self.data = folder / "data0"
        self.windows: list[ChatService] = []
        self.now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)
        self.lines: list[str] = []
        self.begun: Counter[str] = Counter()
        """Paths that were read, with how often."""
        self.settled: dict[str, tuple[bytes, State]] = {}
        self.acts: Counter[str] = Counter()
        self.id = ""
        self._checked = self._seen = 0
        self._closing: list[ChatService] = []

    # -- windows ------------------------------------------------------------------------------------------------------

    def clock(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    async def window(self) -> ChatService:
        settings = changed(Settings(), "server.base_url", self.server.url)
        service = ChatService(Store.open(self.data), settings, clock=self.clock)
        service.tools.can_ask = True

        def on_event(event: object) -> None:
            if isinstance(event, ToolAsked) and event.conversation in service.tools.waiting:
                self._asked(service, event.conversation)

        service.events.subscribe(on_event)
        self.windows.append(service)
        await service.servers.connect()
        return service

    def _asked(self, service: ChatService, id: str) -> None:
        decision = self.chance.choices([Decision.ONCE, Decision.NO, None], [8, 1, 1])[0]
        if decision is None:
            self._stuck.set()
            return
        question = service.tools.waiting[id]
        asyncio.get_running_loop().call_soon(lambda: service.tools.decide(id, decision, question))

    async def read(self, conversation: object, given: dict[str, Any]) -> list[ContextBlock]:
        """In place of `ReadFile.run`."""
        self.begun[given["path"]] += 1
        way = self.chance.choices(["quick", "later", "hang", "fails"], [10, 5, 1, 1])[0]
        if way == "later":
            for _ in range(self.chance.randint(1, 20)):
                await asyncio.sleep(0)
        if way == "hang":
            self._stuck.set()
            await asyncio.Event().wait()
        if way == "fails":
            raise RuntimeError("the tool broke")
        return [ContextBlock(RESULT, "read_file", f"content of {given['path']}")]

    async def quit(self, service: ChatService) -> None:
        self.windows.remove(service)
        await service.aclose()

    async def kill(self) -> None:
        """Every window is killed: the store as it is at this moment is opened by another process."""
        after = self.folder / f"data{len(list(self.folder.glob('data*')))}"
        after.mkdir(mode=0o700)
        for path in self.data.iterdir():
            if path.suffix != ".db" and not path.name.endswith(("-wal", "-shm")) and path.is_file():
                shutil.copy(path, after / path.name)
        for path in self.data.glob("*.db"):
            with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(after / path.name)) as other:
                one.backup(other)
                if path.name == "kvchat.db":
                    other.execute("UPDATE node SET owner = '999999 0 0' WHERE owner IS NOT NULL")
                    other.commit()
        begun, visits = self.begun.copy(), len(self.server.visits)
        dead, self.windows = self.windows, []
        for service in dead:
            await service.aclose()
        self.begun = begun  # what these did since then was never done
        del self.server.visits[visits:]
        self.data = after
        await self.begin()

    async def begin(self) -> None:
        service = await self.window()
        service.store.recover()
        await self.window()
        if self.id:
            with suppress(ChatError):
                for one in self.windows:
                    await one.conversations.open(self.id)

    async def end(self) -> None:
        for service in self.windows:
            await service.aclose()

    # -- steps --------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        act = self.chance.choices(tuple(ACTS), tuple(ACTS.values()))[0]
        if not self.id:
            act = "new"
        self.acts[act] += 1
        await self._do(act)
        await self.check()

    async def _do(self, act: str) -> None:
        end = self.chance.choices(tuple(ENDS), tuple(ENDS.values()))[0]
        service = self.chance.choice(self.windows)
        moment, count, come = self.chance.choice([1, 2, 4, 8, 16, 32]), 0, asyncio.Event()
        moment = self.chance.randint(1, moment)
        self._stuck.clear()
        self.lines.append(f"{act}, {end or 'no end'} at {moment}")

        def on_event(event: object) -> None:
            nonlocal count
            if isinstance(event, (ConversationChanged, AnswerProgressed, AnswerStarted, ToolAsked)):
                count += 1
                if count == moment:
                    come.set()

        forget = service.events.subscribe(on_event)
        work = asyncio.create_task(self._acted(service, act))
        ended = asyncio.create_task(self._ended(service, work))
        stuck = asyncio.create_task(self._stuck.wait())
        waits = [ended, asyncio.create_task(come.wait()), stuck]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if end and not ended.done():
                if end == "quit":  # as the app does with what it has begun
                    work.cancel()
                    await asyncio.wait([work])
                await self._interrupt(service, end)
            await asyncio.wait([ended, stuck], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():  # something hangs that only the user ends
                await self._stop_all()
            async with asyncio.timeout(STRANDED):
                await ended
        finally:
            forget()
            for one in (*waits, work):
                one.cancel()
        if service in self.windows:
            await self._settle()

    async def _stop_all(self) -> None:
        for one in list(self.windows):
            for id in {*one.conversations.loaded}:
                await one.conversations.stop(id)

    async def _settle(self) -> None:
        """NothingError runs any more, in any window."""
        async with asyncio.timeout(STRANDED):
            for one in list(self.windows):
                for id in list(one.conversations.streaming()):
                    await one.conversations.stop(id)
                for id in {*one.conversations.loaded}:
                    if one.turns.is_undecided(id):
                        await one.turns.choose(id)
                    await one.conversations.wait(id)

    async def _ended(self, service: ChatService, work: asyncio.Task[None]) -> None:
        await asyncio.wait([work])
        if service in self.windows and self.id in service.conversations.loaded:
            await service.conversations.wait(self.id)
        if not work.cancelled():
            work.result()

    async def _interrupt(self, service: ChatService, end: str) -> None:
        if end == "stop":
            await service.conversations.stop(self.id)
        elif end == "dies":
            for visit in self.server.visits:
                if not visit.writer.is_closing():
                    abort(visit.writer)
        elif end == "kill":
            await self.kill()
        elif end == "quit":
            await self.quit(service)
            await self.window()
            await self.windows[-1].conversations.open(self.id)
        elif end == "other":
            other = next(one for one in self.windows if one is not service)
            act = self.chance.choice(
                ["ask", "edit", "undo", "regenerate", "delete", "fork", "walk", "queue", "compact"]
            )
            self.lines.append(f"  beside it {act}")
            task = asyncio.create_task(self._acted(other, act))
            stuck = asyncio.create_task(self._stuck.wait())
            await asyncio.wait([task, stuck], return_when=asyncio.FIRST_COMPLETED)
            stuck.cancel()
            if not task.done():
                await self._stop_all()
            await task

    async def _acted(self, service: ChatService, act: str) -> None:
        try:
            if self.id:
                await service.conversations.open(self.id)
            await getattr(self, act.replace(" ", "_"))(service)
        except (ChatError, NothingError) as error:
            self.lines.append(f"  {act}: {type(error).__name__} {error}")

    # -- acts ---------------------------------------------------------------------------------------------------------

    def path(self, service: ChatService) -> list[Any]:
        return service.conversations.load(self.id).path()

    def any_of(self, service: ChatService, *roles: Role) -> str:
        found = [node.id for node in self.path(service) if node.role in roles]
        if not found:
            raise NothingError
        return self.chance.choice(found)

    def question(self) -> Question:
        return Question(f"Question {self.clock():%H%M%S%f}?")

    async def new(self, service: ChatService) -> None:
        self.id = (await service.new_conversations.create(tools=["files"], reuse=False)).id
        await self.ask(service)

    async def ask(self, service: ChatService) -> None:
        await service.turns.send(self.id, self.question())

    async def edit(self, service: ChatService) -> None:
        await service.turns.edit(self.id, self.any_of(service, Role.USER), "Otherwise?")

    async def regenerate(self, service: ChatService) -> None:
        await service.turns.regenerate(self.id, [self.any_of(service, Role.USER), self.path(service)[-1].id][-1])

    async def answer_again(self, service: ChatService) -> None:
        await service.turns.regenerate(self.id, self.any_of(service, Role.ASSISTANT))

    async def fork(self, service: ChatService) -> None:
        at = self.any_of(service, Role.USER, Role.ASSISTANT, Role.TOOL)
        self.id = (await service.branches.fork(self.id, at)).id
        await self.ask(service)

    async def delete(self, service: ChatService) -> None:
        await service.branches.delete_turn(self.id, self.any_of(service, Role.USER, Role.ASSISTANT, Role.TOOL))

    async def undo(self, service: ChatService) -> None:
        await service.branches.undo(self.id)

    async def walk(self, service: ChatService) -> None:
        at = self.any_of(service, Role.USER, Role.ASSISTANT)
        await service.branches.walk(self.id, at, self.chance.choice([-1, 1]))

    async def answers(self, service: ChatService) -> None:
        await service.turns.ask_for(self.id, AlternativesRequest(2), self.question())

    async def several_again(self, service: ChatService) -> None:
        await service.turns.ask_again_for(self.id, AlternativesRequest(2), self.any_of(service, Role.ASSISTANT))

    async def compact(self, service: ChatService) -> None:
        await service.compactor.compact(self.id)

    async def go_on(self, service: ChatService) -> None:
        await service.turns.go_on(self.id, self.any_of(service, Role.ASSISTANT, Role.TOOL))

    async def queue(self, service: ChatService) -> None:
        await self.ask(service)
        await service.turns.queue_up(self.id, self.question())

    async def tools(self, service: ChatService) -> None:
        await service.branches.set_tools(self.id, self.chance.choice([["files"], ["files", "documents"]]))

    async def system(self, service: ChatService) -> None:
        await service.branches.set_instructions(self.id, f"Be {self.chance.choice(['short', 'kind'])}.")

    async def warm_up(self, service: ChatService) -> None:
        service.warm_up.enabled = True
        service.conversations.looked_at = self.id
        with suppress(BackendError):
            await service.warm_up.warm(self.id)
        service.conversations.looked_at = ""
        service.warm_up.enabled = False

    async def side_request(self, service: ChatService) -> None:
        conversation = service.conversations.load(self.id)
        if service.conversations.is_taken(self.id) or service.conversations.answered_elsewhere(self.id):
            return
        link = service.servers.link(self.id)
        async with link.lane.chat(self.id, ends_spare=False):
            await service.side_requests.at_the_end("memory", link, conversation, "What is new?", {"type": "text"}, 16)

    async def restart(self, service: ChatService) -> None:
        await self.quit(service)
        await self.window()

    # -- the oracle ---------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        store = Store.open(self.data)
        try:
            trees = [store.tree(one.id) for one in store.conversations()]
            heads = [(one.id, one.head) for one in store.conversations()]
        finally:
            store.close()
        known: dict[str, bytes] = {}
        for tree in trees:
            check_tree(tree)
            for node in tree:
                assert node.state is not State.STREAMING, f"{node.role} {node.id} streams for ever"
                before = self.settled.setdefault(node.id, (node.wire, node.state))
                assert before == (node.wire, node.state), ("a stored message changed", before, node)
                known[node.id] = node.wire
        for (id, head), tree in zip(heads, trees, strict=True):
            assert head in tree, id
        paths = {
            tuple(one.wire for one in tree.path(node.id))
            for tree in trees
            for node in tree
            if node.role is not Role.SYSTEM
        }
        for visit in self.server.chats[self._checked :]:
            self._check_request(visit, paths)
        self._checked = len(self.server.chats)
        for visit in self.server.visits[self._seen :]:
            if visit.path == "/apply-template" and visit.json["messages"][0]["role"] == "system":
                assert not (fault := fault_of(visit.json["messages"])), (fault, visit.json["messages"])
        self._seen = len(self.server.visits)
        self._check_words(trees)
        self._check_calls(trees)
        for window in self.windows:
            self._check_window(window)

    def _check_request(self, visit: Visit, paths: set[tuple[bytes, ...]]) -> None:
        from kvchat.prompt.wire import canonical

        messages = visit.json["messages"]
        assert not fault_of(messages), (fault_of(messages), messages)
        ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        assert len(ids) == len({*ids}), ("an id twice in a conversation", ids)
        wires = tuple(map(canonical, messages))
        if wires not in paths and not str(messages[-1]["content"]).startswith(("What is new?", "Summarise our")):
            lacks = "lost in a kill" if not self.windows else "is not what is stored"
            raise AssertionError(("a request", lacks, messages))

    def _check_words(self, trees: list[Any]) -> None:
        """No answer is stored twice, but where a branch was grown again."""
        for tree in trees:
            for leaf in tree.leaves():
                texts = [one.text for one in tree.path(leaf.id) if one.role is Role.ASSISTANT and "word" in one.text]
                assert len(texts) == len({*texts}), ("an answer twice on a branch", texts)

    def _check_calls(self, trees: list[Any]) -> None:
        """A call is carried out once at most; what is told of it is true."""
        for path, count in self.begun.items():
            assert count == 1, f"{path} was read {count} times"
        for tree in trees:
            for node in tree:
                if node.role is not Role.TOOL or (given := node.message.call.given()) is None:
                    continue
                path = given.get("path")
                if node.text in (NOT_CARRIED_OUT,) and self.begun[str(path)]:
                    copies = [
                        one for other in trees for one in other
                        if one.role is Role.TOOL and one.message.call == node.message.call and one.text != NOT_CARRIED_OUT
                    ]  # fmt: skip
                    assert copies, f"{path} was read, and the model is told that it was not"
                if node.message.blocks:
                    assert self.begun[str(path)], f"{path} was not read, and the model is told otherwise"

    def _check_window(self, window: ChatService) -> None:
        assert not window.tools.waiting
        assert not window.turns.running
        for conversation in window.conversations.loaded.values():
            assert conversation.live is None
            for node in conversation.path():
                if node.id in self.settled and node.state is not State.STREAMING:
                    assert self.settled[node.id][0] == node.wire


async def walked(folder: Path, seed: int, count: int, patch: Any) -> LoopsWalk:
    """A walk of `count` acts. `patch` replaces an attribute."""
    async with ToyServer() as server:
        walk = LoopsWalk(folder, server, seed)

        async def run(self: ReadFile, conversation: object, given: dict[str, Any]) -> list[ContextBlock]:
            return await walk.read(conversation, given)

        real = ToolSteps._tool

        def tool(self: ToolSteps, name: str) -> Any:
            return None if walk.chance.random() < 0.05 else real(self, name)  # its server has gone meanwhile

        patch(ReadFile, "run", run)
        patch(ToolSteps, "_tool", tool)
        try:
            await walk.begin()
            for _ in range(count):
                await walk.step()
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *walk.lines[-12:]]))
            raise
        finally:
            await walk.end()
        return walk


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--walks", type=int, default=20)
    options.add_argument("--acts", type=int, default=25)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    real = ReadFile.run, ToolSteps._tool
    logging.disable()
    failed, acts = 0, Counter[str]()
    for seed in range(given.seed, given.seed + given.walks):
        with tempfile.TemporaryDirectory() as folder:
            try:
                acts += (await walked(Path(folder), seed, given.acts, setattr)).acts
            except Exception as error:
                failed += 1
                print(
                    f"seed {seed}: {type(error).__name__} {str(error)[:1500]}", *error.__notes__, sep="\n", flush=True
                )
                if type(error) is not AssertionError:
                    import traceback

                    traceback.print_exc(limit=-6)
        ReadFile.run, ToolSteps._tool = real  # type: ignore[method-assign]
    print(f"{failed} of {given.walks} walks failed; {dict(acts)}")


if __name__ == "__main__":
    asyncio.run(main())

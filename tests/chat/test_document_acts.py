"""The prefix law with documents: random acts in a conversation, while files change, collections come and go and the
index is lost. Each request is the one before it, its reply, and the new question."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval_kit import documents_service, written

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.documents.collection import IndexingOptions
from kvchat.documents.indexing.index_run import index_collection
from kvchat.documents.library import Library
from kvchat.prompt.citations import CITE, cited, is_there, number_of
from kvchat.prompt.context import FILE, NOTE, PASSAGE, ContextBlock
from kvchat.prompt.message import Node, Role, system_message
from toyserver import ToyServer, tokens

QUESTIONS = (
    "How often does the lamp turn?",
    "When is the tower painted?",
    "What is hoisted in a storm?",
    "Who is the keeper on watch?",
    "How many stairs has the tower?",
    "Where is the oil kept?",
)
SENDING = ("ask", "search", "search_in_two", "mention", "attach", "attach_twice", "type_ahead", "take_some")
ACTS = (
    *SENDING,
    *SENDING,
    "change",
    "revert",
    "mode",
    "mode",
    "edit",
    "regenerate",
    "fork",
    "delete",
    "undo",
    "walk",
    "compact",
    "instruct",
    "restart",
    "lose_index",
    "remove_collection",
    "wait",
)


class Walk:
    """One conversation, its documents, and what was sent of it."""

    def __init__(self, folder: Path, server: ToyServer, seed: int) -> None:
        self.folder, self.server, self.chance = folder, server, random.Random(seed)
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self.handbook = written(folder / "handbook")
        self.held: dict[str, bytes] = {}
        """The messages of the request for each answer, as they went over the wire."""
        self.bytes: dict[str, bytes] = {}
        """Each message as it was first seen."""
        self.done: Counter[str] = Counter()

    async def run(self, acts: list[str]) -> None:
        self.stack = AsyncExitStack()
        try:
            await self._start()
            self.id = (await self.service.new_conversations.create("Be brief.")).id
            for act in acts:
                requests = len(self.server.chats)
                try:
                    await getattr(self, f"_{act}")()
                    self.done[act] += 1
                except ChatError:
                    self.done[f"{act} refused"] += 1
                await self.service.conversations.wait(self.id)
                self._check(act, len(self.server.chats) > requests)
        finally:
            await self.stack.aclose()

    async def _start(self) -> None:
        self.service = await self.stack.enter_async_context(documents_service(self.server.url, self.folder / "data"))
        self.service.clock = lambda: self.now
        await self._index()

    async def _index(self) -> None:
        """Index in this process: one of its own for each example takes long."""

        def index(library: Library) -> None:
            collection = library.add(str(self.handbook), "handbook")
            index_collection(library.index, collection, IndexingOptions())
            library.indexed("handbook")

        await self.service.documents.with_library(index)

    # -- what holds

    @property
    def path(self) -> list[Node]:
        conversation = self.service.conversations.get(self.id)
        assert conversation is not None
        return conversation.path()

    def _check(self, act: str, asked: bool) -> None:
        path = self.path
        for node in path:
            assert node.role is Role.ASSISTANT or self.bytes.setdefault(node.id, node.wire) == node.wire
        assert path[0].wire == system_message(path[0].text.split("\n\n")[0]).wire(), "documents change no instructions"
        if asked and act != "compact":
            self._is_law(path)
        self._are_numbers_sure(path)
        if asked and act in SENDING:
            self._is_news(path)

    def _is_law(self, path: list[Node]) -> None:
        body = self.server.chats[-1].body
        begin = body.index(b'"messages":[') + len(b'"messages":[')
        sent = b",".join(node.wire for node in path[:-1])
        assert body[begin:].startswith(sent + b"]"), "the request is the branch"
        self.held[path[-1].id] = sent
        if len(path) > 3 and (before := self.held.get(path[-3].id)) is not None:
            assert sent == b",".join((before, path[-3].wire, path[-2].wire))

    def _are_numbers_sure(self, path: list[Node]) -> None:
        numbers: set[int] = set()
        named: set[int] = set()
        for node in path:
            for number in filter(None, map(number_of, node.message.blocks)):
                assert number not in numbers | named, "a number has one meaning"
                numbers.add(number)
            if node.role is Role.ASSISTANT:
                named |= set(cited(node.text)) - numbers
        assert sum(block.kind == NOTE and block.text == CITE for node in path for block in node.message.blocks) <= 1

    def _is_news(self, path: list[Node]) -> None:
        told = [block for node in path[:-2] for block in node.message.blocks]
        for block in path[-2].message.blocks:
            if block.kind in (FILE, PASSAGE):
                assert not is_there(block, told), "what stands there is not sent again"

    # -- acts

    def _question(self) -> str:
        return self.chance.choice(QUESTIONS)

    def _file(self) -> Path:
        return self.chance.choice(sorted(path for path in self.handbook.rglob("*") if path.is_file()))

    def _asked(self) -> Node:
        questions = [node for node in self.path if node.role is Role.USER]
        if not questions:
            raise ChatError.of("nothing was asked yet")
        return self.chance.choice(questions)

    async def _send(self, text: str, *blocks: ContextBlock) -> None:
        question = Question(text, tuple(blocks))
        told = await self._built(self.path[-1].id, question)
        await self.service.turns.send(self.id, question)
        await self.service.conversations.wait(self.id)
        assert self.path[-2].wire == told, "the same bytes, whoever asks for them"

    async def _built(self, head: str, question: Question) -> bytes:
        """What a question would be, told without asking it."""
        conversation = self.service.conversations.get(self.id)
        assert conversation is not None
        return (await self.service.questions.built(conversation, head, question)).nodes[0].wire

    async def _ask(self) -> None:
        await self._send(self._question())

    async def _search(self) -> None:
        await self._send(f"@handbook {self._question()}")

    async def _search_in_two(self) -> None:
        await self._send(f"@handbook/tower/ and @handbook/lamp.md {self._question()}")

    async def _mention(self) -> None:
        file = self._file()
        await self._send(f"@{file} @{file} {self._question()}")

    async def _attach(self) -> None:
        block = await self.service.retrieval.attach(self.id, str(self._file()))
        await self._send(f"[{Path(block.ref.split('#')[0]).name}: {len(block.text.splitlines())} lines]", block)

    async def _attach_twice(self) -> None:
        file = self._file()
        older = await self.service.retrieval.attach(self.id, str(file))
        file.write_text(f"{file.read_text()}Also {self.chance.random()}.\n")
        await self._send("Both?", older, await self.service.retrieval.attach(self.id, str(file)))

    async def _type_ahead(self) -> None:
        block = await self.service.retrieval.attach(self.id, str(self._file()))
        self.service.warm_up.prepare(self.id, [block])
        conversation = self.service.conversations.get(self.id)
        assert conversation is not None
        ahead = await self.service.questions.next_beginning(conversation)
        self.now += timedelta(minutes=self.chance.choice([0, 3]))
        await self._send(self.chance.choice(["@handbook ", ""]) + self._question(), block)
        assert json.loads(self.path[-2].wire)["content"].startswith(ahead)

    async def _take_some(self) -> None:
        text = f"@handbook {self._question()}"
        shown = (await self.service.retrieval.retrieve(self.id, text)).passages[: self.chance.randint(0, 3)]
        await self.service.turns.send(self.id, Question(text, passages=tuple(one.block for one in shown)))
        assert [block.text for block in self.path[-2].message.blocks if block.kind == PASSAGE] == [
            passage.text for passage in shown
        ]

    async def _change(self) -> None:
        file = self._file()
        file.write_text(file.read_text().replace("the", "thy", 1) + f"More {self.chance.randint(0, 9)}.\n")
        await self._index()

    async def _revert(self) -> None:
        written(self.handbook)
        await self._index()

    async def _mode(self) -> None:
        mode = self.chance.choice(["off", "ask", "always", "always"])
        await self.service.retrieval.set_retrieval(self.id, mode, ["handbook"])

    async def _edit(self) -> None:
        question = self._asked()
        text = f"{question.text} {self._question()}"
        told = await self._built(question.parent or "", Question(text, again=question))
        await self.service.turns.edit(self.id, question.id, text)
        await self.service.conversations.wait(self.id)
        assert self.path[-2].wire == told, "the same bytes, whoever asks for them"

    async def _regenerate(self) -> None:
        await self.service.turns.regenerate(self.id, self._asked().id)

    async def _fork(self) -> None:
        at = self.chance.choice(self.path[1:] or [self._asked()])
        self.id = (await self.service.branches.fork(self.id, at.id)).id

    async def _delete(self) -> None:
        await self.service.branches.delete_turn(self.id, self._asked().id)

    async def _undo(self) -> None:
        await self.service.branches.undo(self.id)

    async def _walk(self) -> None:
        await self.service.branches.walk(self.id, self._asked().id, self.chance.choice([-1, 1]))

    async def _compact(self) -> None:
        await self.service.compactor.compact(self.id)

    async def _instruct(self) -> None:
        await self.service.branches.set_instructions(self.id, self.chance.choice(["Be kind.", "Be brief."]))

    async def _restart(self) -> None:
        await self.stack.aclose()
        await self._start()
        await self.service.conversations.open(self.id)

    async def _lose_index(self) -> None:
        await self.stack.aclose()
        for file in (self.folder / "data").glob("index.db*"):
            file.unlink()
        await self._start()
        await self.service.conversations.open(self.id)

    async def _remove_collection(self) -> None:
        await self.service.documents.remove("handbook")
        if self.chance.random() < 0.7:
            await self._index()

    async def _wait(self) -> None:
        self.now += timedelta(minutes=self.chance.choice([1, 11, 700]))


def walked(acts: list[str], seed: int) -> Counter[str]:
    async def go() -> Counter[str]:
        async with ToyServer(context_size=16384) as server:
            server.on_chat(tokens("As [1] and [2] say."))
            with tempfile.TemporaryDirectory() as folder:
                walk = Walk(Path(folder), server, seed)
                await walk.run(acts)
                return walk.done

    return asyncio.run(go())


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(ACTS), min_size=6, max_size=14), st.integers(0, 10**6))
def test_whatever_is_done_with_documents_a_request_only_goes_on_from_the_one_before(acts: list[str], seed: int) -> None:
    walked(acts, seed)


def test_the_walk_does_what_it_is_for() -> None:
    """The law above would hold of acts that are all refused."""
    done = walked([*SENDING, "change", *SENDING, *dict.fromkeys(ACTS)], 7)
    assert not [act for act in (*SENDING, "change", "edit", "regenerate", "fork", "restart") if not done[act]], done

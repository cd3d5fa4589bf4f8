"""Stores to test with: one on disk, one in memory, and what is said in them."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import Conversation, SavedPrompt
from kvchat.prompt.message import Message, Node, Role, State, new_id, node, system_message
from kvchat.store import Store
from whole_rows import add_nodes, settle_node


class Talk:
    """A conversation that is written to a store turn by turn, as the service does it."""

    _seconds = itertools.count(1_000)

    def __init__(self, store: Store, title: str = "Talk", instructions: str = "") -> None:
        self.store = store
        now = self.now()
        system = node(None, system_message(instructions), now)
        self.record = store.create(Conversation(new_id(), system.id, now, now, title=title), system)
        self.id = self.record.id
        assert self.record.head is not None
        self.tip = store.tree(self.id)[self.record.head]

    def now(self) -> float:
        return float(next(self._seconds))

    def moved(self, tip: Node, turns: int = 0) -> Conversation:
        self.tip = tip
        self.record = replace(self.record, head=tip.id, updated=tip.created, turns=self.record.turns + turns)
        return self.record

    def ask(self, text: str, blocks: tuple[ContextBlock, ...] = ()) -> Node:
        """A question and its empty streaming answer; the answer is the tip."""
        question = node(self.tip, Message(Role.USER, text, blocks), self.now())
        answer = node(question, Message(Role.ASSISTANT, ""), self.now(), state=State.STREAMING)
        known, row = self.record, self.moved(answer, turns=1)
        self.store.add(known, [question, answer], lambda _: row, late=True)
        return answer

    def say(self, question: str, answer: str = "Yes.", blocks: tuple[ContextBlock, ...] = ()) -> Node:
        """One settled turn; the settled answer."""
        streaming = self.ask(question, blocks)
        assert streaming.parent is not None
        above = self.store.tree(self.id)[streaming.parent]
        final = node(above, Message(Role.ASSISTANT, answer), streaming.created, id=streaming.id)
        settle_node(self.store, final, self.moved(final))
        return final

    def texts(self) -> list[str]:
        return [one.text for one in self.store.tree(self.id).path(self.record.head)[1:]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    opened = Store.open(folder)
    yield opened
    opened.close()


@pytest.fixture
def talk(store: Store) -> Talk:
    return Talk(store)


@pytest.fixture
def new_talk() -> type[Talk]:
    return Talk


TURNS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sound database of several conversations, a long message, a draft, a prompt and a setting."""
    folder = tmp_path_factory.mktemp("whole")
    store = Store.open(folder)
    for number in range(4):
        talk = Talk(store, f"talk {number}")
        for turn in range(TURNS // 4):
            answer = talk.say(f"question {number}.{turn} " + "word " * 40, f"answer {number}.{turn} " * 30)
            store.record_request(answer.id, body_sha256="ab" * 32, server="http://x", model="m")
        store.set_draft(talk.id, f"draft {number}")
    talk.say("long " * 4000, "é" * 30_000)
    question = node(talk.tip, Message(Role.USER, "with figures"), 5.0, figures=TurnFigures(1, 2))
    add_nodes(store, talk.moved(question), [question])
    store.save_prompt(SavedPrompt("name", "text"))
    store.set_setting("key", "value")
    store.close()
    return folder


@pytest.fixture
def damaged(whole: Path, folder: Path) -> Path:
    """A copy of it that a test may damage."""
    shutil.copytree(whole, folder)
    return folder / "kvchat.db"

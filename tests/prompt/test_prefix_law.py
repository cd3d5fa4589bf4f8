"""The prefix law, under random histories: what was sent stays the beginning of what is sent next."""

from __future__ import annotations

import json
import random
import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvchat.prompt.branching import Branch, asked, awaited, under_system, without_turn
from kvchat.prompt.compaction import compaction, turns_of
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Role, State, chained, new_id, node, settled, system_message
from kvchat.prompt.request import Parameters, chat_body, wires_of
from kvchat.prompt.tree import Tree
from kvchat.store import Store
from whole_rows import add_nodes

TEXTS = st.text(max_size=40)


class Conversations(RuleBasedStateMachine):
    """New, send, edit, regenerate, fork, switch, delete, compact, another system prompt, restart: on the core and a
    store."""

    def __init__(self) -> None:
        super().__init__()
        chance = random.Random(0)  # the same ids in every run of the same steps
        self.ids = patch("kvchat.prompt.message.uuid.uuid4", lambda: uuid.UUID(int=chance.getrandbits(128)))
        self.ids.start()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.store = Store.open(self.path)
        self.now = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
        self.records: dict[str, Conversation] = {}
        self.trees: dict[str, Tree] = {}
        self.sent: dict[str, bytes] = {}
        """For every answer: the messages' bytes of the request that made it."""
        self.current = ""
        self.begin("")

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()
        self.ids.stop()

    def later(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    @property
    def record(self) -> Conversation:
        return self.records[self.current]

    @property
    def tree(self) -> Tree:
        return self.trees[self.current]

    def put(self, branch: Branch) -> None:
        record = Conversation(**{**{f: getattr(self.record, f) for f in Conversation.__slots__}, "head": branch.head})
        add_nodes(self.store, record, branch.nodes)
        self.records[self.current] = record
        for new in branch.nodes:
            self.tree.put(new)

    def answer(self, text: str, reasoning: str) -> None:
        """Send the branch that waits for an answer and receive one."""
        waiting = self.tree[self.record.head]
        path = self.tree.path(waiting.parent)
        wires = wires_of(path)
        body = chat_body({"model": "m"}, wires, {"temperature": 1})
        messages = json.loads(body)["messages"]
        assert [m["role"] for m in messages].count("system") == 1
        assert messages[0]["role"] == "system"
        done = settled(waiting, path[-1], text, reasoning, State.DONE)
        self.store.settle(done)
        self.tree.put(done)
        self.sent[done.id] = b",".join(wires)

    @rule(instructions=st.sampled_from(["", "Be brief.", "Sei knapp: äöü"]))
    def begin(self, instructions):
        root = node(None, system_message(instructions), self.later().timestamp())
        record = self.store.create(Conversation(id=new_id(), head=root.id, created=0, updated=0), root)
        self.records[record.id], self.trees[record.id] = record, self.store.tree(record.id)
        self.current = record.id

    @rule(text=TEXTS, reply=TEXTS, reasoning=TEXTS, minutes=st.integers(0, 2000))
    def send(self, text, reply, reasoning, minutes):
        self.now += timedelta(minutes=minutes)
        self.put(asked(self.tree, self.record.head, text, [], self.later()))
        self.answer(reply, reasoning)

    @precondition(lambda self: len(self.tree.path(self.record.head)) > 1)
    @rule(data=st.data(), text=TEXTS, reply=TEXTS)
    def edit(self, data, text, reply):
        question = data.draw(st.sampled_from([n for n in self.tree.path(self.record.head) if n.role is Role.USER]))
        self.put(asked(self.tree, question.parent, text, [], self.later()))
        self.answer(reply, "")

    @precondition(lambda self: len(self.tree.path(self.record.head)) > 1)
    @rule(data=st.data(), reply=TEXTS)
    def regenerate(self, data, reply):
        question = data.draw(st.sampled_from([n for n in self.tree.path(self.record.head) if n.role is Role.USER]))
        fresh = awaited(question, self.later())
        self.put(Branch((fresh,), fresh.id))
        self.answer(reply, "")

    @precondition(lambda self: len(self.tree.path(self.record.head)) > 1)
    @rule(data=st.data())
    def delete_turn(self, data):
        question = data.draw(st.sampled_from([n for n in self.tree.path(self.record.head) if n.role is Role.USER]))
        before = [n.wire for n in self.tree.path(self.record.head)]
        self.put(without_turn(self.tree, self.record.head, question.id))
        assert len(list(self.tree.path(self.record.head))) == len(before) - 2

    @precondition(lambda self: len(self.tree.path(self.record.head)) > 3)
    @rule(data=st.data(), summary=TEXTS)
    def compact(self, data, summary):
        old = self.tree.path(self.record.head)
        keep = data.draw(st.integers(1, len(turns_of(old)) - 1))
        self.put(compaction(self.tree, self.record.head, summary, keep, self.later().timestamp()))
        new = self.tree.path(self.record.head)
        assert (new[0], [n.wire for n in new[2:]]) == (old[0], [n.wire for n in old[len(old) - len(new) + 2 :]])

    @rule(instructions=st.sampled_from(["Be brief.", "Be long."]))
    def other_system_prompt(self, instructions):
        old = [n.wire for n in self.tree.path(self.record.head)][1:]
        self.put(under_system(self.tree, self.record.head, system_message(instructions), self.later().timestamp()))
        assert [n.wire for n in self.tree.path(self.record.head)][1:] == old

    @rule(data=st.data())
    def fork(self, data):
        at = data.draw(st.sampled_from([n for n in self.tree.path(self.record.head) if n.role is not Role.USER]))
        path = self.tree.path(at.id)
        record = self.store.create(Conversation(id=new_id(), head=at.id, created=0, updated=0), path[0])
        self.records[record.id], self.trees[record.id] = record, self.store.tree(record.id)
        assert wires_of(self.trees[record.id].path(record.head)) == wires_of(path)
        self.current = record.id

    @rule(data=st.data())
    def switch(self, data):
        self.current = data.draw(st.sampled_from(list(self.records)))

    @rule(data=st.data())
    def walk_to_another_branch(self, data):
        leaf = data.draw(st.sampled_from(self.tree.leaves()))
        self.put(Branch((), leaf.id))

    @rule()
    def restart(self):
        self.store.close()
        self.store = Store.open(self.path)
        for id in self.records:
            self.records[id] = self.store.conversation(id)
            self.trees[id] = self.store.tree(id)

    @invariant()
    def every_request_extends_the_one_before_it(self):
        for tree in self.trees.values():
            for leaf in tree.leaves():
                path = tree.path(leaf.id)
                joined = b",".join(wires_of(path))
                for answer in path:
                    if answer.id in self.sent:
                        assert joined.startswith(self.sent[answer.id])

    @invariant()
    def a_digest_is_the_chain_of_the_wire_bytes(self):
        for tree in self.trees.values():
            for found in tree:
                parent = tree[found.parent].digest if found.parent else b""
                assert found.digest == chained(parent, found.wire)
                assert json.loads(found.wire)["role"] == found.role


Conversations.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestPrefixLaw = Conversations.TestCase


def test_parameters_never_touch_the_messages():
    wires = (b'{"role":"system","content":"s"}', b'{"role":"user","content":"u"}')
    plain = chat_body({"model": "m"}, wires, {})
    warm = chat_body({"model": "m"}, wires, Parameters(temperature=0.5, stop=("x",), extra={"messages": []}).given())
    assert plain == b'{"model":"m","messages":[' + b",".join(wires) + b"]}"
    assert warm == plain[:-1] + b',"temperature":0.5,"stop":["x"]}'

"""What the strictest servers demand of a history, as one function: reused on whatever a test sends or stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kvchat.prompt.branching import closed
from kvchat.prompt.message import Node, chained
from kvchat.prompt.tree import Tree
from toyserver import ToyServer


def fault_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """What a strict server refuses in these messages; empty: nothing. Behind its first message a question and its
    answer alternate; each call has exactly one result behind it, each result its call, each id of a message one call."""
    waiting: list[str] = []
    before = ""
    for at, message in enumerate(messages):
        role = message["role"]
        if (role == "system") != (at == 0):
            return f"{at}: {role} at this place"
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                return f"{at}: a result without its call"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"{at}: {len(waiting)} calls have no result"
        elif role == "user" and before not in ("system", "assistant"):
            return f"{at}: a question behind {before}"
        elif role == "assistant" and before not in ("user", "tool"):
            return f"{at}: an answer behind {before}"
        for call in message.get("tool_calls", ()):
            if call["id"] in waiting or not call["id"]:
                return f"{at}: an id that is no call's own"
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                return f"{at}: arguments that are no object"
            waiting.append(call["id"])
        before = role
    return ""


def check_sent(server: ToyServer) -> None:
    """Each request that has asked for an answer is one that a strict server takes."""
    for visit in server.chats:
        messages = visit.json["messages"]
        assert not fault_of(messages), (fault_of(messages), messages)
        assert messages[-1]["role"] in ("user", "tool")


def check_tree(tree: Tree) -> None:
    """Each branch can be sent, once what is open at its end is closed, and each digest is that of its bytes."""
    for leaf in tree.leaves():
        path = tree.path(leaf.id)
        check_branch(path)
        assert path[0].digest == chained(path[0].message.above, path[0].wire)
        for above, below in pairwise(path):
            assert below.digest == chained(above.digest, below.wire)


def check_branch(path: Sequence[Node]) -> None:
    """The branch, closed as a question that follows closes it, is one that a strict server takes."""
    messages = [json.loads(one.wire) for one in (*path, *closed(path, 0.0))]
    assert not fault_of(messages), (fault_of(messages), messages)

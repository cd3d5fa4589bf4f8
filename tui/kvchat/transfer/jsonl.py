"""OpenAI JSONL: one branch a line, `{"messages": [{"role", "content"}, ...]}`, as chat and fine-tuning tools read it.

Role, content and calls are those of the wire bytes, and the tools are next to the messages, so a line holds exactly
what the model saw and said. Reasoning is left out, because tools that check the format refuse unknown fields; lossless
JSON keeps it. Context blocks are part of a user message's content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from kvchat.prompt.images import sent
from kvchat.prompt.message import Node, Role, tools_of
from kvchat.transfer.exact_json import dumps
from kvchat.transfer.formats import Format, Source, Sources

_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def messages(path: Sequence[Node], images: Mapping[str, bytes]) -> list[dict[str, object]]:
    """The messages of a branch as they go out, role and content only. An image that is gone keeps its name."""
    found = []
    for sent_wire in sent([node.wire for node in path], lambda name: images.get(name, f"sha256:{name}".encode())):
        wire = json.loads(sent_wire)
        found.append({name: wire[name] for name in _FIELDS if name in wire})
    return found


def _branches(source: Source, all_branches: bool) -> Iterator[list[Node]]:
    tree, head = source.tree, source.conversation.head
    yield tree.path(head)
    if all_branches:
        yield from (tree.path(leaf.id) for leaf in tree.leaves() if leaf.id != head)


def pieces(sources: Sources, all_branches: bool) -> Iterator[str]:
    """One line for the branch in use of each conversation, and with `all_branches` one for each other branch.

    A branch without a question gives no line.
    """
    for source in sources:
        for path in _branches(source, all_branches):
            if any(node.role is Role.USER for node in path):
                tools = {"tools": json.loads(tools_of(path))} if tools_of(path) else {}
                yield dumps({"messages": messages(path, source.images), **tools}) + "\n"


FORMAT = Format("JSONL (OpenAI)", "OpenAI JSONL, for other programs; imports without times", pieces)

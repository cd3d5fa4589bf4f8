"""What the readable formats (Markdown and HTML) have in common: branches, numbers of messages, and words for them.

Every message is listed exactly once, on the first branch that holds it. All texts returned here are one
clean line each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PureWindowsPath

from msgspec import Struct

from kvchat.figures.accounting import Totals, totals
from kvchat.prompt.citations import name_of
from kvchat.prompt.context import FILE, NOTE, PASSAGE, TIME, ContextBlock
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.tree import Tree
from kvchat.sanitize import one_line
from kvchat.text.format import clock, date_and_time
from kvchat.text.notes import note_sentence
from kvchat.text.tools import shown_call
from kvchat.transfer.formats import Source

_STATES = {
    State.STREAMING: "This answer was still being written.",
    State.LENGTH: "The answer reached its token limit.",
    State.CONTEXT_FULL: "The answer filled the context window.",
    State.CANCELLED: "Stopped.",
    State.INTERRUPTED: "The answer was cut off here.",
    State.ERROR: "The server did not answer.",
    State.EMPTY: "The answer held no text.",
}
_PATH = re.compile(r"(?:[A-Za-z]:|file:|~[^\s/\\]*|\.{1,2})?[/\\]")
LINES = {TIME: "Time", NOTE: "Note"}
"""The blocks that are one line of kvchat's own, with their names."""
_BLOCK_KINDS = {
    "paste": "pasted text",
    "stdin": "standard input",
    "file": "file",
    "memory": "memory",
    "passage": "passage",
    "image": "image",
    "result": "result",
}


class OutlineMessage(Struct, frozen=True):
    """A message in its place."""

    node: Node
    number: int
    """Its place on its branch; the system message is 0."""
    version: int
    versions: int
    """It is version `version` of `versions` in this place."""
    branch: int
    """The branch it is listed on; the one in use is 1."""


class OutlineBranch(Struct, frozen=True):
    """The messages of a branch that no earlier branch has."""

    title: str
    """Empty for the branch in use."""
    entries: tuple[OutlineMessage, ...]


def outline(source: Source, all_branches: bool) -> Iterator[OutlineBranch]:
    """The branch in use; with `all_branches` then each other one, oldest first."""
    tree, head = source.tree, source.conversation.head
    shown: dict[str, OutlineMessage] = {}
    yield OutlineBranch("", tuple(_new_entries(tree, head, shown, 1)))
    ends = [leaf.id for leaf in tree.leaves() if leaf.id != head] if all_branches else []
    for number, end in enumerate((end for end in ends if end not in shown), 2):
        entries = tuple(_new_entries(tree, end, shown, number))
        yield OutlineBranch(f"Branch {number}: {_parting(tree, entries[0], shown)}", entries)


def _new_entries(
    tree: Tree, end: str | None, shown: dict[str, OutlineMessage], branch: int
) -> Iterator[OutlineMessage]:
    number = 0
    for node in tree.path(end):
        number += node.role is not Role.SYSTEM
        if node.id not in shown:
            siblings = [sibling.id for sibling in tree.siblings(node.id)]
            shown[node.id] = OutlineMessage(node, number, siblings.index(node.id) + 1, len(siblings), branch)
            yield shown[node.id]


def _parting(tree: Tree, first: OutlineMessage, shown: dict[str, OutlineMessage]) -> str:
    """Where a branch leaves an earlier one: `another message 3`, `goes on after message 4 of branch 2`."""
    if first.node.role is Role.SYSTEM:
        return "another system prompt"
    parent = shown.get(first.node.parent or "")
    earlier = any(node.id in shown for node in tree.siblings(first.node.id) if node is not first.node)
    of_branch = f" of branch {parent.branch}" if parent and parent.branch > 1 else ""
    if earlier or parent is None:
        return f"another message {first.number}{of_branch}"
    return f"goes on after message {parent.number}{of_branch}"


def title(conversation: Conversation) -> str:
    return one_line(conversation.title) or "Conversation"


def model_name(name: str) -> str:
    """A model's name to show. Servers may report a path: only the file's name is for others to read."""
    return source_name(name).removesuffix(".gguf")


def source_name(name: str) -> str:
    """A name on one line; of a path that begins at a root or a home only its last part."""
    line = one_line(name)
    return PureWindowsPath(line).name or line if _PATH.match(line) else line


def models(source: Source) -> str:
    """The models that answered on the branch in use, in order of appearance; else the one chosen."""
    path = source.tree.path(source.conversation.head)
    names = dict.fromkeys(model_name(node.model) for node in path if node.model)
    return ", ".join(names) or model_name(source.conversation.model)


def author(node: Node) -> str:
    if node.role is Role.ASSISTANT:
        return model_name(node.model) or "Assistant"
    if node.role is Role.TOOL:
        return shown_call(node.message.call)
    return "You" if node.role is Role.USER else "System prompt"


def block_title(block: ContextBlock) -> str:
    """What a context block is and where it comes from."""
    if block.kind in LINES:
        return f"{LINES[block.kind]}: {one_line(block.text)}"
    kind = _BLOCK_KINDS.get(block.kind, one_line(block.kind))
    return f"Context, {kind}: {_source_of(block)}"


def _source_of(block: ContextBlock) -> str:
    """Where a block comes from, with its number; of a file outside of the collections only its name."""
    name = name_of(block)
    number = block.source.removesuffix(name) if block.kind in (FILE, PASSAGE) else ""
    path = block.ref.rpartition("#")[0]
    if path and name.startswith(path):
        return one_line(f"{number}{source_name(path)}{name.removeprefix(path)}")
    return one_line(number + source_name(name))


def times(source: Source) -> str:
    """From when to when: `2026-11-21 09:16 to 09:40`."""
    begin, end = date_and_time(source.conversation.created), date_and_time(source.conversation.updated)
    if begin == end:
        return begin
    return f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def time_of(entry: OutlineMessage, source: Source) -> str:
    """When a message was written: the time of day, with the date unless it is the conversation's first day."""
    when = date_and_time(entry.node.created)
    same_day = when[:10] == date_and_time(source.conversation.created)[:10]
    return clock(entry.node.created) if same_day else when


def version_mark(entry: OutlineMessage) -> str:
    return f"version {entry.version} of {entry.versions}" if entry.versions > 1 else ""


def state_sentence(node: Node) -> str:
    """Why an answer is not complete, or what else it did; empty where there is nothing to say."""
    return one_line(note_sentence(node.note)) or _STATES.get(node.state, "")


def branch_totals(source: Source) -> Totals:
    """The sums over the answers of the branch in use."""
    path = source.tree.path(source.conversation.head)
    figures = [node.figures for node in path if node.role is Role.ASSISTANT and node.figures is not None]
    return totals(figures, source.speed)


def parameter_words(conversation: Conversation) -> list[str]:
    """The sampling parameters that are set. Fields passed through to a server are in lossless JSON only."""
    given = conversation.parameters.given()
    return [
        f"{name} {one_line(str(value))}" for name, value in given.items() if name not in conversation.parameters.extra
    ]

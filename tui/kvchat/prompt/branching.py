"""Acts on a tree. Each gives new nodes to add and the head to move to; nothing that exists is rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from kvchat.prompt.context import MEMORY, SUMMARY, TIME, ContextBlock
from kvchat.prompt.mending import mended
from kvchat.prompt.message import Message, Node, Role, State, chained, new_id, node, open_calls
from kvchat.prompt.stamp import STAMP_INTERVAL, last_stamp, stamp_due, time_block
from kvchat.prompt.tools import NOT_CARRIED_OUT
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters


class Branch(Struct, frozen=True):
    """New nodes, parents before children, and the head of the branch they make."""

    nodes: tuple[Node, ...]
    head: str


def asked(
    tree: Tree,
    head: str,
    text: str,
    blocks: Sequence[ContextBlock],
    now: datetime,
    stamp_every: timedelta | None = STAMP_INTERVAL,
    pasted: Sequence[tuple[int, int]] = (),
) -> Branch:
    """A question after `head`, behind what closes a turn that ended among calls, and the empty answer that will stream
    into it. `stamp_every` None: no time stamp. The stamp follows the memories that `blocks` begin with: those are the
    same in every conversation."""
    path = tree.path(head)
    closing = closed(path, now.timestamp())
    stamp: tuple[ContextBlock, ...] = ()
    if stamp_every is not None and stamp_due(now, last_stamp(path), stamp_every):
        stamp = (time_block(now),)
    own = tuple(
        replace(b, text=whole_characters(b.text), source=whole_characters(b.source)) for b in blocks if b.kind != TIME
    )
    ahead = tuple(takewhile(lambda block: block.kind == MEMORY, own))
    message = Message(Role.USER, whole_characters(text), (*ahead, *stamp, *own[len(ahead) :]), pasted=tuple(pasted))
    question = node([*path, *closing][-1], message, now.timestamp())
    answer = awaited(question, now)
    return Branch((*closing, question, answer), answer.id)


def closed(path: Sequence[Node], created: float) -> tuple[Node, ...]:
    """What ends a turn that ended among calls: results for those that were not carried out, and an answer without a
    word. No question may follow without them."""
    parent, found = path[-1], list[Node]()
    for call in open_calls(path):
        parent = node(parent, Message(Role.TOOL, NOT_CARRIED_OUT, calls=(call,)), created, state=State.CANCELLED)
        found.append(parent)
    if parent.role is Role.TOOL:
        found.append(node(parent, Message(Role.ASSISTANT, ""), created, state=State.CANCELLED))
    return tuple(found)


def instructed(path: Sequence[Node], text: str, created: float) -> list[Node]:
    """A branch with an instruction behind it, which is a message of no tree; as a question would follow, it follows
    what closes a turn that ended among calls."""
    whole = [*path, *closed(path, created)]
    return [*whole, node(whole[-1], Message(Role.USER, text), created)]


def awaited(question: Node, now: datetime) -> Node:
    """An empty streaming answer to `question`, or to the result of a call."""
    return node(question, Message(Role.ASSISTANT, ""), now.timestamp(), state=State.STREAMING)


def continuation(question: Node, cut: Node, now: datetime) -> Node:
    """A streaming answer to `question` that begins with what came of `cut`, which stays as it is."""
    return node(question, cut.message, now.timestamp(), state=State.STREAMING)


def before_refused(tree: Tree, answer: Node, before: str | None) -> str:
    """The head to go on from when a question was refused, of which `answer` is the wordless answer. `before` is the
    head before it was asked. Turns at its end that failed without an answer are left behind too: they were a part of
    what was refused."""
    question = tree[answer.parent or ""]
    if before is None or before not in tree or (tree[before].parent == question.id and not _has_words(tree[before])):
        before = question.parent or ""
    head = tree[before]
    while head.role is Role.ASSISTANT and head.state is State.ERROR and not _has_words(head):
        head = tree[tree.turn_of(head.id)[0].parent or ""]
    return head.id


def _has_words(answer: Node) -> bool:
    return not answer.is_wordless


def grafted(parent: Node, twig: Node) -> Node:
    """A copy of `twig` below another parent: the same wire bytes, a new id and digest, and neither figures
    nor token ids, because they are of another prompt. Where it had filled the window, it is only cut."""
    state, note = twig.state, twig.note
    if state is State.STREAMING:
        state = State.INTERRUPTED
    elif state is State.CONTEXT_FULL:
        state, note = State.LENGTH, None
    return replace(
        twig,
        id=new_id(),
        parent=parent.id,
        digest=chained(parent.digest, twig.wire),
        figures=None,
        state=state,
        note=note,
        ids=None,
    )


def with_block(parent: Node, question: Node, block: ContextBlock, created: float) -> Node:
    """A copy of `question` below `parent` with one more block of context in front of its own."""
    return node(parent, replace(question.message, blocks=(block, *question.message.blocks)), created)


def _regrown(parent: Node, twigs: Sequence[Node]) -> Branch:
    nodes = []
    for twig in twigs:
        parent = grafted(parent, twig)
        nodes.append(parent)
    return Branch(tuple(nodes), parent.id)


def without_turn(tree: Tree, head: str, id: str) -> Branch:
    """The branch to `head` without the turn that the message `id` belongs to. A summary of earlier turns in front of
    it goes to the next question. Raises ValueError for the system message or a message that is not on the branch."""
    question, _ = tree.turn_of(id)
    path = tree.path(head)
    ids = [n.id for n in path]
    if question.id not in ids:
        raise ValueError("the message is not on this branch")
    at = ids.index(question.id)
    after = next((i for i in range(at + 1, len(path)) if path[i].role is Role.USER), len(path))
    summary = next((b for b in path[at].message.blocks if b.kind == SUMMARY), None)
    if summary is None or after == len(path):
        return _regrown(path[at - 1], path[after:])
    first = with_block(path[at - 1], path[after], summary, path[after].created)
    rest = _regrown(first, path[after + 1 :])
    return Branch((first, *rest.nodes), rest.head)


def whole(path: Sequence[Node]) -> Branch:
    """A branch with what it lacks to be sent, from where that begins. One that lacks nothing has no new nodes."""
    below = dict(zip((one.id for one in path), ([one] for one in path[1:]), strict=False))
    made = [after for _, after in mended(path[0], lambda one: below.get(one.id, []))]
    same = sum(1 for _ in takewhile(lambda pair: pair[0].digest == pair[1].digest, zip(path, made, strict=False)))
    return _regrown(path[same - 1], made[same:])


def under_system(tree: Tree, head: str, system: Message, created: float) -> Branch:
    """The branch to `head` below another system message."""
    root = node(None, system, created)
    rest = _regrown(root, tree.path(head)[1:])
    return Branch((root, *rest.nodes), rest.head)

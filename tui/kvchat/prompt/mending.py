"""Histories that every server takes: each result follows its call, each call has its results, each answer a question.

What a damaged file lost breaks that. It is mended by what is put in between: a result knows its call, and what is gone
is named. No message that is there is rendered again; those behind what was put in stand on another digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from kvchat.prompt.message import Message, Node, Role, State, chained, node
from kvchat.prompt.tools import INTERRUPTED, NO_CALL, ToolCall, calls_in, still_open

LOST = "[the messages before this one are lost]"
"""The question of an answer, or of a call, whose own is lost."""

Children = Callable[[Node], Sequence[Node]]


def sent_calls(of: Node) -> tuple[ToolCall, ...]:
    """The calls in the wire bytes of a message: those that an answer makes, the one that a result is of. What a result
    does not say of its call, the arguments, comes from the message."""
    if of.role is Role.ASSISTANT:
        return calls_in(of.wire)
    if of.role is not Role.TOOL:
        return ()
    sent, known = json.loads(of.wire), of.message.call
    id, name = str(sent.get("tool_call_id", "")), str(sent.get("name", ""))
    return (known if (known.id, known.name) == (id, name) else replace(NO_CALL, id=id, name=name),)


def is_whole(path: Iterable[Node]) -> bool:
    """Whether each result on a branch follows its call, and no call lacks its result but at the end."""
    waiting: tuple[ToolCall, ...] = ()
    for one in path:
        if one.role is Role.TOOL:
            if (rest := still_open(waiting, one.message.call)) is None:
                return False
            waiting = rest
        elif waiting:
            return False
        else:
            waiting = one.message.calls
    return True


def mended(root: Node, children: Children, *, ends: bool = False) -> Iterator[tuple[Node, Node]]:
    """Every message below and with `root`, parents first, as it was and as it is to be; of one that is put in the first
    is the message that needs it, below it or at the end of a branch. `ends`: calls at such an end have lost their
    results, and get some that say so."""
    put_in = set[str]()
    todo: list[tuple[Node, Node | None, tuple[ToolCall, ...]]] = [(root, None, ())]
    while todo:
        before, above, waiting = todo.pop()
        for message in _missing(before, above, waiting, children):
            assert above is not None
            made = _put_in(above, message, before.created)
            if made.id not in put_in:
                put_in.add(made.id)
                yield before, made
            above = made
            waiting = _waiting(waiting, message)
        after = _below(above, before)
        yield before, after
        below = children(before)
        waiting = _waiting(waiting, after.message)
        todo += [(child, after, waiting) for child in reversed(below)]
        if ends and not below:
            above = after
            for call in waiting:
                above = _put_in(above, _lost_result(call), before.created)
                yield before, above


def _waiting(calls: tuple[ToolCall, ...], message: Message) -> tuple[ToolCall, ...]:
    """The calls that wait for their results behind a message, where these did in front of it."""
    return (still_open(calls, message.call) or ()) if message.role is Role.TOOL else message.calls


def _below(above: Node | None, one: Node) -> Node:
    """A message below another one than before, or the same."""
    message = one.message
    digest = chained(above.digest if above is not None else message.above, one.wire)
    if (calls := sent_calls(one)) != message.calls:
        message = replace(message, calls=calls)
    is_same = digest == one.digest
    return replace(
        one,
        parent=above.id if above is not None else None,
        message=message,
        digest=digest,
        ids=one.ids if is_same else None,  # they are of another prompt
    )


def _missing(one: Node, above: Node | None, waiting: tuple[ToolCall, ...], children: Children) -> Iterator[Message]:
    """What is to stand between a message and the one above it."""
    if above is None:
        return
    role = above.role
    [call, *_] = sent_calls(one) or (NO_CALL,)
    if one.role is Role.TOOL and still_open(waiting, call) is not None:
        return
    for lost in waiting:
        role = Role.TOOL
        yield _lost_result(lost)
    if one.role is Role.USER:
        if role is Role.TOOL:
            yield Message(Role.ASSISTANT, "")
        return
    if role is Role.SYSTEM or (one.role is Role.TOOL and role is Role.ASSISTANT):
        yield Message(Role.USER, LOST)
    if one.role is Role.TOOL:
        yield Message(Role.ASSISTANT, "", calls=tuple(_run(one, children)))


def _run(one: Node, children: Children) -> Iterator[ToolCall]:
    """The calls of results that follow each other."""
    seen = set[str]()
    while one.role is Role.TOOL and one.id not in seen:
        seen.add(one.id)
        yield from sent_calls(one)
        one = next(iter(children(one)), one)


def _lost_result(call: ToolCall) -> Message:
    return Message(Role.TOOL, INTERRUPTED, calls=(call,))


def _put_in(above: Node, message: Message, created: float) -> Node:
    """The same message at the same place has the same id."""
    is_said = message.role is Role.USER or (message.role is Role.ASSISTANT and bool(message.calls))
    made = node(above, message, created, state=State.DONE if is_said else State.INTERRUPTED)
    return replace(made, id=hashlib.sha256(f"{above.id}\n".encode() + made.wire).hexdigest()[:32])

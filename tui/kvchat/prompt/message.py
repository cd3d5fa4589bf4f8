"""Messages and nodes: what is said, its wire bytes, its digest, and its place in the tree.

A message is rendered to wire bytes once, when its node is made, and never again. Equal digests
mean equal prefixes.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from enum import StrEnum, auto
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import POLICY, ContextBlock, rendered
from kvchat.prompt.images import images_in, stored_part
from kvchat.prompt.tools import NO_CALL, RESULT_POLICY, ToolCall, still_open
from kvchat.prompt.wire import canonical, whole_characters
from kvchat.values import Statement

if TYPE_CHECKING:
    from kvchat.prompt.token_ids import AnswerIds

DEFAULT_INSTRUCTIONS = "You are a helpful assistant."


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    """What a call of a tool gave."""


class State(StrEnum):
    """The state of a message. Everything but STREAMING is final."""

    STREAMING = "streaming"
    DONE = "done"
    LENGTH = "length"
    """The answer reached max_tokens."""
    CONTEXT_FULL = "context_full"
    """The answer filled the context window."""
    CANCELLED = "cancelled"
    """The user stopped it; what came is kept."""
    INTERRUPTED = "interrupted"
    """The stream was cut, or kvchat ended while it ran."""
    ERROR = "error"
    """The server answered with an error, or could not be reached."""
    EMPTY = "empty"
    """The answer was complete and held no text."""


CUT = frozenset({State.LENGTH, State.CANCELLED, State.INTERRUPTED, State.ERROR})
"""States in which an answer ended before the model had ended it, where there is room for more."""


class NoteKind(StrEnum):
    """What is to be said of how an answer ended, where it is no fault of a server, and what to know of one that is
    whole. The comment names the arguments."""

    KVCHAT_ENDED = auto()
    NOTHING_SENT = auto()
    STOPPED_EARLY = auto()
    SILENT = auto()
    ONLY_LOADED = auto()  # loads: whether the model was loaded, else unloaded
    NO_WORDS = auto()  # tokens: how many came; cut: whether it is at max tokens
    ONLY_REASONING = auto()
    FILTERED = auto()  # words: of the refusal, if there are some
    MODEL_REFUSED = auto()  # words
    NOT_FITTING = auto()  # title: of the program, room: how the window is made larger
    BROKEN_CALL = auto()  # call: its name, why
    TOOL_CALLS = auto()  # calls: a line each, more: further ones, nameless: whether the only one has no name
    CALL_AS_TEXT = auto()
    CALLS_LEFT_OUT = auto()  # made: how many calls, most: how many of them are carried out
    LONGEST = auto()
    FILLS_WINDOW = auto()  # size: tokens, room
    FILLS_OWN_WINDOW = auto()  # size, room
    NOT_AGREED = auto()  # url
    MOVED = auto()  # url
    NOT_AGREED_ONWARD = auto()  # url, model, host
    NOT_AGREED_BESIDE = auto()  # url
    NOT_AGREED_APART = auto()  # url
    ON_THE_INTERNET = auto()  # url
    NO_IMAGES = auto()  # model
    NO_TOOLS = auto()  # model
    CALLS_LOST = auto()
    CALL_WAITS = auto()  # a call that waits for the user's yes
    # of a whole answer
    PART_LOST = auto()
    OTHER_MODEL_ANSWERED = auto()  # answered, asked; title: of a program that has one model at a time
    RUNS_ELSEWHERE = auto()  # host
    MODEL_LOADED = auto()  # model
    LOADED_AGAIN = auto()  # seconds; known: whether it was loaded from here; changed: options; idle, limit: seconds
    SUMMARISED = auto()  # messages: how many
    LEFT_OUT = auto()  # title, tokens, expected, room
    LEFT_OUT_UNASKED = auto()  # tokens, expected, size: of the window that was asked for, room
    REPORTED_COLD = auto()  # held: tokens; flag: of the server, where it has one


PLACE = "{}"
"""The place of the thought in what was around it in a text: `<think>\\n{}\\n</think>\\n\\n`."""


def has_end_only(reasoning_field: str) -> bool:
    """Whether this is what is around a thought that the prompt had opened, so that it came as text first."""
    return reasoning_field.startswith(PLACE)


class Message(Struct, frozen=True):
    """One message, before it is bytes."""

    role: Role
    text: str
    """The user's own words, or the answer exactly as received."""
    blocks: tuple[ContextBlock, ...] = ()
    """Context in front of a user message, or the sources of a trunk in front of a system message."""
    reasoning: str = ""
    """An answer's reasoning exactly as received."""
    reasoning_field: str = "reasoning_content"
    """The field in which the server sent the reasoning; it goes back in the same one. Where it stood in the text: what
    stood around it there (`Thoughts.frame`). Empty: it is not sent back."""
    pasted: tuple[tuple[int, int], ...] = ()
    """Where in the text of a question something was pasted: starts and ends, in order. Never sent."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that an answer makes; of a result the one that it is of."""
    tools: bytes = b""
    """Of a system message: the tools of the conversation (`prompt.tools.frozen_tools`). No part of its own bytes."""

    @property
    def typed(self) -> str:
        """The text without what was pasted; a line end takes its place."""
        text = self.text
        for start, end in reversed(self.pasted):
            text = f"{text[:start]}\n{text[end:]}"
        return text

    @property
    def call(self) -> ToolCall:
        """The call that a result is of, the first that an answer makes."""
        return self.calls[0] if self.calls else NO_CALL

    @property
    def framed(self) -> str:
        """The reasoning with what stood around it, where it stood in the text; else empty."""
        return self.reasoning_field.replace(PLACE, self.reasoning, 1) if PLACE in self.reasoning_field else ""

    def wire(self) -> bytes:
        """The canonical JSON object of this message: role, content, then reasoning if there is any, and calls. Images
        make parts of the content, in front of its text, each named and not there itself."""
        framed = self.framed
        content: object = rendered(self.blocks, framed + self.text)
        if self.role is Role.USER and (images := images_in(self.blocks)):
            content = [*map(stored_part, images), *([{"type": "text", "text": content}] if content else [])]
        fields: dict[str, object] = {"role": self.role.value, "content": content}
        if self.reasoning and self.reasoning_field and not framed:
            fields[self.reasoning_field] = self.reasoning
        if self.role is Role.TOOL:
            fields |= {"name": self.call.name, "tool_call_id": self.call.id}
        elif self.calls:
            fields["tool_calls"] = [call.wire() for call in self.calls]
        return canonical(fields)

    @property
    def above(self) -> bytes:
        """What its digest is made on where it begins a conversation: of its tools, which stand before it in prompts."""
        return hashlib.sha256(self.tools).digest() if self.tools else b""


def system_message(instructions: str, blocks: tuple[ContextBlock, ...] = (), tools: bytes = b"") -> Message:
    """The one system message: the instructions, then the safety policy; stable text only. `blocks`: the sources of a
    trunk, which stand in front."""
    instructions = whole_characters(instructions).strip() or DEFAULT_INSTRUCTIONS
    policy = f"{POLICY} {RESULT_POLICY}" if tools else POLICY
    return Message(Role.SYSTEM, f"{instructions}\n\n{policy}", blocks, tools=tools)


def with_tools(system: Message, tools: bytes) -> Message:
    """The system message of a conversation with other tools."""
    return system_message(instructions_of(system.text), system.blocks, tools)


def instructions_of(system_text: str) -> str:
    """The instructions inside a system message's text, without the policy."""
    return system_text.removesuffix(f" {RESULT_POLICY}").removesuffix(POLICY).rstrip("\n")


def chained(parent: bytes, wire: bytes) -> bytes:
    """The digest of a message: SHA-256 of the parent's digest (empty at the root) and the wire bytes."""
    return hashlib.sha256(parent + b"\x00" + wire).digest()


class Node(Struct, frozen=True):
    """A message in the tree. Immutable once its state is final."""

    id: str
    """32 hexadecimal digits, made by the client; a retry of a failed write uses the same one."""
    parent: str | None
    message: Message
    wire: bytes
    digest: bytes
    created: float
    """Seconds since the epoch."""
    state: State = State.DONE
    model: str = ""
    """The model that answered, as the server names it."""
    figures: TurnFigures | None = None
    """What the turn cost, on an answer."""
    note: Statement | None = None
    """How it ended, where that was not just the end of the answer: a `NoteKind` or a fault (`kvchat.text.notes` has
    the words)."""
    ids: AnswerIds | None = None
    """Of an answer whose prompt went as token ids: the server's own ids of it."""

    @property
    def role(self) -> Role:
        return self.message.role

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def is_wordless(self) -> bool:
        """Whether it holds neither text, nor reasoning, nor a call."""
        return not self.message.text and not self.message.reasoning and not self.message.calls

    @property
    def is_cut(self) -> bool:
        """Whether it is the beginning of an answer, which can be continued."""
        return self.role is Role.ASSISTANT and self.state in CUT and not self.is_wordless


def new_id() -> str:
    return uuid.uuid4().hex


def node(
    parent: Node | None,
    message: Message,
    created: float,
    *,
    id: str | None = None,
    state: State = State.DONE,
    model: str = "",
    figures: TurnFigures | None = None,
    note: Statement | None = None,
    ids: AnswerIds | None = None,
) -> Node:
    """A node below `parent`: its wire bytes and digest are made here and nowhere else."""
    wire = message.wire()
    digest = chained(parent.digest if parent else message.above, wire)
    return Node(
        id or new_id(), parent.id if parent else None, message, wire, digest, created, state, model, figures, note, ids
    )


def settled(
    streaming: Node,
    parent: Node,
    text: str,
    reasoning: str,
    state: State,
    *,
    reasoning_field: str = "reasoning_content",
    calls: tuple[ToolCall, ...] | None = None,
    model: str = "",
    figures: TurnFigures | None = None,
    note: Statement | None = None,
    ids: AnswerIds | None = None,
) -> Node:
    """The final form of a streaming answer: same id and place, wire bytes and digest of what was received."""
    message = replace(
        streaming.message,
        text=whole_characters(text),
        reasoning=whole_characters(reasoning),
        reasoning_field=reasoning_field,
        calls=streaming.message.calls if calls is None else calls,
    )
    return node(
        parent,
        message,
        streaming.created,
        id=streaming.id,
        state=state,
        model=model or streaming.model,
        figures=figures,
        note=note,
        ids=ids,
    )


# -- the tools of a branch -------------------------------------------------------------------------------------------


def tools_of(path: Sequence[Node]) -> bytes:
    """The tools of a branch, as `frozen_tools` gave them."""
    return path[0].message.tools if path else b""


def open_calls(path: Sequence[Node]) -> tuple[ToolCall, ...]:
    """The calls at the end of a branch that have no result yet, in order."""
    results = list(takewhile(lambda node: node.role is Role.TOOL, reversed(path)))
    calls = path[-1 - len(results)].message.calls if len(results) < len(path) else ()
    for result in results:
        calls = still_open(calls, result.message.call) or ()
    return calls

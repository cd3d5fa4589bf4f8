"""The calls of tools in the text of an answer: what llama.cpp's chat endpoint reads, read here where a prompt goes as
token ids.

Most models write calls in one of three shapes. Sources: the chat templates of llama.cpp b11549; OpenAI's harmony format
(gpt-oss) for the channels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum, auto
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kvchat.patterns import compiled_later
from kvchat.prompt.thoughts import Begins, Part, Thoughts

CALL, END_OF_CALL = "<tool_call>", "</tool_call>"
CHANNEL, MESSAGE, START, CONSTRAIN = "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"
ENDS = END_OF_MESSAGE, END_OF_TURN, CALLED = "<|end|>", "<|return|>", "<|call|>"
FINAL = f"{CHANNEL}final{MESSAGE}"


class CallShape(StrEnum):
    """How a model writes a call."""

    OBJECT = auto()
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""
    PARAMETERS = auto()
    """`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`."""
    CHANNELS = auto()
    """`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>`; thoughts and answers have
    channels too."""

    @property
    def marks(self) -> tuple[str, ...]:
        """What a server has to keep in an answer's text, though it may be one special token."""
        return (CHANNEL, MESSAGE, START, CONSTRAIN, *ENDS) if self is CallShape.CHANNELS else (CALL, END_OF_CALL)

    def behind(self, rendered: str) -> str:
        """What a template puts behind the last call of an answer, given what it puts behind the arguments of that: the
        model has written the end of its call, but for a token that ended the answer, too."""
        if self is CallShape.CHANNELS:
            return rendered[rendered.index(CALLED) :]
        return rendered.partition(END_OF_CALL)[2]


def shape_in(template: str) -> CallShape | None:
    """How a model with this chat template writes calls; None: in a shape that is not read here."""
    if CHANNEL in template and "functions." in template and CALLED in template:
        return CallShape.CHANNELS
    if CALL not in template:
        return None
    if "<function=" in template and "<parameter=" in template:
        return CallShape.PARAMETERS
    return CallShape.OBJECT if _PRINTS_OBJECT.search(template) else None


_PRINTS_OBJECT = compiled_later(r"""<tool_call>(?:\\n|[\s'"{}~+-])*\{\s*\\?"name""")
"""Between the two is nothing but white space and what Jinja has around texts."""


class WrittenCall(Struct, frozen=True):
    """A call as a server would give it; arguments that cannot be read are what stands there."""

    name: str
    arguments: str


# -- calls between tags -----------------------------------------------------------------------------------------------


class _Object(Struct):
    name: str
    arguments: Raw = Raw(b"{}")


class TaggedCalls:
    """Takes an answer apart into thoughts, text and calls as it comes. All from the first call on is kept to the
    end."""

    def __init__(self, thoughts: Thoughts, shape: CallShape, tools: bytes) -> None:
        """`tools`: those that may be called, as `frozen_tools` gave them: which arguments are text, they say."""
        self.calls: list[WrittenCall] = []
        self._thoughts = thoughts
        self._shape = shape
        self._tools = tools
        self._held = ""

    def take(self, text: str) -> list[Part]:
        return self._without_calls(self._thoughts.take(text))

    def ended(self) -> list[Part]:
        """What was held back to the end. A call that cannot be read at all is text: it speaks of calls."""
        found = self._without_calls(self._thoughts.ended())
        text, *bodies = self._held.split(CALL)
        for body in bodies:
            call = self._read(body.partition(END_OF_CALL)[0].strip())
            if call is None:
                text += CALL + body
            else:
                self.calls.append(call)
                text += body.partition(END_OF_CALL)[2]
        if text := text.rstrip() if self.calls else text:
            found.append(("content", text))
        return found

    def _without_calls(self, parts: Sequence[Part]) -> list[Part]:
        """Parts of the answer, without what is a call, or may become one."""
        found: list[Part] = []
        for kind, text in parts:
            if kind != "content":
                found.append((kind, text))
                continue
            self._held += text
            begun = self._held.partition(CALL)[0]
            if begun == self._held:
                start = begun.rfind("<")
                begun = begun[:start] if start >= 0 and CALL.startswith(begun[start:]) else begun
            if sure := begun.rstrip():
                found.append(("content", sure))
                self._held = self._held[len(sure) :]
        return found

    def _read(self, body: str) -> WrittenCall | None:
        if self._shape is CallShape.OBJECT:
            return _object_call(body) if body.startswith("{") else None
        return self._parameters_call(body) if body.startswith("<function=") else None

    def _parameters_call(self, body: str) -> WrittenCall:
        whole = _FUNCTION.fullmatch(body)
        name = body[len("<function=") :].partition(">")[0].strip()
        if whole is None:
            return WrittenCall(name, body)
        types = _types_of(self._tools, name)
        found = {key.strip(): _value(text, types.get(key.strip())) for key, text in _PARAMETER.findall(whole[1])}
        return WrittenCall(name, json.dumps(found, ensure_ascii=False))


def _object_call(body: str) -> WrittenCall:
    try:
        call = msgspec.json.decode(body, type=_Object)
    except msgspec.MsgspecError:
        name = _NAME.search(body)
        return WrittenCall(name[1] if name else "", body)
    return WrittenCall(call.name, bytes(call.arguments).decode())


_NAME = compiled_later(r'"name"\s*:\s*"([^"\\]*)"')
_FUNCTION = compiled_later(r"<function=[^>]*>(.*)</function>", re.DOTALL)
_PARAMETER = compiled_later(r"<parameter=([^>]*)>\n?(.*?)\n?</parameter>", re.DOTALL)


def _types_of(tools: bytes, name: str) -> Mapping[str, object]:
    """The types of a tool's arguments, as its schema has them."""
    for tool in json.loads(tools or b"[]"):
        if tool["function"]["name"] == name:
            properties = tool["function"]["parameters"].get("properties", {})
            return {key: schema.get("type") for key, schema in properties.items() if isinstance(schema, dict)}
    return {}


def _value(text: str, type: object) -> Any:
    """What an argument means: JSON, unless it is text."""
    if type == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- channels ---------------------------------------------------------------------------------------------------------


class Channels:
    """Takes an answer in channels apart: thoughts, text, calls."""

    def __init__(self, begins: Begins) -> None:
        self.calls: list[WrittenCall] = []
        self._held = ""
        self._kind: str | None = {"start": None, "thought": "reasoning_content", "answer": "content"}[begins]
        """Of the message that comes; None: its header comes."""
        self._name, self._arguments = "", ""

    def take(self, text: str) -> list[Part]:
        self._held += text
        found: list[Part] = []
        while (mark := (_BODY if self._kind is not None else _HEADER).search(self._held)) is not None:
            before, self._held = self._held[: mark.start()], self._held[mark.end() :]
            if self._kind is None:
                self._open(before)
            else:
                self._say(before, found)
                self._close()
        if self._kind is not None:
            start = self._held.rfind("<")
            may_be = start >= 0 and any(mark.startswith(self._held[start:]) for mark in ENDS)
            at = start if may_be else len(self._held)
            self._say(self._held[:at], found)
            self._held = self._held[at:]
        return found

    def _open(self, header: str) -> None:
        to, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if to is not None:
            self._kind, self._name, self._arguments = "call", to[1], ""
        else:
            self._kind = "reasoning_content" if channel is not None and channel[1] == "analysis" else "content"

    def _close(self) -> None:
        if self._kind == "call":
            self.calls.append(WrittenCall(self._name, self._arguments.strip()))
        self._kind = None

    def _say(self, text: str, found: list[Part]) -> None:
        if not text:
            return
        match self._kind:
            case "call":
                self._arguments += text
            case "content":
                found.append(("content", text))
            case _:
                found.append(("reasoning_content", text))

    def ended(self) -> list[Part]:
        """What was held back to the end. The token that ends a message may have ended the answer instead."""
        found: list[Part] = []
        if self._kind is None and not any(mark in self._held for mark in (CHANNEL, START)):
            self._kind = "content"  # a text without a header
        if self._kind is not None:
            self._say(self._held, found)
            self._close()
        self._held = ""
        return found


_HEADER = compiled_later(re.escape(MESSAGE))
_BODY = compiled_later("|".join(map(re.escape, ENDS)))
_RECIPIENT = compiled_later(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = compiled_later(re.escape(CHANNEL) + r"\s*(\w+)")

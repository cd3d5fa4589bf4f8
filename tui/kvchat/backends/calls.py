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
from itertools import chain
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
        """What a server has to keep in an answer's text, though it may be one special token. Not what ends an answer:
        that token is the template's."""
        if self is CallShape.CHANNELS:
            return CHANNEL, MESSAGE, START, CONSTRAIN, END_OF_MESSAGE
        return CALL, END_OF_CALL

    def behind(self, rendered: str) -> str | None:
        """What a template puts behind the last call of an answer, given what it puts behind the arguments of that: the
        model has written the end of its call, but for a token that ended the answer, too. None: it prints no call."""
        end = CALLED if self is CallShape.CHANNELS else END_OF_CALL
        _, found, behind = rendered.partition(end)
        if not found:
            return None
        return end + behind if self is CallShape.CHANNELS else behind


def shape_in(template: str) -> CallShape | None:
    """How a model with this chat template writes calls; None: in a shape that is not read here."""
    if "tool_calls" not in template:
        return None  # it speaks of calls, and prints none
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
    """A call as a server would give it: its arguments as JSON, or as they were written where they cannot be read."""

    name: str
    arguments: str


# -- calls between tags -----------------------------------------------------------------------------------------------


class TaggedCalls:
    """Takes an answer apart into thoughts, text and calls as it comes. All from the first call on is kept to the
    end."""

    def __init__(self, thoughts: Thoughts, shape: CallShape, tools: bytes) -> None:
        """`tools`: those that may be called, as `frozen_tools` gave them: which arguments are text, they say."""
        self.calls: list[WrittenCall] = []
        self._thoughts = thoughts
        self._begins = "{" if shape is CallShape.OBJECT else _FUNCTION
        """What a call begins with, behind the tag; what begins in another way is a text that speaks of calls."""
        self._tools = tools
        self._held = ""

    def take(self, text: str) -> list[Part]:
        return self._without_calls(self._thoughts.take(text))

    @property
    def written(self) -> WrittenCall | None:
        """The call that is being written, as far as it is there; None: none is, for all that is known."""
        body = self._held.rpartition(CALL)[2].lstrip()
        if CALL not in self._held or not body.startswith(self._begins):
            return None
        body = body.partition(END_OF_CALL)[0]
        if self._begins == _FUNCTION:
            name, _, arguments = body.removeprefix(_FUNCTION).partition(">")
            return WrittenCall(name.strip(), arguments.strip())
        named, begins = _NAME.search(body), _ARGUMENTS.search(body)
        return WrittenCall(named[1] if named else "", body[begins.end() :] if begins else "")

    def ended(self) -> list[Part]:
        """What was held back to the end."""
        found = self._without_calls(self._thoughts.ended())
        text, tag, rest = self._held.partition(CALL)
        while tag:
            body = rest.lstrip()
            if body.startswith(self._begins):
                call, rest = self._call(body)
                self.calls.append(call)
            else:
                text += tag
            before, tag, rest = rest.partition(CALL)
            text += before
        self._held = ""
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
            if sure := self._held[: self._sure()]:
                found.append(("content", sure))
                self._held = self._held[len(sure) :]
        return found

    def _sure(self) -> int:
        """How many of the characters that are held are text, whatever comes."""
        at = -1
        while (at := self._held.find(CALL, at + 1)) >= 0:
            body = self._held[at + len(CALL) :].lstrip()
            if body.startswith(self._begins) or self._begins.startswith(body):
                break
        if at < 0:
            at = self._held.rfind("<")
            if at < 0 or not CALL.startswith(self._held[at:]):
                at = len(self._held)
        return len(self._held[:at].rstrip())

    def _call(self, body: str) -> tuple[WrittenCall, str]:
        """The call that a text begins with, and what follows it."""
        if self._begins == _FUNCTION:
            written, _, rest = body.partition(END_OF_CALL)
            return _parameters_call(written.strip(), self._tools), rest
        try:
            _, end = json.JSONDecoder().raw_decode(body)  # the tag's end may stand in its strings
        except (ValueError, RecursionError):
            written, _, rest = body.partition(END_OF_CALL)
            return _object_call(written.strip()), rest
        return _object_call(body[:end]), body[end:].lstrip().removeprefix(END_OF_CALL)


_FUNCTION = "<function="


class _Object(Struct):
    name: str
    arguments: Raw = Raw(b"")
    parameters: Raw = Raw(b"")
    """What some models write instead."""


def _object_call(written: str) -> WrittenCall:
    try:
        call = msgspec.json.decode(written, type=_Object)
        arguments = bytes(call.arguments or call.parameters).decode()
        if arguments.startswith('"'):  # a string that holds them
            arguments = json.loads(arguments)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        name = _NAME.search(written)
        return WrittenCall(name[1] if name else "", written)
    return WrittenCall(call.name, "{}" if arguments in ("", "null") else arguments)


_NAME = compiled_later(r'"name"\s*:\s*"([^"\\]*)"')
_ARGUMENTS = compiled_later(r'"(?:arguments|parameters)"\s*:\s*')


def _parameters_call(written: str, tools: bytes) -> WrittenCall:
    head, *parts = written.split("<parameter=")
    name = head.removeprefix(_FUNCTION).partition(">")[0].strip()
    if not written.endswith("</function>"):
        return WrittenCall(name, written)
    schemas, found = _schemas_of(tools, name), {}
    for part in parts:
        key, _, value = part.partition(">")
        value = value.partition("</parameter>")[0].removeprefix("\n").removesuffix("\n")
        found[key.strip()] = _value(value, _types(schemas.get(key.strip())))
    return WrittenCall(name, json.dumps(found, ensure_ascii=False))


def _schemas_of(tools: bytes, name: str) -> Mapping[str, object]:
    """The schemas of a tool's arguments."""
    tool = next((one["function"] for one in json.loads(tools or b"[]") if one["function"]["name"] == name), None)
    return tool["parameters"].get("properties", {}) if tool is not None else {}


def _types(schema: object) -> list[object]:
    """The types that a schema, which may be a stranger's, allows."""
    if not isinstance(schema, dict):
        return []
    types = schema.get("type")
    found = [*types] if isinstance(types, list) else [types]
    for name in ("anyOf", "oneOf"):
        alternatives = schema.get(name)
        found += chain(*map(_types, alternatives)) if isinstance(alternatives, list) else ()
    return found


def _value(text: str, types: Sequence[object]) -> Any:
    """What an argument means: JSON, unless it is text."""
    if "string" in types and not (text == "null" and "null" in types):
        return text
    if "boolean" in types and text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- channels ---------------------------------------------------------------------------------------------------------


class Channels:
    """Takes an answer in channels apart: thoughts, text, and the first call."""

    def __init__(self, begins: Begins) -> None:
        self.calls: list[WrittenCall] = []
        self._held = ""
        self._kind: str | None = {"start": None, "thought": "reasoning_content", "answer": "content"}[begins]
        """Of the message that comes; None: its header comes."""
        self._said: set[str | None] = set()
        """The kinds of messages that had text."""
        self._gap = ""
        """What separates the next text from one of its kind."""
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
        self._gap = "\n\n" if self._kind in self._said else ""

    def _close(self) -> None:
        if self._kind == "call" and not self.calls:  # templates print one
            self.calls.append(WrittenCall(self._name, self._arguments.strip()))
        self._kind = None

    def _say(self, text: str, found: list[Part]) -> None:
        if not text:
            return
        if self._kind == "call":
            self._arguments += text
            return
        self._said.add(self._kind)
        text, self._gap = self._gap + text, ""
        found.append(("content", text) if self._kind == "content" else ("reasoning_content", text))

    @property
    def written(self) -> WrittenCall | None:
        """As of `TaggedCalls`."""
        return WrittenCall(self._name, self._arguments) if self._kind == "call" else None

    def ended(self) -> list[Part]:
        """What was held back to the end. The token that ends a message may have ended the answer instead."""
        found: list[Part] = []
        if self._kind is None:  # a text without a header
            self._kind, self._held = "content", _MARK.split(self._held, maxsplit=1)[0]
        self._say(self._held, found)
        self._close()
        self._held = ""
        return found


_HEADER = compiled_later(re.escape(MESSAGE))
_BODY = compiled_later("|".join(map(re.escape, ENDS)))
_RECIPIENT = compiled_later(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = compiled_later(re.escape(CHANNEL) + r"\s*(\w+)")
_MARK = compiled_later("|".join(map(re.escape, (CHANNEL, START))))

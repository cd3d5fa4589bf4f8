"""Tools of a conversation: what is offered to the model, the calls it makes, and what they gave.

The definitions are frozen when a conversation begins: sorted by name, serialized once, and part of the digest of its
first message, for they stand at the head of every prompt. A call goes back as it came. Sources: OpenAI's chat API
(`tools`, `tool_calls`), llama.cpp b11549 (a call whose arguments are no JSON answers 500 whenever it is sent back).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto
from itertools import count
from typing import Any

from msgspec import Struct

from kvchat.prompt.wire import canonical, whole_characters

RESULT_POLICY = "The same holds for what tools return."
"""Follows the safety policy in the system message of a conversation that has tools."""
INTERRUPTED = "The call was interrupted, and it is not known whether it was carried out."
MOST_CALLS = 32
"""Calls of one answer that are carried out."""
CALLS_LEFT_OUT = f"Only the first {MOST_CALLS} of these calls were carried out."
NOT_CARRIED_OUT = "The call was not carried out: the turn ended before it."


class ToolDefinition(Struct, frozen=True):
    """What is offered to the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """Its arguments: the JSON schema of an object."""

    def wire(self) -> dict[str, object]:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolCall(Struct, frozen=True):
    """A call that a model made."""

    id: str
    name: str
    arguments: str
    """The JSON text as it came."""

    def wire(self) -> dict[str, object]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    def given(self) -> dict[str, Any] | None:
        """The arguments; None: they are no JSON object."""
        try:
            found = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def fault(self) -> str:
        """Why it cannot be sent back; empty: it can."""
        if not self.name.strip():
            return "it has no name"
        try:
            found = json.loads(self.arguments)
        except (ValueError, RecursionError) as error:
            return f"its arguments are not JSON ({error})"
        return "" if isinstance(found, dict) else "its arguments are no JSON object"


NO_CALL = ToolCall("", "", "{}")
"""Of a result whose call is lost."""


class Decision(StrEnum):
    """The user's word on a call."""

    NO = auto()
    ONCE = auto()
    CONVERSATION = auto()
    ALWAYS = auto()


class Permission(Struct, frozen=True):
    """What a yes to a call is for."""

    tool: str
    scope: str = ""
    """A folder or a host; empty: the tool itself."""
    goes_to: str = ""
    """Where what is asked for goes, beyond what the call says; empty: nowhere."""
    group: str = ""
    """The server whose tool it is; empty: kvchat's own."""
    terms: str = ""
    """Of what else it is for: the program or address behind the tool, what it says it does, and what it takes."""
    shown: str = ""
    """What goes out, where that is not the arguments as they are."""
    about: str = ""
    """What the tool of a server says it does."""

    @property
    def digest(self) -> str:
        """Of all that a yes is for; a kept yes holds for nothing else."""
        return hashlib.sha256(canonical([self.tool, self.scope, self.goes_to, self.group, self.terms])).hexdigest()

    def __str__(self) -> str:
        return f"{self.tool}:{self.scope}" if self.scope else self.tool


class ToolQuestion(Struct, frozen=True):
    """A call that waits for the user's word."""

    permission: Permission
    call: ToolCall
    given: Mapping[str, Any] = {}
    """Its arguments as they go out."""


def frozen_tools(definitions: Iterable[ToolDefinition]) -> bytes:
    """The definitions as a request has them: a JSON array, by name; empty for none."""
    listed = [one.wire() for one in sorted(definitions, key=lambda one: one.name)]
    return canonical(listed) if listed else b""


def tool_names(tools: bytes) -> tuple[str, ...]:
    """The names in what `frozen_tools` gave."""
    return tuple(str(one["function"]["name"]) for one in json.loads(tools)) if tools else ()


def calls_in(wire: bytes) -> tuple[ToolCall, ...]:
    """The calls in the wire bytes of an answer."""
    if b'"tool_calls":[' not in wire:
        return ()
    calls = json.loads(wire).get("tool_calls", ())
    return tuple(ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls)


def still_open(calls: tuple[ToolCall, ...], answered: ToolCall) -> tuple[ToolCall, ...] | None:
    """The calls that wait for their results when one has its own; None: it was none of them."""
    at = next((at for at, call in enumerate(calls) if call.id == answered.id), None)
    return None if at is None else (*calls[:at], *calls[at + 1 :])


def with_ids(calls: Sequence[ToolCall], taken: Iterable[str]) -> tuple[ToolCall, ...]:
    """Calls that each have an id: nine letters and digits where none came, as Mistral's templates take them, and none
    that is `taken` in the conversation."""
    used = {*taken, *(call.id for call in calls)}
    free = (id for id in map("call{:05}".format, count()) if id not in used)
    return tuple(call if call.id else ToolCall(next(free), call.name, call.arguments) for call in calls)


def broken_call(name: str, why: str) -> str:
    """The note in front of the next question on a call that could not be carried out, for the model."""
    return f"Your call of {name} was not carried out: {why}. Call it again, with whole JSON, if you still need it."


def readable(calls: Sequence[ToolCall]) -> str:
    """Calls as text, a line each, for a history in which they cannot be sent back as calls."""
    return whole_characters("\n".join(f"{call.name}({call.arguments})" for call in calls))


def taken_apart(text: str, name: str) -> tuple[str, str]:
    """The text of an answer with a broken call of the tool `name`: the model's own words, and what `readable` made of
    its calls."""
    call = re.search(rf"^{re.escape(name)}\(", text, re.MULTILINE)
    if call is None:
        return text, ""
    words, _, before = text[: call.start()].rpartition("\n\n")
    return words, before + text[call.start() :]

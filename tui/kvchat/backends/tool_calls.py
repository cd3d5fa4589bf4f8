"""The tools that an answer calls: joined from the fragments of a stream, told by their names.

The rule: kvchat offers no tools, so a call is never carried out; it is a decoration of the answer, and whatever is odd
about it costs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvchat.backends.errors import quoted
from kvchat.backends.payload import count_at, figures_at, is_object, name_at

MOST, TOLD = 32, 3
"""Calls that are kept of an answer, and that are told."""
KEPT = 256
"""Characters that are kept of a name, and of the arguments."""
NAME_LIMIT, ARGUMENTS_LIMIT = 60, 80
"""Characters that are told of them."""
REMEDY = "kvchat has no tools; ask for an answer in words."


@dataclass(slots=True)
class _Call:
    name: str = ""
    arguments: str = ""

    def take(self, function: Mapping[str, object]) -> None:
        name, arguments = name_at(function, "name"), function.get("arguments")
        if name != self.name:  # some servers send the whole name with every fragment
            self.name = (self.name + name)[:KEPT]
        if is_object(arguments):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):
            self.arguments = (self.arguments + arguments)[:KEPT]

    def __str__(self) -> str:
        return f"{quoted(self.name, NAME_LIMIT)}({quoted(self.arguments, ARGUMENTS_LIMIT)})"


class ToolCalls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}

    def take(self, message: Mapping[str, object]) -> bool:
        """Take what a message, or a part of one, says of calls. Whether it says anything."""
        found = False
        for call in _calls_in(message):
            function = figures_at(call, "function")
            if not name_at(function, "name") and not function.get("arguments"):
                continue
            found = True
            self._at(call, function).take(function)
        return found

    def _at(self, call: Mapping[str, object], function: Mapping[str, object]) -> _Call:
        """The call that a fragment belongs to. Without an index a name begins a new one."""
        last = max(self._calls, default=-1)
        index = count_at(call, "index")
        if index is None:
            index = last + 1 if name_at(function, "name") or last < 0 else last
        if index not in self._calls and len(self._calls) >= MOST:
            return _Call()
        return self._calls.setdefault(index, _Call())

    def told(self) -> str:
        """That these tools were called, in one sentence, and what to do; empty where none was."""
        calls = [call for _, call in sorted(self._calls.items())]
        if not calls:
            return ""
        if len(calls) == 1:
            what = f"the tool {calls[0]}" if calls[0].name else f"a tool without a name{calls[0]}"
        else:
            *first, last = [*map(str, calls[:TOLD]), *([f"{len(calls) - TOLD} more"] if len(calls) > TOLD else [])]
            what = f"the tools {', '.join(first)} and {last}"
        return f"The model called {what}. {REMEDY}"


def _calls_in(message: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The calls in a message: as they are today, and the single one of OpenAI's older interface."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        yield from filter(is_object, calls)
    if is_object(old := message.get("function_call")):
        yield {"index": 0, "function": old}

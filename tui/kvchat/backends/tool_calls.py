"""The calls of tools in an answer: fragments in, whole calls out.

Servers number fragments, name them and cut arguments in many ways: one index for all calls or a new one for each piece,
an id or the name in each fragment, arguments whole once more behind their pieces. The rules:

* A fragment belongs to the call of its id, else to the last one under its index, else to the last one.
* It begins another call there if it brings another id, an index of its own or another name; if the arguments that
  came are whole, the same name behind them does, too.
* It goes on with the call otherwise. What says again what came adds nothing; what holds all that came takes its place.
* Arguments are read at the end: an object, also as text in JSON or in a fence. `null` and `{}` in front of others are
  none, and objects one behind the other are calls of the same tool.

Where no tool is offered a call is a decoration of the answer, and never carried out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from msgspec import Struct

from kvchat.backends.errors import quoted
from kvchat.backends.http.payload import as_count, figures_at, is_object, name_at, parsed_or_none
from kvchat.prompt.message import NoteKind
from kvchat.prompt.tools import ToolCall
from kvchat.prompt.wire import whole_characters
from kvchat.values import Statement, said

MOST_CALLS, NAMED_CALLS = 1024, 3
"""Calls of an answer that are read, and those that its note names."""
KEPT = 32 * 1024
"""Characters that are kept of a name, and of the arguments."""
NAME_LIMIT, ARGUMENTS_LIMIT = 60, 80
"""Characters of them in the note."""


class Fragment(Struct, frozen=True):
    """What one event says of one call."""

    index: int | None
    id: str
    name: str
    arguments: str
    given: Mapping[str, object] | None
    """The arguments, where they came as an object."""


class _Call(Struct):
    """A call so far."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""
    """Its pieces, joined."""
    piece: str = ""
    """The last of them."""
    pieces: int = 0
    grows: bool = True
    """Whether each piece begins with the one before."""
    given: Mapping[str, object] | None = None
    """The object that came as the arguments, if nothing else did."""

    def take(self, part: Fragment) -> None:
        self.id = self.id or part.id
        if part.name.startswith(self.name):  # also the same name, with every fragment
            self.name = part.name[:KEPT]
        else:
            self.name = (self.name + part.name)[:KEPT]
        if not part.arguments:
            return
        self.grows = self.grows and part.arguments.startswith(self.piece)
        self.piece = part.arguments[:KEPT]
        self.pieces += 1
        if self.grows_to(part):
            self.arguments, self.given = self.piece, part.given
        else:
            self.given = None if self.arguments else part.given
            self.arguments = (self.arguments + part.arguments)[: 2 * KEPT]  # they may come twice

    def objects(self) -> list[str] | None:
        """The arguments as JSON objects, one for each call that is meant; None: they are not whole, or no objects."""
        found = objects_in(self.arguments)
        if found is None and self.grows:
            found = objects_in(self.piece)
        if not found:
            return found
        values = [json.loads(one) for one in found]
        kept = [at for at, value in enumerate(values) if value not in values[:at] and value]
        return [found[at] for at in kept] or found[:1]

    @property
    def is_complete(self) -> bool:
        """Whether its arguments are whole; an empty object may stand for what is still to come."""
        return self.arguments.rstrip().endswith(("}", '"', "`")) and bool(self.objects())

    @property
    def is_whole(self) -> bool:
        """Whether they are whole, and not empty."""
        return self.is_complete and any(json.loads(one) for one in self.objects() or ())

    def grows_to(self, part: Fragment) -> bool:
        """Whether its arguments came as an object that a fragment's object goes on with."""
        return part.given is not None and self.given is not None and _extends(part.given, self.given)

    def says(self, part: Fragment) -> bool:
        """Whether its arguments, which are whole, are those of a fragment."""
        objects, others = self.objects(), objects_in(part.arguments)
        return bool(objects and others) and [*map(json.loads, objects or ())] == [*map(json.loads, others or ())]


class ToolCalls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._last = _Call()
        """The one that was written last."""

    def take(self, message: Mapping[str, object], *, whole: bool = False) -> bool:
        """Take what a message, or a part of one, says of calls. Whether it says anything. `whole`: the message is no
        part of one: it may hold all calls that came."""
        parts = [part for part in map(_fragment, _calls_in(message)) if part.name or part.arguments or part.id]
        if whole and all(part.name for part in parts):
            came, read = [*self._calls], self._read()
            for part in parts:
                if any(one.name == part.name and _means(one.arguments, part.arguments) for one in read):
                    continue
                call = next((one for one in came if one.name == part.name and _begins_text(one, part)), None)
                if call is None:
                    self._begun(part).take(part)
                else:
                    call.arguments = call.piece = part.arguments
        else:
            for part in parts:
                self._call_of(part).take(part)
        return bool(parts)

    def _call_of(self, part: Fragment) -> _Call:
        """The call that a fragment begins or goes on with."""
        under = [call for call in self._calls if part.index is not None and call.index == part.index]
        call = next((one for one in reversed(under or self._calls) if part.id and one.id == part.id), None)
        if call is None and not part.id and part.index is None:
            came = (one for one in self._calls if one.pieces > 1 and one.name == part.name)
            call = next((one for one in came if one.says(part)), None)
        is_there = bool(under)
        if call is not None and not under:  # an id, under an index that is new
            is_there = part.index is None or (bool(part.name) and (call.says(part) or not call.is_whole))
        call = call or next(reversed(under or self._calls), None)
        if call is None or _begins(call, part, is_there=is_there):
            return self._begun(part)
        self._last = call
        return call

    def _begun(self, part: Fragment) -> _Call:
        self._last = _Call(part.index)
        if len(self._calls) < MOST_CALLS:
            self._calls.append(self._last)
        return self._last

    @property
    def written(self) -> ToolCall:
        """The call that is being written, as far as it is there."""
        call = self._last
        return ToolCall(call.id, call.name, call.piece if call.grows and call.pieces > 1 else call.arguments)

    def _read(self) -> list[ToolCall]:
        """The calls in order; one without arguments has none, and one that brought no id, or that of another, has
        none."""
        found: list[ToolCall] = []
        for call in self._calls:
            if not call.name and not call.arguments:
                continue
            objects = call.objects()
            if not call.name and objects == ["{}"] and len(self._calls) > 1:
                continue
            if not call.name and found and found[-1].arguments in ("", "{}"):  # the arguments came apart
                call, found = _Call(id=found[-1].id, name=found[-1].name), found[:-1]
            texts = objects or [call.arguments.strip()[:KEPT] if objects is None else ""]
            for text in texts:
                id = "" if any(one.id == call.id for one in found) else call.id
                found.append(ToolCall(whole_characters(id), whole_characters(call.name), whole_characters(text)))
        return found

    @property
    def all(self) -> tuple[ToolCall, ...]:
        """The calls in order. Without arguments they are an empty object, as JSON; an id that did not come is empty."""
        return tuple(ToolCall(call.id, call.name, call.arguments or "{}") for call in self._read())

    @property
    def note(self) -> Statement | None:
        """That these tools were called; None where none was."""
        calls = self._read()
        if not calls:
            return None
        return said(
            NoteKind.TOOL_CALLS,
            calls="\n".join(
                f"{quoted(call.name, NAME_LIMIT)}({quoted(call.arguments, ARGUMENTS_LIMIT)})"
                for call in calls[:NAMED_CALLS]
            ),
            more=max(0, len(calls) - NAMED_CALLS),
            nameless=len(calls) == 1 and not calls[0].name,
        )


def _begins(call: _Call, part: Fragment, *, is_there: bool) -> bool:
    """Whether a fragment begins another call than the one that it would go on with. `is_there`: it names that one, by
    its id or its index."""
    is_other = bool(part.id and call.id and part.id != call.id)
    if not part.name:  # some servers have a new id or index for each piece
        return (
            (is_other or not is_there)
            and call.is_complete
            and not call.says(part)
            and not (call.given and call.grows_to(part))
        )
    if not call.name:
        if not is_there and (is_other or part.index is not None):
            return True
        return bool(part.arguments) and (is_other or call.is_complete)
    if part.name == call.name and part.arguments and call.arguments and not call.is_complete:
        is_sure = is_there or (not is_other and part.index is None)
        if is_sure or not part.arguments.lstrip().startswith(("{", '"', "`", "null")):
            return False  # the name comes with each piece
    if is_other:
        return True
    if not is_there:
        return part.index is not None or part.name != call.name or bool(call.arguments)
    if part.name != call.name:
        return bool(call.arguments)  # else the name comes in pieces
    if part.id and call.grows_to(part):
        return False
    return part.arguments.lstrip().startswith(("{", '"', "`")) and call.is_whole and not call.says(part)


def _begins_text(call: _Call, part: Fragment) -> bool:
    """Whether what came of a call is the beginning of a whole one."""
    return not call.is_complete and part.arguments.startswith(call.arguments)


def _means(text: str, other: str) -> bool:
    """Whether two texts hold the same arguments."""
    objects, others = objects_in(text), objects_in(other)
    if objects is None or others is None:
        return text == other
    return [value for value in map(json.loads, objects) if value] == [
        value for value in map(json.loads, others) if value
    ]


def _extends(value: object, before: object) -> bool:
    """Whether a value is what an earlier one was the beginning of."""
    if isinstance(value, dict) and isinstance(before, dict):
        return all(key in value and _extends(value[key], one) for key, one in before.items())
    if isinstance(value, list) and isinstance(before, list):
        return len(value) >= len(before) and all(map(_extends, value, before))
    if isinstance(value, str) and isinstance(before, str):
        return value.startswith(before)
    return value == before


def objects_in(text: str, deep: int = 2) -> list[str] | None:
    """The JSON objects that a text consists of; so does one in a fence, and JSON text as a string in JSON (`deep` times
    at most). None: it has something else."""
    text = text.strip()
    if text.startswith("```"):
        head, _, text = text.partition("\n")
        if not text.rstrip().endswith("```") or "{" in head:
            return None
        text = text.rstrip().removesuffix("```").strip()
    found: list[str] = []
    at = 0
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        if isinstance(value, dict):
            found.append(text[at:end])
        elif isinstance(value, str) and deep:
            inner = objects_in(value, deep - 1)
            if inner is None:
                return None
            found += inner
        elif value is not None and value != []:
            return None
        at = end
        while text[at : at + 1].isspace():
            at += 1
    return found


_DECODER = json.JSONDecoder()


def _fragment(call: Mapping[str, object]) -> Fragment:
    function = figures_at(call, "function") or call
    arguments = function.get("arguments")
    given = arguments if is_object(arguments) else None
    if given is not None:
        arguments = json.dumps(given, ensure_ascii=False)
    id, index = call.get("id"), call.get("index")
    if isinstance(index, str):
        index = parsed_or_none(index)
    return Fragment(
        as_count(index),
        str(id) if isinstance(id, str | int) and not isinstance(id, bool) else "",
        name_at(function, "name"),
        arguments if isinstance(arguments, str) else "",
        given,
    )


def _calls_in(message: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The calls in a message: as they are today, else the single one of OpenAI's older interface."""
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        yield from filter(is_object, calls)
    elif is_object(old := message.get("function_call")):
        yield {"index": 0, "function": old}

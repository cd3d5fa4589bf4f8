"""Calls that a model wrote into its answer because the server does not read them: llama-server without --jinja, a
template without tools, small models that write bare JSON.

An answer that is nothing but whole calls of offered tools is taken for them. Of one that has such a call amid words, or
in a fence at its end, it is only known: the model may speak of calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from kvchat.backends.calls import CALL, CHANNEL, END_OF_CALL, CallShape, Channels, TaggedCalls
from kvchat.chat.tools.fitting import known_name
from kvchat.prompt.thoughts import Thoughts
from kvchat.prompt.tools import ToolCall, tool_names

_FUNCTION = "<function="
_BEGINS = ("[TOOL_CALLS]", "<|python_tag|>")
"""What Mistral's and Llama's models write before bare JSON."""
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n(.*?)(?:^ {0,3}\1[ \t]*$\n?|\Z)", re.MULTILINE | re.DOTALL)
_TAGS = re.compile(r"(?:<tool_call>\s*)?<function=.*?</function>|<tool_call>.*?</tool_call>", re.DOTALL)
_KEYS = frozenset(("id", "type", "name", "arguments", "parameters"))


def written_calls(text: str, tools: bytes) -> tuple[ToolCall, ...]:
    """The calls that a text consists of, without ids; none where it has anything else, or a call of no offered tool."""
    text, offered = text.strip(), tool_names(tools)
    if text.startswith((CALL, _FUNCTION)):
        found = _tagged(text, tools)
    elif text.startswith((CHANNEL, "<|start|>")):
        channels = Channels("start")
        found = [] if channels.take(text) or channels.ended() else _made(channels)
    else:
        found = _bare(text, tools)
    return tuple(found) if all(_is_whole(one, offered) for one in found) else ()


def names_written_call(text: str, tools: bytes) -> bool:
    """Whether a text has a call of an offered tool that was meant, though it is more than that."""
    *_, last = (None, *_FENCE.finditer(text))
    if last is not None and not text[last.end() :].strip() and written_calls(last[2], tools):
        return True
    plain = _FENCE.sub("", text)
    if any(written_calls(one[0], tools) for one in _TAGS.finditer(plain)):
        return True
    at = plain.find("\n{")
    return at >= 0 and bool(written_calls(plain[at:], tools))


def _is_whole(call: ToolCall, offered: Collection[str]) -> bool:
    return known_name(call.name, offered) in offered and call.given() is not None


def _made(source: TaggedCalls | Channels) -> list[ToolCall]:
    return [ToolCall("", one.name, one.arguments) for one in source.calls]


def _tagged(text: str, tools: bytes) -> list[ToolCall]:
    if text.startswith(_FUNCTION):  # the tag may be a token that the server leaves out
        text = CALL + text
    has_parameters = text.removeprefix(CALL).lstrip().startswith(_FUNCTION)
    tagged = TaggedCalls(Thoughts(None), CallShape.PARAMETERS if has_parameters else CallShape.OBJECT, tools)
    if any(part[1].strip() for part in [*tagged.take(text), *tagged.ended()]):
        return []
    found = _made(tagged)
    return found if not has_parameters or text.count(_FUNCTION) == len(found) else []


def _bare(text: str, tools: bytes) -> list[ToolCall]:
    """Calls as JSON: an object, several one behind the other, or an array of them."""
    for mark in _BEGINS:
        text = text.removeprefix(mark).lstrip()
    decoder, values, at = json.JSONDecoder(), list[Any](), 0
    while at < len(text):
        if text[at] not in "{[":
            return []
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        at = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\n;,"))
    objects = [one for value in values for one in _plain(value)]
    if not objects or None in objects:
        return []
    return _tagged("\n".join(f"{CALL}{json.dumps(one, ensure_ascii=False)}{END_OF_CALL}" for one in objects), tools)


def _plain(value: Any) -> list[dict[str, Any] | None]:
    """A value as objects with a name and arguments; None for what is something else."""
    if not isinstance(value, dict):
        return [None]
    if isinstance(calls := value.get("tool_calls"), list) and len(value) == 1:
        return [one for call in calls for one in _plain(call)]
    if isinstance(inner := value.get("function"), dict) and value.keys() <= {"id", "type", "index", "function"}:
        value = inner
    is_call = isinstance(value.get("name"), str) and ("arguments" in value) != ("parameters" in value)
    return [value if is_call and value.keys() <= _KEYS else None]

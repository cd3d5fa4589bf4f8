"""OpenAI: `{"messages": [{"role", "content"}, ...]}`, one object, an array of them, or one a line, as chat and
fine-tuning tools write it and `kvchat export -f jsonl` does. One branch for each; there are no ids and no times."""

from __future__ import annotations

import json
from hashlib import sha256

from kvchat.prompt.message import Role, instructions_of
from kvchat.prompt.tools import ToolCall
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    JsonFormat,
    Loss,
    Picture,
    Thread,
    call_of,
    dict_of,
    joined,
    list_of,
    picture_of,
    placeholder,
    result_of,
    seconds_of,
    text_of,
)

_ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_REASONING = ("reasoning_content", "reasoning", "reasoningContent", "thinking")
_KNOWN_BY = 3
"""The number of first messages that identify a conversation: a longer one, and another branch, have the same."""


def _fits(value: dict[str, object]) -> bool:
    messages = map(dict_of, list_of(value.get("messages")))
    return any(text_of(one.get("role")) in _ROLES and "content" in one for one in messages)


def _read(value: dict[str, object]) -> Thread:
    thread = Thread(
        "openai",
        "",
        text_of(value.get("title")) or text_of(value.get("name")),
        created=seconds_of(value.get("created")),
        own_ids=False,
    )
    model, before = text_of(value.get("model")), None
    for number, one in enumerate(list_of(value.get("messages"))):
        message = dict_of(one)
        role = _ROLES.get(text_of(message.get("role")))
        if role is None:
            thread.lost(Loss.BROKEN)
            continue
        thread.messages.append(_message(str(number), before, role, message, thread, model))
        before = str(number)
    thread.head = before
    known = "\n".join(map(_known_as, thread.messages[:_KNOWN_BY]))
    thread.id = sha256(known.encode("utf-8", "surrogatepass")).hexdigest()
    return thread


def _known_as(one: ImportedMessage) -> str:
    """A message in what identifies its conversation, as it was when calls became lines and results nothing."""
    if one.role is Role.TOOL:
        return f"{Role.SYSTEM} "
    return f"{one.role} {joined(one.text, *(placeholder('tool call', call.name) for call in one.calls))}"


def _message(
    id: str, parent: str | None, role: Role, message: dict[str, object], thread: Thread, model: str
) -> ImportedMessage:
    pictures = list[Picture]()
    texts, reasoning = texts_of(message, thread, pictures)
    if role is Role.SYSTEM:
        texts = list(map(instructions_of, texts))  # kvchat's own rule is put to it again
    assistant = role is Role.ASSISTANT
    return ImportedMessage(
        id,
        parent,
        role,
        joined(*texts),
        None,
        model if assistant else "",
        reasoning if assistant else "",
        pictures=tuple(pictures) if role is Role.USER else (),
        calls=calls_of(message),
    )


def calls_of(message: dict[str, object]) -> tuple[ToolCall, ...]:
    """The calls of a message, or the one that it is the result of, in the names of OpenAI and of the UI of
    llama.cpp."""
    if message.get("role") in ("tool", "function"):
        return (result_of(message.get("tool_call_id") or message.get("toolCallId"), message.get("name")),)
    calls = message.get("tool_calls") or message.get("toolCalls")
    made = [*map(dict_of, list_of(_parsed(calls) if isinstance(calls, str) else calls))]
    if isinstance(old := message.get("function_call"), dict):
        made.append({"function": old})
    functions = [(call.get("id"), dict_of(call.get("function"))) for call in made]
    return tuple(call_of(id, function.get("name"), function.get("arguments")) for id, function in functions)


def texts_of(message: dict[str, object], thread: Thread, pictures: list[Picture]) -> tuple[list[str], str]:
    """The texts of a message and its reasoning, in the names of OpenAI and of the UI of llama.cpp; its images go to
    `pictures`."""
    texts = [_content(message.get("content"), thread, pictures)]
    return texts, next(filter(None, (text_of(message.get(name)) for name in _REASONING)), "")


def _content(content: object, thread: Thread, pictures: list[Picture]) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in map(dict_of, list_of(content)):
        if part.get("type") == "text":
            texts.append(text_of(part.get("text")))
        elif (picture := picture_of(dict_of(part.get("image_url")).get("url"))) is not None:
            pictures.append(picture)
        else:
            thread.lost(Loss.IMAGES if "image" in text_of(part.get("type")) else Loss.OTHER)
    return joined(*texts)


def _parsed(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


FORMAT = JsonFormat("OpenAI", _fits, _read)

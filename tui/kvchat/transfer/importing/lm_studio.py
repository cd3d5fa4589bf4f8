"""LM Studio: a file for each conversation in `~/.lmstudio/conversations`. A message has versions, of which one is in
use; there are no ids, and hardly any times."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvchat.prompt.message import Role
from kvchat.transfer.exact_json import loads
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    JsonFormat,
    Loss,
    Steps,
    Thread,
    call_of,
    dict_of,
    id_of,
    joined,
    list_of,
    placeholder,
    result_of,
    seconds_of,
    text_of,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_MILLISECONDS = re.compile(r"\d{13}\b")
_SYSTEM = "llm.prediction.systemPrompt"
_QUIET = ("debugInfoBlock", "status", "toolStatus")
"""Steps in which nothing is said."""


def _fits(value: dict[str, object]) -> bool:
    messages = value.get("messages")
    return isinstance(messages, list) and any("versions" in dict_of(one) for one in messages)


def _read(value: dict[str, object]) -> Thread:
    fields = map(dict_of, list_of(dict_of(value.get("perChatPredictionConfig")).get("fields")))
    system = next((text_of(one.get("value")) for one in fields if one.get("key") == _SYSTEM), "")
    created = value.get("createdAt")
    thread = Thread(
        "lm_studio",
        "",
        text_of(value.get("name")),
        own_ids=False,
        created=seconds_of(created, 1.0 if isinstance(created, str) else 0.001),
        system=text_of(value.get("systemPrompt")) or system,
    )
    thread.mark(favourite=value.get("pinned"))
    before: str | None = None
    for number, one in enumerate(list_of(value.get("messages"))):
        message = dict_of(one)
        versions = list_of(message.get("versions"))
        chosen, used = message.get("currentlySelected"), before
        for index, version in enumerate(versions):
            found = [*_messages(f"{number}.{index}", before, dict_of(version), thread)]
            thread.messages += found
            if found and (index == chosen or used == before):
                used = found[-1].id
        if used == before:
            thread.lost(Loss.BROKEN)
        before = used
    thread.head = before
    first = next((one.text for one in thread.messages if one.role is Role.USER), "")
    thread.id = f"{created}\n{first}"
    return thread


def _messages(id: str, parent: str | None, version: dict[str, object], thread: Thread) -> Iterator[ImportedMessage]:
    role, steps = _ROLES.get(text_of(version.get("role"))), Steps()
    if role is None:
        return
    _take(version.get("content"), steps, thread)
    created, model = None, text_of(dict_of(version.get("senderInfo")).get("senderName"))
    for step in map(dict_of, list_of(version.get("steps"))):
        if step.get("type") != "contentBlock":
            if text_of(step.get("type")) not in _QUIET:
                thread.lost(Loss.OTHER)
            continue
        thinks = dict_of(step.get("style")).get("type") == "thinking"
        _take(step.get("content"), steps, thread, thinks=thinks and role is Role.ASSISTANT)
        model = text_of(dict_of(step.get("genInfo")).get("identifier")) or model
        if created is None and (time := _MILLISECONDS.match(text_of(step.get("stepIdentifier")))):
            created = seconds_of(int(time[0]), 0.001)
    model = model if role is Role.ASSISTANT else ""
    yield from steps.messages(ImportedMessage(id, parent, role, "", created, model))


def _take(content: object, steps: Steps, thread: Thread, *, thinks: bool = False) -> None:
    says = steps.thinks if thinks else steps.says
    if isinstance(content, str):
        says(content)
    for part in map(dict_of, list_of(content)):
        match text_of(part.get("type")):
            case "text":
                says(text_of(part.get("text")))
            case "file":
                is_image = part.get("fileType") == "image"
                thread.lost(Loss.IMAGES if is_image else Loss.FILES)
                says(
                    placeholder(
                        "image not imported" if is_image else "file not imported",
                        text_of(part.get("name")) or text_of(part.get("fileIdentifier")),
                    )
                )
            case "toolCallRequest":
                given = part.get("parameters") or part.get("arguments")
                steps.calls(call_of(_call_id(part), part.get("name"), given))
            case "toolCallResult":
                steps.gives(result_of(_call_id(part), part.get("name")), _result(part.get("content")))
            case _:
                thread.lost(Loss.OTHER)


def _call_id(part: dict[str, object]) -> str:
    return id_of(part.get("toolCallRequestId")) or id_of(part.get("callId"))


def _result(content: object) -> str:
    """What a tool gave: a text, or the JSON of a list of texts."""
    text = text_of(content)
    try:
        found = loads(text) if isinstance(content, str) else content
    except ValueError:
        return text
    texts = [text_of(dict_of(part).get("text")) for part in list_of(found)]
    return joined(*texts) or text


FORMAT = JsonFormat("LM Studio", _fits, _read)

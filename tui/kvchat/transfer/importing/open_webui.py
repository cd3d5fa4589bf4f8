"""Open WebUI: an export of chats. Each is a tree, `history`; a model's reasoning is a folded part of its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kvchat.prompt.message import Role
from kvchat.sanitize import unescaped
from kvchat.transfer.exact_json import loads
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    JsonFormat,
    Loss,
    Picture,
    Steps,
    Thread,
    call_of,
    dict_of,
    id_of,
    list_of,
    picture_of,
    placeholder,
    result_of,
    seconds_of,
    text_of,
    unfolded,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_FOLDED = re.compile(r'<details type="(\w{1,40})"([^<>]*)>\s*(?:<summary>[^<]*</summary>)?')
_ATTRIBUTE = re.compile(r'\b(id|name|arguments|result|done)="([^"]*)"')
_MARK = re.compile("\x00([0-9]+)\x00")
"""Stands for a part that was folded, until the text is taken apart."""
_QUOTE = re.compile("^(?:>|&gt;) ?")


def _fits(value: dict[str, object]) -> bool:
    chat = _chat(value)
    return isinstance(dict_of(chat.get("history")).get("messages"), dict) or (
        "chat" in value and isinstance(chat.get("messages"), list)
    )


def _chat(value: dict[str, object]) -> dict[str, object]:
    return dict_of(value.get("chat")) if "chat" in value else value


def _read(value: dict[str, object]) -> Thread:
    chat = _chat(value)
    history = dict_of(chat.get("history"))
    messages = dict_of(history.get("messages"))
    thread = Thread(
        "open_webui",
        id_of(value.get("id")) or id_of(chat.get("id")) or next(iter(messages), ""),
        text_of(value.get("title")) or text_of(chat.get("title")),
        head=id_of(history.get("currentId")) or None,
        created=seconds_of(value.get("created_at")) or seconds_of(chat.get("timestamp"), 0.001),
        system=text_of(chat.get("system")) or text_of(dict_of(chat.get("params")).get("system")),
    )
    thread.mark(favourite=value.get("pinned"), archived=value.get("archived"))
    for tag in [*list_of(dict_of(value.get("meta")).get("tags")), *list_of(chat.get("tags"))]:
        thread.tag(dict_of(tag).get("name") or tag)
    if name := text_of(dict_of(value.get("folder")).get("name")):
        thread.tag(name)
    elif id_of(value.get("folder_id")):
        thread.lost(Loss.FOLDERS)
    listed = messages.values() if messages else list_of(chat.get("messages"))
    before: str | None = None
    for number, one in enumerate(listed):
        message = dict_of(one)
        role = _ROLES.get(text_of(message.get("role")))
        id = id_of(message.get("id")) or str(number)
        if role is None:
            thread.lost(Loss.BROKEN)
            continue
        parent = (id_of(message.get("parentId")) or None) if messages or "parentId" in message else before
        thread.messages += _messages(id, parent, role, message, thread)
        before = id
    return thread


def _messages(
    id: str, parent: str | None, role: Role, message: dict[str, object], thread: Thread
) -> Iterator[ImportedMessage]:
    steps, files, pictures = Steps(), list[tuple[str, str]](), list[Picture]()

    content = message.get("content")
    texts = [content] if isinstance(content, str) else [_part(part, thread, pictures) for part in list_of(content)]
    if role is Role.ASSISTANT:
        for text in texts:
            _unfold(text, steps, thread)
        texts = []
    for file in map(dict_of, list_of(message.get("files"))):
        name, inner = text_of(file.get("name")), dict_of(file.get("file"))
        text = text_of(dict_of(inner.get("data")).get("content"))
        if file.get("type") == "image" and (picture := picture_of(file.get("url"), name)) is not None:
            pictures.append(picture)
        elif file.get("type") == "image":
            thread.lost(Loss.IMAGES)
            texts.append(placeholder("image not imported", name))
        elif text:
            files.append((name or text_of(inner.get("filename")), text))
        else:
            thread.lost(Loss.FILES)
            texts.append(placeholder("file not imported", name))
    for text in texts:
        steps.says(text)
    whole = ImportedMessage(
        id,
        parent,
        role,
        "",
        seconds_of(message.get("timestamp")),
        text_of(message.get("model")) if role is Role.ASSISTANT else "",
        "",
        tuple(files) if role is Role.USER else (),
        tuple(pictures) if role is Role.USER else (),
    )
    return steps.messages(whole)


def _unfold(text: str, steps: Steps, thread: Thread) -> None:
    """Take an answer apart into its texts and what is folded between them: thoughts, and calls with their results."""
    folded = list[tuple[re.Match[str], str]]()

    def marked(found: re.Match[str], held: str) -> str:
        folded.append((found, held.strip()))
        return f"\x00{len(folded) - 1}\x00"

    for at, part in enumerate(_MARK.split(unfolded(text.replace("\x00", ""), _FOLDED, "</details>", marked))):
        if at % 2 == 0:
            steps.says(part.strip())
            continue
        found, held = folded[int(part)]
        about = {name: unescaped(value) for name, value in _ATTRIBUTE.findall(found[2])}
        if found[1] == "reasoning":
            steps.thinks(_unquoted(held))
        elif found[1] == "tool_calls":
            call = call_of(about.get("id"), about.get("name"), _value(about.get("arguments", "")))
            steps.calls(call)
            gave = about.get("result") or unescaped(held)
            if gave or about.get("done") == "true":
                value = _value(gave)
                said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                steps.gives(result_of(about.get("id"), about.get("name")), said)
        else:
            thread.lost(Loss.OTHER)


def _value(text: str) -> object:
    """What is written as JSON, mostly a text in that; a text that is none as it is."""
    try:
        return loads(text)
    except ValueError:
        return text


def _unquoted(text: str) -> str:
    """Thoughts as they were, whose lines are quoted in the text and whose signs are escaped there."""
    lines = text.split("\n")
    if all(_QUOTE.match(line) for line in lines if line.strip()):
        lines = [_QUOTE.sub("", line) for line in lines]
    return unescaped("\n".join(lines))


def _part(part: object, thread: Thread, pictures: list[Picture]) -> str:
    """The text of a part; an image goes to `pictures`."""
    found = dict_of(part)
    if found.get("type") == "text":
        return text_of(found.get("text"))
    if found.get("type") == "image_url":
        if (picture := picture_of(dict_of(found.get("image_url")).get("url"))) is not None:
            pictures.append(picture)
            return ""
        thread.lost(Loss.IMAGES)
        return placeholder("image not imported")
    thread.lost(Loss.OTHER)
    return ""


FORMAT = JsonFormat("Open WebUI", _fits, _read)

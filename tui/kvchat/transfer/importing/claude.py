"""Claude: `conversations.json` of a data export. A list of messages; newer ones name the message that they follow."""

from __future__ import annotations

from kvchat.prompt.message import Role
from kvchat.transfer.importing.thread import (
    JsonFormat,
    Loss,
    NotTaken,
    Reason,
    Said,
    Thread,
    dict_of,
    id_of,
    joined,
    list_of,
    placeholder,
    seconds_of,
    text_of,
)

_ROLES = {"human": Role.USER, "user": Role.USER, "assistant": Role.ASSISTANT}


def _fits(value: dict[str, object]) -> bool:
    return isinstance(value.get("chat_messages"), list)


def _read(value: dict[str, object]) -> Thread:
    messages = list_of(value.get("chat_messages"))
    id = id_of(value.get("uuid")) or next((id_of(dict_of(one).get("uuid")) for one in messages), "")
    if not id:
        raise NotTaken(Reason.NOT_ONE)
    thread = Thread(
        "claude",
        id,
        text_of(value.get("name")),
        head=id_of(value.get("current_leaf_message_uuid")) or None,
        created=seconds_of(value.get("created_at")),
    )
    ids = {id_of(dict_of(one).get("uuid")) for one in messages}
    before: str | None = None
    for number, one in enumerate(messages):
        message = dict_of(one)
        role = _ROLES.get(text_of(message.get("sender")))
        if role is None:
            thread.lost(Loss.BROKEN)
            continue
        id = id_of(message.get("uuid")) or str(number)
        parent = id_of(message.get("parent_message_uuid"))
        if "parent_message_uuid" in message:  # the first one follows a message that is none
            before = parent if parent in ids else None
        thread.messages.append(_said(id, before, role, message, thread))
        before = id
    return thread


def _said(id: str, parent: str | None, role: Role, message: dict[str, object], thread: Thread) -> Said:
    texts, thoughts, files = list[str](), list[str](), list[tuple[str, str]]()
    for part in map(dict_of, list_of(message.get("content"))):
        match text_of(part.get("type")):
            case "text":
                texts.append(text_of(part.get("text")))
            case "thinking":
                thoughts.append(text_of(part.get("thinking")))
            case "tool_use":
                thread.lost(Loss.TOOL_CALLS)
                texts.append(placeholder("tool call", text_of(part.get("name"))))
            case "tool_result":
                thread.lost(Loss.TOOL_RESULTS)
            case _:
                thread.lost(Loss.OTHER)
    if not texts:
        texts.append(text_of(message.get("text")))
    for attached in map(dict_of, [*list_of(message.get("attachments")), *list_of(message.get("files"))]):
        name, text = text_of(attached.get("file_name")), text_of(attached.get("extracted_content"))
        if text:
            files.append((name, text))
        else:
            thread.lost(Loss.FILES)
            texts.append(placeholder("file not imported", name))
    return Said(
        id,
        parent,
        role,
        joined(*texts),
        seconds_of(message.get("created_at")),
        reasoning=joined(*thoughts),
        files=tuple(files) if role is Role.USER else (),
    )


FORMAT = JsonFormat("Claude", _fits, _read)

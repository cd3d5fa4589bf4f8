"""The web UI of llama.cpp: its older JSON, and the session traces (JSONL) that it writes now. The lines of a trace come
as one value of the older shape. A trace of another program may name no ids: then it is one branch."""

from __future__ import annotations

from kvchat.prompt.message import Role
from kvchat.transfer.importing.openai import calls_of, texts_of
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    ImportRefusal,
    JsonFormat,
    Loss,
    NotTaken,
    Picture,
    Thread,
    dict_of,
    id_of,
    joined,
    list_of,
    picture_of,
    placeholder,
    seconds_of,
    text_of,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL}
_NO_PARENT = ("", "-1")
_TEXTS = ("TEXT", "PDF", "TEXTFILE", "PDFFILE", "CONTEXT")


def _fits(value: dict[str, object]) -> bool:
    return isinstance(value.get("conv"), dict) and isinstance(value.get("messages"), list)


def _read(value: dict[str, object]) -> Thread:
    about = dict_of(value.get("conv"))
    messages = [dict_of(one) for one in list_of(value.get("messages"))]
    own_ids = bool(messages) and all(id_of(one.get("id")) for one in messages)
    id = id_of(about.get("id"))
    if not id:
        raise NotTaken(ImportRefusal.NOT_ONE)
    thread = Thread(
        "llama_ui", id, text_of(about.get("name")), head=id_of(about.get("currNode")) or None, own_ids=own_ids
    )
    thread.mark(favourite=about.get("pinned"))
    ids = {id_of(one.get("id")) for one in messages}
    before: str | None = None
    for number, message in enumerate(messages):
        role = _ROLES.get(text_of(message.get("role")))
        if role is None:
            thread.lost(Loss.BROKEN)
            continue
        id = id_of(message.get("id")) if own_ids else str(number)
        parent = before
        if own_ids and "parent" in message:
            found = id_of(message.get("parent"))
            # An export of the branch in use leaves out the root that all begins at.
            parent = None if found in _NO_PARENT or (number == 0 and found not in ids) else found
        thread.messages.append(_message(id, parent, role, message, thread))
        before = id
    return thread


def _message(id: str, parent: str | None, role: Role, message: dict[str, object], thread: Thread) -> ImportedMessage:
    files, pictures = list[tuple[str, str]](), list[Picture]()
    texts, reasoning = texts_of(message, thread, pictures)
    for extra in map(dict_of, list_of(message.get("extra"))):
        kind, name, text = text_of(extra.get("type")).upper(), text_of(extra.get("name")), text_of(extra.get("content"))
        if kind in _TEXTS and text:
            files.append((name, text))
        elif kind.startswith("IMAGE") and (picture := picture_of(extra.get("base64Url"), name)) is not None:
            pictures.append(picture)
        else:
            is_image = kind.startswith("IMAGE")
            thread.lost(Loss.IMAGES if is_image else Loss.FILES)
            texts.append(placeholder("image not imported" if is_image else "file not imported", name))
    assistant = role is Role.ASSISTANT
    return ImportedMessage(
        id,
        parent,
        role,
        joined(*texts),
        seconds_of(message.get("timestamp"), 0.001),
        text_of(message.get("model")) if assistant else "",
        reasoning if assistant else "",
        tuple(files) if role is Role.USER else (),
        tuple(pictures) if role is Role.USER else (),
        calls_of(message),
    )


FORMAT = JsonFormat("llama.cpp", _fits, _read)

"""ChatGPT: `conversations.json` of a data export, whole or in parts. Each conversation is a tree, `mapping`."""

from __future__ import annotations

import re

from kvchat.prompt.message import Role
from kvchat.transfer.importing.thread import (
    JsonFormat,
    Loss,
    Picture,
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

_ASSET = re.compile(r"[a-z-]{1,20}://(file[-_]\w{6,64})(?:#.*)?")
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


def _fits(value: dict[str, object]) -> bool:
    return isinstance(value.get("mapping"), dict)


def _read(value: dict[str, object]) -> Thread:
    mapping = dict_of(value.get("mapping"))
    id = id_of(value.get("conversation_id")) or id_of(value.get("id")) or next(iter(mapping), "")
    thread = Thread(
        "chatgpt",
        id,
        text_of(value.get("title")),
        head=id_of(value.get("current_node")) or None,
        created=seconds_of(value.get("create_time")),
    )
    for id, entry in mapping.items():
        if not isinstance(entry, dict):
            thread.lost(Loss.BROKEN)
            continue
        parent = id_of(entry.get("parent")) or None
        message = entry.get("message")
        thread.messages.append(
            _said(id, parent, message, thread) if isinstance(message, dict) else Said(id, parent, Role.SYSTEM, "")
        )
    return thread


def _said(id: str, parent: str | None, message: dict[str, object], thread: Thread) -> Said:
    content, metadata = dict_of(message.get("content")), dict_of(message.get("metadata"))
    role = _ROLES.get(text_of(dict_of(message.get("author")).get("role")), Role.SYSTEM)
    kind, text, pictures = text_of(content.get("content_type")), "", list[Picture]()
    if kind == "user_editable_context":  # the person's own instructions
        role = Role.SYSTEM
        text = joined(text_of(content.get("user_profile")), text_of(content.get("user_instructions")))
    elif dict_of(message.get("author")).get("role") == "tool":
        thread.lost(Loss.TOOL_RESULTS)
        thread.lost(Loss.IMAGES, sum(_is_image(part) for part in list_of(content.get("parts"))))
    elif metadata.get("is_visually_hidden_from_conversation"):
        pass
    elif role is Role.ASSISTANT and text_of(message.get("recipient")) not in ("", "all"):
        thread.lost(Loss.TOOL_CALLS)
        text = placeholder("tool call", text_of(message.get("recipient")))
    elif kind in ("text", "multimodal_text", "code"):
        if role is Role.USER:
            pictures = [picture for part in list_of(content.get("parts")) if (picture := _picture(part, metadata))]
        text = joined(
            *(_part(part, thread, taken=bool(pictures)) for part in list_of(content.get("parts"))),
            text_of(content.get("text")),
            *_attached(metadata, thread),
        )
    elif kind:
        thread.lost(Loss.OTHER)
    return Said(
        id,
        parent,
        role,
        text,
        seconds_of(message.get("create_time")),
        text_of(metadata.get("model_slug")) if role is Role.ASSISTANT else "",
        pictures=tuple(pictures),
    )


def _is_image(part: object) -> bool:
    return dict_of(part).get("content_type") == "image_asset_pointer"


def _picture(part: object, metadata: dict[str, object]) -> Picture | None:
    """The image that a part points to: a file of the export, whose name begins with the pointer's own; None: it is
    none."""
    if not _is_image(part):
        return None
    found = _ASSET.fullmatch(text_of(dict_of(part).get("asset_pointer")))
    asset = found[1] if found else ""
    names = [
        text_of(one.get("name"))
        for one in map(dict_of, list_of(metadata.get("attachments")))
        if id_of(one.get("id")) == asset
    ]
    return Picture(next(iter(names), "") or asset, asset=asset)


def _part(part: object, thread: Thread, *, taken: bool) -> str:
    """`taken`: images are."""
    if isinstance(part, str):
        return part
    if _is_image(part) and taken:
        return ""
    if _is_image(part):
        thread.lost(Loss.IMAGES)
        return placeholder("image not imported")
    if dict_of(part).get("content_type") == "audio_transcription":
        return text_of(dict_of(part).get("text"))
    thread.lost(Loss.OTHER)
    return ""


def _attached(metadata: dict[str, object], thread: Thread) -> list[str]:
    files = [dict_of(one) for one in list_of(metadata.get("attachments"))]
    files = [one for one in files if not text_of(one.get("mime_type")).startswith("image/")]
    thread.lost(Loss.FILES, len(files))
    return [placeholder("file not imported", text_of(one.get("name"))) for one in files]


FORMAT = JsonFormat("ChatGPT", _fits, _read)

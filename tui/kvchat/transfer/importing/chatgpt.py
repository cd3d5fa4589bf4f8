"""ChatGPT: `conversations.json` of a data export, whole or in parts. Each conversation is a tree, `mapping`."""

from __future__ import annotations

import re

from kvchat.prompt.message import Role
from kvchat.prompt.tools import ToolCall
from kvchat.transfer.exact_json import loads
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    JsonFormat,
    Loss,
    Picture,
    Thread,
    call_of,
    dict_of,
    fenced,
    id_of,
    joined,
    link,
    list_of,
    placeholder,
    result_of,
    seconds_of,
    text_of,
)

_ASSET = re.compile(r"[a-z-]{1,20}://(file[-_]\w{6,64})(?:#.*)?")
_CANVAS = "canmore."
_PROJECT = "g-p-"
"""How the id of a project begins; that of a custom GPT, in the same field, is `g-` and no more."""
_PART = "\ue202"
_MARK = re.compile("([ \t]?)\ue200(?:([a-z_]{0,40})([^\ue200\ue201]{0,4000})\ue201|[^\\s\ue200\ue201]{0,200}\\Z)")
"""A mark of a source or of what is named, such as `cite` and `turn0search1`; at the end of a text it may be cut."""
_ANY_MARK = re.compile("[\ue200-\ue20f]")
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
    thread.mark(favourite=value.get("is_starred"), archived=value.get("is_archived"))
    if text_of(value.get("conversation_template_id")).startswith(_PROJECT):
        thread.lost(Loss.FOLDERS)
    model = text_of(value.get("default_model_slug"))
    for id, entry in mapping.items():
        if not isinstance(entry, dict):
            thread.lost(Loss.BROKEN)
            continue
        parent = id_of(entry.get("parent")) or None
        message = entry.get("message")
        thread.messages.append(
            _message(id, parent, message, thread, model)
            if isinstance(message, dict)
            else ImportedMessage(id, parent, Role.SYSTEM, "")
        )
    return thread


def _message(id: str, parent: str | None, message: dict[str, object], thread: Thread, model: str) -> ImportedMessage:
    """`model`: of a reply that names none."""
    content, metadata = dict_of(message.get("content")), dict_of(message.get("metadata"))
    author, recipient = dict_of(message.get("author")), text_of(message.get("recipient"))
    role = _ROLES.get(text_of(author.get("role")), Role.SYSTEM)
    kind, text, thoughts, pictures = text_of(content.get("content_type")), "", "", list[Picture]()
    calls: tuple[ToolCall, ...] = ()
    if kind == "user_editable_context":  # the user's own instructions
        role = Role.SYSTEM
        text = joined(text_of(content.get("user_profile")), text_of(content.get("user_instructions")))
    elif author.get("role") == "tool" and text_of(author.get("name")).startswith(_CANVAS):
        pass  # it says that the text was taken
    elif author.get("role") == "tool":
        role, calls, text = Role.TOOL, (result_of(None, author.get("name")),), _result(content)
        thread.lost(Loss.IMAGES, sum(_is_image(part) for part in list_of(content.get("parts"))))
    elif metadata.get("is_visually_hidden_from_conversation"):
        pass
    elif role is Role.ASSISTANT and recipient not in ("", "all"):
        text = _canvas(content) if recipient.startswith(_CANVAS) else ""
        if not text and recipient.startswith(_CANVAS):
            thread.lost(Loss.TOOL_CALLS)
            text = placeholder("tool call", recipient)
        elif not text:
            calls = (call_of(None, recipient, _source(content)),)
    elif kind == "thoughts":
        thoughts = joined(*(_thought(dict_of(one)) for one in list_of(content.get("thoughts"))))
    elif kind == "reasoning_recap":
        pass  # how long it thought
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
    if role is Role.ASSISTANT:
        text, thoughts = (_with_sources(one, metadata) for one in (text, thoughts))
    return ImportedMessage(
        id,
        parent,
        role,
        text,
        seconds_of(message.get("create_time")),
        text_of(metadata.get("model_slug")) or model if role is Role.ASSISTANT else "",
        thoughts,
        pictures=tuple(pictures),
        calls=calls,
    )


def _result(content: dict[str, object]) -> str:
    """What a tool gave: a page has a title and an address."""
    parts = [
        part if isinstance(part, str) else text_of(dict_of(part).get("text")) for part in list_of(content.get("parts"))
    ]
    page = link(text_of(content.get("title")), text_of(content.get("url")))[1:-1]
    return joined(page, text_of(content.get("text")) or text_of(content.get("result")), *parts)


def _thought(one: dict[str, object]) -> str:
    summary, text = text_of(one.get("summary")).strip(), text_of(one.get("content"))
    return joined(f"**{summary}**" if summary else "", text)


def _source(content: dict[str, object]) -> str:
    """What is handed to a tool."""
    return text_of(content.get("text")) or "".join(map(text_of, list_of(content.get("parts"))))


def _canvas(content: dict[str, object]) -> str:
    """The text that a call puts into the canvas; empty: it puts none there."""
    try:
        value = dict_of(loads(_source(content)))
    except ValueError:
        return ""
    kind, _, language = text_of(value.get("type")).partition("/")
    texts = [
        text_of(value.get("content")),
        *(text_of(dict_of(one).get("replacement")) for one in list_of(value.get("updates"))),
    ]
    texts = [fenced(one, language) if kind == "code" and one.strip() else one for one in texts]
    name = text_of(value.get("name"))
    return joined(f"**{name}**" if name else "", *texts) if joined(*texts) else ""


# -- the marks of sources in an answer


def _with_sources(text: str, metadata: dict[str, object]) -> str:
    """A text with links where it has marks of sources, and names where it has marks of what it names. A mark of which
    nothing is known goes."""
    if not _ANY_MARK.search(text) and "【" not in text:
        return text
    known = dict[str, str]()
    for one in map(dict_of, list_of(metadata.get("content_references"))):
        known[text_of(one.get("matched_text"))] = _reference(one)
    for one in map(dict_of, list_of(metadata.get("citations"))):  # as older exports have them
        start, end = one.get("start_ix"), one.get("end_ix")
        if isinstance(start, int) and isinstance(end, int):
            known.setdefault(text[start:end], _reference(dict_of(one.get("metadata"))))
    for mark, shown in known.items():
        if shown and mark[:1] in ("\ue200", "【"):
            text = text.replace(mark, shown)
    return _ANY_MARK.sub("", _MARK.sub(_unmarked, text))


def _reference(one: dict[str, object]) -> str:
    """What a reference is shown as; empty: nothing is known of it."""
    if alt := text_of(one.get("alt")).strip() or (text_of(one.get("name")) if one.get("type") == "entity" else ""):
        return alt
    items = [*map(dict_of, list_of(one.get("items")))] or [one]
    links = [link(text_of(item.get("title")) or text_of(item.get("name")), text_of(item.get("url"))) for item in items]
    urls = [link("", text_of(url)) for url in list_of(one.get("safe_urls"))]
    return " ".join(filter(None, links)) or " ".join(filter(None, urls))


def _unmarked(found: re.Match[str]) -> str:
    blank, kind, rest = found[1], found[2], (found[3] or "").split(_PART)[1:]
    if kind == "entity" and rest:
        try:
            named = list_of(loads(rest[0]))
        except ValueError:
            named = []
        return blank + text_of(named[1]) if len(named) > 1 else ""
    if kind == "url" and len(rest) > 1:
        return blank + link(rest[0], rest[1])[1:-1]
    return ""


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

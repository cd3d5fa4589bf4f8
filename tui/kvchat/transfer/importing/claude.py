"""Claude: `conversations.json` of a data export. A list of messages; newer ones name the message that they follow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvchat.prompt.message import Role
from kvchat.sanitize import unescaped
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    ImportRefusal,
    JsonFormat,
    Loss,
    NotTaken,
    Steps,
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
    unfolded,
)

_WRITERS = ("artifacts", "create_file", "str_replace")
_LANGUAGES = {
    "text/html": "html",
    "image/svg+xml": "svg",
    "application/vnd.ant.mermaid": "mermaid",
    "application/vnd.ant.react": "jsx",
}
_TAGS = re.compile(r"\s{0,20}<antArtifact\b([^>]{0,2000})>\n?")
_ATTRIBUTE = re.compile(r'([\w-]{1,40})="([^"]*)"')
_ROLES = {"human": Role.USER, "user": Role.USER, "assistant": Role.ASSISTANT}


def _fits(value: dict[str, object]) -> bool:
    return isinstance(value.get("chat_messages"), list)


def _read(value: dict[str, object]) -> Thread:
    messages = list_of(value.get("chat_messages"))
    id = id_of(value.get("uuid")) or next((id_of(dict_of(one).get("uuid")) for one in messages), "")
    if not id:
        raise NotTaken(ImportRefusal.NOT_ONE)
    thread = Thread(
        "claude",
        id,
        text_of(value.get("name")),
        head=id_of(value.get("current_leaf_message_uuid")) or None,
        created=seconds_of(value.get("created_at")),
    )
    thread.mark(favourite=value.get("is_starred"))
    model = text_of(value.get("model"))
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
        thread.messages += _messages(id, before, role, message, thread, model)
        before = id
    return thread


def _messages(
    id: str, parent: str | None, role: Role, message: dict[str, object], thread: Thread, model: str
) -> Iterator[ImportedMessage]:
    steps, files = Steps(), list[tuple[str, str]]()
    content, is_empty = message.get("content"), True
    if isinstance(content, str):
        steps.says(content)
        is_empty = False
    for part in map(dict_of, list_of(content)):
        kind = text_of(part.get("type"))
        is_empty = is_empty and kind not in ("text", "tool_use", "voice_note")
        match kind:
            case "text":
                steps.says(_with_artifacts(_cited(part)))
            case "thinking":
                steps.thinks(text_of(part.get("thinking")))
            case "tool_use" if text := _artifact(dict_of(part.get("input"))):
                steps.says(text)
            case "tool_use":
                steps.calls(call_of(part.get("id"), part.get("name"), part.get("input")))
            case "tool_result" if text_of(part.get("name")) in _WRITERS:
                pass  # it says that the text was taken
            case "tool_result":
                steps.gives(result_of(part.get("tool_use_id"), part.get("name")), _result(part.get("content"), thread))
            case "voice_note":
                steps.says(text_of(part.get("text")))
            case "token_budget" | "flag":
                pass
            case _:
                thread.lost(Loss.OTHER)
    if is_empty:
        steps.says(_with_artifacts(text_of(message.get("text"))))
    for attached in map(dict_of, [*list_of(message.get("attachments")), *list_of(message.get("files"))]):
        name, text = text_of(attached.get("file_name")), text_of(attached.get("extracted_content"))
        if text:
            files.append((name, text))
        else:
            thread.lost(Loss.FILES)
            steps.says(placeholder("file not imported", name))
    whole = ImportedMessage(
        id,
        parent,
        role,
        "",
        seconds_of(message.get("created_at")),
        (text_of(message.get("model")) or model) if role is Role.ASSISTANT else "",
        files=tuple(files) if role is Role.USER else (),
    )
    return steps.messages(whole)


def _result(content: object, thread: Thread) -> str:
    """What a tool gave: texts, and pages with their titles and addresses."""
    if isinstance(content, str):
        return content
    texts = []
    for part in map(dict_of, list_of(content)):
        page = link(text_of(part.get("title")), text_of(part.get("url")))[1:-1]
        texts.append(joined(page, text_of(part.get("text"))))
        thread.lost(Loss.IMAGES, part.get("type") == "image")
    return joined(*texts)


def _artifact(call: dict[str, object]) -> str:
    """The text that a call writes into an artifact or a file; empty: it writes none."""
    text = text_of(call.get("content")) or text_of(call.get("file_text")) or text_of(call.get("new_str"))
    name = text_of(call.get("title")) or text_of(call.get("path")).rpartition("/")[2] or text_of(call.get("id"))
    return _document(name, text_of(call.get("type")), text_of(call.get("language")), text) if text.strip() else ""


def _with_artifacts(text: str) -> str:
    """A text with the artifacts that stand in it as tags, as older exports have them."""
    return unfolded(text, _TAGS, "</antArtifact>", _untagged)


def _untagged(found: re.Match[str], held: str) -> str:
    about = {key: unescaped(value) for key, value in _ATTRIBUTE.findall(found[1])}
    name = about.get("title") or about.get("identifier", "")
    return f"\n\n{_document(name, about.get('type', ''), about.get('language', ''), held)}\n\n"


def _document(name: str, kind: str, language: str, text: str) -> str:
    """A document that belongs to the conversation, below its name; code, and what is drawn from code, as a block."""
    is_prose = kind in ("text/markdown", "text/plain") or (not kind and name.endswith((".md", ".txt")))
    body = text.strip("\n") if is_prose else fenced(text, language or _LANGUAGES.get(kind, ""))
    return joined(f"**{name}**" if name else "", body)


def _cited(part: dict[str, object]) -> str:
    """The text of a part, with a link behind each passage that has a source."""
    text = text_of(part.get("text"))
    found = dict[tuple[int, str], None]()
    for one in map(dict_of, list_of(part.get("citations"))):
        details, end = dict_of(one.get("details")), one.get("end_index")
        url = text_of(details.get("url")) or text_of(one.get("url"))
        if url and isinstance(end, int) and 0 < end <= len(text):
            found[end, link(text_of(details.get("title")) or text_of(one.get("title")), url)] = None
    for end, shown in sorted(found, reverse=True):
        text = f"{text[:end]} {shown}{text[end:]}"
    return text


FORMAT = JsonFormat("Claude", _fits, _read)

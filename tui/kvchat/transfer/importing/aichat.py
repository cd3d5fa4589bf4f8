"""aichat: a session's YAML file, read with the extra `yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar

from kvchat.prompt.message import Role
from kvchat.prompt.tools import ToolCall
from kvchat.transfer.importing.thread import (
    LONGEST,
    ImportedMessage,
    ImportRefusal,
    Loss,
    NotTaken,
    Picture,
    Steps,
    TextFormat,
    Thread,
    call_of,
    dict_of,
    joined,
    list_of,
    picture_of,
    placeholder,
    text_of,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.ASSISTANT}
"""A message of the role `tool` holds the calls of an answer, with their results."""
_UNPRINTABLE = re.compile("[^\\t\\n\\r -~\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""What YAML allows in no file (https://yaml.org/spec/1.2.2/#51-character-set)."""
_NULL = "tag:yaml.org,2002:null"


def _fits(text: str) -> bool:
    return bool(re.match(r"(?:---\n)?model: *\S", text)) and bool(
        re.search(r"^(?:compressed_)?messages:", text, re.MULTILINE)
    )


def _read(text: str, name: str) -> Thread:
    if len(text) > LONGEST:
        raise NotTaken(ImportRefusal.TOO_LARGE, limit=LONGEST)
    session = dict_of(_value(text))
    thread = Thread("aichat", "", name, own_ids=False)
    model = text_of(session.get("model"))
    before: str | None = None
    for number, one in enumerate([*list_of(session.get("compressed_messages")), *list_of(session.get("messages"))]):
        message = dict_of(one)
        role = _ROLES.get(text_of(message.get("role")))
        if role is None:
            thread.lost(Loss.BROKEN)
            continue
        pictures, steps = list[Picture](), Steps()
        steps.says(joined(*_texts(message.get("content"), thread, pictures)))
        results = [*map(dict_of, list_of(dict_of(message.get("content")).get("tool_results")))]
        calls = [_call(dict_of(result.get("call"))) for result in results]
        for call in calls:
            steps.calls(call)
        for call, result in zip(calls, results, strict=True):
            output = result.get("output")
            steps.gives(call, output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
        whole = ImportedMessage(
            str(number),
            before,
            role,
            "",
            None,
            model if role is Role.ASSISTANT else "",
            pictures=tuple(pictures) if role is Role.USER else (),
        )
        thread.messages += steps.messages(whole)
        before = str(number)
    thread.head = before
    # A session is identified by its name; one that was started again under an old name is another.
    first = next((one.text for one in thread.messages if one.role is Role.USER), "")
    thread.id = f"{name}\n{first}"
    return thread


def _call(call: dict[str, object]) -> ToolCall:
    return call_of(call.get("id"), call.get("name"), call.get("arguments"))


def _texts(content: object, thread: Thread, pictures: list[Picture]) -> Iterator[str]:
    """The texts of a message's content; its images go to `pictures`."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        yield text_of(content.get("text"))
    for part in list_of(content):
        if dict_of(part).get("type") == "text":
            yield text_of(dict_of(part).get("text"))
        elif (picture := picture_of(dict_of(dict_of(part).get("image_url")).get("url"))) is not None:
            pictures.append(picture)
        else:
            thread.lost(Loss.IMAGES)
            yield placeholder("image not imported")


def _value(text: str) -> object:
    """The value of a YAML file: all scalars as texts, but nulls. Raises NotTaken."""
    try:
        import yaml
    except ImportError:
        raise NotTaken(ImportRefusal.NO_YAML) from None

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, object]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag == _NULL]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return yaml.load(_UNPRINTABLE.sub("\ufffd", text), Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        raise NotTaken(ImportRefusal.NOT_ONE) from None


FORMAT = TextFormat("aichat", _fits, _read)

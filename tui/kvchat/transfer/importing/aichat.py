"""aichat: a session's YAML file. It is read as aichat writes it, and no further: maps and lists by their indentation,
and texts plain, quoted, or as a block."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kvchat.prompt.message import Role
from kvchat.transfer.importing.thread import (
    DEEPEST,
    LONGEST,
    Loss,
    NotTaken,
    Picture,
    Reason,
    Said,
    TextFormat,
    Thread,
    dict_of,
    joined,
    list_of,
    picture_of,
    placeholder,
    text_of,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.ASSISTANT}
_KEY = re.compile(r"([A-Za-z_][\w./ -]*):(?: +(.*))?\Z")
_BLOCK = re.compile(r"\|(\d?)([-+]?)\Z")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "v": "\v",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


def _fits(text: str) -> bool:
    return bool(re.match(r"(?:---\n)?model: *\S", text)) and bool(
        re.search(r"^(?:compressed_)?messages:", text, re.MULTILINE)
    )


def _read(text: str, name: str) -> Thread:
    if len(text) > LONGEST:
        raise NotTaken(Reason.TOO_LARGE, limit=LONGEST)
    session = dict_of(_Yaml(text).value())
    thread = Thread("aichat", "", name, own_ids=False)
    model = text_of(session.get("model"))
    before: str | None = None
    for number, one in enumerate([*list_of(session.get("compressed_messages")), *list_of(session.get("messages"))]):
        message = dict_of(one)
        role = _ROLES.get(text_of(message.get("role")))
        if role is None:
            thread.lost(Loss.BROKEN)
            continue
        pictures = list[Picture]()
        said = joined(*_texts(message.get("content"), thread, pictures))
        thread.messages.append(
            Said(
                str(number),
                before,
                role,
                said,
                None,
                model if role is Role.ASSISTANT else "",
                pictures=tuple(pictures) if role is Role.USER else (),
            )
        )
        before = str(number)
    thread.head = before
    # A session is its name; one that was begun anew under an old name is another.
    first = next((one.text for one in thread.messages if one.role is Role.USER), "")
    thread.id = f"{name}\n{first}"
    return thread


def _texts(content: object, thread: Thread, pictures: list[Picture]) -> Iterator[str]:
    """The texts of a message's content; its images go to `pictures`."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        yield text_of(content.get("text"))
        for result in list_of(content.get("tool_results")):
            thread.lost(Loss.TOOL_CALLS)
            thread.lost(Loss.TOOL_RESULTS)
            yield placeholder("tool call", text_of(dict_of(dict_of(result).get("call")).get("name")))
    for part in list_of(content):
        if dict_of(part).get("type") == "text":
            yield text_of(dict_of(part).get("text"))
        elif (picture := picture_of(dict_of(dict_of(part).get("image_url")).get("url"))) is not None:
            pictures.append(picture)
        else:
            thread.lost(Loss.IMAGES)
            yield placeholder("image not imported")


class _Yaml:
    """Reads the value of a text. Raises NotTaken for what aichat does not write."""

    def __init__(self, text: str) -> None:
        self._lines = text.removeprefix("\ufeff").removeprefix("---\n").split("\n")
        self._at = 0

    def value(self) -> object:
        found = self._block(0, 0)
        if self._next() is not None:
            raise NotTaken(Reason.NOT_ONE)
        return found

    def _next(self) -> tuple[int, str] | None:
        """The indentation and the text of the next line that is not blank; None at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip("\r")
            if text := line.strip(" "):
                return len(line) - len(line.lstrip(" ")), text
            self._at += 1
        return None

    def _block(self, indent: int, depth: int) -> object:
        """The map or list that begins at the next line, indented as far as `indent`."""
        found = self._next()
        if found is None or found[0] < indent or depth > DEEPEST:
            raise NotTaken(Reason.NOT_ONE)
        is_list = found[1] == "-" or found[1].startswith("- ")
        return self._list(found[0], depth) if is_list else self._map(found[0], depth)

    def _list(self, indent: int, depth: int) -> list[object]:
        items: list[object] = []
        while (
            (found := self._next()) is not None
            and found[0] == indent
            and (found[1] == "-" or found[1].startswith("- "))
        ):
            rest = found[1][1:].lstrip(" ")
            if _KEY.match(rest) or rest.startswith("- "):  # a map or list that begins on this line
                inner = indent + len(found[1]) - len(rest)
                self._lines[self._at] = " " * inner + rest
                items.append(self._block(inner, depth + 1))
            else:
                self._at += 1
                items.append(self._scalar(rest, indent, depth))
        return items

    def _map(self, indent: int, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        while (found := self._next()) is not None and found[0] == indent:
            key = _KEY.match(found[1])
            if key is None:
                quoted = re.match(r"(['\"].*['\"]):(?: +(.*))?\Z", found[1])
                if quoted is None:
                    raise NotTaken(Reason.NOT_ONE)
                key = quoted
            self._at += 1
            values[key[1]] = self._scalar(key[2] or "", indent, depth)
        return values

    def _scalar(self, rest: str, indent: int, depth: int) -> object:
        """What stands behind a key or a dash: a text on this line, or what the next lines hold."""
        if block := _BLOCK.match(rest):
            return self._literal(indent, int(block[1] or 0), block[2])
        if rest:
            return _text(rest)
        found = self._next()
        if found is None or found[0] < indent or (found[0] == indent and not found[1].startswith("-")):
            return None
        return self._block(found[0], depth + 1)

    def _literal(self, indent: int, given: int, chomp: str) -> str:
        lines: list[str] = []
        depth = indent + given if given else 0
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip("\r")
            blank = not line.strip(" ")
            if not blank:
                here = len(line) - len(line.lstrip(" "))
                depth = depth or here
                if here < depth or here <= indent:
                    break
            lines.append(line[depth:] if not blank or depth else "")
            self._at += 1
        text = "\n".join(lines)
        kept = text.rstrip("\n")
        return kept if chomp == "-" else text + "\n" * (not text.endswith("\n")) if chomp == "+" else f"{kept}\n"


def _text(rest: str) -> object:
    if rest.startswith("'") and rest.endswith("'") and len(rest) > 1:
        return rest[1:-1].replace("''", "'")
    if rest.startswith('"') and rest.endswith('"') and len(rest) > 1:
        return _ESCAPE.sub(_unescaped, rest[1:-1])
    if rest in ("[]", "{}"):
        return json.loads(rest)
    return None if rest in ("null", "~") else rest


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    return _ESCAPED.get(code, code)


FORMAT = TextFormat("aichat", _fits, _read)

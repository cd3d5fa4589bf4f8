"""How conversations come out of the process that reads them: in frames, none of them much longer than one message, and
a short conversation in one: each frame costs both processes more than a page of text.

What is in a frame is data alone, and whoever takes it makes values of it that are checked like any others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, TypeAlias

from kvchat.prompt.message import Role
from kvchat.prompt.tools import ToolCall
from kvchat.transfer.formats import Source, TransferError
from kvchat.transfer.importing.files import FoundConversation, Missed
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    ImportRefusal,
    Loss,
    NotTaken,
    Picture,
    Thread,
    dict_of,
    list_of,
    text_of,
)
from kvchat.transfer.lossless import fields_of, source_of
from kvchat.values import statement

BATCH = 2**18
"""Characters of messages in one frame, where they are more than one."""
MOST_OCTETS = 2**27
"""Of the images of one conversation: the others are left out."""


class FrameKind(StrEnum):
    """What a frame begins with."""

    PROGRESS = "p"
    MISSED = "m"
    FOUND = "f"
    ROWS = "r"
    """More messages of the conversation that was found last."""
    IMAGE = "i"
    OVER = "o"
    """All files were read."""
    NO_MEMORY = "x"


def frame(kind: FrameKind, value: object = None) -> bytes:
    """A value as a frame."""
    octets = (
        value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )
    return kind.encode() + octets


def read(octets: bytes) -> tuple[FrameKind, Any]:
    """What is in a frame; of an image its octets. Raises ValueError."""
    kind, rest = FrameKind(octets[:1].decode("ascii")), octets[1:]
    return kind, rest if kind is FrameKind.IMAGE else json.loads(rest.decode("utf-8", "surrogatepass"))


def frames_of(item: FoundConversation | Missed) -> Iterator[bytes]:
    """What was found as frames."""
    if isinstance(item, Missed):
        yield frame(FrameKind.MISSED, [item.file, item.why.kind, dict(item.why.arguments), item.whole])
        return
    about, rows, images = _of_source(item.item) if isinstance(item.item, Source) else _of_thread(item.item, item.asset)
    about |= {"program": item.program, "at": item.at, "file": item.file}
    batch, length, begun = list[object](), 0, False
    for row, size in rows:
        if length >= BATCH:
            yield frame(FrameKind.ROWS, batch) if begun else frame(FrameKind.FOUND, [about, batch])
            batch, length, begun = [], 0, True
        batch.append(row)
        length += size
    yield frame(FrameKind.ROWS, batch) if begun else frame(FrameKind.FOUND, [about, batch])
    left = MOST_OCTETS
    for octets in images:
        octets = octets if len(octets) <= left else b""
        left -= len(octets)
        yield frame(FrameKind.IMAGE, octets)


_Parts: TypeAlias = tuple[dict[str, object], Iterable[tuple[object, int]], Iterable[bytes]]
"""What is said of a conversation, its messages with their lengths, and its images."""


def _of_thread(thread: Thread, asset: Callable[[str], bytes]) -> _Parts:
    about = {
        "source": thread.source,
        "id": thread.id,
        "title": thread.title,
        "head": thread.head,
        "created": thread.created,
        "system": thread.system,
        "own_ids": thread.own_ids,
        "tags": sorted(thread.tags),
        "losses": dict(thread.losses),
    }
    rows = (
        (
            [
                *(one.id, one.parent, one.role, one.text, one.created, one.model, one.reasoning, one.files),
                [picture.name for picture in one.pictures],
                [[call.id, call.name, call.arguments] for call in one.calls],
            ],
            len(one.text)
            + len(one.reasoning)
            + sum(len(text) for _, text in one.files)
            + sum(len(call.arguments) for call in one.calls)
            + 100,
        )
        for one in thread.messages
    )
    pictures = (picture for one in thread.messages for picture in one.pictures)
    more = {"rows": len(thread.messages), "images": sum(len(one.pictures) for one in thread.messages)}
    return {"thread": about, **more}, rows, (one.data or asset(one.asset) for one in pictures)


def _of_source(source: Source) -> _Parts:
    fields = fields_of(source)
    nodes, images = list_of(fields.pop("nodes")), source.images
    rows = ((node, len(text_of(dict_of(node).get("wire"))) + 500) for node in nodes)
    own = {**fields, "images": list(images)}
    return {"own": own, "rows": len(nodes), "images": len(images)}, rows, images.values()


class Arriving:
    """A conversation whose frames come in."""

    def __init__(self, value: Any) -> None:
        """Raises ValueError, TypeError or KeyError where it is none."""
        self._about, self._rows = value
        self._images: list[bytes] = []
        self.file = str(self._about["file"])

    def take(self, kind: FrameKind, value: Any) -> None:
        """The next frame. Raises ValueError for one that is none of a conversation's."""
        if kind is FrameKind.ROWS:
            self._rows += value
        elif kind is FrameKind.IMAGE:
            self._images.append(value)
        else:
            raise ValueError(f"{kind} within a conversation")

    @property
    def is_whole(self) -> bool:
        return bool(len(self._rows) >= self._about["rows"] and len(self._images) >= self._about["images"])

    def found(self) -> FoundConversation:
        """The conversation, when it is whole. Raises NotTaken, and ValueError, TypeError or KeyError where it is
        none."""
        about = self._about
        item = self._source(about["own"]) if "own" in about else self._thread(about["thread"])
        return FoundConversation(item, str(about["program"]), float(about["at"]), self.file)

    def _source(self, fields: dict[str, Any]) -> Source:
        images = dict(zip(fields["images"], (url.decode() for url in self._images), strict=True))
        try:
            return source_of({**fields, "images": images, "nodes": self._rows})
        except TransferError as error:
            raise NotTaken(ImportRefusal.INVALID, why=error.sentence) from error

    def _thread(self, fields: dict[str, Any]) -> Thread:
        octets = iter(self._images)
        messages = [
            ImportedMessage(
                *(id, parent, Role(role), text, created, model, reasoning),
                files=tuple((name, text) for name, text in files),
                pictures=tuple(Picture(name, next(octets)) for name in names),
                calls=tuple(ToolCall(*map(str, call)) for call in calls),
            )
            for id, parent, role, text, created, model, reasoning, files, names, calls in self._rows
        ]
        losses = Counter({Loss(kind): int(number) for kind, number in fields["losses"].items()})
        return Thread(**{**fields, "messages": messages, "tags": set(fields["tags"]), "losses": losses})


def missed_of(value: Any) -> Missed:
    """Raises ValueError and TypeError where it is none."""
    file, kind, arguments, whole = value
    return Missed(str(file), statement(ImportRefusal(kind), arguments), bool(whole))

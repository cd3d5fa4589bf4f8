"""kvchat's own lossless JSON: every branch, byte for byte."""

from __future__ import annotations

from kvchat.transfer.formats import Source, TransferError
from kvchat.transfer.importing.thread import ImportRefusal, JsonFormat, NotTaken
from kvchat.transfer.lossless import DOCUMENT, VERSION, source_of


def _fits(value: dict[str, object]) -> bool:
    return isinstance(value.get("conversation"), dict) and isinstance(value.get("nodes"), list)


def _read(value: dict[str, object]) -> Source:
    try:
        source = source_of(value)
    except TransferError as error:
        raise NotTaken(ImportRefusal.INVALID, why=error.sentence) from error
    if not source.conversation.turns:
        raise NotTaken(ImportRefusal.EMPTY)
    return source


def _check(header: dict[str, object]) -> None:
    version = header.get("version")
    if header.get("format") == DOCUMENT and isinstance(version, int) and version > VERSION:
        raise NotTaken(ImportRefusal.NEWER, version=version, known=VERSION)


FORMAT = JsonFormat("kvchat", _fits, _read, _check)

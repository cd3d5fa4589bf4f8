"""A lossless export, read as an import reads each of its conversations."""

from __future__ import annotations

from kvchat.transfer.exact_json import loads
from kvchat.transfer.formats import Source
from kvchat.transfer.lossless import source_of


def read_lossless(text: str) -> list[Source]:
    document = loads(text)
    assert isinstance(document, dict)
    return [source_of(item) for item in document["conversations"]]

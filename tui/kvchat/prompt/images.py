"""Images in messages: the reference to one in the stored bytes, and how those become the bytes that go out.

A stored message names the SHA-256 of the URL that goes out in its place. A digest over the stored bytes so
vouches for every byte that is sent: one URL fits, and it never changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kvchat.prompt.context import IMAGE, ContextBlock

MOST_TOKENS = 1400
"""Tokens of an image, at most, before a server has counted it: of a megapixel in patches of 28 x 28, as models of today
have them. A model with a fixed number per image makes fewer."""

_SHA256 = re.compile("[0-9a-f]{64}")
_BEGINS = b'{"type":"image_url","image_url":{"url":"sha256:'
_STORED = re.compile(re.escape(_BEGINS) + rb'([0-9a-f]{64})"\}\}')
"""Text in a message cannot look like this: its quotes are escaped."""


class Thumbnail(NamedTuple):
    """An image as small as a terminal shows it."""

    width: int
    height: int
    """Pixels."""
    rgb: bytes
    """Three for each pixel, row by row."""


def url_sha256(url: bytes) -> str:
    """The name of an image: the SHA-256, in hex, of the `data:` URL that goes to a server."""
    return hashlib.sha256(url).hexdigest()


def sha256_of(block: ContextBlock) -> str:
    """The name of a block's image; empty where the block is none."""
    found = block.ref.rpartition("#")[2] if block.kind == IMAGE else ""
    return found if _SHA256.fullmatch(found) else ""


def images_in(blocks: Iterable[ContextBlock]) -> list[ContextBlock]:
    """The blocks that are images."""
    return [block for block in blocks if sha256_of(block)]


def stored_part(block: ContextBlock) -> dict[str, object]:
    """The part of a stored message that refers to an image, by its SHA-256."""
    return {"type": "image_url", "image_url": {"url": f"sha256:{sha256_of(block)}"}}


def count_images(wires: Iterable[bytes]) -> int:
    """How many images some stored messages hold."""
    return sum(wire.count(_BEGINS) for wire in wires)


def has_images(wires: Iterable[bytes]) -> bool:
    return any(_BEGINS in wire for wire in wires)


def without_images(wire: bytes) -> bytes:
    """A stored message without the parts that refer to images."""
    return _STORED.sub(b"", wire) if _BEGINS in wire else wire


def sent(wires: Sequence[bytes], url_of: Callable[[str], bytes]) -> Sequence[bytes]:
    """The messages with their images, as they go out. `url_of`: the URL of the image of this name; what it raises goes
    on."""
    if not has_images(wires):
        return wires

    def filled(match: re.Match[bytes]) -> bytes:
        return b'{"type":"image_url","image_url":{"url":"' + url_of(match[1].decode()) + b'"}}'

    return tuple(_STORED.sub(filled, wire) if _BEGINS in wire else wire for wire in wires)

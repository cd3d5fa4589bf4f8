"""Prepare images for messages, from a file or an export.

An image is prepared once, in a process of its own, when it is attached; these bytes are kept and sent from then on.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.documents.errors import DocumentError, FileUnreadableError
from kvchat.documents.reading.magic_bytes import is_image
from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.images import Thumbnail
from kvchat.prompt.wire import whole_characters
from kvchat.store.images import Image

if TYPE_CHECKING:
    from kvchat.documents.reading.sandbox import Readers

MOST_BYTES = 64 << 20
"""Of a file."""
NEEDS_EXTRA = 'needs the extra "images" to be sent: pip install "kvchat[images]"'

ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"))
"""Of files that hold images, and no text."""

Keep = Callable[[Image], None]
"""Keeps an image, so that a block can name it."""

_HEAD = 64


def image_block(path: Path, name: str, shown: str, keep: Keep) -> ContextBlock | None:
    """The block of an image file, kept as it is now; None: it is none, or cannot be looked at. Raises DocumentError."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would wait
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return None
            if not is_image(file.read(_HEAD)):
                if path.suffix.lower() in ENDINGS:
                    raise DocumentError(f"{shown} cannot be attached: it is named like an image and is none.")
                return None
    except (OSError, ValueError):
        return None
    try:
        if found.st_size > MOST_BYTES:
            raise FileUnreadableError(f"is {found.st_size >> 20:,} MB long; an image may have {MOST_BYTES >> 20} MB")
        image = _image_of(str(path), found.st_size, found.st_mtime_ns, found.st_ino)
    except (FileUnreadableError, OSError) as error:
        reason = str(error) if isinstance(error, FileUnreadableError) else "cannot be read"
        raise DocumentError(f"{shown} cannot be attached: it {reason}.") from None
    keep(image)
    return block_of(image, name, str(path))


def block_of(image: Image, name: str, path: str = "") -> ContextBlock:
    """The block of an image that is kept."""
    source = whole_characters(" ".join(name.split())) or "image"
    return ContextBlock(IMAGE, source, image.size, whole_characters(f"{path}#{image.sha256}"))


def image_in(data: bytes, readers: Readers) -> Image:
    """The image in the bytes of a file. Raises UnreadableError."""
    if find_spec("PIL") is None:
        raise FileUnreadableError(NEEDS_EXTRA)
    pixels = readers.pixels(data)
    return Image(f"data:{pixels.type};base64,".encode() + base64.b64encode(pixels.data), pixels.width, pixels.height)


def thumbnail_in(url: bytes, width: int, height: int, readers: Readers) -> Thumbnail | None:
    """The image of a `data:` URL as small as a terminal shows it; None: it cannot be read here."""
    if find_spec("PIL") is None:
        return None
    try:
        found = readers.thumbnail(base64.b64decode(url.partition(b",")[2]), width, height)
    except (FileUnreadableError, ValueError):
        return None
    return Thumbnail(found.width, found.height, found.data)


@lru_cache(maxsize=4)
def _image_of(path: str, size: int, mtime_ns: int, inode: int) -> Image:
    """The image in a file in this state: while a message is written it is looked up again and again."""
    from kvchat.documents.reading.sandbox import Readers

    with Path(path).open("rb") as file, Readers() as readers:
        return image_in(file.read(MOST_BYTES + 1), readers)

"""Prepare images for sending, by Pillow (the extra `images`): at most a megapixel, upright, without anything but
pixels.

This runs in the reader child only. What a file claims about itself is trusted only within the bounds.
"""

from __future__ import annotations

import math
import warnings
from io import BytesIO
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.documents.errors import FileUnreadableError

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 1 << 20
"""Pixels of an image that is sent: small print in a picture of a screen can still be read, and models for a desk make
some 1,400 tokens of it at most."""
LONGEST = 4096
"""Pixels of a side."""
MOST_READ = 64 << 20
"""Pixels of an image that is read."""
LARGEST_PNG = 1 << 20
"""Bytes from which an image without loss is not worth its length."""
QUALITY = 90

RGB = "rgb"
"""The type of pixels that are in no format: three bytes for each, row by row."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
_LOSSY = frozenset(("JPEG", "MPO", "WEBP", "AVIF"))


class Pixels(Struct, frozen=True):
    """An image in the form in which it is sent."""

    type: str
    """`image/png` or `image/jpeg`: what every server that sees can read; or RGB."""
    data: bytes
    width: int
    height: int


def pixels_of(data: bytes) -> Pixels:
    """The image in a file. Raises UnreadableError; MemoryError where there is too little memory for it."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # the bound here is another one
    warnings.simplefilter("ignore")
    try:
        opened = Image.open(BytesIO(data), formats=_FORMATS)
    except (OSError, ValueError, SyntaxError):
        raise FileUnreadableError("is an image that cannot be read; save it as PNG or JPEG") from None
    if opened.width * opened.height > MOST_READ:
        raise FileUnreadableError(f"has too many pixels ({opened.width:,} x {opened.height:,}); make it smaller first")
    kind = opened.format or ""
    try:
        opened.draft("RGB", _fitting(*opened.size))  # a JPEG is read at the size that is needed
        image = _plain(ImageOps.exif_transpose(opened))
        size = _fitting(*image.size)
        if size != image.size:
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    except MemoryError:
        raise
    except Exception:
        raise FileUnreadableError("is a broken image") from None
    png = b"" if kind in _LOSSY else _encoded(image, "PNG", optimize=True)
    if png and len(png) <= LARGEST_PNG:
        return Pixels("image/png", png, *image.size)
    return Pixels("image/jpeg", _encoded(image, "JPEG", quality=QUALITY), *image.size)


def thumbnail_of(data: bytes, width: int, height: int) -> Pixels:
    """The pixels of a PNG or JPEG, made to fit. Raises as `pixels_of`."""
    from PIL import Image

    try:
        image = Image.open(BytesIO(data), formats=("PNG", "JPEG"))
        if image.width * image.height > MOST_READ:
            raise FileUnreadableError("has too many pixels")
        image.draft("RGB", (width * 2, height * 2))
        small = _plain(image)
        small.thumbnail((width, height))
    except (MemoryError, FileUnreadableError):
        raise
    except Exception:
        raise FileUnreadableError("is a broken image") from None
    return Pixels(RGB, small.tobytes(), *small.size)


def _fitting(width: int, height: int) -> tuple[int, int]:
    """The size at which an image is sent."""
    scale = min(1.0, math.sqrt(MOST_PIXELS / (width * height)), LONGEST / max(width, height))
    return max(1, int(width * scale)), max(1, int(height * scale))


def _plain(image: Image) -> Image:
    """The pixels alone, on white: what goes with a file (where it was taken, by what, in which colours) is left out."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256).convert("L")
    plain = Image.new("RGB", image.size, "white")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        plain.paste(image, mask=image.getchannel("A"))
    else:
        plain.paste(image.convert("RGB"))
    return plain


def _encoded(image: Image, format: str, **options: object) -> bytes:
    held = BytesIO()
    image.save(held, format, **options)
    return held.getvalue()

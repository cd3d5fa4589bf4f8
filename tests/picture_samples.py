"""Pictures for tests: made, never found."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image, ImageDraw

PLACE = "Fastnet Rock"
"""What the EXIF of a picture says that nobody meant to send."""


def picture(
    width: int = 640, height: int = 480, *, text: str = "lamp", format: str = "PNG", **options: object
) -> bytes:
    """A picture that differs by its text."""
    image = Image.new("RGB", (width, height), "navy")
    draw = ImageDraw.Draw(image)
    draw.rectangle((width // 4, height // 4, width // 2, height // 2), fill="gold")
    draw.text((5, 5), text, fill="white")
    held = io.BytesIO()
    image.save(held, format, **options)
    return held.getvalue()


def photo(width: int = 3000, height: int = 2000) -> bytes:
    """A JPEG that lies on its side and says where it was taken."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    exif[0x010E] = PLACE
    exif.get_ifd(0x8825)[2] = (51.0, 23.0, 21.0)
    return picture(width, height, format="JPEG", exif=exif, comment=PLACE.encode())


def bomb(side: int = 60_000) -> bytes:
    """A PNG of some kilobytes that says it has billions of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1 << 20))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks

"""Signatures: recognise a file without readable text by its first bytes.

Only signatures that no text file begins with are listed; a text is never refused for its beginning.
"""

from __future__ import annotations

from collections.abc import Container
from io import BytesIO

from kvchat.documents.errors import attempted

_IMAGE, _AUDIO, _VIDEO = "is an image", "is an audio file", "is a video"
_ARCHIVE, _FONT, _PROGRAM, _DATABASE = "is an archive", "is a font", "is a program", "is a database"

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", _IMAGE),
    (b"\xff\xd8\xff", _IMAGE),
    (b"GIF87a", _IMAGE),
    (b"GIF89a", _IMAGE),
    (b"II*\0", _IMAGE),
    (b"MM\0*", _IMAGE),
    (b"8BPS\0", _IMAGE),
    (b"\0\0\x01\0", _IMAGE),
    (b"qoif\0", _IMAGE),
    (b"\xff\x0a", _IMAGE),
    (b"\0\0\0\x0cJXL ", _IMAGE),
    (b"\0\0\0\x0cjP  ", _IMAGE),
    (b"gimp xcf", _IMAGE),
    (b"ID3\x02", _AUDIO),
    (b"ID3\x03", _AUDIO),
    (b"ID3\x04", _AUDIO),
    (b"\xff\xfb", _AUDIO),
    (b"\xff\xf1", _AUDIO),
    (b"OggS\0", _AUDIO),
    (b"fLaC\0", _AUDIO),
    (b"MThd\0\0", _AUDIO),
    (b"\x1aE\xdf\xa3", _VIDEO),
    (b"FLV\x01", _VIDEO),
    (b"\0\0\x01\xba", _VIDEO),
    (b"\0\0\x01\xb3", _VIDEO),
    (b"\x1f\x8b\x08", _ARCHIVE),
    (b"BZh91AY&SY", _ARCHIVE),
    (b"\xfd7zXZ\0", _ARCHIVE),
    (b"7z\xbc\xaf'\x1c", _ARCHIVE),
    (b"Rar!\x1a\x07", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", _ARCHIVE),
    (b"\x04\x22\x4d\x18", _ARCHIVE),
    (b"!<arch>\n", _ARCHIVE),
    (b"MSCF\0\0\0\0", _ARCHIVE),
    (b"\xed\xab\xee\xdb", _ARCHIVE),
    (b"wOFF\0", _FONT),
    (b"wOF2\0", _FONT),
    (b"OTTO\0", _FONT),
    (b"\0\x01\0\0\0", _FONT),
    (b"true\0", _FONT),
    (b"\x7fELF", _PROGRAM),
    (b"\xfe\xed\xfa\xce", _PROGRAM),
    (b"\xfe\xed\xfa\xcf", _PROGRAM),
    (b"\xce\xfa\xed\xfe", _PROGRAM),
    (b"\xcf\xfa\xed\xfe", _PROGRAM),
    (b"\xca\xfe\xba\xbe", _PROGRAM),
    (b"\0asm\x01\0\0\0", _PROGRAM),
    (b"dex\n035\0", _PROGRAM),
    (b"SQLite format 3\0", _DATABASE),
    (b"\x89HDF\r\n\x1a\n", _DATABASE),
    (b"PAR1", _DATABASE),
    (b"{\\rtf", "is an RTF document; save it as .docx"),
    (b"%!PS-Adobe", "is a PostScript file"),
    (b"GGUF", "is a model"),
    (b"\x93NUMPY", "is an array of numbers"),
)
_WORDS = frozenset((b"PAR1", b"GGUF", b"GIF87a", b"GIF89a", b"gimp xcf", b"BZh91AY&SY"))
"""Signatures that a text could begin with: bytes that no text has need to stand near them."""
_NO_TEXT = bytes((*range(8), *range(0x80, 0x100)))


def reason(data: bytes) -> str:
    """Why a file cannot be read, as it follows its name; empty: its beginning does not tell."""
    head = data[:64]
    for start, said in _STARTS:
        if head.startswith(start) and (start not in _WORDS or head.translate(None, _NO_TEXT) != head):
            return said
    if head[:4] == b"RIFF":
        return {b"WEBP": _IMAGE, b"WAVE": _AUDIO, b"AVI ": _VIDEO}.get(head[8:12], "")
    if head[4:8] == b"ftyp" and head[:1] == b"\0":
        brand = head[8:12]
        return _IMAGE if brand in (b"avif", b"heic", b"heix", b"mif1") else _AUDIO if brand == b"M4A " else _VIDEO
    if head[:2] == b"MZ" and b"\0" in head:
        return _PROGRAM
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0":
        return _IMAGE
    return _ARCHIVE if data[257:262] == b"ustar" and b"\0" in data[:257] else ""


def is_image(data: bytes) -> bool:
    return reason(data) == _IMAGE


def is_ole(data: bytes) -> bool:
    """Whether it is a container of Microsoft's: an office file of before 2007, or an encrypted one of today."""
    return data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")


def is_zip(data: bytes) -> bool:
    return data.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"))


def ole_reason(data: bytes) -> str:
    """What an OLE container is."""

    def holds(name: str) -> bool:
        return name.encode("utf-16-le") in data

    if holds("EncryptedPackage"):
        return "is encrypted"
    kinds = (
        ("WordDocument", "is a Word document of the old format; save it as .docx"),
        ("Workbook", "is a spreadsheet"),
        ("PowerPoint Document", "is a presentation"),
    )
    return next((said for name, said in kinds if holds(name)), "is a binary file")


def zip_kind(data: bytes) -> str:
    """What a ZIP archive is: `docx`, `odt`, `epub`, or else why it cannot be read."""
    from zipfile import ZipFile

    def looked_into() -> tuple[Container[str], bytes]:
        with ZipFile(BytesIO(data)) as archive:
            names = archive.NameToInfo
            return names, archive.open("mimetype").read(100) if "mimetype" in names else b""

    found = attempted(looked_into)
    if found is None:
        return "is a broken archive"
    names, kind = found
    if "word/document.xml" in names:
        return "docx"
    if kind.startswith(b"application/vnd.oasis.opendocument.text"):
        return "odt"
    if kind.startswith(b"application/epub+zip") or (not kind and "META-INF/container.xml" in names):
        return "epub"
    kinds = (
        ("xl/workbook.xml", "is a spreadsheet"),
        ("ppt/presentation.xml", "is a presentation"),
    )
    if kind.startswith(b"application/vnd.oasis.opendocument."):
        return "is an office file, but no text"
    return next((said for name, said in kinds if name in names), _ARCHIVE)

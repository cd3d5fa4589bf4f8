"""Decoding: the bytes of a text file as text.

The rule: what comes out is whole characters in lines that end with a newline character, counted as an editor counts
them; what is no text is refused.
"""

from __future__ import annotations

import codecs

from kvchat.documents.errors import UnreadableError

_MARKS = (  # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes([*range(1, 8), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
"""What text has next to none of. Not tabs, line ends, form feeds, the backspaces of man pages, the escapes of logs."""
_HIGH = bytes(range(0x80, 0x100))
_BINARY = "is a binary file"


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, what a byte order mark says, or else Windows-1252 where that is plausible. Every line
    end is one newline character. Raises UnreadableError for what is no text or in an encoding that cannot be told."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _lines(_checked(data[len(mark) :].decode(encoding, "replace")))
    if _is_binary(data):
        raise UnreadableError(_BINARY)
    try:
        return _lines(data.decode())
    except UnicodeDecodeError:
        return _lines(_guessed(data))


def _guessed(data: bytes) -> str:
    """Text that is not quite UTF-8: damaged where most of its non-ASCII characters are right, else of one byte each."""
    text = data.decode(errors="replace")
    broken = text.count("\ufffd")
    right = len(text) - broken - len(data.translate(None, _HIGH))
    if right > broken:
        return text
    if len(data) - len(data.translate(None, _HIGH)) > 8 + 0.4 * len(data):
        raise UnreadableError("is not in UTF-8, and its encoding cannot be told")
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if sum(map(text.count, map(chr, range(0x80, 0xA0)))) > 0.02 * len(text):
        raise UnreadableError(_BINARY)
    return text


def _checked(text: str) -> str:
    """The same text, if it is one."""
    if text.count("\ufffd") > 0.05 * len(text) or _is_binary(text.encode()):
        raise UnreadableError(_BINARY)
    return text


def _is_binary(data: bytes) -> bool:
    return b"\0" in data or len(data) - len(data.translate(None, _CONTROLS)) > 0.05 * len(data)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

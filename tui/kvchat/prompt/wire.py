"""Canonical JSON: the one way kvchat turns a value into bytes for the wire.

The same value always gives the same bytes. Keys keep the order they are given in, text is
UTF-8 without ASCII escapes, there is no white space between tokens.
"""

from __future__ import annotations

import json
import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")


def whole_characters(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it encodes as UTF-8."""
    if text.isascii() or not _LONE_SURROGATE.search(text):
        return text
    joined = _SURROGATE_PAIR.sub(lambda m: chr(0x10000 + ((ord(m[1]) - 0xD800) << 10) + (ord(m[2]) - 0xDC00)), text)
    return _LONE_SURROGATE.sub("\ufffd", joined)


def canonical(value: object) -> bytes:
    """`value` as canonical JSON bytes. Raises ValueError for NaN, infinities and what JSON cannot hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return whole_characters(text).encode("utf-8")

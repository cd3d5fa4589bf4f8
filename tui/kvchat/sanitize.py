"""The display edge: text from outside, made safe to show. Stored text is never changed, only its way to a screen.

Nothing that came from outside reaches a terminal without `clean`. A terminal obeys ESC sequences,
C1 controls and bidirectional overrides wherever they stand; here each becomes something visible or nothing.
"""

from __future__ import annotations

import math
import re

from kvchat.clusters import outside

_TABLE: dict[int, str | None] = {code: chr(0x2400 + code) for code in range(0x20)}
_TABLE.update({ord("\n"): "\n", ord("\t"): "\t", 0x7F: "\u2421"})
_TABLE.update(dict.fromkeys(range(0x80, 0xA0), "\ufffd"))
_TABLE.update(dict.fromkeys((0x2028, 0x2029), "\n"))
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_TABLE.update(dict.fromkeys(_BIDI, "\ufffd"))
_TABLE.update(dict.fromkeys((0x00AD, 0x200B, 0x2060, 0xFEFF, *range(0xE0000, 0xE0080), *range(0xD800, 0xE000)), None))

_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_PILED_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{8})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


def clean(text: str) -> str:
    """`text` safe to show: C0 controls as control pictures (ESC is ␛), C1 and bidirectional controls as U+FFFD,
    invisible format characters removed, line and paragraph separators as newlines. Tabs and newlines stay,
    as do joiners and variation selectors. CRLF counts as one newline."""
    if text.isascii() and text.isprintable():
        return text
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    if _SUSPECT.search(text):
        text = text.translate(_TABLE)
    return text if text.isascii() else _PILED_MARKS.sub(r"\1", text)


def one_line(text: str, limit: int | None = None) -> str:
    """`clean` text on one line: every run of white space is one space; cut with … at `limit` characters."""
    if limit is not None:
        text = text[: 8 * limit + 64]
    line = " ".join(clean(text).split())
    return line if limit is None or len(line) <= limit else line[: outside(line, max(0, limit - 1))].rstrip() + "…"


_UNDRAWN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc\U00016fe4\U0001d159"
    "\U000e0000-\U000e0fff]"
)
"""Characters that count as printable and draw nothing, or change only how another one looks: fillers, blank symbols,
variation selectors."""
_MOST_MARKS = 4
"""Combining marks on one letter; more, or such without a letter, draw over what is around them."""
_MOST_BLANKS, _DEEPEST = 3, 60
"""Blanks in a row inside a line, and at its beginning, that the eye can still count."""
_RUN = re.compile(f" {{{_MOST_BLANKS + 1},}}|^ +| +$")


def exact(text: str) -> str:
    """`text` on one line as it is, for a decision about it: each character that draws nothing or misleads is escaped as
    `\\u{200b}`, so that two different texts never look the same. Unlike `clean` it leaves nothing out."""
    shown = _escaped(text)
    return _RUN.sub(lambda found: _blanks(len(found[0])), shown)


def exact_lines(text: str) -> list[str]:
    """The same, each line of `text` on one of its own; lines may be indented."""
    lines = []
    for line in text.split("\n"):
        rest = line.lstrip(" ")
        depth = len(line) - len(rest)
        lines.append((" " * depth if rest and depth <= _DEEPEST else _blanks(depth)) + exact(rest))
    return lines


def undrawn(text: str) -> int:
    """How many characters of `text` draw nothing; blanks of all kinds, tabs and line ends do not count."""
    return sum(not sign.isspace() and _draws_nothing(sign) for sign in text)


def _draws_nothing(sign: str) -> bool:
    return not sign.isprintable() or _UNDRAWN.match(sign) is not None


def _blanks(count: int) -> str:
    return "" if not count else "\\u{20}" if count == 1 else f"\\u{{20*{count}}}"


def _escaped(text: str) -> str:
    """Everything but blanks."""
    if text.isascii() and text.isprintable():
        return text.replace("\\u{", "\\u{5c}u{")
    from unicodedata import category

    shown, marks = [], _MOST_MARKS  # what begins with a mark has no letter under it
    for sign in text.replace("\\u{", "\\u{5c}u{"):
        is_mark = category(sign) in ("Mn", "Me")
        marks = marks + 1 if is_mark else _MOST_MARKS if sign == " " else 0
        hides = _draws_nothing(sign) or (is_mark and marks > _MOST_MARKS)
        shown.append(f"\\u{{{ord(sign):x}}}" if hides else sign)
    return "".join(shown)


_ENDLESS_REFERENCE = re.compile(r"&#\d{4000,}+;?")
"""A character reference of more digits than Python makes a number of."""


def unescaped(text: str) -> str:
    """The text of HTML source without tags: its character references as characters, as browsers read them."""
    from html import unescape

    return unescape(_ENDLESS_REFERENCE.sub("\ufffd", text) if "&#" in text else text)


def finite(value: object) -> int | float | None:
    """The number that a value from outside is, where it can be counted with and stored: finite, and a whole one of at
    most 64 bits. None: it is none; true and false are none either."""
    match value:
        case bool():
            return None
        case int():
            return value if -(2**63) <= value < 2**63 else None
        case float():
            return value if math.isfinite(value) else None
    return None

"""Decoding: the bytes of a text file as text.

What comes out is whole characters in lines that end with a newline character, counted as an editor counts them; what is
no text is refused. What is neither in UTF-8 nor marked is guessed: chardet names the encodings that fit, and of these
the one wins in which the words look most like words (one script each, capitals where they belong).
"""

from __future__ import annotations

import codecs
import re
import unicodedata

from kvchat.documents.errors import FileUnreadableError

MARKS = (  # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = {"utf-32-le": "UTF-32", "utf-32-be": "UTF-32", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}
_NAMES = {
    "cp1252": "Windows-1252",
    "cp1250": "Windows-1250",
    "cp1251": "Windows-1251",
    "cp1253": "Windows-1253",
    "cp1254": "Windows-1254",
    "cp1255": "Windows-1255",
    "cp1256": "Windows-1256",
    "cp1257": "Windows-1257",
    "cp874": "Windows-874",
    "iso8859-2": "ISO-8859-2",
    "iso8859-5": "ISO-8859-5",
    "iso8859-7": "ISO-8859-7",
    "iso8859-15": "ISO-8859-15",
    "koi8-r": "KOI8-R",
    "koi8-u": "KOI8-U",
    "gb18030": "GB18030",
    "big5hkscs": "Big5",
    "cp932": "Shift-JIS",
    "euc_jis_2004": "EUC-JP",
    "cp949": "EUC-KR",
    "mac-roman": "Mac Roman",
    "mac-cyrillic": "Mac Cyrillic",
    "cp850": "DOS 850",
    "cp852": "DOS 852",
    "cp866": "DOS 866",
}
"""The encodings that are guessed, as users know them."""
_RARE = ("mac", "cp8")
"""How encodings begin that are taken only where another makes worse words."""
_CONTROLS = bytes([*range(1, 8), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
"""What text has next to none of. Not tabs, line ends, form feeds, the backspaces of man pages, the escapes of logs."""
_HIGH = bytes(range(0x80, 0x100))
_DECLARED = re.compile(
    r"iso-?8859-?\d{1,2}|latin-?\d|windows-12\d\d|cp\d{3,4}|koi8-[ru]|mac-?\w+|us-ascii|iso-2022-jp"
    r"|shift[_-]jis|sjis|euc-?(?:jp|kr)|gb2312|gbk|gb18030|big5(?:-hkscs)?|tis-620"
)
"""Encodings by which pages of old are declared, and no codec that makes anything else of the bytes."""
_STRETCH = re.compile(rb"[^\x00-\x1f,;\"<>=()#]++")
"""A part of a line. Nothing that it ends at is the second byte of a character."""
_SAMPLE = 20_000
"""Bytes of stretches that are not ASCII alone, each taken once, that a guess is made from."""
_ODD_SHARE = 0.25
"""Of the words in a guess: where more are odd, it is none."""
_WORD = re.compile(r"[a-zA-Z]*+[^\x00-\x7f](?:[^\W\d_]|[^\x00-\x7f])*+")
_LETTERS = re.compile(r"[^\W\d_]+")
_SIGNS = "“”‘’‚„–—…«»‹›¿¡°€£¥§©®™·•×÷±µ½¼²³ªº№‰、。「」，：；！？（）《》・〜～\xa0"
_SIGN_INSIDE = re.compile(r"[^\W\d_][‚„«»‹›¿¡°€£¥§©®™×÷±½¼²³‰][^\W\d_]")
_TURKISH = re.compile("[ýþðÝÞÐ]")
"""The letters of Icelandic that stand in Windows-1252 where Turkish has its own in Windows-1254."""
_EAST_ASIAN = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL"))
_UNWRITTEN = frozenset(("", "HALFWIDTH", "SUPERSCRIPT"))
_BINARY = "is a binary file"


def declared_codec(name: str) -> str:
    """Python's name of an encoding that a page says it is in, given in lower case; empty: it is none of old."""
    if not _DECLARED.fullmatch(name):
        return ""
    if name in ("iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii"):
        return "cp1252"  # the superset that every browser takes for them
    try:
        return codecs.lookup(name).name
    except LookupError:
        return ""


def as_utf8(data: bytes, name: str) -> bytes:
    """A page in UTF-8, where its server names the encoding of old that it is in; else as it is."""
    wide = name if name in ("utf-16le", "utf-16be") else ""
    if data.startswith(tuple(mark for mark, _ in MARKS)) or not (codec := wide or declared_codec(name)):
        return data
    if not wide:
        try:
            data.decode()
        except UnicodeDecodeError:
            pass
        else:
            return data  # what says otherwise is wrong more often than not
    return data.decode(codec, "replace").encode(errors="replace")


def decoded(data: bytes) -> str:
    """The text of a file (see `read_as`)."""
    return read_as(data)[0]


def read_as(data: bytes) -> tuple[str, str]:
    """The text of a file, and the name of its encoding where that is a guess, else empty. Every line end is one newline
    character. Raises UnreadableError for what is no text or in an unknown encoding."""
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return _lines(_checked(data[len(mark) :].decode(encoding, "replace"))), ""
    text, name = _unmarked(data)
    return _lines(text), name


def _unmarked(data: bytes) -> tuple[str, str]:
    if b"\0" in data:
        return _wide(data)
    if _is_binary(data):
        raise FileUnreadableError(_BINARY)
    if b"\x1b$" in data and data.isascii():
        try:
            return data.decode("iso2022_jp_ext"), "ISO-2022-JP"
        except UnicodeDecodeError:
            pass  # a log with escapes
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return _guessed(data)


def _wide(data: bytes) -> tuple[str, str]:
    """Text in UTF-16 or UTF-32 without a mark. Where each character is two of ASCII, it is ASCII with NUL bytes."""
    for encoding, name in _WIDE.items():
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        sample = text[:_SAMPLE]
        ascii_pairs = sum(32 <= ord(one) >> 8 < 127 and 32 <= ord(one) & 255 < 127 for one in sample)
        is_written = all(unicodedata.category(one) not in ("Cn", "Co") for one in set(sample))
        if (" " in text or "\n" in text) and ascii_pairs <= 0.6 * len(sample) and is_written:
            words = _WORD.findall(sample)
            if _odd(words) <= _ODD_SHARE * len(words) and not _is_binary(text.encode()):
                return text, name
    raise FileUnreadableError(_BINARY)


def _guessed(data: bytes) -> tuple[str, str]:
    """Text that is not quite UTF-8: damaged where most of its non-ASCII characters are right, else in an encoding of
    old."""
    text = data.decode(errors="replace")
    broken = text.count("\ufffd")
    right = len(text) - broken - len(data.translate(None, _HIGH))
    if right > broken:
        return text, ""
    import chardet

    sample = _sample(data)
    western = sample.decode("cp1252", "replace")
    runs = re.findall(r"[^\x00-\x7f]+", western)
    if all(len(run) == 1 and run in _SIGNS and run != "¥" for run in runs):  # "20 °C" says nothing of its language
        return data.decode("cp1252", "replace"), _NAMES["cp1252"]
    found = chardet.detect_all(sample, ignore_threshold=True, compat_names=False, include_encodings=_NAMES)
    fits = {one["encoding"]: one["confidence"] for one in found}
    fits["cp1252"] = (0.99 if _TURKISH.search(western) else 1.5) * fits.get("cp1252", 0.0)
    words = {encoding: _WORD.findall(sample.decode(encoding, "replace")) for encoding in _NAMES}
    odd = {encoding: _odd(words[encoding]) for encoding in _NAMES}
    best = min(_NAMES, key=lambda one: (odd[one], one.startswith(_RARE), -fits.get(one, 0.0)))
    if odd[best] > _ODD_SHARE * len(words[best]):
        raise FileUnreadableError("is not in UTF-8, and its encoding cannot be told; save it as UTF-8")
    return data.decode(best, "replace"), _NAMES[best]


def _sample(data: bytes) -> bytes:
    found, size = dict[bytes, None](), 0
    for match in _STRETCH.finditer(data):
        if not match[0].isascii() and match[0] not in found:
            found[match[0]] = None
            size += len(match[0])
            if size > _SAMPLE:
                break
    return b"\n".join(found)[:_SAMPLE]


def _odd(words: list[str]) -> int:
    """How many of these words, each with a character beyond ASCII, are odd: no script or language writes them so."""
    return sum(map(_is_odd, words))


def _is_odd(word: str) -> bool:
    letters = [one for one in word if unicodedata.category(one)[0] in "LM" and one not in _SIGNS]
    if any(one not in _SIGNS and one not in letters for one in word) or _SIGN_INSIDE.search(word):
        return True
    scripts = {_script(one) for one in letters if unicodedata.category(one)[0] == "L"}
    if len(scripts) > 1 or scripts & _UNWRITTEN:
        return True
    return any(
        not (part.isascii() or part.islower() or part.isupper() or part[1:].islower() or part.upper() == part.lower())
        for part in _LETTERS.findall(word)
    )


def _script(letter: str) -> str:
    name = re.split("[ -]", unicodedata.name(letter, ""), maxsplit=1)[0]
    return "EAST ASIAN" if name in _EAST_ASIAN else name


def _checked(text: str) -> str:
    """The same text, if it is one."""
    if text.count("\ufffd") > 0.05 * len(text) or _is_binary(text.encode()):
        raise FileUnreadableError(_BINARY)
    return text


def _is_binary(data: bytes) -> bool:
    return b"\0" in data or len(data) - len(data.translate(None, _CONTROLS)) > 0.05 * len(data)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

"""Bytes as text: encodings, line ends, and what is refused."""

from __future__ import annotations

import codecs
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading.decoding import decoded

TEXT = "Grüße, 世界 👋\nsecond line\n"
CYRILLIC = "Съешь ещё этих мягких французских булок, да выпей чаю"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-32"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"),
    ],
    ids=["utf-8", "utf-8 bom", "utf-16", "utf-32", "utf-16-be", "utf-32-be"],
)
def test_unicode_is_read_in_every_form(data: bytes) -> None:
    assert decoded(data) == TEXT


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße aus Köln".encode("latin-1"), "Grüße aus Köln"),
        ("a “quoted” word – €5".encode("cp1252"), "a “quoted” word – €5"),
        (b"caf\xe9", "café"),
    ],
)
def test_a_western_text_of_old_is_read(data: bytes, text: str) -> None:
    assert decoded(data) == text


def test_a_broken_byte_does_not_spoil_a_text_in_utf8() -> None:
    assert decoded("Grüße, größer".encode() + b"\xff, ja") == "Grüße, größer\ufffd, ja"


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "shift_jis", "gbk"])
def test_an_unknown_encoding_is_refused_rather_than_read_wrongly(encoding: str) -> None:
    text = (CYRILLIC if encoding in ("cp1251", "koi8-r") else "这是一个测试文件") * 5
    with pytest.raises(UnreadableError, match=r"encoding cannot be told|is a binary file"):
        decoded(text.encode(encoding, "ignore"))


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01\0\0",
        b"some text\0and more",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        bytes(range(1, 256)) * 3,
        codecs.BOM_UTF16_LE + b"a\0\0\0b\0",
        codecs.BOM_UTF16_LE + bytes(range(0xD8, 0xE0)) * 40,
        b"\x01\x02\x03" * 9,
    ],
    ids=["elf", "nul", "png", "bytes", "utf-16 nul", "utf-16 surrogates", "controls"],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="is a binary file"):
        decoded(data)


def test_random_bytes_are_refused() -> None:
    data = bytes(byte for byte in Random(1).randbytes(4000) if byte)
    with pytest.raises(UnreadableError):
        decoded(data)


def test_lines_are_counted_as_an_editor_counts_them() -> None:
    assert decoded(b"one\r\ntwo\rthree\n\rfive\x0b\x0c\xc2\x85\xe2\x80\xa8still five").split("\n") == [
        "one",
        "two",
        "three",
        "",
        "five\x0b\x0c\x85\u2028still five",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "\x1b[31mred\x1b[0m\n", "N\bNA\bAM\bME\bE\n", "page\x0cnext\n"],
    ids=["empty", "colours", "overstruck", "form feed"],
)
def test_colours_and_overstrikes_are_text(text: str) -> None:
    assert decoded(text.encode()) == text


@given(st.binary(max_size=300))
def test_whatever_comes_out_can_be_stored_and_sent(data: bytes) -> None:
    try:
        text = decoded(data)
    except UnreadableError as error:
        assert str(error).startswith("is ")
        return
    assert text.encode().decode() == text
    assert "\r" not in text and "\0" not in text and not text.startswith("\ufeff" * 2)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_what_is_in_utf8_comes_out_unchanged(text: str) -> None:
    assert decoded(codecs.BOM_UTF8 + text.encode()) == text

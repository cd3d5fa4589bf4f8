"""Bytes as text: encodings, line ends, and what is refused."""

from __future__ import annotations

import codecs
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.decoding import decoded, read_as

TEXT = "Grüße, 世界 👋\nsecond line\n"


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


OFFICE = "Inventory list for the office\n" * 6
OLD = {
    "cp1251": ("Москва: готово", "Windows-1251"),
    "koi8-r": ("Москва: готово", "KOI8-R"),
    "cp866": ("Москва: готово", "DOS 866"),
    "iso8859-5": ("Москва: готово", "ISO-8859-5"),
    "gbk": ("上海市浦东新区", "GB18030"),
    "big5": ("訂單已出貨", "Big5"),
    "cp932": ("大阪支店のテスト", "Shift-JIS"),
    "euc-jp": ("これは大阪のテストです", "EUC-JP"),
    "euc-kr": ("부산 지점에 갔습니다", "EUC-KR"),
    "iso8859-2": ("Zażółć gęślą jaźń", "ISO-8859-2"),
    "cp1250": ("Příliš žluťoučký kůň", "Windows-1250"),
    "cp1253": ("πληρώθηκε στην Αθήνα", "Windows-1253"),
    "cp1254": ("ödendi, şişli yağmur", "Windows-1254"),
    "cp1255": ("ירושלים שולם", "Windows-1255"),
    "cp1256": ("القاهرة مدفوع", "Windows-1256"),
    "cp874": ("กรุงเทพเป็นเมืองหลวงของประเทศไทย", "Windows-874"),
    "mac-roman": ("déjà payé à Orléans", "Mac Roman"),
    "cp1252": ("“Smart” – café €5", "Windows-1252"),
    "iso2022_jp": ("大阪支店", "ISO-2022-JP"),
}


@corpus("encoding", OLD)
@pytest.mark.parametrize("around", ["", OFFICE], ids=["alone", "mostly ASCII"])
def test_an_encoding_of_old_is_found_and_named_as_a_guess(encoding: str, around: str) -> None:
    words, name = OLD[encoding]
    text = f"{around}{words}\n"
    assert read_as(text.encode(encoding)) == (text, name)


@corpus("text", ["20 °C", "10 µm", "§ 12", "© 2024", "naïve", "jalapeño", "a\xa0b", "– 5 €", "it’s"])
def test_a_sign_or_an_accent_alone_is_of_windows(text: str) -> None:
    assert decoded(text.encode("cp1252")) == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["The stock is 5\n" * 9, "東京から来ました。\n今日は\n", "Привет мир\n", "x = 1\n"])
def test_unicode_without_a_mark_is_read(text: str, encoding: str) -> None:
    assert read_as(text.encode(encoding)) == (text, encoding[:6].upper())


def test_one_broken_byte_does_not_spoil_a_guess() -> None:
    text = "这是一个测试文件\n昨天去了长城\n天气很好\n订单已发货\n上海市浦东新区"
    assert decoded(text.encode("gbk")[:-1]) == text[:-1] + "\ufffd"


def test_a_long_line_is_looked_through_once() -> None:
    assert decoded(b"x" * 2_000_000 + b" caf\xe9").endswith(" café")


@corpus(
    "data",
    [
        b"\x7fELF\x02\x01\x01\0\0",
        b"some text\0and more",
        b"one\0two\0three\0four words \0in a table\0",
        b"".join(number.to_bytes(2, "little") for number in range(1, 3000, 7)),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        bytes(range(1, 256)) * 3,
        codecs.BOM_UTF16_LE + b"a\0\0\0b\0",
        codecs.BOM_UTF16_LE + bytes(range(0xD8, 0xE0)) * 40,
        b"\x01\x02\x03" * 9,
    ],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(FileUnreadableError, match="is a binary file"):
        decoded(data)


def test_random_bytes_are_refused() -> None:
    data = bytes(byte for byte in Random(1).randbytes(4000) if byte)
    with pytest.raises(FileUnreadableError):
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
    except FileUnreadableError as error:
        assert str(error).startswith("is ")
        return
    assert text.encode().decode() == text
    assert "\r" not in text and "\0" not in text and not text.startswith("\ufeff" * 2)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_what_is_in_utf8_comes_out_unchanged(text: str) -> None:
    assert decoded(codecs.BOM_UTF8 + text.encode()) == text

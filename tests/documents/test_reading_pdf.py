"""PDF: the words of each page that a person can see."""

from __future__ import annotations

import io
import logging
import sys
import warnings

import pytest
from reading_kit import pdf, pdf_text, refusal, text_of

from corpus import corpus
from kvchat.documents.reading.content import Unit
from kvchat.documents.reading.formats import read
from kvchat.documents.reading.pdf import tidied

pypdf = pytest.importorskip("pypdf")

BOOK = pdf(
    [
        pdf_text("Contents"),
        pdf_text("1 Install", "Take the package."),
        pdf_text("More of it."),
        pdf_text("2 Remove", "2.1 At once"),
        "",
    ],
    "The Book",
    [("1 Install", 1), ("2 Remove", 3)],
)


def encrypted(data: bytes, password: str, algorithm: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    out = io.BytesIO()
    try:
        writer.encrypt(password, "owner", algorithm=algorithm)
        writer.write(out)
    except pypdf.errors.DependencyError:
        pytest.skip("no package for this cipher")
    return out.getvalue()


def page(operators: str) -> str:
    """The text of a page with these operators, between two words that are seen."""
    around = "BT /F1 12 Tf 1 0 0 1 72 {} Tm ({}) Tj ET"
    text = text_of(
        read(
            "x.pdf",
            pdf([" ".join((around.format(700, "before"), operators, "0 g", around.format(100, "after"))) + " "]),
        )
    )
    assert text.startswith("before") and text.endswith("after")
    return text


def test_each_page_is_a_section_under_the_headings_of_the_outline() -> None:
    content = read("book.pdf", BOOK)
    assert (content.title, content.unit, content.exact) == ("The Book", Unit.PAGE, False)
    assert [(section.titles, section.text, section.first, section.last) for section in content.sections] == [
        ((), "Contents", 1, 1),
        (("1 Install",), "1 Install\nTake the package.", 2, 2),
        (("1 Install",), "More of it.", 3, 3),
        (("2 Remove",), "2 Remove\n2.1 At once", 4, 4),
    ]


def test_a_pdf_is_known_by_what_it_is() -> None:
    assert read("book.txt", BOOK).unit is Unit.PAGE
    assert read("book.pdf", b"\nrubbish\n" + BOOK).unit is Unit.PAGE


@pytest.mark.parametrize("title", ["untitled", "Microsoft Word - x.doc", "paper.dvi", "..."])
def test_a_title_that_a_program_made_up_is_none(title: str) -> None:
    assert read("x.pdf", pdf([pdf_text("words")], title)).title == ""


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256"])
def test_encrypted_files_say_so_unless_only_the_owner_has_a_password(algorithm: str) -> None:
    assert refusal("x.pdf", encrypted(BOOK, "secret", algorithm)) == "is encrypted"
    assert "Install" in text_of(read("x.pdf", encrypted(BOOK, "", algorithm)))


@pytest.mark.parametrize("data", [b"%PDF-1.7\n", b"%PDF-1.4 rubbish" * 50, BOOK[:200], b"", b"no PDF"])
def test_broken_files_say_so(data: bytes) -> None:
    assert refusal("x.pdf", data) == "is a broken PDF"


def test_a_wrong_table_of_places_is_mended() -> None:
    assert "Install" in text_of(read("x.pdf", BOOK.replace(b"startxref\n", b"startxref\n9")))
    assert "Install" in text_of(read("x.pdf", BOOK.replace(b"xref\n0 ", b"gone\n0 ")))


def test_scanned_pages_say_so() -> None:
    assert refusal("x.pdf", pdf(["0.5 g 10 10 200 200 re f", ""])) == "has no text: it is scanned pages"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert refusal("x.pdf", BOOK) == "is a PDF; install kvchat[documents] to read them"


def test_nothing_is_said_on_the_screen_or_in_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        read("x.pdf", BOOK.replace(b"startxref\n", b"startxref\n9"))
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


@corpus(
    "hidden",
    [
        "1 1 1 rg BT /F1 12 Tf 72 400 Td (SECRET) Tj ET",
        "1 g BT /F1 12 Tf 72 400 Td [(SEC) -20 (RET)] TJ ET",
        "0 0 0 0 k BT /F1 12 Tf 72 400 Td (SECRET) ' ET",
        "/DeviceGray cs 1 sc BT /F1 12 Tf 72 400 Td (SECRET) Tj ET",
        '1 g BT /F1 12 Tf 72 400 Td 0 0 (SECRET) " ET',
        "q 1 g BT /F1 12 Tf 72 400 Td (SECRET) Tj ET Q",
        "BT /F1 0.1 Tf 72 400 Td (SECRET) Tj ET",
        "BT /F1 12 Tf 0.01 0 0 0.01 72 400 Tm (SECRET) Tj ET",
        "BT /F1 12 Tf 72 -400 Td (SECRET) Tj ET",
        "BT /F1 12 Tf 900 400 Td (SECRET) Tj ET",
        "q 1 0 0 1 0 2000 cm BT /F1 12 Tf 72 400 Td (SECRET) Tj ET Q",
        "BT /F1 12 Tf -5000 400 Td (SECRET) Tj ET",
    ],
)
def test_words_that_nobody_can_see_are_left_out(hidden: str) -> None:
    assert page(hidden).split() == ["before", "after"]


@corpus(
    "seen",
    [
        "0.2 0.2 0.8 rg 60 380 300 60 re f 1 1 1 rg BT /F1 12 Tf 72 400 Td (SEEN) Tj ET",
        "q 1 g Q BT /F1 12 Tf 72 400 Td (SEEN) Tj ET",
        "0 0 0 1 k BT /F1 12 Tf 72 400 Td (SEEN) Tj ET",
        "/Cs1 cs 1 scn BT /F1 12 Tf 72 400 Td (SEEN) Tj ET",
        "1 g BT 1 Tr /F1 12 Tf 72 400 Td (SEEN) Tj ET",
        "BT 3 Tr /F1 12 Tf 72 400 Td (SEEN) Tj 0 Tr ET",
        "BT /F1 1 Tf 12 0 0 12 72 400 Tm (SEEN) Tj ET",
        "q 0.1 0 0 0.1 0 0 cm BT /F1 120 Tf 720 4000 Td (SEEN) Tj ET Q",
        "BT /F1 12 Tf -20 400 Td (SEEN) Tj ET",
        "(x) g /F cs [] sc BT /F1 12 Tf 72 400 Td (SEEN) Tj ET",
        "Q Q Tf BT /F1 12 Tf 72 400 Td (SEEN) Tj ET",
    ],
)
def test_words_that_may_be_seen_are_kept(seen: str) -> None:
    assert page(seen).split() == ["before", "SEEN", "after"]


@corpus(
    ("text", "clean"),
    [
        ("inter-\nnational law", "international\nlaw"),
        ("Anglo-\nSaxon times", "Anglo-Saxon\ntimes"),
        ("hy\u00ad\nphen", "hyphen"),
        ("soft\u00adly", "softly"),
        ("1990-\n1995", "1990-\n1995"),
        ("a -\nb", "a -\nb"),
        ("one  two \n three\n\n\n\nfour", "one two\nthree\n\nfour"),
        ("of\ufb01ce \ufb02ow", "office flow"),
        ("a\x00b\tc\u00a0d", "a b c d"),
        ("\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"),
        ("re-\nread re-\nuse", "reread\nreuse"),
    ],
)
def test_words_come_out_whole(text: str, clean: str) -> None:
    assert tidied(text) == clean

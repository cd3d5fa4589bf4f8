"""E-books: what their pages show, in the order of the book; what could go off does not."""

from __future__ import annotations

import random

import pytest
from reading_kit import refusal, text_of

from book_samples import epub, parts_of
from book_samples import zipped as archive
from kvchat.documents.chunking import chunks
from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading import zipped
from kvchat.documents.reading.content import Unit
from kvchat.documents.reading.formats import is_hostile, kind, read

DUSK = "<h1>Dusk</h1><p>The lamp is lit.</p><h2>Oil</h2><p>Whale oil, <i>cold</i>.</p>"
DAWN = "<p>The wick is trimmed.</p><pre>turn  12</pre>"


def locked(*names: str) -> str:
    listed = "".join(
        f'<e:EncryptedData xmlns:e="urn:e"><e:CipherReference URI="{name}"/></e:EncryptedData>' for name in names
    )
    return f"<encryption>{listed}</encryption>"


def test_pages_are_read_in_the_order_of_the_book_and_keep_their_headings() -> None:
    content = read("x.epub", epub(DAWN, DUSK, order=["p2", "p1"]))
    assert (content.title, content.unit, content.exact) == ("The Lamp Keeper", Unit.PARAGRAPH, False)
    assert [(one.titles, one.text, one.first, one.last, one.code) for one in content.sections] == [
        (("Dusk",), "Dusk\n\nThe lamp is lit.", 1, 1, False),
        (("Dusk", "Oil"), "Oil\n\nWhale oil, cold.", 1, 1, False),
        ((), "The wick is trimmed.", 2, 2, False),
        ((), "turn  12", 2, 2, True),
    ]


def test_a_passage_is_told_with_the_book_and_the_chapter() -> None:
    first = chunks(read("x.epub", epub(DUSK)), "shelf/x.epub")[0]
    assert (first.key, first.head) == ("¶1", "x.epub > The Lamp Keeper > Dusk")


def test_of_several_titles_the_first_that_says_something_counts() -> None:
    more = "</dc:title><dc:title> </dc:title><dc:title>Ebb &amp; Flow</dc:title><dc:title>A Novel</dc:title><dc:title>"
    package = epub("<p>x</p>", title="TITLE")
    book = {name: data.replace(b"TITLE", more.encode()) for name, data in parts_of(package).items()}
    assert read("x.epub", archive(book)).title == "Ebb & Flow"


def test_what_a_page_hides_and_the_list_of_contents_are_not_read() -> None:
    nav = '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="x nav"/>'
    pages = {"OPS__nav.xhtml": "<html><body><ol><li>CONTENTS</li></ol></body></html>"}
    picture = '<item id="c" href="cover.svg" media-type="image/svg+xml"/>'
    body = "<p>seen<span hidden=''>HIDDEN</span></p><!-- COMMENT -->"
    content = read(
        "x.epub", epub(body, "<p>next</p>", items=nav + picture, order=["c", "n", "p1", "gone", "p2"], **pages)
    )
    assert [(one.text, one.first) for one in content.sections] == [("seen", 2), ("next", 3)]


def test_a_book_is_known_by_what_it_is_not_by_its_name() -> None:
    data = epub(DUSK)
    assert kind("notes.txt", data) == "epub" and is_hostile(data)
    unnamed = {name: part for name, part in parts_of(data).items() if name != "mimetype"}
    assert kind("x", archive(unnamed)) == "epub"
    other = archive({"mimetype": "application/vnd.adobe.indesign-idml-package", "META-INF/container.xml": "<x/>"})
    assert refusal("x.idml", other) == "is an archive"


def test_encrypted_pages_say_so_and_encrypted_fonts_are_no_matter() -> None:
    assert (
        refusal("x.epub", epub(DUSK, **{"META-INF__encryption_xml": locked("OPS/text/1%20page.xhtml")}))
        == "is encrypted"
    )
    fonts = epub(DUSK, **{"META-INF__encryption_xml": locked("OPS/font.otf")})
    assert "The lamp is lit." in text_of(read("x.epub", fonts))


def test_pages_in_old_encodings_are_read() -> None:
    page = '<?xml version="1.0" encoding="iso-8859-1"?><html><body><p>Käfer</p></body></html>'
    assert text_of(read("x.epub", epub("", **{"OPS__text__1 page.xhtml": page.encode("latin-1")}))) == "Käfer"


def test_a_path_out_of_the_book_leads_nowhere() -> None:
    out = '<item id="o" href="../../../../etc/passwd" media-type="text/html"/>'
    assert refusal("x.epub", epub("<p>x</p>", items=out, order=["o"])) == "has no text"


def test_odd_books_are_read() -> None:
    nav = '<item id="n" href="text/1%20page.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
    gone = '<item id="gone" href="gone.xhtml" media-type="application/xhtml+xml"/>'
    plain = parts_of(epub("<p>lamp</p>"))
    first = b'<rootfiles><rootfile full-path="x.pdf" media-type="application/pdf"/>'
    container = plain["META-INF/container.xml"].replace(b"<rootfiles>", first)
    for book in (
        epub("<p>lamp</p>", items=nav, order=["n"]),
        epub("<p>lamp</p>", items=gone, order=["gone", "p1"]),
        archive({**plain, "META-INF/container.xml": container}),
    ):
        assert [section.text for section in read("b.epub", book).sections] == ["lamp"]


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipped, "LARGEST", 4 << 20)
    bomb = epub(*("<p>" + "x" * (3 << 20) + "</p>" for _ in range(2)))
    assert len(bomb) < 100_000
    assert refusal("x.epub", bomb) == "has more than 4 MB of XML inside"


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE lol [<!ENTITY a "ha">]><container><rootfile full-path="&a;"/></container>'
    assert "not safe" in refusal("x.epub", epub(DUSK, **{"META-INF__container_xml": bomb}))
    page = '<!DOCTYPE html [<!ENTITY a "ha">]><html><body><p>&a;</p></body></html>'
    assert text_of(read("x.epub", epub("", **{"OPS__text__1 page.xhtml": page}))).endswith("&a;")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (epub("<p> </p>"), "has no text"),
        (epub(), "has no text"),
        (epub(DUSK)[:-30], "is a broken e-book"),
        (b"PK\x03\x04rubbish", "is a broken e-book"),
        (epub(DUSK, **{"META-INF__container_xml": "<container/>"}), "is a broken e-book"),
        (epub(DUSK, **{"OPS__book.opf": "<package"}), "is a broken e-book"),
        (
            epub(items='<item id="o" href="o.html" media-type="text/html"/>', order=["o"]),
            "has no text",
        ),
    ],
)
def test_broken_and_empty_books_say_so(data: bytes, reason: str) -> None:
    assert refusal("x.epub", data) == reason


def test_broken_books_give_content_or_a_reason() -> None:
    draw = random.Random(7)
    whole = parts_of(epub(DUSK, DAWN))
    for number in range(300):
        parts = {**whole}
        name = draw.choice(list(parts))
        data = bytearray(parts[name])
        for _ in range(draw.randint(1, 12)):
            at = draw.randrange(len(data))
            data[at : at + draw.randint(0, 6)] = draw.choice([b"<", b"/", b"\0", b"\xff\xff", b'"', b"%", b".."])
        parts[name] = bytes(data)
        mutated = bytearray(archive(parts))
        if number % 3 == 0:
            mutated[draw.randrange(8, len(mutated))] ^= 255
        try:
            assert read("x.epub", bytes(mutated)).sections
        except FileUnreadableError as error:
            assert str(error)

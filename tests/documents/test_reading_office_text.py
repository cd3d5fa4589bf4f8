"""Office files: what they show, by paragraphs; what could go off does not."""

from __future__ import annotations

import random

import pytest
from reading_kit import W, archive, docx, paragraph, refusal, run, table, text_of, zipped

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading import zipped as parts
from kvchat.documents.reading.content import Unit
from kvchat.documents.reading.formats import read

STYLES = (
    f'<w:styles xmlns:w="{W}">'
    '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:styleId="Own"><w:name w:val="My own"/><w:basedOn w:val="berschrift2"/></w:style>'
    '<w:style w:styleId="Lvl"><w:name w:val="Chapter"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>'
    '<w:style w:styleId="Titel"><w:name w:val="Title"/></w:style></w:styles>'
)
LIST = '<w:numPr><w:ilvl w:val="{}"/><w:numId w:val="1"/></w:numPr>'


def word(*body: str, **parts: str) -> bytes:
    return docx(*body, word__styles_xml=STYLES, **parts)


def test_headings_of_any_language_and_of_own_styles_are_titles() -> None:
    content = read(
        "x.docx",
        word(
            paragraph("Before"),
            paragraph("Einleitung", "berschrift1"),
            paragraph("Text"),
            paragraph("Teil", "berschrift2"),
            paragraph("More"),
            paragraph("Own part", "Own"),
            paragraph("Chapter", "Lvl"),
            paragraph("End"),
        ),
    )
    assert content.unit is Unit.PARAGRAPH
    assert [(section.titles, section.text, section.first, section.last) for section in content.sections] == [
        ((), "Before", 1, 1),
        (("Einleitung",), "Einleitung\n\nText", 2, 3),
        (("Einleitung", "Teil"), "Teil\n\nMore", 4, 5),
        (("Einleitung", "Own part"), "Own part", 6, 6),
        (("Chapter",), "Chapter\n\nEnd", 7, 8),
    ]


def test_lists_and_tables_keep_their_form() -> None:
    content = read(
        "x.docx",
        word(
            paragraph("one", properties=LIST.format(0)),
            paragraph("two", properties=LIST.format(1)),
            paragraph(""),
            table(["a", "b"], ["1", "2 | 3"]),
            paragraph("after"),
        ),
    )
    assert text_of(content) == "- one\n  - two\n\na | b\n1 | 2 | 3\n\nafter"


def test_a_table_in_a_table_stays_in_its_cell() -> None:
    cells = f"<w:tc>{paragraph('outer')}{table(['x', 'y'])}</w:tc><w:tc>{paragraph('b')}</w:tc>"
    assert text_of(read("x.docx", word(f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"))) == "outer x | y | b"


def test_a_footnote_stands_where_it_is_called() -> None:
    notes = (
        f'<w:footnotes xmlns:w="{W}"><w:footnote w:type="separator" w:id="0">{paragraph("SEP")}</w:footnote>'
        f'<w:footnote w:id="2">{paragraph("See page 9.")}</w:footnote></w:footnotes>'
    )
    body = paragraph(run("A claim") + '<w:r><w:footnoteReference w:id="2"/></w:r>' + run(", and on."))
    assert text_of(read("x.docx", word(body, word__footnotes_xml=notes))) == "A claim (See page 9.), and on."


R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def letter(section: str, **parts: str) -> bytes:
    """A letter with three headers and a footer, those of which `section` names."""
    kinds = {"all": "header", "first": "header", "even": "header", "foot": "footer"}
    relations = "".join(f'<Relationship Id="{id}" Type="{R}/{kind}" Target="{id}.xml"/>' for id, kind in kinds.items())
    edges = {
        f"word/{id}.xml": f'<w:hdr xmlns:w="{W}">{table([f"Acme {id}", "Brest"])}{paragraph("")}</w:hdr>'
        for id in kinds
    }
    rels = f"<Relationships>{relations}</Relationships>"
    return docx(
        paragraph("Dear Ada"),
        f'<w:sectPr xmlns:r="{R}">{section}</w:sectPr>',
        **{"word/_rels/document.xml.rels": rels, **edges, **parts},
    )


@pytest.mark.parametrize(
    ("section", "settings", "text"),
    [
        (
            '<w:headerReference r:id="all"/><w:footerReference r:id="foot"/>',
            "",
            ["Acme all | Brest", "Acme foot | Brest"],
        ),
        ('<w:headerReference w:type="first" r:id="first"/>', "", []),
        ('<w:headerReference w:type="first" r:id="first"/><w:titlePg/>', "", ["Acme first | Brest"]),
        ('<w:headerReference w:type="even" r:id="even"/>', "", []),
        ('<w:headerReference w:type="even" r:id="even"/>', "<w:evenAndOddHeaders/>", ["Acme even | Brest"]),
        ('<w:headerReference r:id="gone"/>', "", []),
    ],
    ids=["on all pages", "no first page", "a first page", "no even pages", "even pages", "no such part"],
)
def test_headers_and_footers_stand_around_the_text_where_word_shows_them(
    section: str, settings: str, text: list[str]
) -> None:
    sections = read("x.docx", letter(section, **{"word/settings.xml": settings})).sections
    assert [one.text for one in sections] == [*text[:1], "Dear Ada", *text[1:]]


def test_a_header_of_many_sections_stands_there_once_and_a_broken_one_costs_nothing() -> None:
    section = '<w:headerReference r:id="all"/>'
    twice = letter(f"{section}</w:sectPr><w:sectPr xmlns:r='{R}'>{section}")
    assert text_of(read("x.docx", twice)) == "Acme all | Brest\nDear Ada"
    assert text_of(read("x.docx", letter(section, **{"word/all.xml": "<w:hdr"}))) == "Dear Ada"


def test_a_text_box_and_a_footnote_in_it_are_read() -> None:
    box = f"<w:r><w:pict><w:txbxContent>{paragraph('In a box')}</w:txbxContent></w:pict></w:r>"
    assert text_of(read("x.docx", word(paragraph(box + run("Beside it"))))) == "In a box\n\nBeside it"


@pytest.mark.parametrize(
    "hidden",
    [
        run("SECRET", "<w:vanish/>"),
        f"<w:del>{run('SECRET')}</w:del>",
        f"<w:moveFrom>{run('SECRET')}</w:moveFrom>",
        "<w:r><w:instrText>SECRET</w:instrText></w:r>",
        "<w:r><w:delText>SECRET</w:delText></w:r>",
        f'<mc:AlternateContent xmlns:mc="urn:x"><mc:Fallback>{run("SECRET")}</mc:Fallback></mc:AlternateContent>',
    ],
)
def test_what_word_does_not_show_is_not_read(hidden: str) -> None:
    assert text_of(read("x.docx", word(paragraph(run("before ") + hidden + run("after"))))) == "before after"


@pytest.mark.parametrize(
    "seen",
    [
        run("SEEN", '<w:vanish w:val="0"/>'),
        f"<w:ins>{run('SEEN')}</w:ins>",
        run("SEEN", "<w:rPrChange><w:rPr><w:vanish/></w:rPr></w:rPrChange>"),
    ],
)
def test_what_word_shows_is_read(seen: str) -> None:
    assert text_of(read("x.docx", word(paragraph(seen)))) == "SEEN"


def test_the_title_is_that_of_the_properties_or_of_the_styled_paragraph() -> None:
    core = (
        '<p:coreProperties xmlns:p="urn:p" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<dc:title>The Report</dc:title></p:coreProperties>"
    )
    body = paragraph("Styled Title", "Titel")
    assert read("x.docx", word(body, docProps__core_xml=core)).title == "The Report"
    assert read("x.docx", word(body)).title == "Styled Title"


def test_a_document_is_known_by_what_it_is_not_by_its_name() -> None:
    assert text_of(read("notes.txt", docx(paragraph("words")))) == "words"


def test_encrypted_documents_say_so() -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le") + bytes(600)
    assert refusal("x.docx", ole) == "is encrypted"
    locked = bytearray(docx(paragraph("words")))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(mark) + at] |= 1
    assert refusal("x.docx", bytes(locked)) == "is encrypted"


def test_entities_are_not_expanded() -> None:
    bomb = (
        '<!DOCTYPE lol [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
        f'<w:document xmlns:w="{W}"><w:body>{paragraph("<w:r><w:t>&b;</w:t></w:r>")}</w:body></w:document>'
    )
    assert "not safe" in refusal("x.docx", zipped(word__document_xml=bomb))
    assert "not safe" in refusal("x.docx", zipped(word__document_xml=bomb.encode("utf-16")))


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGEST", 4 << 20)
    bomb = docx(paragraph("x" * (8 << 20)))
    assert len(bomb) < 100_000
    assert refusal("x.docx", bomb) == "has more than 4 MB of XML inside"


def test_a_bomb_in_parts_is_one_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGEST", 4 << 20)
    notes = f'<w:footnotes xmlns:w="{W}">{" " * (3 << 20)}</w:footnotes>'
    assert refusal("x.docx", docx(paragraph("y" * (3 << 20)), word__footnotes_xml=notes)).startswith("has more than")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (docx(paragraph("")), "has no text"),
        (zipped(word__document_xml="<w:document"), "is a broken Word document"),
        (docx(paragraph("words"))[:-30], "is a broken Word document"),
        (b"PK\x03\x04rubbish", "is a broken Word document"),
    ],
)
def test_broken_and_empty_documents_say_so(data: bytes, reason: str) -> None:
    assert refusal("x.docx", data) == reason


def test_deep_nesting_is_read() -> None:
    deep = "<w:sdt>" * 50_000 + paragraph("deep") + "</w:sdt>" * 50_000
    assert text_of(read("x.docx", docx(deep))) == "deep"


def odt(body: str, **parts: str) -> bytes:
    content = (
        '<office:document-content xmlns:office="urn:o" xmlns:text="urn:t" xmlns:table="urn:b">'
        f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
    )
    return archive({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content, **parts})


def test_open_document_texts_are_read() -> None:
    content = read(
        "x.odt",
        odt(
            '<text:h text:outline-level="1">Head</text:h><text:p>a<text:s text:c="2"/>b<text:tab/>c</text:p>'
            "<text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>"
            "<table:table><table:table-row><table:table-cell><text:p>1</text:p></table:table-cell>"
            "<table:table-cell><text:p>2</text:p></table:table-cell></table:table-row></table:table>"
            "<text:p>x<office:annotation><text:p>SECRET</text:p></office:annotation></text:p>"
        ),
    )
    assert [(section.titles, section.text) for section in content.sections] == [
        (("Head",), "Head\n\na b\tc\n\n- item\n\n1 | 2\n\nx")
    ]


def test_headers_and_footers_of_open_documents_are_read() -> None:
    master = (
        "<o xmlns:style='s' xmlns:text='t'><style:master-page><style:header><text:p>Acme Works</text:p></style:header>"
        "<style:header-left style:display='false'><text:p>OFF</text:p></style:header-left>"
        "<style:footer><text:p>Invoice 4711-B</text:p></style:footer></style:master-page>"
        "<style:master-page><style:header><text:p>Acme Works</text:p></style:header></style:master-page></o>"
    )
    content = read("x.odt", odt("<text:p>Dear Ada</text:p>", **{"styles.xml": master}))
    assert [section.text for section in content.sections] == ["Acme Works", "Dear Ada", "Invoice 4711-B"]


def test_an_encrypted_open_document_says_so() -> None:
    assert refusal("x.odt", odt("", **{"META-INF/manifest.xml": "<m><encryption-data/></m>"})) == "is encrypted"


def test_broken_documents_give_content_or_a_reason() -> None:
    draw = random.Random(6)
    whole = word(paragraph("Head", "berschrift1"), *(paragraph(f"text {n}") for n in range(30)), table(["a", "b"]))
    xml = f'<w:document xmlns:w="{W}"><w:body>{paragraph("Head", "Own")}{table(["a", "b"])}</w:body></w:document>'
    for number in range(300):
        source = xml.encode() if number % 2 else whole
        data = bytearray(source)
        for _ in range(draw.randint(1, 12)):
            at = draw.randrange(len(data))
            data[at : at + draw.randint(0, 6)] = draw.choice(
                [b"<", b"/", b"\0", b"\xff\xff", b"PK\x03\x04", b"w:tbl", b""]
            )
        mutated = archive({"word/document.xml": bytes(data)}) if number % 2 else bytes(data)
        try:
            assert read("x.docx", mutated).sections
        except FileUnreadableError as error:
            assert str(error)

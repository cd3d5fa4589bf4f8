"""Small files of every format, made by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape

import pytest

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Content
from kvchat.documents.reading.formats import read

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def refusal(name: str, data: bytes) -> str:
    """The reason why a file is not read."""
    with pytest.raises(FileUnreadableError) as caught:
        read(name, data)
    return str(caught.value)


def text_of(content: Content) -> str:
    return "\n".join(section.text for section in content.sections)


def pdf_text(*lines: str) -> str:
    """The operators that show lines of text below each other."""
    shown = (line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines)
    return "BT /F1 12 Tf 14 TL 72 720 Td " + " ".join(f"({line}) Tj T*" for line in shown) + " ET"


def pdf(pages: Sequence[str], title: str = "", outline: Sequence[tuple[str, int]] = ()) -> bytes:
    """A PDF whose pages have these operators; the outline names pages from 0."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R /Outlines 4 0 R >>",
        "",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        "",
        f"<< /Title ({title}) >>",
    ]
    numbers = []
    for operators in pages:
        numbers.append(len(objects) + 1)
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects) + 2} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(operators)} >>\nstream\n{operators}\nendstream")
    objects[1] = f"<< /Type /Pages /Count {len(numbers)} /Kids [{' '.join(f'{number} 0 R' for number in numbers)}] >>"
    first = len(objects) + 1
    last = first + len(outline) - 1
    objects[3] = "<< /Type /Outlines " + (f"/First {first} 0 R /Last {last} 0 R >>" if outline else ">>")
    for at, (words, page) in enumerate(outline):
        links = f"/Next {first + at + 1} 0 R " if first + at < last else ""
        links += f"/Prev {first + at - 1} 0 R " if at else ""
        objects.append(f"<< /Title ({words}) /Parent 4 0 R {links}/Dest [{numbers[page]} 0 R /Fit] >>")
    return _file(objects)


def _file(objects: Sequence[str]) -> bytes:
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    places = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode())
    out.write(f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def zipped(**parts: str | bytes) -> bytes:
    """A ZIP archive; `__` in a name stands for `/`, `_xml` at its end for `.xml`."""
    return archive({name.replace("__", "/").replace("_xml", ".xml"): data for name, data in parts.items()})


def archive(parts: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def paragraph(text: str, style: str = "", properties: str = "") -> str:
    """A paragraph of Word; text that begins with `<` is taken as its runs."""
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{styled}{properties}</w:pPr>{text if text.startswith('<') else run(text)}</w:p>"


def table(*rows: Sequence[str]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def docx(*body: str, **parts: str) -> bytes:
    """A Word document with this body, and further parts (`word__styles_xml=...`)."""
    document = f'<?xml version="1.0"?><w:document xmlns:w="{W}"><w:body>{"".join(body)}</w:body></w:document>'
    return zipped(word__document_xml=document, **parts)

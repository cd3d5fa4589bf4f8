"""E-books, made by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape


def epub(
    *pages: str,
    title: str = "The Lamp Keeper",
    items: str = "",
    order: Sequence[str] | None = None,
    **parts: str | bytes,
) -> bytes:
    """An e-book with these pages, the files `text/1 page.xhtml` and on, in this order or in another; `items`: more of
    what the package lists, and further parts of the archive: `__` in a name stands for `/`, `_xml` at its end for `.xml`."""
    names = [f"p{number}" for number in range(1, len(pages) + 1)]
    listed = "".join(
        f'<item id="{name}" href="text/{name[1:]}%20page.xhtml" media-type="application/xhtml+xml"/>' for name in names
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in order or names)
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></metadata>'
        f"<manifest>{listed}{items}</manifest><spine>{spine}</spine></package>"
    )
    container = (
        '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OPS/book.opf"/></rootfiles></container>'
    )
    whole: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": container,
        "OPS/book.opf": package,
    }
    for number, body in enumerate(pages, 1):
        whole[f"OPS/text/{number} page.xhtml"] = (
            '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/></head>'
            f"<body>{body}</body></html>"
        )
    return zipped({**whole, **{name.replace("__", "/").replace("_xml", ".xml"): part for name, part in parts.items()}})


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def parts_of(data: bytes) -> dict[str, bytes]:
    """The parts of a ZIP archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}

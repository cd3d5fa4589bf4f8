"""Read e-books (.epub): their pages in the order in which they are read, each as HTML shows it.

The list of contents is left out where the book says which page it is: it only repeats the headings. A position is the
number of a page's file in that order, from 1. What is encrypted is not read; that fonts are is no matter.
"""

from __future__ import annotations

from posixpath import dirname, join, normpath
from urllib.parse import unquote

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Content, Section, Unit, as_title
from kvchat.documents.reading.html import read_xhtml
from kvchat.documents.reading.zipped import Handler, Zipped

_PAGES = frozenset(("application/xhtml+xml", "text/html", "text/x-oeb1-document"))
_PACKAGE = "application/oebps-package+xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_epub(data: bytes) -> Content:
    """What an e-book says. Raises UnreadableError."""
    archive = Zipped(data, "e-book")
    container, locked = _Container(), _Encrypted()
    archive.parse("META-INF/container.xml", container)
    archive.parse("META-INF/encryption.xml", locked, optional=True)
    package = _Package(dirname(container.package))
    archive.parse(container.package, package)
    found: list[Section] = []
    pages = package.pages()
    contents = package.contents if package.contents < {*pages} else set()
    for number, name in enumerate(pages, 1):
        if name in locked.names:
            raise FileUnreadableError("is encrypted")
        if name not in contents and name in archive:
            shown = read_xhtml(archive.read(name)).sections
            found += (Section(one.titles, one.text, number, number, one.code) for one in shown)
    return Content(as_title(package.title), Unit.PARAGRAPH, tuple(found), exact=False)


class _Container(Handler):
    """Where the package is, as `META-INF/container.xml` says."""

    def __init__(self) -> None:
        self.package = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if _name(tag) == "rootfile" and attributes.get("media-type") in (None, _PACKAGE):  # others are other renditions
            self.package = self.package or attributes.get("full-path", "")


class _Encrypted(Handler):
    """The names of the parts that are encrypted."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if _name(tag) == "CipherReference":
            self.names.add(normpath(unquote(attributes.get("URI", ""))))


class _Package(Handler):
    """The files of a book, and the order in which they are read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        """The names of the pages in the archive, by their ids."""
        self._order: list[str] = []
        self._title: list[str] = []
        self._in_title = self._has_title = False
        self.contents: set[str] = set()
        """The pages that are lists of contents."""

    @property
    def title(self) -> str:
        """The first one: others are subtitles, or how it is sorted."""
        return "".join(self._title)

    def pages(self) -> list[str]:
        """The names of the pages in the archive, in their order, each once."""
        return list(dict.fromkeys(self._names[id] for id in self._order if id in self._names))

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if tag == _TITLE:
            self._in_title = not self._has_title
        elif name == "itemref":
            self._order.append(attributes.get("idref", ""))
        elif name == "item" and attributes.get("media-type", "").lower() in _PAGES:
            page = normpath(join(self._folder, unquote(attributes.get("href", ""))))
            self._names[attributes.get("id", "")] = page
            if "nav" in attributes.get("properties", "").split():
                self.contents.add(page)

    def end(self, tag: str) -> None:
        self._in_title = False

    def data(self, text: str) -> None:
        if self._in_title:
            self._title.append(text)
            self._has_title = self._has_title or not text.isspace()


def _name(tag: str) -> str:
    """A tag without its namespace."""
    return tag.rpartition("}")[2]

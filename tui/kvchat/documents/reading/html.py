"""HTML: the words that a browser shows, under their headings. Nothing is ever fetched.

The rule: what is hidden from a person is hidden from the model: scripts, comments, templates, and elements that an
attribute or a style of their own hides. (Style sheets are not applied.)
"""

from __future__ import annotations

import codecs
import re

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading.builder import Builder
from kvchat.documents.reading.content import Content, Unit
from kvchat.documents.reading.decoding import decoded
from kvchat.documents.reading.elements import BLOCKS, HEADINGS, LISTS, PARTS, VOID, Element, Elements
from kvchat.documents.reading.markup import Tag, Text, tokens
from kvchat.documents.reading.outline import as_title

_CHARSET = re.compile(rb"""<(?:meta[^>]{0,500}?charset|\?xml[^>]{0,100}?encoding)\s*=\s*["']?\s*([\w.:-]{2,40})""",
                      re.IGNORECASE)
_CODEC = re.compile(r"iso-?8859-?\d{1,2}|latin-?\d|windows-12\d\d|cp\d{3,4}|koi8-[ru]|mac-?\w+|us-ascii|iso-2022-jp"
                    r"|shift[_-]jis|sjis|euc-?(?:jp|kr)|gb2312|gbk|gb18030|big5(?:-hkscs)?|tis-620")
_BREAK, _SOFT, _CELL = "\x1d", "\x1e", "\x1f"
_MARKS = re.compile("[\x1d-\x1f]")
_INNER = re.compile(r"\n(?=[^\n])")
_ANCHORS = frozenset(("¶", "#", "§", "🔗", "[link]", "[edit]"))
"""What headings have in them to be linked to."""
_DEEPEST = 8


def read_html(data: bytes) -> Content:
    """What an HTML file shows. Raises UnreadableError."""
    return content_of(_text(data))


def content_of(source: str) -> Content:
    """What an HTML text shows."""
    page = _Page(source)
    for token in tokens(source):
        page.take(token)
    return page.content()


def _text(data: bytes) -> str:
    """The characters: by the byte order mark, else as UTF-8 where it is, else by what the file says of itself."""
    declared = _CHARSET.search(data[:4096])
    name = declared[1].decode("ascii", "replace").lower() if declared else ""
    if not _CODEC.fullmatch(name) or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return decoded(data)
    if b"\0" in data:
        raise UnreadableError("is a binary file")
    try:
        if name != "iso-2022-jp":
            return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        # Files that say Latin-1 or ASCII are in Windows' superset of it, as every browser takes them.
        wide = name in ("iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii")
        return data.decode("cp1252" if wide else codecs.lookup(name).name, "replace")
    except LookupError:
        return decoded(data)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str) -> str:
    """The collected text of a block: cells in a line of their own, else paragraphs with their line breaks."""
    cells = [_flat(cell) for cell in text.split(_CELL)]
    while cells and not cells[-1]:
        del cells[-1]
    if len([cell for cell in cells if cell]) > 1:
        return " | ".join(cells)
    parts = ("\n".join(filter(None, map(_flat, part.split(_BREAK)))) for part in text.split(_SOFT))
    return "\n\n".join(filter(None, parts))


class _Page:
    """A page as its tags and texts come."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._line = 1
        self._elements = Elements(self._begun, self._ended)
        self._builder = Builder()
        self._title = ""
        self._in_title = False
        self._pieces: list[str] = []
        self._first = self._last = 0
        """The lines of the first and the last of the pieces."""
        self._kind = ""
        """What the block is: `h2`, `li`, `tr`; empty: a paragraph."""
        self._before = ""
        """The kind of the block before."""
        self._prefix = ""
        self._lists: list[int] = []
        """For each list that is open its next number, 0 where it has none."""
        self._cells = 0
        """Cells that were begun in this row."""
        self._button = 0
        """How many pieces there were when a button in code began."""

    def take(self, token: Tag | Text) -> None:
        self._line += self._source.count("\n", self._at, token.at)
        self._at = token.at
        if isinstance(token, Text):
            self._take_text(token.text)
        elif token.end:
            self._elements.end(token.name)
        elif token.name in VOID:
            self._take_void(token)
        else:
            self._elements.begin(token)

    def content(self) -> Content:
        """What the page shows."""
        self._elements.finish()
        self._flush()
        return Content(self._title, Unit.LINE, self._builder.sections(), exact=False)

    def _take_text(self, text: str) -> None:
        if self._in_title:
            self._title = self._title or as_title(text)
        elif not self._elements.hidden and not (self._kind in HEADINGS and text.strip() in _ANCHORS):
            if stripped := text.strip():
                first = self._line + text.count("\n", 0, text.index(stripped[0]))
                self._first = self._first or first
                self._last = first + stripped.count("\n")
            self._pieces.append(_MARKS.sub(" ", text))

    def _take_void(self, tag: Tag) -> None:
        if self._elements.hidden:
            return
        if self._elements.depth("pre"):
            self._pieces.append("\n" if tag.name == "br" else "")
        elif tag.name == "br":
            self._pieces.append(_BREAK)
        elif tag.name == "hr":
            self._flush()

    def _begun(self, element: Element) -> None:
        """An element that is seen has begun."""
        name = element.name
        if name == "title":
            self._in_title = True
        elif self._elements.depth("pre") > (name == "pre"):
            self._new_line(name)
            if name == "button":
                self._button = len(self._pieces)
        elif name in ("td", "th"):
            self._pieces += [_CELL] if self._cells else []
            self._cells += 1
        elif self._is_soft(name):
            self._pieces.append(_SOFT)
        elif name in BLOCKS:
            self._flush()
            self._open(name)
        elif name in ("option", "button"):
            self._pieces.append(" ")

    def _open(self, name: str) -> None:
        """A block begins."""
        if name in LISTS:
            self._lists.append(int(name == "ol"))
        elif name in HEADINGS or name == "tr":
            self._kind = name
        elif name == "dd":
            self._kind, self._prefix = "li", "  "
        elif name == "dt":
            self._kind, self._prefix = "li", ""
        elif name == "li":
            indent = "  " * min(max(len(self._lists) - 1, 0), _DEEPEST)
            number = self._lists[-1] if self._lists else 0
            self._kind, self._prefix = "li", f"{indent}{number}. " if number else f"{indent}- "
            if number:
                self._lists[-1] += 1

    def _ended(self, element: Element) -> None:
        """An element that was seen has ended."""
        name = element.name
        if name == "title":
            self._in_title = False
        elif name == "pre":
            self._flush_code()
        elif self._elements.depth("pre"):
            self._new_line(name)
            if name == "button":  # `copy`
                del self._pieces[self._button :]
        elif self._is_soft(name):
            self._pieces.append(_SOFT)
        elif name in BLOCKS and name not in ("td", "th"):
            self._flush()
            if name in LISTS:
                self._lists.pop()

    def _new_line(self, name: str) -> None:
        """A block within text that is laid out already stands on a line of its own."""
        if name in BLOCKS and self._pieces and not self._pieces[-1].endswith("\n"):
            self._pieces.append("\n")

    def _is_soft(self, name: str) -> bool:
        """Whether a block only parts words: a paragraph within a cell, a heading or at the start of a list item."""
        return name in PARTS and (bool(self._cells) or self._kind != "")

    def _flush(self) -> None:
        """The block ends."""
        text = "".join(self._pieces)
        kind, prefix = self._kind, self._prefix
        self._pieces, self._cells, self._kind = [], 0, ""
        if text and not text.isspace():
            text = _flat(text) if kind in HEADINGS else _paragraphs(text)
        first, last, self._first, self._last = self._first, self._last, 0, 0
        if not text or text.isspace():  # most ends of blocks
            self._kind = kind if kind == "li" else ""
            return
        self._prefix = ""
        if kind in HEADINGS:
            self._builder.head(int(kind[1]), text, first, last)
        else:
            text = _INNER.sub("\n" + " " * len(prefix), text) if prefix else text
            self._builder.add(prefix + text, first, last, close=kind in ("li", "tr") and kind == self._before)
        self._before = kind

    def _flush_code(self) -> None:
        text = "".join(self._pieces)
        first, last, self._first, self._last = self._first, self._last, 0, 0
        self._pieces, self._kind, self._prefix, self._before = [], "", "", ""
        if text.strip():
            self._builder.code(text.strip("\n"), first, last)

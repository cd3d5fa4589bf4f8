"""Office texts (.docx, .odt): paragraphs under their headings, lists, tables and footnotes; headers once in front of
all, footers behind.

What the office program does not show is not read: deleted and hidden text, the codes of fields, comments. A position is
the number of a paragraph or of a table's row, from 1, those without text not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Builder, Content, Section, Unit, as_title
from kvchat.documents.reading.zipped import Handler, Zipped, title_in

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_SPACES = re.compile("[ \u00a0]{2,}")
_DEEPEST = 8


class Flow:
    """What of a document has come so far."""

    def __init__(self) -> None:
        self.title = ""
        """The text of the first paragraph that is styled as the document's title."""
        self._builder = Builder()
        self._number = 0
        self._rows: list[list[list[str]]] = []
        """For each table that is open, the texts in the cells of its row."""
        self._before = ""

    def paragraph(self, text: str, *, level: int = 0, depth: int = 0, is_title: bool = False) -> None:
        """A paragraph; `level`: a heading, `depth`: an item of a list, from 1."""
        text = _SPACES.sub(" ", _CONTROLS.sub("", text)).strip()
        if not text:
            return
        if self._rows and self._rows[-1]:
            self._rows[-1][-1].append(" ".join(text.split()))
            return
        if is_title and not self.title:
            self.title = as_title(text)
        self._number += 1
        if level:
            self._builder.head(level, " ".join(text.split()), self._number, self._number)
        elif depth:
            indent = "  " * min(depth - 1, _DEEPEST)
            self._add(f"{indent}- {text}".replace("\n", f"\n{indent}  "), "item")
        else:
            self._add(text, "")

    def table(self) -> None:
        """A table begins, maybe in a cell of another."""
        self._rows.append([])

    def cell(self) -> None:
        """A cell begins."""
        if self._rows:
            self._rows[-1].append([])

    def row(self) -> None:
        """A row has ended."""
        if not self._rows:
            return
        text = " | ".join(" ".join(cell) for cell in self._rows[-1]).rstrip(" |")
        self._rows[-1] = []
        if text and len(self._rows) > 1 and self._rows[-2]:
            self._rows[-2][-1].append(text)
        elif text:
            self._number += 1
            self._add(text, "row")

    def end_table(self) -> None:
        """A table has ended."""
        if self._rows:
            self.row()
            self._rows.pop()
            self._before = ""

    def content(self, title: str, headers: Iterable[Flow] = (), footers: Iterable[Flow] = ()) -> Content:
        """All of it; `title`: the one among the document's properties. What several headers say is said once."""
        sections, last = self.sections(), max(self._number, 1)
        sections = (*_edge(headers, 1), *sections, *_edge(footers, last))
        return Content(title or self.title, Unit.PARAGRAPH, sections, exact=False)

    def sections(self) -> tuple[Section, ...]:
        while self._rows:
            self.end_table()
        return self._builder.sections()

    def text(self) -> str:
        return "\n\n".join(section.text for section in self.sections())

    def _add(self, text: str, kind: str) -> None:
        self._builder.add(text, self._number, self._number, close=bool(kind) and kind == self._before)
        self._before = kind


def _edge(flows: Iterable[Flow], at: int) -> tuple[Section, ...]:
    """The headers or footers of a document as a section at the paragraph where they appear."""
    text = "\n\n".join(filter(None, dict.fromkeys(one.text() for one in flows)))
    return (Section((), text, at, at),) if text else ()


_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_WORD_UNSEEN = frozenset(("del", "moveFrom", "Fallback", "instrText", "delText", "rPrChange", "pPrChange"))
_WORD_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_OFF = frozenset(("0", "false", "off"))
_TITLE = -1
"""The level of a document's title."""


def read_docx(data: bytes) -> Content:
    """What a Word document says. Raises UnreadableError."""
    archive = Zipped(data, "Word document")
    styles, footnotes, endnotes, flow = _Styles(), _Notes(), _Notes(), Flow()
    archive.parse("word/styles.xml", styles, optional=True)
    archive.parse("word/footnotes.xml", footnotes, optional=True)
    archive.parse("word/endnotes.xml", endnotes, optional=True)
    notes = {"footnoteReference": footnotes.by_id(), "endnoteReference": endnotes.by_id()}
    body = _WordBody(flow, styles.levels(), notes)
    archive.parse("word/document.xml", body)
    relations, is_book = _Relations(), archive.holds("word/settings.xml", b"evenAndOddHeaders")
    archive.parse("word/_rels/document.xml.rels", relations, optional=True)
    edges: dict[str, list[Flow]] = {"header": [], "footer": []}
    for kind, id in dict.fromkeys((kind, id) for kind, page, id in body.edges if page != "even" or is_book):
        edge = Flow()
        with suppress(FileUnreadableError):
            archive.parse(relations.targets.get(id, ""), _WordBody(edge, {}, {}), optional=True)
        edges[kind].append(edge)
    return flow.content(title_in(archive, "docProps/core.xml"), edges["header"], edges["footer"])


class _Relations(Handler):
    """The parts that the document names."""

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}
        """Their names in the archive, by their ids."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        target = attributes.get("Target", "")
        self.targets[attributes.get("Id", "")] = target[1:] if target.startswith("/") else f"word/{target}"


def _name(tag: str) -> str:
    """A tag without its namespace: there are two, for the transitional and the strict form."""
    return tag.rpartition("}")[2]


def _attribute(attributes: dict[str, str], name: str) -> str:
    return next((value for key, value in attributes.items() if _name(key) == name), "")


class _Styles(Handler):
    """The styles, in the order of `word/styles.xml`. Their names are English in a file of any language."""

    def __init__(self) -> None:
        self._style = ""
        self._levels: dict[str, int] = {}
        self._based: dict[str, str] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name, value = _name(tag), _attribute(attributes, "val")
        if name == "style":
            self._style = _attribute(attributes, "styleId")
        elif name == "basedOn":
            self._based[self._style] = value
        elif name == "name" and (found := _HEADING.fullmatch(value)):
            self._levels[self._style] = int(found[1])
        elif name == "name" and value.lower() == "title":
            self._levels[self._style] = _TITLE
        elif name == "outlineLvl":
            self._levels.setdefault(self._style, _level(value))

    def levels(self) -> dict[str, int]:
        """The level of a heading that each style gives; 0: of none."""
        found = dict(self._levels)
        for style in self._based:
            base = style
            for _ in range(20):
                if base in self._levels:
                    found[style] = self._levels[base]
                    break
                base = self._based.get(base, "")
        return found


def _level(value: str) -> int:
    """What an outline level of 0 to 8 makes; 9 is body text."""
    return int(value) + 1 if value.isascii() and value.isdigit() and len(value) == 1 and value != "9" else 0


class _Paragraphs(Handler):
    """The paragraphs of a part, as its elements come. One can stand within another: in a text box."""

    def __init__(self) -> None:
        self._texts: list[list[str]] = []
        self._unseen = 0
        self._wanted = False
        self._run = False
        self._hidden = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name in _WORD_UNSEEN:
            self._unseen += 1
        elif self._unseen:
            return
        elif name == "p":
            self._texts.append([])
            self.on_begin()
        elif name == "r":
            self._run, self._hidden = True, False
        elif name == "vanish" and self._run:
            self._hidden = _attribute(attributes, "val").lower() not in _OFF
        elif name == "t":
            self._wanted = not self._hidden
        elif name in _WORD_MARKS and self._run:
            self.put(_WORD_MARKS[name])
        else:
            self.on_start(name, attributes)

    def end(self, tag: str) -> None:
        name = _name(tag)
        self._wanted = False
        if name in _WORD_UNSEEN:
            self._unseen -= 1
        elif self._unseen:
            return
        elif name == "r":
            self._run = self._hidden = False
        elif name == "p" and self._texts:
            self.paragraph("".join(self._texts.pop()))
        else:
            self.on_end(name)

    def data(self, text: str) -> None:
        if self._wanted and not self._unseen:
            self.put(text.replace("\n", " "))

    def put(self, text: str) -> None:
        """Text of the innermost paragraph."""
        if self._texts and not self._hidden:
            self._texts[-1].append(text)

    def on_begin(self) -> None:
        """A paragraph begins."""

    def on_start(self, name: str, attributes: dict[str, str]) -> None:
        """Any other element begins."""

    def on_end(self, name: str) -> None:
        """Any other element ends."""

    def paragraph(self, text: str) -> None:
        """A paragraph ends."""


class _Notes(_Paragraphs):
    """Footnotes or endnotes, by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, list[str]] = {}
        self._id = ""

    def on_start(self, name: str, attributes: dict[str, str]) -> None:
        if name in ("footnote", "endnote"):
            self._id = "" if _attribute(attributes, "type") else _attribute(attributes, "id")

    def paragraph(self, text: str) -> None:
        text = " ".join(text.split())
        if self._id and text:
            self._found.setdefault(self._id, []).append(text)

    def by_id(self) -> dict[str, str]:
        return {key: " ".join(texts) for key, texts in self._found.items()}


class _WordBody(_Paragraphs):
    """The document itself."""

    def __init__(self, flow: Flow, levels: dict[str, int], notes: dict[str, dict[str, str]]) -> None:
        super().__init__()
        self._flow = flow
        self._levels = levels
        self._notes = notes
        self._formats: list[tuple[int, int]] = []
        """For each paragraph that is open its level as a heading and its depth in a list."""
        self.edges: list[tuple[str, str, str]] = []
        """The headers and footers of its sections: `header` or `footer`, `default`, `first` or `even`, and the id."""
        self._section: list[tuple[str, str, str]] = []
        self._has_first = False

    def on_begin(self) -> None:
        self._formats.append((0, 0))

    def on_start(self, name: str, attributes: dict[str, str]) -> None:
        level, depth = self._formats[-1] if self._formats else (0, 0)
        value = _attribute(attributes, "val")
        if name == "tbl":
            self._flow.table()
        elif name == "tc":
            self._flow.cell()
        elif name in self._notes:
            note = self._notes[name].get(_attribute(attributes, "id"))
            self.put(f" ({note})" if note else "")
        elif name in ("headerReference", "footerReference"):
            page = _attribute(attributes, "type") or "default"
            self._section.append((name.removesuffix("Reference"), page, _attribute(attributes, "id")))
        elif name == "titlePg":
            self._has_first = value.lower() not in _OFF
        elif not self._formats:
            return
        elif name == "pStyle":
            self._formats[-1] = (self._levels.get(value, 0), depth)
        elif name == "outlineLvl":
            self._formats[-1] = (_level(value), depth)
        elif name == "numPr":
            self._formats[-1] = (level, max(depth, 1))
        elif name == "ilvl":
            self._formats[-1] = (level, 1 + min(int(value), 8) if value.isascii() and value.isdigit() else 1)
        elif name == "numId" and value == "0":
            self._formats[-1] = (level, 0)

    def on_end(self, name: str) -> None:
        if name == "tr":
            self._flow.row()
        elif name == "tbl":
            self._flow.end_table()
        elif name == "sectPr":
            self.edges += [one for one in self._section if one[1] != "first" or self._has_first]
            self._section, self._has_first = [], False

    def paragraph(self, text: str) -> None:
        level, depth = self._formats.pop() if self._formats else (0, 0)
        self._flow.paragraph(text, level=max(level, 0), depth=depth, is_title=level == _TITLE)


_ODT_UNSEEN = frozenset(("annotation", "tracked-changes", "hidden-text", "script", "scripts", "automatic-styles"))
_ODT_EDGES = frozenset(f"{edge}{page}" for edge in ("header", "footer") for page in ("", "-first", "-left"))
_ODT_MARKS = {"tab": "\t", "line-break": "\n"}


def read_odt(data: bytes) -> Content:
    """What an OpenDocument text says. Raises UnreadableError."""
    archive = Zipped(data, "OpenDocument text")
    if archive.holds("META-INF/manifest.xml", b"encryption-data"):
        raise FileUnreadableError("is encrypted")
    flow, masters = Flow(), _OdtMasters()
    archive.parse("content.xml", _OdtBody(flow))
    with suppress(FileUnreadableError):
        archive.parse("styles.xml", masters, optional=True)
    return flow.content(title_in(archive, "meta.xml"), masters.headers, masters.footers)


class _OdtMasters(Handler):
    """The headers and footers of all kinds of pages."""

    def __init__(self) -> None:
        self.headers: list[Flow] = []
        self.footers: list[Flow] = []
        self._body: _OdtBody | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if self._body is not None:
            self._body.start(tag, attributes)
        elif name in _ODT_EDGES and "false" not in (
            value for key, value in attributes.items() if key.endswith("}display")
        ):
            flow = Flow()
            (self.headers if name.startswith("header") else self.footers).append(flow)
            self._body = _OdtBody(flow)

    def data(self, text: str) -> None:
        if self._body is not None:
            self._body.data(text)

    def end(self, tag: str) -> None:
        if tag.rpartition("}")[2] in _ODT_EDGES:
            self._body = None
        elif self._body is not None:
            self._body.end(tag)


class _OdtBody(Handler):
    """The content, as its elements come."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._texts: list[tuple[int, list[str]]] = []
        """The level and the parts of each paragraph that is open; a footnote is inside one."""
        self._unseen = self._depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        values = {key.rpartition("}")[2]: value for key, value in attributes.items()}
        self._unseen += name in _ODT_UNSEEN
        self._depth += name == "list"
        if name in ("p", "h"):
            level = values.get("outline-level", "1")
            self._texts.append(
                (min(int(level), 9) if level.isascii() and level.isdigit() else 1, []) if name == "h" else (0, [])
            )
        elif name == "s":
            count = values.get("c", "1")
            self.data(" " * (min(int(count[:3]), 100) if count.isascii() and count.isdigit() else 1))
        elif name == "table":
            self._flow.table()
        elif name in ("table-cell", "covered-table-cell"):
            self._flow.cell()
        else:
            self.data(_ODT_MARKS.get(name, ""))

    def data(self, text: str) -> None:
        if self._texts and not self._unseen:
            self._texts[-1][1].append(text if text in ("\n", "\t") else text.replace("\n", " "))

    def end(self, tag: str) -> None:
        name = tag.rpartition("}")[2]
        if name in ("p", "h") and self._texts:
            level, parts = self._texts.pop()
            self._flow.paragraph("".join(parts), level=level, depth=self._depth)
        elif name == "table-row":
            self._flow.row()
        elif name == "table":
            self._flow.end_table()
        self._unseen -= name in _ODT_UNSEEN
        self._depth -= name == "list"

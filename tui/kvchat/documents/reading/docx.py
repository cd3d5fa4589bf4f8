"""Word documents (.docx): paragraphs under their headings, lists, tables and footnotes.

The rule: what Word does not show is not read: deleted and hidden text, the codes of fields, comments.
"""

from __future__ import annotations

import re

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading.content import Content, Unit
from kvchat.documents.reading.flow import Flow
from kvchat.documents.reading.zipped import Zipped, title_in

MAIN = "word/document.xml"
_NOTES = {"footnoteReference": "word/footnotes.xml", "endnoteReference": "word/endnotes.xml"}
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_UNSEEN = frozenset(("del", "moveFrom", "Fallback", "instrText", "delText", "rPrChange", "pPrChange"))
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_OFF = frozenset(("0", "false", "off"))
_TITLE = -1
"""The level of a document's title."""


def read_docx(data: bytes) -> Content:
    """What a Word document says. Raises UnreadableError."""
    archive = Zipped(data, "Word document")
    if MAIN not in archive:
        raise UnreadableError("is a broken Word document")
    styles = _Styles()
    if "word/styles.xml" in archive:
        archive.parse("word/styles.xml", styles)
    notes = {mark: _notes(archive, part) for mark, part in _NOTES.items()}
    flow = Flow()
    archive.parse(MAIN, _Body(flow, styles.levels(), notes))
    sections = flow.sections()
    if not sections:
        raise UnreadableError("has no text")
    return Content(title_in(archive, "docProps/core.xml") or flow.title, Unit.PARAGRAPH, sections, exact=False)


def _notes(archive: Zipped, part: str) -> dict[str, str]:
    notes = _Notes()
    if part in archive:
        archive.parse(part, notes)
    return notes.by_id()


def _name(tag: str) -> str:
    """A tag without its namespace: there are two, for the transitional and the strict form."""
    return tag.rpartition("}")[2]


def _attribute(attributes: dict[str, str], name: str) -> str:
    return next((value for key, value in attributes.items() if _name(key) == name), "")


class _Styles:
    """The styles, told as they stand in `word/styles.xml`. Their names are English in a file of any language."""

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

    def end(self, tag: str) -> None:
        pass

    def data(self, text: str) -> None:
        pass

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


class _Paragraphs:
    """The paragraphs of a part, as its elements come. One can stand within another: in a text box."""

    def __init__(self) -> None:
        self._texts: list[list[str]] = []
        self._unseen = 0
        self._wanted = False
        self._run = False
        self._hidden = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name in _UNSEEN:
            self._unseen += 1
        elif self._unseen:
            return
        elif name == "p":
            self._texts.append([])
            self.begun()
        elif name == "r":
            self._run, self._hidden = True, False
        elif name == "vanish" and self._run:
            self._hidden = _attribute(attributes, "val").lower() not in _OFF
        elif name == "t":
            self._wanted = not self._hidden
        elif name in _MARKS and self._run:
            self.put(_MARKS[name])
        else:
            self.seen(name, attributes)

    def end(self, tag: str) -> None:
        name = _name(tag)
        self._wanted = False
        if name in _UNSEEN:
            self._unseen -= 1
        elif self._unseen:
            return
        elif name == "r":
            self._run = self._hidden = False
        elif name == "p" and self._texts:
            self.paragraph("".join(self._texts.pop()))
        else:
            self.ended(name)

    def data(self, text: str) -> None:
        if self._wanted and not self._unseen:
            self.put(text.replace("\n", " "))

    def put(self, text: str) -> None:
        """Text of the innermost paragraph."""
        if self._texts and not self._hidden:
            self._texts[-1].append(text)

    def begun(self) -> None:
        """A paragraph begins."""

    def seen(self, name: str, attributes: dict[str, str]) -> None:
        """Any other element begins."""

    def ended(self, name: str) -> None:
        """Any other element ends."""

    def paragraph(self, text: str) -> None:
        """A paragraph ends."""


class _Notes(_Paragraphs):
    """Footnotes or endnotes, by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, list[str]] = {}
        self._id = ""

    def seen(self, name: str, attributes: dict[str, str]) -> None:
        if name in ("footnote", "endnote"):
            self._id = "" if _attribute(attributes, "type") else _attribute(attributes, "id")

    def paragraph(self, text: str) -> None:
        text = " ".join(text.split())
        if self._id and text:
            self._found.setdefault(self._id, []).append(text)

    def by_id(self) -> dict[str, str]:
        return {key: " ".join(texts) for key, texts in self._found.items()}


class _Body(_Paragraphs):
    """The document itself."""

    def __init__(self, flow: Flow, levels: dict[str, int], notes: dict[str, dict[str, str]]) -> None:
        super().__init__()
        self._flow = flow
        self._levels = levels
        self._notes = notes
        self._formats: list[tuple[int, int]] = []
        """For each paragraph that is open its level as a heading and its depth in a list."""

    def begun(self) -> None:
        self._formats.append((0, 0))

    def seen(self, name: str, attributes: dict[str, str]) -> None:
        level, depth = self._formats[-1] if self._formats else (0, 0)
        value = _attribute(attributes, "val")
        if name == "tbl":
            self._flow.table()
        elif name == "tc":
            self._flow.cell()
        elif name in _NOTES:
            note = self._notes[name].get(_attribute(attributes, "id"))
            self.put(f" ({note})" if note else "")
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

    def ended(self, name: str) -> None:
        if name == "tr":
            self._flow.row()
        elif name == "tbl":
            self._flow.end_table()

    def paragraph(self, text: str) -> None:
        level, depth = self._formats.pop() if self._formats else (0, 0)
        self._flow.paragraph(text, level=max(level, 0), depth=depth, is_title=level == _TITLE)

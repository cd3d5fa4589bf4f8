"""OpenDocument texts (.odt): paragraphs under their headings, lists and tables."""

from __future__ import annotations

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading.content import Content, Unit
from kvchat.documents.reading.flow import Flow
from kvchat.documents.reading.zipped import Zipped, title_in

MAIN = "content.xml"
_UNSEEN = frozenset(("annotation", "tracked-changes", "hidden-text", "script", "scripts", "automatic-styles"))
_MARKS = {"tab": "\t", "line-break": "\n"}


def read_odt(data: bytes) -> Content:
    """What an OpenDocument text says. Raises UnreadableError."""
    archive = Zipped(data, "OpenDocument text")
    if archive.holds("META-INF/manifest.xml", b"encryption-data"):
        raise UnreadableError("is encrypted")
    flow = Flow()
    archive.parse(MAIN, _Body(flow))
    sections = flow.sections()
    if not sections:
        raise UnreadableError("has no text")
    return Content(title_in(archive, "meta.xml") or flow.title, Unit.PARAGRAPH, sections, exact=False)


class _Body:
    """The content, as its elements come."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._texts: list[tuple[int, list[str]]] = []
        """The level and the parts of each paragraph that is open; a footnote stands within one."""
        self._unseen = self._depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        values = {key.rpartition("}")[2]: value for key, value in attributes.items()}
        self._unseen += name in _UNSEEN
        self._depth += name == "list"
        if name in ("p", "h"):
            level = values.get("outline-level", "1")
            self._texts.append((min(int(level), 9) if level.isascii() and level.isdigit() else 1, [])
                               if name == "h" else (0, []))
        elif name == "s":
            count = values.get("c", "1")
            self.data(" " * (min(int(count[:3]), 100) if count.isascii() and count.isdigit() else 1))
        elif name == "table":
            self._flow.table()
        elif name in ("table-cell", "covered-table-cell"):
            self._flow.cell()
        else:
            self.data(_MARKS.get(name, ""))

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
        self._unseen -= name in _UNSEEN
        self._depth -= name == "list"

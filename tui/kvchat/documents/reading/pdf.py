"""Read PDF: the text of each page, by pypdf (the extra `documents`).

A file that cannot be read whole is refused with its reason; a page that cannot is left out. Invisible text is left out
where that is cheap to detect: outside of the page, too small to read, white where nothing was painted. (Text without
ink, as under scanned pages, looks the same as hidden words.)
"""

from __future__ import annotations

import logging
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kvchat.documents.errors import FileUnreadableError, attempted
from kvchat.documents.reading.content import Content, Section, Unit, as_title

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

MISSING = "is a PDF; install kvchat[documents] to read them"
"""Why a PDF is not read without the extra."""
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_CONTROLS = {code: " " for code in (*range(0x20), *range(0x7F, 0xA1)) if code not in (0x0A, 0x0D)}
_BROKEN_WORD = re.compile(r"(?<=[^\W\d_])(?:-|\u2010|\u00ad) *\n *([^\W\d_]\S*+) *+(\n?)")
_SPACES = re.compile(r" {2,}")
_EDGES = re.compile(r" *\n *")
_GAPS = re.compile(r"\n{3,}")
_NO_TITLE = re.compile(
    r"untitled.*|.*\.(?:docx?|dvi|indd|tex|pdf|qxd|pptx?|rtf|odt|ps)|microsoft \w+ - .*|\W*|title", re.IGNORECASE
)
_MOST_ENTRIES = 5_000
_PAGE = itemgetter(0)


def read_pdf(data: bytes) -> Content:
    """The pages of a PDF. Raises UnreadableError; MemoryError where there is too little memory."""
    try:
        import pypdf
    except ImportError:
        raise FileUnreadableError(MISSING) from None
    with _quiet():
        content = attempted(lambda: _content(pypdf.PdfReader(BytesIO(data))))
    if content is None:
        raise FileUnreadableError("is a broken PDF")
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing of pypdf on the screen or in the log."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _content(reader: PdfReader) -> Content:
    if reader.is_encrypted and not attempted(lambda: reader.decrypt("")):  # the owner's password alone is no hindrance
        raise FileUnreadableError("is encrypted")
    pages = list(reader.pages)
    if not pages:
        raise FileUnreadableError("is a broken PDF")
    starts = _starts(reader)
    read = [attempted(partial(_page_text, page)) for page in pages]
    sections = tuple(
        Section(_titles(starts, number), text, number, number) for number, text in enumerate(read, 1) if text
    )
    if not sections:
        raise FileUnreadableError("is a broken PDF" if None in read else "has no text: it is scanned pages")
    return Content(_title(reader), Unit.PAGE, sections, exact=False)


def _page_text(page: PageObject) -> str:
    """The text of a page that can be seen."""
    contents = page.get_contents()
    if contents is None or not any(mark in contents.get_data() for mark in (b"Tj", b"TJ", b"'", b'"', b"Do")):
        return ""
    ink = Ink(page)
    return tidied(page.extract_text(visitor_operand_before=ink.before, visitor_operand_after=ink.after))


def tidied(text: str) -> str:
    """The text of a page with whole characters, its words whole, and no more white than paragraphs need."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS).translate(_LIGATURES)
    text = _BROKEN_WORD.sub(_joined, text).replace("\u00ad", "")
    return _GAPS.sub("\n\n", _EDGES.sub("\n", _SPACES.sub(" ", text))).strip()


def _joined(found: re.Match[str]) -> str:
    """A word that a line's end has parted: joined before the end, but for names such as `Anglo-Saxon`."""
    hyphen = "-" if found[1][0].isupper() and found[0][0] != "\u00ad" else ""
    return f"{hyphen}{found[1]}\n"


def _title(reader: PdfReader) -> str:
    metadata_title = attempted(lambda: reader.metadata.title if reader.metadata else "")
    title = as_title(tidied(metadata_title)) if isinstance(metadata_title, str) else ""
    return "" if _NO_TITLE.fullmatch(title) else title


_Starts = list[tuple[int, tuple[str, ...]]]
"""The outline of a file: the pages on which headings begin, each with those above it, in order."""


def _starts(reader: PdfReader) -> _Starts:
    starts: _Starts = []
    attempted(lambda: _walk(reader, reader.outline, (), starts))
    return sorted(starts, key=_PAGE)  # entries of a page keep their order


def _titles(starts: _Starts, page: int) -> tuple[str, ...]:
    """The headings above a page: of the first that begins on it, and those in that one; else the last before."""
    after = bisect_right(starts, page, key=_PAGE)
    at = bisect_right(starts, page - 1, key=_PAGE)
    if at == after:
        return starts[at - 1][1] if at else ()
    titles = starts[at][1]
    for _, deeper in starts[at + 1 : after]:
        if deeper[: len(titles)] != titles:
            break
        titles = deeper
    return titles


def _walk(reader: PdfReader, entries: list[Any], above: tuple[str, ...], starts: _Starts) -> None:
    titles = above
    for entry in entries:
        if len(starts) >= _MOST_ENTRIES:
            return
        if isinstance(entry, list):
            _walk(reader, entry, titles, starts)
            continue
        page = reader.get_destination_page_number(entry)
        title = as_title(tidied(str(entry.title or "")))
        titles = (*above, title) if title else above
        if page is not None and page >= 0 and title:
            starts.append((page + 1, titles))


SMALLEST = 0.5
"""Points: no reader makes out what is smaller."""
NEARLY_WHITE = 0.98
"""From here on a colour is white on paper."""

_SHOWS = frozenset((b"Tj", b"TJ", b"'", b'"'))
_FILLS = frozenset((b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*"))
_PICTURES = frozenset((b"sh", b"BI", b"INLINE IMAGE"))
_COLOURS = {b"g": 1, b"rg": 3, b"k": 4}
_STROKES = (1, 2, 5, 6)
"""Render modes in which letters have an outline, in a colour of its own."""


class Ink:
    """What colour and size words have while a page is read. White counts as unseen only until something was painted
    that may lie below it."""

    def __init__(self, page: PageObject) -> None:
        self._box = _box(page)
        self._white = False
        self._space = ""
        self._size = 0.0
        self._mode = 0.0
        self._saved: list[tuple[bool, str, float, float]] = []
        self._painted = False
        self._forms = 0

    def before(self, operator: bytes, operands: Any, page: Any, text: Any) -> None:
        """Called for each operator, with the matrices of the page and of the text."""
        if operator in _SHOWS:
            if self._unseen(page, text):
                _empty(operator, operands)
        elif operator == b"q":
            self._saved.append((self._white, self._space, self._size, self._mode))
        elif operator == b"Q":
            if self._saved:
                self._white, self._space, self._size, self._mode = self._saved.pop()
        elif operator == b"Tf":
            self._size = _number(operands[1]) if len(operands) > 1 else self._size
        elif operator == b"Tr":
            self._mode = _number(operands[0]) if operands else 0
        elif operator in _FILLS:
            self._painted = self._painted or not self._white
        elif operator in _PICTURES:
            self._painted = True
        elif operator == b"Do":
            self._forms += 1
        else:
            self._colour(operator, operands)

    def after(self, operator: bytes, operands: Any, page: Any, text: Any) -> None:
        """Called once an operator is done: for a form or an image with all that is in it."""
        if operator == b"Do":
            self._forms -= 1
            self._painted = True

    def _colour(self, operator: bytes, operands: Any) -> None:
        if operator in _COLOURS:
            self._white = len(operands) == _COLOURS[operator] and _is_white(operands)
        elif operator == b"cs":
            self._space = str(operands[0]) if operands else ""
            self._white = False
        elif operator in (b"sc", b"scn"):
            # One number alone is ink in most spaces: 1 is white in grey only.
            self._white = (len(operands) in (3, 4) or self._space == "/DeviceGray") and _is_white(operands)
        elif operator == b"gs":
            self._white = False

    def _unseen(self, page: Any, text: Any) -> bool:
        if self._white and not self._painted and self._mode not in _STROKES:
            return True
        if self._forms or not self._box:
            return False  # a form has a place and a scale of its own
        scale = max(abs(value) for value in _product(text, page)[:4])
        if self._size and abs(self._size) * scale < SMALLEST:
            return True
        x, y = _product(text, page)[4:]
        margin = abs(self._size) * scale + 1
        left, bottom, right, top = self._box
        return not (left - margin <= x <= right + margin and bottom - margin <= y <= top + margin)


def _box(page: PageObject) -> tuple[float, float, float, float] | None:
    """Where words of a page may begin: on it, or left of it by no more than its width; None: unknown."""
    try:
        left, bottom, right, top = (float(edge) for edge in page.cropbox)
    except Exception:  # broken in any way
        return None
    return (left - (right - left), bottom, right, top) if right > left and top > bottom else None


def _product(inner: Any, outer: Any) -> list[float]:
    """Two matrices of a PDF, the inner one applied first."""
    a, b, c, d, e, f = (float(value) for value in inner)
    g, h, i, j, k, m = (float(value) for value in outer)
    return [a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _is_white(operands: Any) -> bool:
    """Grey 1, red, green and blue 1, or no ink of four."""
    if not all(isinstance(value, int | float) for value in operands):
        return False
    values = [float(value) for value in operands]
    return (
        all(value <= 1 - NEARLY_WHITE for value in values)
        if len(values) == 4
        else all(value >= NEARLY_WHITE for value in values)
    )


def _empty(operator: bytes, operands: Any) -> None:
    """Take the text out of what shows it; moving to the next line stays."""
    if operator == b"TJ":
        operands[:] = [[]]
    elif operands and isinstance(operands, list):
        operands[-1] = type(operands[-1])() if isinstance(operands[-1], str | bytes) else operands[-1]

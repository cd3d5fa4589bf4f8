"""Read HTML: the words that a browser shows, under their headings. Nothing is ever fetched.

What is hidden from the user is hidden from the model: scripts, comments, templates, and elements that an attribute or a
style of their own hides. (Style sheets are not applied.)

The time it takes grows with the length of the text and with nothing else. So what is never closed ends with the file,
and a tag costs the same at any depth: where browsers look through all that is open, this looks at the
innermost `REACH`. (`html.parser` takes minutes for 100 kB of unclosed tags.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Builder, Content, Unit, as_title
from kvchat.documents.reading.decoding import declared_codec, decoded
from kvchat.sanitize import unescaped

RAW = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext", "noscript"))
"""Elements whose content is no markup; it is passed over, as it is never seen."""
ESCAPABLE = frozenset(("title", "textarea"))
"""Elements whose content is text with entities, but no tags."""
LONGEST_VALUE = 10_000
"""Characters of an attribute's value that are looked at."""

_OPENING = re.compile(r"<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>\x00]*+)")
_ATTRIBUTE = re.compile(
    r"""[\s/]*+(?:(?P<close>>)|(?P<name>[^\s/>][^\s/>=]*+)"""
    r"""(?:\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^\s>]*+)))?+)"""
)


class Text(Struct, frozen=True):
    """Text between tags, its entities decoded."""

    text: str
    at: int
    """Where it begins in the source, in characters."""


class Tag(Struct, frozen=True):
    """A start tag or an end tag."""

    name: str
    at: int
    end: bool = False
    empty: bool = False
    """Whether it is written `<x/>`; only in XML this closes it."""
    attributes: Mapping[str, str] = field(default_factory=dict)


def tokens(source: str) -> Iterator[Tag | Text]:
    """The tags and texts of `source`, in order. Comments, declarations and the content of `RAW` elements are left
    out; of these elements the tags come."""
    at = text_from = 0
    xml = source.lstrip("\ufeff \t\r\n").startswith("<?xml")
    while (at := source.find("<", at)) >= 0:
        end = _skipped(source, at)
        found = None if end else _OPENING.match(source, at)
        if not end and not found:
            at += 1
            continue
        if at > text_from:
            yield Text(unescaped(source[text_from:at]), text_from)
        if found:
            tag, end = _tag(source, found)
            if tag is None:
                return
            yield tag
            if xml and tag.empty:
                yield Tag(tag.name, tag.at, end=True)
            elif not tag.end and tag.name in RAW | ESCAPABLE:
                closed = _closing(source, tag.name, end)
                if tag.name in ESCAPABLE:
                    yield Text(unescaped(source[end:closed]), end)
                end = closed
        at = text_from = end
    if text_from < len(source):
        yield Text(unescaped(source[text_from:]), text_from)


def _skipped(source: str, at: int) -> int:
    """Where the comment, declaration or instruction at `at` ends; 0 where there is none."""
    if source.startswith("<!--", at):
        if source.startswith((">", "->"), at + 4):
            return source.index(">", at) + 1
        return _after(source, "-->", at + 4)
    if source.startswith("<![CDATA[", at):
        return _after(source, "]]>", at)
    return _after(source, ">", at) if source.startswith(("<!", "<?"), at) else 0


def _after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return found + len(mark) if found >= 0 else len(source)


def _tag(source: str, opening: re.Match[str]) -> tuple[Tag | None, int]:
    """The tag that begins with `opening`, and where it ends; None where the file ends within it."""
    attributes: dict[str, str] = {}
    at = opening.end()
    while found := _ATTRIBUTE.match(source, at):
        at = found.end()
        if found["close"]:
            name = opening["name"].lower()
            return Tag(name, opening.start(), bool(opening["end"]), source[at - 2] == "/", attributes), at
        start, end = found.span("double")
        if start < 0:
            start, end = found.span("single") if found.start("single") >= 0 else found.span("bare")
        value = unescaped(source[start : min(end, start + LONGEST_VALUE)]) if start >= 0 else ""
        attributes.setdefault(found["name"].lower(), value)
    return None, len(source)


def _closing(source: str, name: str, at: int) -> int:
    """Where the end tag of a `RAW` or `ESCAPABLE` element begins."""
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, at)
    return found.start() if found else len(source)


REACH = 64
VOID = frozenset(
    (
        "area",
        "base",
        "basefont",
        "bgsound",
        "br",
        "col",
        "embed",
        "frame",
        "hr",
        "img",
        "input",
        "keygen",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    )
)
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
PARTS = frozenset(
    (
        "div",
        "p",
        "article",
        "aside",
        "section",
        "header",
        "footer",
        "main",
        "nav",
        "hgroup",
        "figure",
        "figcaption",
        "address",
        "center",
        "blockquote",
        "details",
        "summary",
        "label",
        "legend",
        "dialog",
        "fieldset",
        "form",
        "search",
        "dt",
    )
)
"""Blocks that only part their words from others."""
LISTS = frozenset(("ul", "ol", "menu", "dir"))
BLOCKS = (
    (PARTS - {"label", "dt"})
    | LISTS
    | HEADINGS
    | frozenset(
        (
            "body",
            "html",
            "head",
            "pre",
            "listing",
            "dl",
            "dt",
            "dd",
            "li",
            "table",
            "caption",
            "thead",
            "tbody",
            "tfoot",
            "tr",
            "td",
            "th",
        )
    )
)

_UNSEEN = frozenset(
    (
        "script",
        "style",
        "template",
        "noscript",
        "noembed",
        "noframes",
        "iframe",
        "object",
        "applet",
        "audio",
        "video",
        "canvas",
        "svg",
        "datalist",
        "xmp",
        "plaintext",
        "rp",
    )
)
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    r"|(?<![\w-])(?:opacity|font-size)\s*:\s*[+-]?(?:0++(?:\.0++)?+|\.0++)(?:px|pt|r?em|%)?\s*(?:!|;|$)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/")
_ALWAYS = frozenset(("html", "body"))

_SCOPES = frozenset(("table", "td", "th", "caption", "template", "html", "object"))
_TABLE = frozenset(("table", "caption", "thead", "tbody", "tfoot", "tr", "td", "th"))
_CELLS = frozenset(("td", "th"))
_ROWS = _CELLS | {"tr"}
_GROUPS = _ROWS | {"thead", "tbody", "tfoot", "caption"}
_TO_TABLE = frozenset(("table", "template"))
_CLOSED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset(("li",)), LISTS | _SCOPES),
    "dt": (frozenset(("dt", "dd")), frozenset(("dl",)) | _SCOPES),
    "dd": (frozenset(("dt", "dd")), frozenset(("dl",)) | _SCOPES),
    "td": (_CELLS, _TO_TABLE | {"tr"}),
    "th": (_CELLS, _TO_TABLE | {"tr"}),
    "tr": (_ROWS, _TO_TABLE),
    "thead": (_GROUPS, _TO_TABLE),
    "tbody": (_GROUPS, _TO_TABLE),
    "tfoot": (_GROUPS, _TO_TABLE),
    "option": (frozenset(("option",)), frozenset(("select", "datalist"))),
}
"""What a start tag closes, and what ends the search for it."""
_PARAGRAPH = frozenset(("p",))
_AROUND_PARAGRAPH = _SCOPES | {"button", "div", "section", "article", "li"}


class Element(Struct, frozen=True):
    """An element that is open."""

    name: str
    hides: bool
    """Whether it is hidden itself, with all that is in it."""
    seen: bool


def hides(tag: Tag) -> bool:
    """Whether an element of this start tag is hidden from the user."""
    attributes = tag.attributes
    if tag.name in _UNSEEN:
        return True
    if not attributes:
        return tag.name == "dialog"
    if tag.name in _ALWAYS:
        return False
    style = attributes.get("style", "")
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden", "").strip().lower() == "true"
        or (tag.name == "dialog" and "open" not in attributes)
        or bool(style and _HIDING.search(_COMMENT.sub("", style).strip()))
    )


class Elements:
    """The open elements. `on_begin` and `on_end` are called for visible ones."""

    def __init__(self, on_begin: Callable[[Element], None], on_end: Callable[[Element], None]) -> None:
        self._on_begin = on_begin
        self._on_end = on_end
        self._open: list[Element] = []
        self._names: Counter[str] = Counter()
        self._hiding = 0

    @property
    def hidden(self) -> bool:
        """Whether what comes now is hidden."""
        return self._hiding > 0

    def depth(self, name: str) -> int:
        """How many elements of that name are open."""
        return self._names[name]

    def begin(self, tag: Tag) -> None:
        """A start tag of an element with content."""
        if closed := _CLOSED.get(tag.name):
            self._close(*closed)
        elif tag.name in BLOCKS and self._names["p"]:
            self._close(_PARAGRAPH, _AROUND_PARAGRAPH)
        hidden = hides(tag)
        element = Element(tag.name, hidden, seen=not hidden and not self._hiding)
        self._open.append(element)
        self._names[tag.name] += 1
        self._hiding += hidden
        if element.seen:
            self._on_begin(element)

    def end(self, name: str) -> None:
        """An end tag: closes the innermost element of that name that it may close."""
        if not self._names[name]:
            return
        barriers = frozenset(("table",)) if name in _TABLE else _SCOPES if name in BLOCKS else _SCOPES | BLOCKS
        for depth, element in enumerate(reversed(self._open)):
            if element.name == name or depth == REACH:
                break
            if element.name in barriers:
                return
        while self._pop() != name:
            pass

    def finish(self) -> None:
        """The page ends."""
        while self._open:
            self._pop()

    def _close(self, names: frozenset[str], barriers: frozenset[str]) -> None:
        """Close the outermost of these elements that is open within the innermost of `barriers`."""
        found = 0
        for depth, element in enumerate(reversed(self._open), 1):
            if element.name in barriers or depth > REACH:
                break
            found = depth if element.name in names else found
        for _ in range(found):
            self._pop()

    def _pop(self) -> str:
        element = self._open.pop()
        self._names[element.name] -= 1
        self._hiding -= element.hides
        if element.seen:
            self._on_end(element)
        return element.name


_CHARSET = re.compile(
    rb"""<(?:meta[^>]{0,500}?charset|\?xml[^>]{0,100}?encoding)\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE
)
_BREAK, _SOFT, _CELL = "\x1d", "\x1e", "\x1f"
_MARKS = re.compile("[\x1d-\x1f]")
_INNER = re.compile(r"\n(?=[^\n])")
_ANCHORS = frozenset(("¶", "#", "§", "🔗", "[link]", "[edit]"))
"""What headings have in them to be linked to."""
_DEEPEST = 8


def read_html(data: bytes) -> Content:
    """What an HTML file shows. Raises UnreadableError."""
    return content_of(_text(data))


def read_xhtml(data: bytes) -> Content:
    """What a page of an e-book shows: it is XML, also where it does not begin as that. Raises UnreadableError."""
    source = _text(data).lstrip("\ufeff \t\r\n")
    return content_of(source if source.startswith("<?xml") else f"<?xml?>{source}")


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
    codec = declared_codec(name)
    if not codec or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return decoded(data)
    if b"\0" in data:
        raise FileUnreadableError("is a binary file")
    try:
        if name != "iso-2022-jp":
            return data.decode()
    except UnicodeDecodeError:
        pass
    return data.decode(codec, "replace")


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
        self._elements = Elements(self._on_begin, self._on_end)
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

    def _on_begin(self, element: Element) -> None:
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

    def _on_end(self, element: Element) -> None:
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
        """Begin a new line for a block within preformatted text."""
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

"""Elements: which are open as the tags of a page come, and which of them nobody sees.

The rule: a tag costs the same however deep it stands. So where browsers look through all that is open, this looks at
the innermost `REACH`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kvchat.documents.reading.markup import Tag

REACH = 64
VOID = frozenset(("area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen",
                  "link", "meta", "param", "source", "track", "wbr"))
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
PARTS = frozenset(("div", "p", "article", "aside", "section", "header", "footer", "main", "nav", "hgroup", "figure",
                   "figcaption", "address", "center", "blockquote", "details", "summary", "label", "legend", "dialog",
                   "fieldset", "form", "search", "dt"))
"""Blocks that only part their words from others."""
LISTS = frozenset(("ul", "ol", "menu", "dir"))
BLOCKS = (PARTS - {"label", "dt"}) | LISTS | HEADINGS | frozenset(
    ("body", "html", "head", "pre", "listing", "dl", "dt", "dd", "li", "table", "caption", "thead", "tbody", "tfoot",
     "tr", "td", "th"))

_UNSEEN = frozenset(("script", "style", "template", "noscript", "noembed", "noframes", "iframe", "object", "applet",
                     "audio", "video", "canvas", "svg", "datalist", "xmp", "plaintext", "rp"))
_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    r"|(?<![\w-])(?:opacity|font-size)\s*:\s*[+-]?0*\.?0+(?:px|pt|r?em|%)?\s*(?:!|;|$)", re.IGNORECASE)
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
    "td": (_CELLS, _TO_TABLE | {"tr"}), "th": (_CELLS, _TO_TABLE | {"tr"}),
    "tr": (_ROWS, _TO_TABLE),
    "thead": (_GROUPS, _TO_TABLE), "tbody": (_GROUPS, _TO_TABLE), "tfoot": (_GROUPS, _TO_TABLE),
    "option": (frozenset(("option",)), frozenset(("select", "datalist"))),
}
"""What a start tag closes, and what ends the search for it."""
_PARAGRAPH = frozenset(("p",))
_AROUND_PARAGRAPH = _SCOPES | {"button", "div", "section", "article", "li"}


@dataclass(frozen=True, slots=True)
class Element:
    """An element that is open."""

    name: str
    hides: bool
    """Whether it is hidden itself, with all that is in it."""
    seen: bool


def hides(tag: Tag) -> bool:
    """Whether an element of this start tag is hidden from a person."""
    attributes = tag.attributes
    if tag.name in _UNSEEN:
        return True
    if not attributes:
        return tag.name == "dialog"
    if tag.name in _ALWAYS:
        return False
    style = attributes.get("style", "")
    return ("hidden" in attributes or attributes.get("aria-hidden", "").strip().lower() == "true"
            or (tag.name == "dialog" and "open" not in attributes)
            or bool(style and _STYLE.search(_COMMENT.sub("", style).strip())))


class Elements:
    """The open elements. `begun` and `ended` are told of those that are seen."""

    def __init__(self, begun: Callable[[Element], None], ended: Callable[[Element], None]) -> None:
        self._begun = begun
        self._ended = ended
        self._open: list[Element] = []
        self._names: Counter[str] = Counter()
        self._hiding = 0

    @property
    def hidden(self) -> bool:
        """Whether nobody sees what comes now."""
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
            self._begun(element)

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
            self._ended(element)
        return element.name

"""Ink: which words on a page of a PDF can be seen.

The rule: a word is left out only where it is sure that nobody sees it; in doubt it stays. It watches the page being
read, operator by operator, and empties what is shown unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PageObject

SMALLEST = 0.5
"""Points: no reader makes out what is smaller."""
NEAR = 0.98
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
        """Told of each operator, with the matrices of the page and of the text."""
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
        """Told once an operator is done: for a form or an image with all that is in it."""
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
    """Where words of a page may begin: on it, or left of it by no more than its width; None: it cannot be told."""
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
    return all(value <= 1 - NEAR for value in values) if len(values) == 4 else all(value >= NEAR for value in values)


def _empty(operator: bytes, operands: Any) -> None:
    """Take the text out of what shows it; moving to the next line stays."""
    if operator == b"TJ":
        operands[:] = [[]]
    elif operands and isinstance(operands, list):
        operands[-1] = type(operands[-1])() if isinstance(operands[-1], str | bytes) else operands[-1]

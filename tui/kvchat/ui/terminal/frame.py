"""Write frames to the terminal: of each only what the terminal does not show already.

The terminal shows the same as if everything had been written. Textual writes whole regions, the screen some five times
while an app starts; over ssh that is what the user waits for. A row with a character that terminals count differently
(emoji, flags, what is joined) is written whole when it changes, each cell where it belongs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.geometry import Size
from textual.strip import Strip

Cell = tuple[str, Style | None, int]
"""What one cell shows: a character with what is joined to it, its style, and which of the character's cells this is."""
Written = tuple[int, int, Segment]
"""Row and column of a segment, and the segment."""
Codes = tuple[str, str, str]
"""Attributes, foreground and background of a style, as terminal codes."""

GAP = 8
"""So many cells that are right are written again rather than jumped over."""
_SINGLE = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2027\u2030-\u205e\u2190-\u2193\u2500-\u25a9\u25ac-\u25b5\u25b7-\u25bf"
    "\u25c1-\u25fa\u2713\u2717\u2800-\u28ff]*"
)
"""Characters of one cell each."""
_AGREED = (
    "[ -~\u00a1-\u00ac\u00ae-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u2070-\u20cf\u2100-\u2319\u231c-\u2328"
    "\u232b-\u23e8\u23f4-\u25fc\u2600-\u2613\u2616-\u2647\u2654-\u267e\u2680-\u2692\u2694-\u26a0\u2701-\u2704"
    "\u2706-\u2709\u270c-\u2727\u2729-\u274b\u2758-\u2794\u2798-\u27af\u27b1-\u27be\u27c0-\u2b1a"
    "\u2e80-\u303e\u3041-\u33ff\u3400-\u9fff\uac00-\ud7a3\uff01-\uff60]*"
)
"""Characters to which every terminal gives the same cells: compiled where there is more than `_SINGLE`."""
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
_NOTHING: Cell = ("", None, -1)
_PLAIN: Codes = ("", "", "")


class Frame:
    """What the terminal shows."""

    def __init__(self) -> None:
        self._size = Size(0, 0)
        self._rows: list[list[Cell]] = []
        self._strips: list[dict[int, Strip]] = []
        """What was written to a row last, by column, as far as nothing was written over it: most strips are the same
        object in the next frame."""
        self._disputed: set[int] = set()
        """Rows with a character that the terminal may count differently."""

    def forget(self) -> None:
        """Something else may have written to the terminal: all of the next frame is written."""
        self._size = Size(0, 0)

    def update(self, update: CompositorUpdate, size: Size) -> CompositorUpdate:
        """`update` of a screen of this size, writing only what changes."""
        return _Changes(self, update, size) if isinstance(update, (LayoutUpdate, ChopsUpdate)) else update

    def written(self, update: LayoutUpdate | ChopsUpdate, size: Size, console: Console) -> str:
        """The output that makes the terminal show `update`; from now on it does."""
        if size != self._size:
            self._size = size
            self._rows = [[_NOTHING] * size.width for _ in range(size.height)]
            self._strips = [{} for _ in range(size.height)]
            self._disputed.clear()
        colours = console._color_system or ColorSystem.TRUECOLOR  # as Textual takes it
        return "".join(_rendered(self._changes(update), colours))

    def _changes(self, update: LayoutUpdate | ChopsUpdate) -> Iterator[Written]:
        whole = set()
        for y, x, strip in _pieces(update):
            if y >= len(self._rows) or self._strips[y].get(x) is strip:
                continue
            if y not in self._disputed and all(_is_agreed(segment.text) for segment in strip):
                yield from self._changed(y, x, strip)
            elif self._take(y, x, strip):
                whole.add(y)
            self._note(y, x, strip)
        for y in whole:
            yield from self._whole(y)

    def _take(self, y: int, x: int, strip: Strip) -> bool:
        """Take a strip for what its row is to show; whether that changes anything."""
        row = self._rows[y]
        cells = [cell for segment in strip for cell in _cells(segment)][: len(row) - x]
        changes = row[x : x + len(cells)] != cells
        row[x : x + len(cells)] = cells
        return changes

    def _whole(self, y: int) -> Iterator[Written]:
        """A row as it is to be shown. There are blanks below a character that the terminal may count as less."""
        row, x = self._rows[y], 0
        self._disputed.discard(y)
        while x < len(row):
            text, style, place = row[x]
            end = x + 1
            while end < len(row) and row[end] == (text, style, end - x):
                end += 1
            if place == 0:
                if not _is_agreed(text):
                    self._disputed.add(y)
                    yield y, x, Segment(" " * (end - x), style)
                yield y, x, Segment(text, style)
            x = end

    def _note(self, y: int, x: int, strip: Strip) -> None:
        strips, end = self._strips[y], x + strip.cell_length
        for other in [at for at, known in strips.items() if at < end and at + known.cell_length > x]:
            del strips[other]
        strips[x] = strip

    def _changed(self, y: int, x: int, strip: Strip) -> Iterator[Written]:
        """The segments of a strip that are not shown yet, and those between that are as short as a jump."""
        row = self._rows[y]
        kept: list[Written] = []
        far = True
        for segment in strip:
            cells = _cells(segment)
            end = x + len(cells)
            if row[x:end] == cells[: len(row) - x]:
                kept.append((y, x, segment))
                far = far or end - kept[0][1] > GAP
            else:
                row[x:end] = cells[: len(row) - x]
                if not far:
                    yield from kept
                yield y, x, segment
                kept.clear()
                far = False
            x = end


class _Changes(CompositorUpdate):
    """An update that is worked out when it is written."""

    def __init__(self, frame: Frame, update: LayoutUpdate | ChopsUpdate, size: Size) -> None:
        self._frame = frame
        self._update = update
        self._size = size

    def render_segments(self, console: Console) -> str:
        return self._frame.written(self._update, self._size, console)


def _pieces(update: LayoutUpdate | ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Row and column of each piece of an update, and its contents."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in strips:
                yield y, x, strip
                x += strip.cell_length
        return
    for y, x1, x2 in update.spans:
        for end, (x, chop) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if chop is not None and x <= x2 and end > x1:
                yield y, x, chop if x1 <= x and end <= x2 else chop.crop(0, min(end, x2) - x)


@lru_cache(4096)
def _is_agreed(text: str) -> bool:
    return (_SINGLE.fullmatch(text) or re.fullmatch(_AGREED, text)) is not None


def _cells(segment: Segment) -> list[Cell]:
    text, style, _ = segment
    if _SINGLE.fullmatch(text):
        return [(character, style, 0) for character in text]
    return [(character, style, at) for character, cells in _characters(text) for at in range(cells)]


@lru_cache(4096)
def _characters(text: str) -> list[tuple[str, int]]:
    """The characters of a text, each with what is joined to it and its cells."""
    found: list[tuple[str, int]] = []
    for start, end, cells in split_graphemes(text)[0]:
        character = text[start:end]
        if found and (not found[-1][1] or (_FLAG.fullmatch(found[-1][0]) and _FLAG.fullmatch(character))):
            before, more = found.pop()
            character, cells = before + character, more + cells
        found.append((character, cells))
    return found


def _rendered(written: Iterable[Written], colours: ColorSystem) -> Iterator[str]:
    """The segments where they belong, and the codes between their styles; the terminal's own style at the end."""
    now, place = _PLAIN, (-1, -1)
    for y, x, (text, style, _) in written:
        if place != (y, x):
            yield f"\x1b[{y + 1};{x + 1}H"
        place = (y, x + cell_len(text)) if _is_agreed(text) else (-1, -1)
        is_link = style is not None and style.link is not None
        wanted = _codes(style, colours) if style is not None and not is_link else _PLAIN
        if wanted != now:
            yield _change(now, wanted)
            now = wanted
        yield style.render(text, color_system=colours) if style is not None and is_link else text
    if now != _PLAIN:
        yield "\x1b[0m"


def _change(now: Codes, wanted: Codes) -> str:
    """The code that leads from one style to another."""
    if now[0] != wanted[0] or any(before and not after for before, after in zip(now, wanted, strict=True)):
        return f"\x1b[{';'.join(filter(None, ('0', *wanted)))}m"
    return f"\x1b[{';'.join(after for before, after in zip(now, wanted, strict=True) if before != after)}m"


@lru_cache(4096)
def _codes(style: Style, colours: ColorSystem) -> Codes:
    plain = style.without_color.render("x", color_system=colours)
    front, back = style.color, style.bgcolor
    return (
        plain[2 : plain.index("m")] if plain.startswith("\x1b[") else "",
        ";".join(front.downgrade(colours).get_ansi_codes()) if front is not None else "",
        ";".join(back.downgrade(colours).get_ansi_codes(foreground=False)) if back is not None else "",
    )

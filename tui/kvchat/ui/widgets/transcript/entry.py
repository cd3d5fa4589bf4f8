"""One message in the transcript: its rows, drawn when they are needed, and its height before and after.

`height` is always known; it is an estimate until the message is drawn and exact from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.strip import Strip

from kvchat.commands.keymap import KeyOf, default_key
from kvchat.commonmark import MAX_TEXT, code_blocks
from kvchat.prompt.message import Role
from kvchat.reports.rail import NO_WORD, Where
from kvchat.sanitize import clean
from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript.render.lazy_text import UNSEEN, LazyText
from kvchat.ui.widgets.transcript.render.message import CARET, NO_PICTURES, Folds, TranscriptItem, foot_rows, head_rows
from kvchat.ui.widgets.transcript.render.rows import Row
from kvchat.ui.widgets.transcript.render.sources import linked
from kvchat.ui.widgets.transcript.render.wrap import plain_rows

if TYPE_CHECKING:
    from kvchat.prompt.images import Thumbnail

if TYPE_CHECKING:  # imported with the first answer that is drawn: an empty window does not wait for it
    from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument

Live = Callable[[int], Sequence[Run]]
"""Draws the live row for a width."""


def estimated_height(text: str, width: int) -> int:
    """Rows that a message with this text will take, about."""
    return 2 + (text.count("\n") + len(text) // max(1, width) + 1 if text else 0)


def is_long(item: TranscriptItem) -> bool:
    """Whether it is laid out as it comes into view."""
    return len(item.text) > MAX_TEXT and not item.streaming


def codes_of(item: TranscriptItem) -> list[str]:
    """The code blocks of a message, in the order of their numbers."""
    return code_blocks(item.text) if item.role is Role.ASSISTANT else []


def _body_of(item: TranscriptItem) -> tuple[object, ...]:
    """What the rows of a body depend on."""
    return item.role, item.streaming, item.sources, item.text


class TranscriptEntry:
    """A message with its rows and its cache of strips."""

    def __init__(
        self,
        item: TranscriptItem,
        folds: Folds,
        width: int,
        pictures: Mapping[str, Thumbnail] = NO_PICTURES,
        has_keys: bool = False,
        key: KeyOf = default_key,
    ) -> None:
        """`pictures`: the images that can be shown, by their names. `has_keys`: whether the transcript has the
        focus, so that the keys it names work. `key`: the keys in force."""
        self._key = key
        self._pictures = pictures
        self.item = item
        self.folds = folds
        self.selected = False
        self.has_keys = has_keys
        self.stretch = NO_WORD
        """Where its tokens are."""
        self.live: Live | None = None
        self.drawn = False
        self.strips: dict[int, Strip] = {}
        """Strips by row; the widget fills it."""
        self.marks: dict[int, list[tuple[int, int]]] | None = None
        """What is found, by row; None: not looked for yet."""
        self._width = width
        self._head: list[Row] = []
        self._body: list[Row] = []
        self._foot: list[Row] = []
        self._document: MarkdownDocument | None = None
        self._long: LazyText | None = None
        """The body, where it is laid out as it comes into view."""
        self._shown: TranscriptItem | None = None
        """What the body shows."""
        self.height = estimated_height(item.text, width)

    # -- drawing

    def draw(self) -> None:
        """Make the rows, if they are not made yet; those of a very long text by `lay_out`."""
        if self.drawn:
            return
        self._draw_body()
        self._frame()
        self.drawn = True
        self._settle()

    def lay_out(self, row: int, above: int, below: int) -> int:
        """Lay out `above` and `below` rows around a row, or the end if there is none; return the row's place after
        that."""
        self.draw()
        row = min(row, self.height)
        if self._long is None:
            return row
        head, height, seen = len(self._head), len(self._body), self._long.seen
        inside = min(max(0, row - head), height)
        moved = self._long.lay_out(inside, above, below) - inside
        if self._long.seen != seen:
            self._settle()
        return row + (moved if row < head + height else len(self._body) - height)

    def is_laid_out(self, row: int) -> bool:
        """Whether a row can be shown."""
        return self.drawn and self.row(row).action != UNSEEN.action

    def release(self) -> None:
        """Forget the rows; the height stays."""
        self.drawn = False
        self._head, self._body, self._foot = [], [], []
        self._document = self._long = self._shown = None
        self.marks = None
        self.strips.clear()

    def resize(self, width: int) -> None:
        """Take another width; everything is redrawn when it is needed."""
        if width != self._width:
            self._width = width
            self.release()
            self.height = estimated_height(self.item.text, width)

    def _draw_body(self) -> int:
        """Draw the body, unless it shows the same already; returns the first of its rows that changed."""
        text, shown = self.item.text, self._shown
        if shown is not None and _body_of(shown) == _body_of(self.item):
            return len(self._body)
        self._shown = self.item
        self._long = LazyText(clean(text).strip("\n"), self._width) if is_long(self.item) else None
        if self._long is not None:
            self._document, self._body = None, self._long.rows
            return 0
        if self.item.role is not Role.ASSISTANT:
            self._body = plain_rows(clean(text).strip("\n"), self._width) if text else []
            return 0
        if self._document is None:
            from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument

            self._document = MarkdownDocument(self._width)
        changed = self._document.update(text, final=not self.item.streaming) if text or self._body else 0
        self._body = self._document.rows if text else []
        if self.item.sources:
            self._body = linked(self._body, {number for number, _ in self.item.sources})
        return changed

    def _frame(self) -> None:
        """Draw the rows around the body."""
        self._head = head_rows(self.item, self._width, self.folds, selected=self._is_keyed, key=self._key)
        self._draw_foot()

    def _draw_foot(self) -> None:
        live = self.live(self._width) if self.live else None
        self._foot = foot_rows(
            self.item,
            self._width,
            self.folds,
            live,
            selected=self.selected,
            has_keys=self.has_keys,
            pictures=self._pictures,
            key=self._key,
        )

    def _settle(self, first: int = 0) -> int:
        """The rows from `first` on have changed."""
        self.height = len(self._head) + len(self._body) + len(self._foot)
        self.marks = None
        if first:
            for row in [row for row in self.strips if row >= first]:
                del self.strips[row]
        else:
            self.strips.clear()
        return first

    # -- changes; each returns the first row that changed

    def set_item(self, item: TranscriptItem) -> int:
        """Show another state of the same message."""
        same_kind = item.role is self.item.role
        self.item = item
        if not same_kind:
            self._document = None
        return self._redraw()

    def stream(self, text: str, reasoning: str, call: str = "") -> int:
        """Show more of a streaming message."""
        begins = bool(text) != bool(self.item.text) or bool(call) != bool(self.item.call)
        head_stays, foot_stays = reasoning == self.item.reasoning and not begins, call == self.item.call
        self.item = replace(self.item, text=text, reasoning=reasoning, call=call)
        if not self.drawn:
            self.height = estimated_height(self.item.text, self._width)
            return 0
        caret = max(0, len(self._body) - 1)
        changed = min(self._draw_body(), caret)
        if not head_stays:
            self._frame()
            return self._settle()
        if not foot_stays:
            self._draw_foot()
        return self._settle(len(self._head) + changed)

    def set_live(self, live: Live | None) -> int:
        """Show or remove the live row below the body."""
        self.live = live
        if not self.drawn:
            return 0
        self._frame()
        return self._settle(len(self._head) + len(self._body))

    def set_folds(self, folds: Folds) -> int:
        self.folds = folds
        return self._redraw()

    def pictures_came(self) -> int:
        """More images can be shown."""
        return self._redraw() if self.drawn else 0

    def set_selected(self, selected: bool) -> int:
        """Draw as selected; the height stays."""
        self.selected = selected
        return self._redraw() if self.drawn else 0

    def set_keys(self, has_keys: bool) -> int:
        """Name the keys that work while the transcript has the focus, or how one gets there."""
        self.has_keys = has_keys
        return self._redraw() if self.drawn and (self.selected or self.item.names_keys) else 0

    def name_keys(self, key: KeyOf) -> int:
        """Name these keys from now on."""
        self._key = key
        return self._redraw() if self.drawn else 0

    @property
    def _is_keyed(self) -> bool:
        """Whether the keys of a selected message work here and now."""
        return self.selected and self.has_keys

    def _redraw(self) -> int:
        if self.drawn:
            self._draw_body()
            self._frame()
            return self._settle()
        self.height = estimated_height(self.item.text, self._width)
        return 0

    # -- reading

    def where(self, row: int) -> Where:
        """Where the tokens of a row are, as far as rows can tell."""
        there = (row + 0.5) / max(1, self.height) <= self.stretch.share
        return self.stretch.where if there else Where.NOWHERE

    def row(self, number: int) -> Row:
        """One row of a drawn message."""
        if number < len(self._head):
            return self._head[number]
        number -= len(self._head)
        if self.item.streaming and not self.item.call and number == len(self._body) - 1:
            row = self._body[number]
            return replace(row, runs=(*row.runs, CARET))
        if number < len(self._body):
            return self._keyed(self._body[number])
        return self._foot[number - len(self._body)]

    def _keyed(self, row: Row) -> Row:
        if not self._is_keyed or not row.action:
            return row
        from kvchat.ui.widgets.transcript.render.code import with_key

        return with_key(row)

    def rows(self) -> list[Row]:
        """All rows; the message is drawn for it."""
        self.draw()
        return [*self._head, *map(self._keyed, self._body), *self._foot]

    @property
    def body_start(self) -> int:
        """The first row of the body."""
        return len(self._head)

    def codes(self) -> list[str]:
        """The code blocks, in the order of their numbers."""
        return self._document.codes if self._document is not None else codes_of(self.item)

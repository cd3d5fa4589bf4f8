"""The composer's text area: Textual's own, with chips that stay whole, safe display, and keys as actions.

Showing the text never changes it. What would harm a terminal is replaced character by character on the way to the
screen, so cursor and wrapping stay true. What was pasted, attached or mentioned are spans: they move with what is
around them, and undoing brings back what they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from rich.text import Text
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.document._document import EditResult, Location, Selection
from textual.document._edit import Edit
from textual.geometry import Offset
from textual.widgets import TextArea

from kvchat.clusters import clusters
from kvchat.paths import pasted_path
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import (
    FIELD,
    MENTION,
    PASTE,
    Draft,
    Span,
    Spans,
    edited,
    given,
    label_of,
    labelled,
    plain_paste,
)
from kvchat.sanitize import clean
from kvchat.ui.bindings import binding, bindings
from kvchat.ui.widgets.composer.chips import block_of, is_long, new_label, next_number
from kvchat.ui.widgets.composer.messages import PasteRequested, PathPasted

_ENDS = re.compile(r"[\s.,;:!?)\]}'’”»…]")
"""What may stand right behind a mention."""

MOST_BLINKS = 20
"""How often the cursor goes or comes, each half a second, after a key; then it stays."""


class HasSpans(Protocol):
    """A text area with its spans."""

    spans: Spans

    def offset_of(self, location: Location) -> int: ...


@dataclass
class SpanEdit(Edit):
    """An edit with the spans of what it puts in, counted from its beginning. `area` is the one it is done in."""

    area: HasSpans
    put: Spans
    _before: Spans = field(init=False, default=())

    def do(self, text_area: TextArea, record_selection: bool = True) -> EditResult:
        start, end = self.area.offset_of(self.top), self.area.offset_of(self.bottom)
        spans = self._before = self.area.spans
        if self.text:
            spans = tuple(span for span in spans if not _grows(span, start, end, self.text))
        self.area.spans = edited(spans, start, end, len(self.text), self.put)
        return super().do(text_area, record_selection)

    def undo(self, text_area: TextArea) -> EditResult:
        self.area.spans = self._before
        return super().undo(text_area)


def _grows(span: Span, start: int, end: int, text: str) -> bool:
    """Whether this insertion makes another word of a mention, which is then followed afresh."""
    if span.kind != MENTION:
        return False
    return (span.end == start and not _ENDS.match(text)) or (span.start == end and not text[-1].isspace())


_NOTHING = "\u200c"
"""Shown for a character that takes no cell and must not reach a terminal: harmless, and no cell wide either."""


class _Shown(dict[int, str]):
    """A translation table made as it is needed: each character as one character that is safe to show."""

    def __missing__(self, code: int) -> str:
        shown = clean(chr(code))
        self[code] = shown if shown and (shown != "\ufffd" or code == 0xFFFD) else _NOTHING
        return self[code]


_SHOWN = _Shown()


class ComposerText(TextArea):
    """Edits the message. Keys that mean more than an edit are announced; `Composer` decides."""

    DEFAULT_CSS = """
    ComposerText {
        height: auto; max-height: 12; width: 1fr;
        border: none; padding: 0; background: transparent; color: $foreground;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        & .text-area--cursor-line { background: transparent; }
        & .text-area--placeholder { color: $foreground 60%; }
        & .composer--chip { background: $accent 22%; color: $foreground; text-style: bold; }
        &:ansi .text-area--placeholder { color: ansi_default; text-style: dim; }
        &:ansi .composer--chip { background: ansi_default; color: $accent; text-style: bold; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"composer--chip"}
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("composer"),
        binding("undo", "undo_typing"),
        Binding("super+c", "copy", "Copy", show=False),
        Binding("escape", "key('escape')", "Close the list", show=False),
    ]

    def __init__(self, decide: Callable[[str], bool], *, cursor_blink: bool) -> None:
        self.chips: dict[str, ContextBlock] = {}
        """The pastes and files at hand, by label: a label that is pasted or recalled becomes its chip again."""
        self.spans: Spans = ()
        """What of the text was pasted, attached or mentioned."""
        self._placed: tuple[Spans, dict[int, list[tuple[int, int]]]] = (), {}
        """Spans, and where the chips among them stand, by line."""
        self.sent: Sequence[str] = ()
        """The messages sent before, newest first."""
        self.spans_of_sent: Callable[[int], Iterable[Span]] = lambda at: ()
        """What was mentioned in one of these."""
        self.fields: frozenset[str] = frozenset()
        """The fields of the snippet that was put in last, as they stand in the text."""
        self._typed_before = 0
        """Steps of the typing that the last act came after."""
        self._recalled: int | None = None
        """Which of them was recalled last."""
        super().__init__(soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False)
        self._decide = decide
        """Acts on a key: enter, other, send, interrupt, end, tab, escape, up, down; on a click. False: it was not
        used."""
        self._blinks = 0
        """How often the cursor went or came since the last key."""
        self.cursor_blink = cursor_blink
        self.match_cursor_bracket = False

    def _toggle_cursor_blink_visible(self) -> None:
        """Stop after `MOST_BLINKS` blinks without a key: each blink is laid out and written."""
        self._blinks += 1
        if self._blinks > MOST_BLINKS:
            self._pause_blink()
        else:
            super()._toggle_cursor_blink_visible()

    def _restart_blink(self) -> None:
        self._blinks = 0
        super()._restart_blink()

    def action_messages(self) -> None:
        """Complete what is typed, else leave for the messages."""
        if not self._decide("tab"):
            self.screen.focus_next()

    def action_key(self, key: str) -> None:
        if not self._decide(key):
            raise SkipAction()

    async def _on_key(self, event: events.Key) -> None:
        """Run this widget's bindings here, in the order of the keys. Textual runs them after the event has gone up to
        the app; when several keys come in one read, the next one would have been typed by then."""
        active = None if event.is_printable else self.screen.active_bindings.get(event.key)
        if active is not None and active.node is self and active.enabled:
            event.prevent_default()
            if await self.app.run_action(active.binding.action, self):
                event.stop()

    def action_undo_typing(self) -> None:
        """Take back what was typed since the last act; where there is nothing, the key is that act's."""
        if len(self.history.undo_stack) <= self._typed_before:
            raise SkipAction()
        self.undo()

    def act_done(self) -> None:
        """An act was done: the key to undo takes it back before what was typed until now."""
        self.history.checkpoint()
        self._typed_before = len(self.history.undo_stack)

    def act_undone(self) -> None:
        """That act was taken back: what was typed before it is the next."""
        self._typed_before = 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """F6 is a key of the app; selecting a line has Home, Shift+End."""
        return action != "select_line" and super().check_action(action, parameters)

    def action_cursor_up(self, select: bool = False) -> None:
        if select and not self.text:
            self.screen.focus_next()
        elif select or not self._decide("up"):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self._decide("down"):
            super().action_cursor_down(select)

    def action_cursor_page_up(self) -> None:
        """A page up in a long message; a short one leaves the key to the transcript."""
        if not self.show_vertical_scrollbar:
            raise SkipAction()
        super().action_cursor_page_up()

    def action_cursor_page_down(self) -> None:
        if not self.show_vertical_scrollbar:
            raise SkipAction()
        super().action_cursor_page_down()

    # Text in and out.

    def edit(self, edit: Edit) -> EditResult:
        """Every change of the text comes through here; unless it says otherwise, what it puts in is pasted."""
        if not isinstance(edit, SpanEdit):
            spans = self._of_paste(edit.text)
            edit = self._edit_of(edit.text, edit.from_location, edit.to_location, spans, edit.maintain_selection_offset)
        return super().edit(edit)

    def _edit_of(
        self, text: str, start: Location, end: Location, spans: Spans = (), keeps_cursor: bool = False
    ) -> SpanEdit:
        return SpanEdit(text, start, end, keeps_cursor, self, spans)

    def _of_paste(self, text: str) -> Spans:
        return given(text, labelled(text, self.chips.get), PASTE)

    def _replace_via_keyboard(self, insert: str, start: Location, end: Location) -> EditResult | None:
        return self.edit(self._edit_of(insert, start, end))

    @property
    def draft(self) -> Draft:
        return Draft(self.text, self.spans)

    def load(self, draft: Draft) -> None:
        """Start from this draft, with an empty undo history."""
        self.load_text(draft.text)
        self._typed_before = 0
        self.fields = frozenset()
        self.spans = draft.spans
        self._keep_chips()

    def put(self, draft: Draft, *, at_top: bool = False) -> None:
        """Replace everything in one undoable step. The cursor goes to the end, or to the end of the first line."""
        self.history.checkpoint()
        self.edit(self._edit_of(draft.text, self.document.start, self.document.end, draft.spans))
        self.history.checkpoint()
        self._keep_chips()
        self.move_cursor((0, len(self.document[0])) if at_top else self.document.end)

    def _keep_chips(self) -> None:
        self.chips.update((self.text[span.start : span.end], span.block) for span in self.spans if span.block)

    def select_field(self) -> bool:
        """Select the next field of a snippet that is not filled in, from the cursor on and around; False: none is."""
        places = [
            (row, found.start(), found.end())
            for row, line in enumerate(self.document.lines)
            if self.fields
            for found in FIELD.finditer(line)
            if found[0] in self.fields
        ]
        if not places:
            return False
        here = max(self.selection)
        row, start, end = next((place for place in places if place[:2] >= here), places[0])
        self.selection = Selection((row, start), (row, end))
        return True

    def type(self, text: str) -> None:
        """Insert at the cursor what the user typed elsewhere."""
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def pick(self, text: str, start: Location, end: Location, *, mention: int) -> Location:
        """Replace what was typed with what was picked from a list; return where it ends. `mention`: how many of its
        characters are a mention."""
        self.history.checkpoint()
        result = self.edit(self._edit_of(text, start, end, (Span(0, mention, MENTION),) if mention else ()))
        self.history.checkpoint()
        return result.end_location

    @property
    def place(self) -> int:
        """The cursor's place in the text."""
        return self.offset_of(self.cursor_location)

    def offset_of(self, location: Location) -> int:
        """Where a location is in the text."""
        row, column = location
        return sum(map(len, self.document.lines[:row])) + row + column

    def _location_of(self, offset: int) -> Location:
        for row, line in enumerate(self.document.lines):
            if offset <= len(line):
                return row, offset
            offset -= len(line) + 1
        return self.document.end

    def is_pasted(self, offset: int) -> bool:
        """Whether the text there was pasted and is only text."""
        return any(span.start <= offset < span.end and not span.is_chip for span in self.spans)

    @property
    def pasted_first(self) -> str:
        """What the text begins with that was pasted and is only text."""
        first = self.spans[0] if self.spans else None
        return "" if first is None or first.start or first.kind != PASTE or first.is_chip else self.text[: first.end]

    def touch(self, start: int, end: int) -> None:
        """Make the text there a mention of the user's. That can be undone."""
        text = self.text[start:end]
        self.history.checkpoint()
        spans = (Span(0, len(text), MENTION),)
        self.edit(self._edit_of(text, self._location_of(start), self._location_of(end), spans, True))
        self.history.checkpoint()

    def confirm(self, mentions: Iterable[tuple[int, int]]) -> None:
        """Have these mentions, which were found to name something, be chips, but for one that is still being typed."""
        for start, end in mentions:
            if self.is_pasted(start) or start <= self.place <= end:
                continue
            if not any(span.start < end and span.end > start and span.is_chip for span in self.spans):
                self.spans = edited(self.spans, start, end, end - start, (Span(0, end - start, MENTION),))
                self._line_cache.clear()
                self.refresh()

    def put_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def is_at_edge(self, step: int) -> bool:
        """Whether the cursor is in the first line as it is shown (a negative step), or in the last one."""
        edge = self.navigator.is_first_wrapped_line if step < 0 else self.navigator.is_last_wrapped_line
        return edge(self.cursor_location)

    def recall(self, step: int) -> bool:
        """Go `step` messages back in time, or forward when negative. Only from an empty text or an unedited recalled
        message, and at its first or last line; False otherwise."""
        at = self._recalled
        if at is None or at >= len(self.sent) or self.text != plain_paste(self.sent[at]):
            if self.text or step < 0:
                return False
            at = -1
        if not self.is_at_edge(-step) or at + step >= len(self.sent):
            return False
        self._recalled = at + step if at + step >= 0 else None
        draft = Draft()
        if self._recalled is not None:
            text = plain_paste(self.sent[self._recalled])
            draft = Draft(text, given(text, (*self.spans_of_sent(self._recalled), *labelled(text, self.chips.get))))
        self.put(draft, at_top=step > 0)
        return True

    def paste(self, text: str) -> None:
        """Insert pasted text at the cursor: as it is, or as a chip when it is long."""
        text = plain_paste(text)
        if is_long(text):
            block = block_of(text, next_number((*self.chips, *self.sent)))
            text = label_of(block)
            self.chips[text] = block
        if text:
            result = self.replace(text, *self.selection, maintain_selection_offset=False)
            self.move_cursor(result.end_location)

    def attach(self, block: ContextBlock, instead_of: str = "") -> None:
        """Put a file in as a chip: for the last `instead_of` in the text, else at the cursor with a blank around it."""
        label = new_label(block, self.chips)
        self.chips[label] = block
        start, end = self._place_of(instead_of) or tuple(sorted(self.selection))
        line = self.document[start[0]]
        before = " " if line[: start[1]][-1:].strip() else ""
        after = " " if not self.document[end[0]][end[1] :][:1].isspace() else ""
        self.history.checkpoint()
        spans = tuple(span.moved(len(before)) for span in labelled(label, self.chips.get))
        result = self.edit(self._edit_of(f"{before}{label}{after}", start, end, spans))
        self.history.checkpoint()
        row, column = result.end_location
        self.move_cursor((row, column + (not after)))  # behind the blank that was there

    def _place_of(self, text: str) -> tuple[Location, Location] | None:
        """The last place of this piece of one line; None: nowhere."""
        for row in range(self.document.line_count - 1, -1, -1) if text else ():
            if (at := self.document[row].rfind(text)) >= 0:
                return (row, at), (row, at + len(text))
        return None

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        if not event.text:  # a terminal's paste of an image
            self.post_message(PasteRequested(""))
        self.paste(event.text)
        if (path := pasted_path(event.text)) is not None:
            self.post_message(PathPasted(path, plain_paste(event.text).strip()))

    def action_paste(self) -> None:
        self.post_message(PasteRequested(self.app.clipboard))

    def on_click(self, event: events.Click) -> None:
        row, column = self.get_target_document_location(event)
        if self.selection.is_empty and column < len(self.document[row]):  # else it was next to the text
            self._decide("click")

    # Chips are whole or gone, and so is what is one character to whoever reads it.

    def _wholes(self, row: int) -> list[tuple[int, int]]:
        """The spans of a line that the cursor steps over."""
        line = self.document[row]
        return [*self._chips_in(row), *clusters(line)]

    def _widened(self, start: Location, end: Location) -> tuple[Location, Location]:
        """The range, grown to take all of every whole it takes a part of."""
        (top_row, top), (bottom_row, bottom) = sorted((start, end))
        for left, right in self._wholes(top_row):
            if left < top < right:
                top = left
            if top_row == bottom_row and left < bottom < right and top < right:
                bottom = right
        if top_row != bottom_row < self.document.line_count:  # cutting the last line goes up to the line after it
            for left, right in self._wholes(bottom_row):
                if left < bottom < right:
                    bottom = right
        return (top_row, top), (bottom_row, bottom)

    def _chips_in(self, row: int) -> Sequence[tuple[int, int]]:
        """Where chips stand in a line."""
        spans, placed = self._placed
        if spans is not self.spans:
            placed = {}
            for span in self.spans:
                if span.is_chip:
                    line, column = self._location_of(span.start)
                    placed.setdefault(line, []).append((column, column + span.end - span.start))
            self._placed = self.spans, placed
        return placed.get(row, ())

    def _delete_via_keyboard(self, start: Location, end: Location) -> EditResult | None:
        return super()._delete_via_keyboard(*self._widened(start, end))

    def validate_selection(self, selection: Selection) -> Selection:
        """Keeps both ends out of the inside of wholes; moving left or right steps over one."""
        return Selection(self._outside(selection.start), self._outside(selection.end))

    def _outside(self, location: Location) -> Location:
        row, column = location
        if row < self.document.line_count:
            for left, right in self._wholes(row):
                if left < column < right:
                    forward = self.selection.end[1] <= left and self.selection.end[0] == row
                    backward = self.selection.end[1] >= right and self.selection.end[0] == row
                    nearer = right if column - left > right - column else left
                    return row, right if forward else left if backward else nearer
        return location

    # The way to the screen.

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """As in the text area, but not while the cursor is still where an undone edit left it: Textual restores the
        cursor last, and the scrollbar that goes away in between would raise ValueError."""
        if self.cursor_location[0] >= self.document.line_count:
            return Offset(0, 0)
        return super().scroll_cursor_visible(center, animate)

    def get_line(self, line_index: int) -> Text:
        line = self.document.get_line(line_index)
        shown = line if line.isascii() and line.isprintable() else line.translate(_SHOWN)
        text = Text(shown, end="", no_wrap=True)
        for start, end in self._chips_in(line_index):
            text.stylize(self.get_component_rich_style("composer--chip"), start, end)
        return text

"""The transcript's keys and clicks: a selected message, and what can be asked for it.

Keys are bindings with ids, so that they can be rebound; what a key does with a message, the table of actions has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.binding import BindingType
from textual.geometry import Offset
from textual.message import Message
from textual.selection import Selection

from kvchat.prompt.citations import cited
from kvchat.ui.bindings import bindings
from kvchat.ui.render.message import VERSIONS, TranscriptItem
from kvchat.ui.render.sources import CITE, given, numbers_at
from kvchat.ui.widgets.jump import Letter, Target
from kvchat.ui.widgets.transcript.entry import Entry
from kvchat.ui.widgets.transcript.styles import GUTTER
from kvchat.ui.widgets.transcript.view import TranscriptView

_WORD = re.compile(r"[\w./~@:%+=-]+")


class TranscriptKeys(TranscriptView):
    """A `TranscriptView` in which messages can be selected and acted on."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("transcript")]
    FOCUS_ON_CLICK = False
    """Letters act where the user went by a key; who clicks may be writing."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._selected: str | None = None
        self._from: str | None = None
        """Where the selection of several messages began; None: at the selected one."""

    # -- the selected message, and those that were selected with it

    @property
    def selected(self) -> str | None:
        """The node id of the selected message."""
        return self._selected

    @property
    def marked(self) -> str | None:
        """The same, if some of it is in view."""
        index = self._column.find(self._selected)
        if index is None:
            return None
        top, y = self._column.top(index), round(self.scroll_y)
        last = top + self._column.entries[index].height - 1  # an empty row
        return self._selected if top < y + self._view_height and last > y else None

    @property
    def _selected_entry(self) -> Entry | None:
        index = self._column.find(self._selected)
        return None if index is None else self._column.entries[index]

    @property
    def _selected_entries(self) -> list[Entry]:
        """All that are selected, in their order."""
        index = self._column.find(self._selected)
        if index is None:
            return []
        begin = self._column.find(self._from)
        first, last = sorted((index, index if begin is None else begin))
        return self._column.entries[first : last + 1]

    @property
    def selected_items(self) -> list[TranscriptItem]:
        """The messages that are selected and marked in view, in their order."""
        return [entry.item for entry in self._selected_entries] if self.marked is not None else []

    def select(self, node_id: str | None, *, show: bool = True, extend: bool = False) -> None:
        """Select a message; `show`: scroll so that it can be read; `extend`: with all from where it began."""
        before, was = self._selected_entries, self._selected
        index = self._column.find(node_id)
        self._from = (self._from or self._selected) if extend else None
        self._selected = node_id if index is not None else None
        self._mark_selected(before)
        if self._selected != was:
            self.post_message(self.Selected(self._selected))
        if show and index is not None:
            self._show(index)

    def _mark_selected(self, before: Sequence[Entry]) -> None:
        """Draw those that are selected now as selected, and no others of those that were `before`."""
        now = self._selected_entries
        for entries, selected in (([one for one in before if one not in now], False), (now, True)):
            for entry in entries:
                if entry.selected is not selected:
                    entry.set_selected(selected)
                    self.refresh()

    def _show(self, index: int) -> None:
        """Scroll as little as is needed to see a message, its begin rather than its end."""
        entry = self._column.entries[index]
        self._column.draw_around(index, 0, self._view_height, 2 * self._view_height)
        top, page = self._column.top(index), self._view_height
        y = round(self.scroll_y)
        if top < y or entry.height > page:
            y = top
        elif top + entry.height > y + page:
            y = top + entry.height - page
        self._scroll_to_row(y)

    def _scroll_to_row(self, y: int) -> None:
        """Scroll as the user would."""
        self._place(round(self.scroll_y))
        self.scroll_to(y=max(0, y), animate=False)

    def on_focus(self, event: events.Focus) -> None:
        self._give_keys(True)
        if self.marked is None and not event.from_app_focus:  # the user begins at the last message
            self.select(None)
            self.follow()

    def on_blur(self) -> None:
        self._give_keys(False)

    def _give_keys(self, has_focus: bool) -> None:
        """The keys that messages name work from now on, or no longer."""
        for index, entry in enumerate(self._column.entries):
            height = entry.height
            first = entry.set_keys(has_focus)
            if entry.selected or entry.height != height or entry.item.names_keys:
                self._changed(index, first, height)

    # -- moving

    def action_select(self, step: int) -> None:
        """The next message, or further in one that is higher than the view."""
        entries, page = self._column.entries, self._view_height
        if not entries:
            return
        index = self._column.find(self._selected)
        if index is None:
            last = self._column.locate(min(self._column.height - 1, round(self.scroll_y) + page - 1))
            self.select(entries[last[0] if last else -1].item.node_id)
            return
        top, y = self._column.top(index), round(self.scroll_y)
        bottom = top + entries[index].height
        if step > 0 and top <= y and bottom > y + page + 1:
            self._scroll_to_row(min(y + page - 2, bottom - page))
        elif step < 0 and top < y < bottom:
            self._scroll_to_row(max(y - page + 2, top))
        elif 0 <= index + step < len(entries):
            self.select(entries[index + step].item.node_id)
        elif step > 0:
            self.action_last()

    def action_extend(self, step: int) -> None:
        """The message above (-1) or below (1) too; back towards the first one, one less."""
        index = self._column.find(self._selected)
        if index is None:
            self.action_select(step)
        elif 0 <= index + step < len(self._column.entries):
            self.select(self._column.entries[index + step].item.node_id, extend=True)

    def action_page(self, step: int) -> None:
        """One view up or down; the selection follows where the keys are for messages."""
        y = round(self.scroll_y) + step * max(1, self._view_height - 2)
        self._scroll_to_row(y)
        y = round(self.scroll_y)
        place = self._column.locate(y if step < 0 else min(self._column.height, y + self._view_height) - 1)
        if place is not None and self.has_focus:
            self.select(self._column.entries[place[0]].item.node_id, show=False)

    def action_first(self) -> None:
        if self._column.entries:
            self.select(self._column.entries[0].item.node_id)
            self._scroll_to_row(0)

    def action_last(self) -> None:
        if self._column.entries:
            self.select(self._column.entries[-1].item.node_id, show=False)
        self.follow()

    # -- the message that is selected

    def shows_selected(self) -> bool:
        """Whether a message is selected and in view. One that is not in view is shown: nothing is done with it yet."""
        index = self._column.find(self._selected)
        if index is not None and self.marked is None:
            self._show(index)
            return False
        return index is not None

    @property
    def selected_is_cut(self) -> bool:
        """Whether the selected message is an answer that was cut."""
        return (entry := self._selected_entry) is not None and entry.item.is_cut

    @property
    def can(self) -> frozenset[str]:
        """What can be done with the message that is meant, of what not every message has something for."""
        entry, found = self._selected_entry, set()
        if entry is not None and entry.item.is_cut and entry.item.goes_on:
            found.add("transcript.continue")
        if entry is not None and entry.codes():
            found.add("transcript.code")
        if entry is not None and (entry.item.sources or given(entry.item.blocks)):
            found.add("transcript.source")
        return frozenset(found)

    def code_text(self, number: int) -> str | None:
        """A code block of the message marked on the screen, else of the last one that has so many; None: none has."""
        entries = reversed(self._column.entries) if self.marked is None else [self._selected_entry]
        found = (entry.codes() for entry in entries if entry is not None)
        return next((codes[number - 1].text for codes in found if 0 < number <= len(codes)), None)

    def action_fold(self) -> None:
        """Unfold what the message has folded, or fold it all."""
        entry = self._selected_entry
        if entry is None or not self.shows_selected():
            return
        contents = {"reasoning": entry.item.reasoning, "context": entry.item.blocks, "call": entry.item.call}
        parts = [part for part, content in contents.items() if content]
        unfold = not all(getattr(entry.folds, part) for part in parts)
        for part in parts:
            if getattr(entry.folds, part) is not unfold:
                self._toggle(entry, part)

    def _toggle(self, entry: Entry, part: str) -> None:
        index = self._column.find(entry.item.node_id)
        if index is None:
            return
        unfolded = not getattr(entry.folds, part)
        folds = replace(entry.folds, **{part: unfolded})
        height = entry.height
        followed, self.following = self.following, self.following and not unfolded
        self._changed(index, entry.set_folds(folds), height)
        self.following = self.following or (followed and not self.rows_below)

    def on_key(self, event: events.Key) -> None:
        """A character that is no command here is meant for the composer."""
        # A widget gets a key before its bindings are looked at.
        if event.is_printable and event.character and event.key not in self.screen.active_bindings:
            event.stop()
            event.prevent_default()
            self.post_message(self.TypeThrough(event.character))

    # -- jump letters

    def jump_targets(self) -> list[Target]:
        """On what is in view: the messages, other versions of them, code blocks and sources."""
        found: list[Target] = []
        top, seen = round(self.scroll_y), -1
        for y in range(top, top + self._view_height):
            if (place := self._column.locate(y)) is None:
                break
            index, row = place
            entry = self._column.entries[index]
            if not entry.drawn:
                continue
            if index != seen and row < entry.height - 1:
                seen = index
                found.append(Target((entry.item.node_id, row), 0, partial(self._jump_to, entry.item.node_id)))
            found += self._targets_in(entry, row)
        return found

    def _targets_in(self, entry: Entry, number: int) -> Iterator[Target]:
        """The targets in a row of a message."""
        item, row = entry.item, entry.row(number)
        place = item.node_id, number

        def target(cell: int, message: Message) -> Target:
            return Target(place, GUTTER + cell, partial(self.post_message, message))

        action, _, value = row.action.partition(":")
        if action == "code" and len(codes := entry.codes()) >= int(value):
            yield target(-1, self.CodeCopyRequested(int(value), codes[int(value) - 1].text))
        elif row.action == "fold:context" and given(item.blocks):
            yield target(-1, self.SourcesRequested(item.node_id))
        cell = 0
        for span in row.spans:
            styles = span.style.split()
            if CITE in styles:
                yield target(cell, self.SourcesRequested(item.node_id, tuple(cited(span.text))))
            elif VERSIONS in styles and span.text:
                yield target(cell, self.BranchesRequested(item.node_id))
            cell += cell_len(span.text)

    def _jump_to(self, node: str) -> None:
        self.select(node, show=False)
        self.focus(scroll_visible=False)

    def show_letters(self, letters: Sequence[Letter]) -> None:
        self._letters = {}
        for letter in letters:
            self._letters.setdefault(letter.target.place, []).append(letter)
        self.refresh()

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        """One click does what the row says, or marks the message; two select a word, three the message's text."""
        event.prevent_default()
        offset = event.get_content_offset(self)
        place = self._column.locate(round(self.scroll_y) + offset.y) if offset is not None else None
        if offset is None or place is None or (event.chain == 1 and self.text_selection is not None):
            return
        index, row = place
        entry = self._column.entries[index]
        entry.draw()
        action, _, value = entry.row(row).action.partition(":")
        if event.chain == 2:
            self._select_word(index, row, offset.x)
        elif event.chain >= 3:
            self._select_rows(index, 0, entry.height - 1, None)
        elif action == "fold":
            self._toggle(entry, value)
        elif action == "code" and offset.x >= self.text_width + GUTTER - 9:
            codes = entry.codes()
            text = codes[int(value) - 1].text if len(codes) >= int(value) else None
            self.post_message(self.CodeCopyRequested(int(value), text))
        elif numbers := numbers_at(entry.row(row), offset.x - GUTTER):
            self.post_message(self.SourcesRequested(entry.item.node_id, numbers))
        else:
            self.select(entry.item.node_id, show=False)

    def _select_word(self, index: int, row: int, cell: int) -> None:
        text = self._row_strip(index, row, self.size.width).crop(0, cell + 1).text
        whole = " " * GUTTER + self._column.entries[index].row(row).text
        for match in _WORD.finditer(whole):
            if match.start() < len(text) <= match.end():
                self._select_rows(index, row, row, (match.start(), match.end()))

    def _select_rows(self, index: int, first: int, last: int, characters: tuple[int, int] | None) -> None:
        begin, end = characters or (GUTTER, GUTTER)
        selection = Selection(Offset(begin, self._code(index, first)), Offset(end, self._code(index, last)))
        self.screen.selections = {self: selection}

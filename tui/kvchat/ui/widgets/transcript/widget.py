"""The transcript of a conversation: one widget that draws rows itself, with no widget per message.

It shows the items it is given and posts what the user wants; it decides nothing. Keys are bindings with ids, so that
they can be rebound; what a key does with a message, the table of actions has.

In the order in which they are called:

1. `set_source`, `update_item`: messages come into the `column` (their heights, and those that were near the view).
2. `stream_text`, `end_stream`: what streams in is drawn when its time has come (`streaming`).
3. `follow`, `watch_scroll_y`: which rows are in view (`viewport`); nothing moves that the user did not move.
4. `render_line`: a row as a painted line (`painter`).
5. `select`, `find`, `jump_targets`, `on_click`: the message that is meant (`selected`), what is found in them (`find`),
   letters to jump by (`targets`), and the mouse (`copying`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias

from msgspec.structs import replace
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kvchat.commands.keymap import KeyOf, default_key
from kvchat.prompt.images import Thumbnail, sha256_of
from kvchat.reports.rail import NO_WORD, Stretch
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import Run
from kvchat.ui.widgets.jump import Letter, Target
from kvchat.ui.widgets.transcript import messages
from kvchat.ui.widgets.transcript.column import Column
from kvchat.ui.widgets.transcript.copying import place_of, selected_text, selection_of
from kvchat.ui.widgets.transcript.entry import TranscriptEntry, codes_of
from kvchat.ui.widgets.transcript.find import Finder
from kvchat.ui.widgets.transcript.items import ItemSource, ListedItems
from kvchat.ui.widgets.transcript.painter import RowPainter
from kvchat.ui.widgets.transcript.render.message import Folds, TranscriptItem
from kvchat.ui.widgets.transcript.render.sources import given, numbers_at
from kvchat.ui.widgets.transcript.selected import SelectedMessages
from kvchat.ui.widgets.transcript.streaming import Partial, Stream
from kvchat.ui.widgets.transcript.styles import CSS, GUTTER
from kvchat.ui.widgets.transcript.targets import targets_in
from kvchat.ui.widgets.transcript.viewport import Viewport

_WORD = re.compile(r"[\w./~@:%+=-]+")

__all__ = ["Transcript", "TranscriptItem"]


class Transcript(ScrollView, can_focus=True):
    """The messages of the branch in use."""

    DEFAULT_CSS = CSS
    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("transcript")]
    FOCUS_ON_CLICK = False
    """Letters act where the user went by a key; who clicks may be writing."""
    Selected: TypeAlias = messages.Selected
    CodeCopyRequested: TypeAlias = messages.CodeCopyRequested
    BranchesRequested: TypeAlias = messages.BranchesRequested
    SourcesRequested: TypeAlias = messages.SourcesRequested
    FollowChanged: TypeAlias = messages.FollowChanged
    TypeThrough: TypeAlias = messages.TypeThrough

    def __init__(
        self,
        *,
        unfold_reasoning: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._column = Column(self._entry)
        self._view = Viewport(self, self._column)
        self._selected = SelectedMessages(self._column)
        self._finder = Finder(self._column)
        self._stream = Stream(self, self._draw_partial)
        self._painter = RowPainter(self, self._finder)
        self._painting = False
        self._unfold_reasoning = unfold_reasoning
        self._key: KeyOf = default_key
        self._live: Callable[[int], Sequence[Run]] | None = None
        self._live_node: str | None = None
        """The message that has the live row."""
        self._pictures: dict[str, Thumbnail] = {}
        """The images that can be shown, by their names."""
        self._stretches: Mapping[str, Stretch] = {}
        """Where the tokens of messages are, by their node ids."""

    # -- items

    @property
    def items(self) -> Sequence[TranscriptItem]:
        """What is shown."""
        return self._column

    def set_items(self, items: Sequence[TranscriptItem]) -> None:
        """As `set_source`, for items that are there already."""
        self.set_source(ListedItems(items))

    def set_source(self, source: ItemSource) -> None:
        """Show these messages. Messages shown before keep their folds and what was drawn; if none of them was
        shown before, it is another conversation and its end is shown."""
        self._stream.flush()
        anchor = self._view.anchor()
        top = (self._column.ids[anchor[0]], anchor[1]) if anchor else None
        if all(self._column.find(id) is None for id in source.ids):
            self._view.following = True
        self._column.set(source, self.text_width)
        if self._selected.forget_missing():
            self.post_message(self.Selected(None))
        if self._selected.mark([entry for _, entry in self._column.made()]):
            self.refresh()
        self._place_live()
        index = self._column.find(top[0]) if top else None
        self._view.arrange((index, top[1]) if index is not None and top else None)
        self._finder.search_again()

    def append(self, item: TranscriptItem) -> None:
        """Show one more message at the end."""
        anchor = self._view.anchor()
        self._column.append(item)
        self._place_live()
        self._view.unseen = self._view.unseen or not self._view.following
        self._view.arrange(anchor)

    def _entry(self, item: TranscriptItem) -> TranscriptEntry:
        folds = Folds(reasoning=self._unfold_reasoning)
        entry = TranscriptEntry(item, folds, self.text_width, self._pictures, self.has_focus, self._key)
        entry.stretch = self._stretches.get(item.node_id, NO_WORD)
        return entry

    def name_keys(self, key: KeyOf) -> None:
        """Name these keys in the messages."""
        self._key = key
        for index, entry in self._column.made():
            height = entry.height
            self._view.changed(index, entry.name_keys(key), height)

    def add_pictures(self, pictures: Mapping[str, Thumbnail]) -> None:
        """Show these images, by their names, in the messages that have them."""
        self._pictures.update(pictures)
        for index, entry in self._column.made():
            if any(sha256_of(block) in pictures for block in entry.item.blocks):
                height = entry.height
                self._view.changed(index, entry.pictures_came(), height)

    def update_item(self, node_id: str, item: TranscriptItem) -> None:
        """Show another state of a message."""
        index = self._column.find(node_id)
        if index is None:
            return
        entry = self._column.entry(index)
        if entry.item != item:
            height = entry.height
            self._view.changed(index, entry.set_item(item), height)

    def unfold_reasoning(self, unfolded: bool) -> None:
        """Show all reasoning folded or unfolded, from now on too."""
        self._unfold_reasoning = unfolded
        anchor = self._view.anchor()
        for _, entry in self._column.made():
            entry.set_folds(replace(entry.folds, reasoning=unfolded))
        self._column.changed(0)
        self._view.arrange(anchor)

    # -- streaming

    def stream_text(self, node_id: str, text: str, reasoning: str = "", call: str = "") -> None:
        """What there is of a streaming message so far; drawn when its time has come."""
        self._stream.put(Partial(node_id, text, reasoning, call))

    def make_way(self) -> None:
        """A key has come: its echo goes before what streams in."""
        self._stream.make_way()

    def _draw_partial(self, partial: Partial) -> bool:
        """Draw more of a streaming message; whether it is shown."""
        index = self._column.find(partial.node)
        if index is None:
            return False
        entry = self._column.entry(index)
        height = entry.height
        self._view.changed(index, entry.stream(partial.text, partial.reasoning, partial.call), height)
        return True

    def set_live(self, live: Callable[[int], Sequence[Run]] | Sequence[Run] | str | None) -> None:
        """The row below the last message: how far the prompt is read, or what is waited for. A function draws it
        for a width in cells; None removes it."""
        if live is None or callable(live):
            self._live = live
        else:
            runs = [Run(live, "muted")] if isinstance(live, str) else list(live)
            self._live = lambda _width: runs
        self._place_live()

    def _place_live(self) -> None:
        """Give the live row to the last message only."""
        last = self._column.ids[-1] if self._column and self._live else None
        for node_id, live in ((self._live_node, None), (last, self._live)):
            index = self._column.find(node_id)
            if index is not None and (live is not None or node_id != last):
                entry = self._column.entry(index)
                height = entry.height
                self._view.changed(index, entry.set_live(live), height)
        self._live_node = last

    def end_stream(self, item: TranscriptItem) -> None:
        """A streaming message is settled: draw its final form."""
        self._stream.drop()
        self._live = None
        self._place_live()
        self.update_item(item.node_id, item)

    # -- the view

    @property
    def following(self) -> bool:
        """Whether the view stays at the end while text comes."""
        return self._view.following

    @following.setter
    def following(self, following: bool) -> None:
        self._view.following = following

    @property
    def text_width(self) -> int:
        """Cells of a row of text; what a live row is drawn for."""
        return self._view.text_width

    @property
    def rows_below(self) -> int:
        """Rows below the view."""
        return self._view.rows_below

    def follow(self) -> None:
        """Jump to the end and stay there while text comes."""
        self._view.follow()

    def on_resize(self, _event: events.Resize) -> None:
        self._view.resized()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._view.scrolled(old_value, new_value)

    # -- drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget_strips()

    def _forget_strips(self) -> None:
        self._painter.clear()
        for _, entry in self._column.made():
            entry.strips.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The painted lines. They carry no place in the text: that would give every piece of every row a style of its
        own, built and compared at each paint, and only the mouse asks, by `render_line`."""
        self._painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._painting = False

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        place = self._column.locate(self._view.y + y)
        if place is None:
            return self._painter.blank(width)
        strip = self._row_strip(*place, width)
        if self._view.unseen and not self._view.following and y == self._view.height - 1:
            return self._painter.with_more(strip, width)
        return strip

    def _row_strip(self, index: int, row: int, width: int) -> Strip:
        entry = self._column.entry(index)
        if not entry.is_laid_out(row):
            self.call_later(self._view.arrange, self._view.anchor())
            return self._painter.blank(width)
        strip = self._painter.strip(entry, index, row, width, self.text_width)
        return strip if self._painting else strip.apply_offsets(0, place_of(index, row))

    def set_rail(self, stretches: Mapping[str, Stretch]) -> None:
        """Show where the tokens of messages are; of those that are left out it is not known."""
        self._stretches, changed = stretches, False
        for _, entry in self._column.made():
            stretch = stretches.get(entry.item.node_id, NO_WORD)
            if stretch != entry.stretch:
                entry.stretch, changed = stretch, True
                entry.strips.clear()
        if changed:
            self.refresh()

    # -- the selected message, and those that were selected with it

    @property
    def selected(self) -> str | None:
        """The node id of the selected message."""
        return self._selected.node

    @property
    def marked(self) -> str | None:
        """The same, if some of it is in view."""
        index = self._selected.index
        if index is None:
            return None
        top, y = self._column.top(index), self._view.y
        last = top + self._column.entry(index).height - 1  # an empty row
        return self._selected.node if top < y + self._view.height and last > y else None

    @property
    def selected_items(self) -> list[TranscriptItem]:
        """The messages that are selected and marked in view, in their order."""
        return [entry.item for entry in self._selected.entries] if self.marked is not None else []

    def select(self, node_id: str | None, *, show: bool = True, extend: bool = False) -> None:
        """Select a message; `show`: scroll so that it can be read; `extend`: with all from where it began."""
        was = self._selected.node
        if self._selected.take(node_id, extend):
            self.refresh()
        if self._selected.node != was:
            self.post_message(self.Selected(self._selected.node))
        if show and (index := self._selected.index) is not None:
            self._view.show(index)

    def on_focus(self, event: events.Focus) -> None:
        self._give_keys(True)
        if self.marked is None and not event.from_app_focus:  # the user begins at the last message
            self.select(None)
            self.follow()

    def on_blur(self) -> None:
        self._give_keys(False)

    def _give_keys(self, has_focus: bool) -> None:
        """The keys that messages name work from now on, or no longer."""
        for index, entry in self._column.made():
            height = entry.height
            first = entry.set_keys(has_focus)
            if entry.selected or entry.height != height or entry.item.names_keys:
                self._view.changed(index, first, height)

    # -- moving

    def action_select(self, step: int) -> None:
        """The next message, or further in one that is higher than the view."""
        ids, page = self._column.ids, self._view.height
        if not ids:
            return
        index = self._selected.index
        if index is None:
            last = self._column.locate(min(self._column.height - 1, self._view.y + page - 1))
            self.select(ids[last[0] if last else -1])
            return
        top, y = self._column.top(index), self._view.y
        bottom = top + self._column.entry(index).height
        if step > 0 and top <= y and bottom > y + page + 1:
            self._view.scroll_to(min(y + page - 2, bottom - page))
        elif step < 0 and top < y < bottom:
            self._view.scroll_to(max(y - page + 2, top))
        elif 0 <= index + step < len(ids):
            self.select(ids[index + step])
        elif step > 0:
            self.action_last()

    def action_extend(self, step: int) -> None:
        """The message above (-1) or below (1) too; back towards the first one, one less."""
        index = self._selected.index
        if index is None:
            self.action_select(step)
        elif 0 <= index + step < len(self._column):
            self.select(self._column.ids[index + step], extend=True)

    def action_page(self, step: int) -> None:
        """One view up or down; the selection follows where the keys are for messages."""
        y = self._view.y + step * max(1, self._view.height - 2)
        self._view.scroll_to(y)
        y = self._view.y
        place = self._column.locate(y if step < 0 else min(self._column.height, y + self._view.height) - 1)
        if place is not None and self.has_focus:
            self.select(self._column.ids[place[0]], show=False)

    def action_first(self) -> None:
        if self._column:
            self.select(self._column.ids[0])
            self._view.scroll_to(0)

    def action_last(self) -> None:
        if self._column:
            self.select(self._column.ids[-1], show=False)
        self.follow()

    # -- the message that is selected

    def shows_selected(self) -> bool:
        """Whether a message is selected and in view. One that is not in view is shown: nothing is done with it yet."""
        index = self._selected.index
        if index is not None and self.marked is None:
            self._view.show(index)
            return False
        return index is not None

    @property
    def selected_is_cut(self) -> bool:
        """Whether the selected message is an answer that was cut."""
        return (entry := self._selected.entry) is not None and entry.item.is_cut

    @property
    def can(self) -> frozenset[str]:
        """What can be done with the message that is meant, of what not every message has something for."""
        entry, found = self._selected.entry, set()
        if entry is not None and entry.item.is_cut and entry.item.goes_on:
            found.add("transcript.continue")
        if entry is not None and entry.codes():
            found.add("transcript.code")
        if entry is not None and (entry.item.sources or given(entry.item.blocks)):
            found.add("transcript.source")
        return frozenset(found)

    def code_text(self, number: int) -> str | None:
        """A code block of the message marked on the screen, else of the last one that has this many; None: none has."""
        column, marked = self._column, self._selected.index if self.marked is not None else None
        places = reversed(range(len(column))) if marked is None else [marked]
        found = (column.entry(at).codes() if column.is_drawn(at) else codes_of(column[at]) for at in places)
        return next((codes[number - 1] for codes in found if 0 < number <= len(codes)), None)

    def action_fold(self) -> None:
        """Unfold what the message has folded, or fold it all."""
        entry = self._selected.entry
        if entry is None or not self.shows_selected():
            return
        contents = {"reasoning": entry.item.reasoning, "context": entry.item.blocks, "call": entry.item.call}
        parts = [part for part, content in contents.items() if content]
        unfold = not all(getattr(entry.folds, part) for part in parts)
        for part in parts:
            if getattr(entry.folds, part) is not unfold:
                self._toggle(entry, part)

    def _toggle(self, entry: TranscriptEntry, part: str) -> None:
        index = self._column.find(entry.item.node_id)
        if index is None:
            return
        unfolded = not getattr(entry.folds, part)
        folds = replace(entry.folds, **{part: unfolded})
        height = entry.height
        followed, self._view.following = self._view.following, self._view.following and not unfolded
        self._view.changed(index, entry.set_folds(folds), height)
        self._view.following = self._view.following or (followed and not self.rows_below)

    def on_key(self, event: events.Key) -> None:
        """A character that is no command here is meant for the composer."""
        # A widget gets a key before its bindings are looked at.
        if event.is_printable and event.character and event.key not in self.screen.active_bindings:
            event.stop()
            event.prevent_default()
            self.post_message(self.TypeThrough(event.character))

    # -- finding

    def find(self, query: str) -> int:
        """Look for `query` in the conversation and show the match nearest above the end of the view; an empty
        query ends it. Returns the number of matches."""
        found = self._finder.begin(query)
        self.refresh()
        if found:
            self._go_to_match(self._finder.nearest(self._view.y + self._view.height - 1))
        return found

    def find_next(self, step: int = 1) -> int:
        """Go to the next (1) or previous (-1) match, around the end. Returns its number from 1; 0: none."""
        number = self._finder.after(step)
        if number is None:
            return 0
        self._go_to_match(number)
        if self.has_focus:
            self.select_match()
        return number + 1

    def select_match(self) -> None:
        """Mark the message of the match that is shown."""
        if self._finder.current is not None:
            self.select(self._finder.current[0], show=False)

    def _go_to_match(self, number: int) -> None:
        top = self._finder.show(number, self._view.height)
        if top is None:
            return
        y = self._view.y
        if not y + 1 <= top < y + self._view.height - 2:
            self._view.scroll_to(top - self._view.height // 3)
        self.refresh()

    # -- jump letters

    def jump_targets(self) -> list[Target]:
        """On what is in view: the messages, other versions of them, code blocks and sources."""
        found: list[Target] = []
        top, seen = self._view.y, -1
        for y in range(top, top + self._view.height):
            if (place := self._column.locate(y)) is None:
                break
            index, row = place
            entry = self._column.entry(index)
            if not entry.drawn:
                continue
            if index != seen and row < entry.height - 1:
                seen = index
                found.append(Target((entry.item.node_id, row), 0, partial(self._jump_to, entry.item.node_id)))
            found += targets_in(entry, row, self.post_message)
        return found

    def _jump_to(self, node: str) -> None:
        self.select(node, show=False)
        self.focus(scroll_visible=False)

    def show_letters(self, letters: Sequence[Letter]) -> None:
        self._painter.set_letters(letters)
        self.refresh()

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        """One click does what the row says, or marks the message; two select a word, three the message's text."""
        event.prevent_default()
        offset = event.get_content_offset(self)
        place = self._column.locate(self._view.y + offset.y) if offset is not None else None
        if offset is None or place is None or (event.chain == 1 and self.text_selection is not None):
            return
        index, row = place
        entry = self._column.entry(index)
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
            text = codes[int(value) - 1] if len(codes) >= int(value) else None
            self.post_message(self.CodeCopyRequested(int(value), text))
        elif numbers := numbers_at(entry.row(row), offset.x - GUTTER):
            self.post_message(self.SourcesRequested(entry.item.node_id, numbers))
        else:
            self.select(entry.item.node_id, show=False)

    def _select_word(self, index: int, row: int, cell: int) -> None:
        text = self._row_strip(index, row, self.size.width).crop(0, cell + 1).text
        whole = " " * GUTTER + self._column.entry(index).row(row).text
        for match in _WORD.finditer(whole):
            if match.start() < len(text) <= match.end():
                self._select_rows(index, row, row, (match.start(), match.end()))

    def _select_rows(self, index: int, first: int, last: int, characters: tuple[int, int] | None) -> None:
        self.screen.selections = {self: selection_of(index, first, last, characters)}

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The source text of what is selected."""
        text = selected_text(self._column, selection)
        return None if text is None else (text, "\n")

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

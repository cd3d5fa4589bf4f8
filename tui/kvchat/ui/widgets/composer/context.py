"""What goes with the message: memories, files and passages found for it, and what of them the user left out.

What is shown was found for the text, or stays while the user types on; what is sent as chosen was found for exactly the
text that is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual.widget import Widget

from kvchat.prompt.drafts import Spans, cut_out, pasted_of
from kvchat.ui.widgets.composer import messages as messages
from kvchat.ui.widgets.composer.context_items import (
    FILE,
    MEMORY,
    PASSAGE,
    ContextItems,
    Count,
    Picked,
    file_item,
    memory_item,
    passage_item,
)
from kvchat.ui.widgets.composer.context_line import ContextLine
from kvchat.ui.widgets.composer.text import ComposerText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvchat.documents.collection import Passage
    from kvchat.memory.entry import Entry
    from kvchat.prompt.context import ContextBlock


class Written(NamedTuple):
    """What something is found for."""

    text: str = ""
    pasted: tuple[tuple[int, int], ...] = ()
    """What of it mentions nothing."""


class MessageContext:
    """What the app has found for the message, with the line that shows it."""

    def __init__(self, widget: Widget, area: ComposerText) -> None:
        """`widget`: the one that posts what happens; `area` has the text."""
        self._widget = widget
        self._area = area
        self.count: Count = lambda text: len(text.encode(errors="replace")) // 4
        """About how many tokens a text has; the app may know it better."""
        self.line = ContextLine()
        self._entries: dict[str, Entry] = {}
        self._passages: dict[str, Passage] = {}
        self._files: tuple[ContextBlock, ...] = ()
        self._asked = Written()
        """The text of the last `Rested`."""
        self._retrieved_for: Written | None = None
        """What the passages and files were found for; None: they are not known."""

    # Set by the app.

    def set_memories(self, entries: Sequence[Entry], text: str | None = None) -> None:
        """What would be recalled with the message, best first. `text`: the one they were found for; when another is
        being written by now they are not shown."""
        if text is None or text == self._asked.text:
            self._entries = {entry.id: entry for entry in entries} if self._asked.text else {}
            self.line.put(MEMORY, [memory_item(entry) for entry in self._entries.values()])

    def set_passages(
        self,
        passages: Sequence[Passage],
        text: str,
        spans: Spans = (),
        *,
        taken: bool = True,
        files: Sequence[ContextBlock] = (),
        outside: Mapping[str, str] | None = None,
        problems: Sequence[str] = (),
        mentions: Sequence[tuple[int, int]] = (),
        pasted: Sequence[str] = (),
        nothing: str = "",
        fixed: bool = False,
    ) -> None:
        """What was found in the documents for `text` with these spans, and the files that it mentions; not shown when
        another text is being written by now. `taken` False: passages are offered, and go only if the user takes them;
        `fixed`: they go in any case. `outside`: the real paths of files that need consent, by their references.
        `mentions`: the places of those that name something. `pasted`: mentions that are only text;
        `nothing`: that one brings nothing."""
        written, outside = Written(text, pasted_of(spans)), outside or {}
        if written != self._asked or not text:
            return
        self._retrieved_for = written
        if text == self._area.text:
            self._area.confirm(mentions)
        self._passages, self._files = {passage.ref: passage for passage in passages}, tuple(files)
        line = self.line
        line.items.offers, line.problems, line.searching = not taken, tuple(problems), False
        line.pasted, line.nothing = tuple(pasted), nothing
        line.items.put(PASSAGE, [passage_item(passage, self.count, fixed) for passage in self._passages.values()])
        line.items.put(FILE, [file_item(block, self.count, outside.get(block.ref, "")) for block in files])
        line.redraw()
        self._widget.post_message(messages.ContextChanged())

    def set_searching(self, text: str) -> None:
        """The documents are still being searched for `text`."""
        if text and text == self._asked.text and self._retrieved_for != self._asked:
            self.line.searching = True
            self.line.redraw()

    def set_sending(self, looks_up: bool) -> None:
        """Whether what goes with the message before, which is on its way, is still being looked up."""
        if self.line.sending is not looks_up:
            self.line.sending = looks_up
            self.line.redraw()

    def set_keys(self, choose: str, complete: str = "Tab") -> None:
        """The key that chooses what goes with the message, and that which makes a mention of pasted text,
        as the line shows them."""
        self.line.key_shown, self.line.complete_shown = choose, complete
        self.line.refresh()

    def decided(self) -> None:
        """Something in `items` was left out, taken along or agreed to."""
        self.line.redraw()
        self._widget.post_message(messages.ContextChanged())

    # Read by the app.

    @property
    def items(self) -> ContextItems:
        """What was found for the message, with what is left out of it."""
        return self.line.items

    @property
    def memories(self) -> tuple[Entry, ...]:
        """The memories that go with the message, as far as they have been found."""
        return tuple(self._entries[item.id] for item in self.items.kept(MEMORY))

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages that go with the message, as far as they have been found."""
        return tuple(self._passages[item.id] for item in self.items.kept(PASSAGE))

    def passages_for(self, text: str) -> tuple[Passage, ...] | None:
        """The passages that go with exactly this text; None: they have not been found yet."""
        if PASSAGE in self.items.none:
            return ()
        return self.passages if self._retrieved_for == self._written(text) else None

    def files_for(self, text: str) -> tuple[ContextBlock, ...] | None:
        """The files that go with exactly this text, as they were shown; None: its mentions have not been followed yet,
        or not all of them could be."""
        found = self._retrieved_for == self._written(text)
        return self._files if found and not self.line.problems else None

    def spans_of(self, text: str) -> Spans:
        """The spans of `text`, which is the end of what is written: what precedes it is a command, or a slash that
        begins no command."""
        begin = self._area.text.rfind(text)
        return cut_out(self._area.spans, begin, begin + len(text))

    def _written(self, text: str) -> Written:
        return Written(text, pasted_of(self.spans_of(text)))

    def picked(self) -> Picked:
        """What the user decided, also that nothing found is to go."""
        none = {item.id for item in self.items.of(PASSAGE) if PASSAGE in self.items.none}
        picked = self.items.picked
        return Picked(picked.dropped | none, picked.taken - none)

    # As the message changes.

    def rest_on(self, asked: str, key: str) -> None:
        """The typing rests, with this text, in the conversation `key`; empty: no message is being written."""
        written = self._written(asked)
        if written != self._asked:
            self._asked = written
            self._widget.post_message(messages.Rested(asked, key, self.spans_of(asked)))
        if not asked:
            self.begin()

    def begin(self, picked: Picked | None = None, none: Iterable[str] = (), agreed: Iterable[str] = ()) -> None:
        """Another message begins: nothing is found for it, and left out is only what is given."""
        self._asked, self._retrieved_for = Written(), None
        self._entries, self._passages, self._files = {}, {}, ()
        picked = picked or Picked()
        self.line.items.reset(picked.dropped, none, picked.taken, agreed)
        self.line.problems, self.line.pasted, self.line.nothing, self.line.searching = (), (), "", False
        self.line.redraw()
        self._widget.post_message(messages.ContextChanged())

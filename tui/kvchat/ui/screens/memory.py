"""The memory: everything that is remembered, what waits for the person's yes, the queue and the history.

The rule: letters are commands while the list has the focus and text while something is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

from textual import on, work
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.widgets import Input

from kvchat.memory.entry import Entry, Status
from kvchat.ui.screens.memory_acts import MemoryActs
from kvchat.ui.screens.memory_edit import EntryEditor, line_of
from kvchat.ui.screens.memory_frame import Jump
from kvchat.ui.screens.memory_keys import VIEWS, View
from kvchat.ui.screens.memory_source import Book, MemoryService
from kvchat.ui.screens.memory_work import quoted
from kvchat.ui.terminal.editor import EditorError, opened


class MemoryScreen(MemoryActs):
    """Result: the message to show, None when the screen was only closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,right", "view(1)", "Next view", show=False),
        Binding("shift+tab,left", "view(-1)", "View before", show=False),
        Binding("slash,ctrl+f", "search", "Search", show=False),
        Binding("j", "move(1)", "Down", show=False),
        Binding("k", "move(-1)", "Up", show=False),
        Binding("f", "kind(1)", "Kind", show=False),
        Binding("F", "kind(-1)", "Kind", show=False),
        Binding("n", "here", "Noted here", show=False),
        Binding("e", "edit", "Edit", show=False),
        Binding("a", "add", "Add", show=False),
        Binding("d,delete", "delete", "Delete", show=False),
        Binding("y", "accept", "Accept", show=False),
        Binding("p", "profile", "Profile", show=False),
        Binding("s", "source", "Source", show=False),
        Binding("E,ctrl+g", "editor", "Editor", show=False),
        Binding("u", "undo", "Undo", show=False),
        Binding("U", "take_back", "Take back", show=False),
        Binding("r", "retry", "Try again", show=False),
        Binding("o", "switch", "On or off", show=False),
    ]

    def __init__(self, service: MemoryService, conversation: str = "", *, query: str = "",
                 fresh: Collection[str] = (), view: View = "memories", add: bool = False, editor: str = "") -> None:
        """`add`: begin with a new memory; `editor`: the command of the person's editor."""
        super().__init__(service, conversation, query=query, fresh=fresh, view=view)
        self._begins_with_adding = add
        self._command = editor

    def on_mount(self) -> None:
        if self._begins_with_adding:
            self.action_add()

    # -- writing

    def action_add(self) -> None:
        if self.view == "memories":
            self._edit(None)

    def action_edit(self) -> None:
        if (entry := self.entry) is not None:
            self._edit(entry)

    def choose(self, index: int) -> None:
        if isinstance(self.focused, Input):
            self.rows.focus()
        elif self.view == "queue":
            self.call_later(self.action_retry)
        elif self.view == "memories":
            self.action_edit()

    def _edit(self, entry: Entry | None) -> None:
        self.add_class("-editing")
        self.editor.open(entry)

    def _close_editor(self) -> None:
        self._begins_with_adding = False
        self.remove_class("-editing")
        self.editor.close()
        self.rows.focus()

    @on(EntryEditor.Saved)
    async def _saved(self, event: EntryEditor.Saved) -> None:
        entry, text = event.entry, event.text
        if not text:
            self._close_editor()
            self.tell("" if entry is None else "Nothing was changed.")
            return

        def store(book: Book) -> tuple[str, Entry]:
            if entry is None:
                known = {old.id for old in book.entries()}
                new = book.add(text, event.kind)
                return "It is remembered already" if new.id in known else f"Remembered, in {new.page}", new
            changed = book.edit(entry.id, text)
            return ("Taken", book.accept(entry.id)) if entry.status is Status.PROPOSED else ("Changed", changed)

        done = await self.act(self.service.with_memories(store))
        if done is None:
            return  # the text stays in the field
        self._close_editor()
        self.show_rows(at=done[1].id)
        self.tell(f"{done[0]}: {quoted(done[1].text)}")

    @work(group="editor")
    async def action_editor(self) -> None:
        """The page in the person's editor, at the line of the memory under the cursor."""
        entry, taken = self.entry, self.looked
        if entry is None or taken is None:
            return
        if entry.status is Status.PROPOSED:
            self.tell("It is in no file before you take it (y).")
            return
        path, line = await asyncio.to_thread(line_of, taken.folder, entry)
        trouble = ""
        try:
            with self.app.suspend(), self.app.batch_update():  # nothing may be raised in here
                try:
                    await opened(path, line, self._command)
                except EditorError as error:
                    trouble = str(error)
        except SuspendNotSupported:
            trouble = "This terminal cannot be handed to another program, so no editor can run in it."
        self.refresh(layout=True)
        await self.look_again()
        self.tell(trouble, bad=True)

    # -- moving

    def action_view(self, step: int) -> None:
        if self.editor.is_open:
            self.editor.next_kind(step)
            return
        if isinstance(self.focused, Input):
            self.rows.focus()
            return
        views = list(VIEWS)
        self.show_view(views[(views.index(self.view) + step) % len(views)])

    def action_search(self) -> None:
        if self.view == "memories":
            self.query_one(Input).focus()

    def action_kind(self, step: int) -> None:
        if self.view == "memories":
            self.next_kind(step)

    def action_here(self) -> None:
        """Only what was noted in the open conversation, or everything."""
        if self.view == "memories" and self.conversation:
            self.filter = replace(self.filter, conversation="" if self.filter.conversation else self.conversation)
            self.show_rows()

    def action_move(self, step: int) -> None:
        if not self.editor.is_open:
            self.tell("")
            super().action_move(step)

    def action_page(self, direction: int) -> None:
        if not self.editor.is_open:
            self.tell("")
            super().action_page(direction)

    def action_close(self) -> None:
        """Out of what was begun last: editing, searching, the screen."""
        search = self.query_one(Input)
        if self.editor.is_open and not (self._begins_with_adding and self.editor.is_empty):
            self._close_editor()
        elif not self.editor.is_open and (search.value or search.has_focus):
            search.value = ""
            self.rows.focus()
        else:
            self.finish(None)

    def action_source(self) -> None:
        """Go to the message that the row under the cursor came from."""
        line, entry = self.queued, self.entry or (self.change.after if self.change is not None else None)
        if line is not None:
            conversation = line.conversation
        elif entry is not None:
            conversation = entry.conversation
        else:
            return
        if not conversation:
            self.tell("There is no conversation behind this." if line is not None
                      else "You wrote this yourself; there is no conversation behind it.")
        elif all(known.id != conversation for known in self.service.conversations()):
            self.tell("The conversation it came from is deleted.")
        else:
            self.finish(Jump(conversation, entry.nodes[0] if entry is not None and entry.nodes else None))

"""What is written and not sent, whatever it is for: the next message, questions that are being changed, a message that
was taken out of the queue, a text in a dialog.

It is stored at the latest two seconds after a key, and before kvchat ends, whatever ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.prompt.drafts import Unsent, unsent_in
from kvchat.store.conversations import SYSTEM_TYPED as SYSTEM_TYPED

MEMORY_TYPED = "typed.memory "
"""The key of what is typed as a memory, in front of the id of the one that it is the edit of."""
LONGEST_S = 1.5
"""After a key; the write comes on top."""


class WritingSurface(Protocol):
    """Where the user writes."""

    def written(self) -> tuple[str, Unsent] | None:
        """A conversation, and all that is written in it by now; None: none is open."""


class WritingField(Protocol):
    """Where the user writes a text that is no message."""

    @property
    def unsaved(self) -> str:
        """What is written by now; empty: it is as it was."""


class Drafts:
    """The unsent texts of all conversations, and the unsaved ones of dialogs."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.surface: WritingSurface | None = None
        self._due: asyncio.TimerHandle | None = None
        self._last: asyncio.Task[None] | None = None
        """The last write."""
        self._fields: dict[str, WritingField] = {}
        """Those that are open, by the setting that keeps their text."""
        self._unsaved: dict[str, str] = {}
        """By that setting: what was stored last."""

    def of(self, conversation: OpenConversation) -> Unsent:
        """What is stored of a conversation. The edit of a message that is not there any more is a message now."""
        unsent = unsent_in(conversation.draft)
        for edit in unsent.edits:
            if edit.question not in conversation.tree:
                unsent = replace(unsent.edited(edit.question, None), draft=edit.draft.before(unsent.draft))
        return unsent

    def typed(self) -> None:
        """A key has come: store what is written before long."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(LONGEST_S, self._is_due)

    def _is_due(self) -> None:
        self._due = None
        self._core.in_background(self._keep())

    async def _keep(self) -> None:
        await self.keep()

    async def keep(self) -> bool:
        """Store what is written now; whether the disk has it."""
        if self.surface is not None and (written := self.surface.written()) is not None:
            id, unsent = written
            if unsent.encoded() != self._core.conversations.load(id).draft:
                self.put(id, unsent)
        for name, field in self._fields.items():
            self.leave(name, field.unsaved)
        if self._last is not None:
            await asyncio.shield(self._last)  # each waits for itself: one that is cancelled ends no other's wait
        return not self._core.writer.unsaved

    def put(self, id: str, unsent: Unsent) -> Awaitable[None]:
        """Take this as all that is written in a conversation, at once, and store it."""
        self._last = self._core.conversations.set_draft(id, unsent.encoded())
        return asyncio.shield(self._last)

    def left(self, name: str) -> str:
        """What was written under a name (that of the setting which keeps it) and not saved; empty: nothing."""
        if name not in self._unsaved:
            self._unsaved[name] = self._core.setting(name)
        return self._unsaved[name]

    def leave(self, name: str, text: str) -> None:
        """Have this as what is written under a name, and store it; empty: it is saved, or not wanted."""
        if text != self.left(name):
            self._unsaved[name] = text
            self._last = self._core.in_background(self._core.keep_setting(name, text or None))

    def begin(self, name: str, field: WritingField) -> None:
        """The user writes in this field: its text is kept until it is saved."""
        self._fields[name] = field

    def end(self, name: str, field: WritingField) -> None:
        """A field is left. Its text stays, unless it is saved."""
        if self._fields.get(name) is field:
            del self._fields[name]
            self.leave(name, field.unsaved)

    def saved(self, name: str) -> None:
        """What was written under a name is where it belongs."""
        self._fields.pop(name, None)
        self.leave(name, "")

    async def aclose(self) -> None:
        """Store what is written for the last time."""
        await self.keep()
        self.surface = None
        if self._due is not None:
            self._due.cancel()

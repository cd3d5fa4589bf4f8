"""What is written in the composer and not sent yet: messages, questions that are edited, what the user writes in their
own editor.

Each conversation has a draft of its own, and an edit for each question that is being changed. A message on its way is
kept with what is written until it is sent, and what could not be sent is put back in front of that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.content import Content

from kvchat.chat.question.mentions import question_draft
from kvchat.prompt.drafts import Draft, Unsent, plain_paste
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.question import Question
    from kvchat.chat.turns.queue import Queued
    from kvchat.commands.editor import OutsideText
    from kvchat.ui.controllers.too_long import TooLongMessages
    from kvchat.ui.widgets.composer.widget import Composer


class DraftController:
    """Keeps what is written, and shows it where it belongs."""

    def __init__(self, workspace: Workspace, too_long: TooLongMessages) -> None:
        self.workspace = workspace
        service = workspace.service
        self._service = service
        self._conversations = service.conversations
        self._drafts = service.drafts
        self._too_long = too_long
        self._composer = workspace.screen.composer
        self._places: dict[str, float] = {}
        """By conversation: the place in the queue of the message that was taken back to be edited."""
        self._behind = Draft()
        """The message whose place in the composer an edit has."""
        self._outside: OutsideText | None = None
        """What is written in the editor."""
        self._closed = asyncio.Event()
        """Set while no editor is open: what comes back waits for that."""
        self._closed.set()
        self._began = ""
        """The conversation in which a message is being written."""
        service.drafts.surface = self

    def leave(self) -> None:
        """Store what was written until now, before something else is shown."""
        if (written := self.written()) is not None:
            self._drafts.put(*written)
        if self.workspace.editing is not None:
            self.leave_edit()

    def load(self, conversation: OpenConversation) -> None:
        """Show what is written in a conversation and not on its way: an edit that was left, else the message."""
        unsent, sending = self._drafts.of(conversation), self.workspace.outgoing.get(conversation.id)
        draft = sending.later if sending is not None and sending.is_in_draft else unsent.draft
        if unsent.place is not None:
            self._places.setdefault(conversation.id, unsent.place)
        self._began = conversation.id if draft.text else ""
        self._composer.load(draft.encoded(), conversation.id)
        if unsent.edits:
            edit = unsent.edits[-1]
            self.begin_edit(edit.question, edit.draft)

    def written(self) -> tuple[str, Unsent] | None:
        """What is written in the conversation that the composer was loaded for; what is on its way comes first."""
        editing = self.workspace.editing
        id = self._composer.key if editing is None else self.workspace.open_id
        conversation, sending = self._conversations.get(id), self.workspace.outgoing.get(id)
        if conversation is None:
            return None
        unsent, written = self._drafts.of(conversation), self._composer.contents
        if self._outside is not None and (saved := self._outside.saved) is not None:
            written = written.rewritten(plain_paste(saved))
        sent = sending.event.question.draft if sending is not None else Draft()
        if editing is not None:
            edit = written
            if sending is not None and sending.editing == editing:
                sending.later, edit = written, sent.before(written)
            asked = question_draft(conversation.tree[editing], is_edit=True)
            is_changed = (edit.text, edit.blocks) != (asked.text, asked.blocks)
            unsent, written = unsent.edited(editing, edit if is_changed else None), self._behind
        if sending is not None and sending.is_in_draft:
            sending.later = written
            written = sent.before(written)
        return id, replace(unsent, draft=written, place=self._places.get(id))

    async def changed(self, event: Composer.DraftChanged) -> None:
        """Store what was typed. An empty text may be on its way to be sent: it is stored before long."""
        id = event.key
        if not event.draft:
            self._too_long.forget(id)
            self._began = ""
            return
        if id and id != self._began and self.workspace.shows(id):
            self._began = id
            self._service.warm_up.typing_began(id)
        await self._drafts.keep()

    # -- what comes back

    async def editor_closed(self) -> None:
        """Wait until the editor is closed: what it saves takes the place of all that is in the composer."""
        await self._closed.wait()

    def restore(self, question: Question) -> None:
        """Put a message in front of what is in the composer."""
        self._composer.restore(
            question.draft, question.without, question.recalls, question.taken, question.meant.agreed
        )

    async def put_back(self, id: str, question: Question) -> None:
        """Put a message in front of what is written in its conversation."""
        if self.workspace.shows(id) and self.workspace.editing is None:
            self.restore(question)
            self._composer.focus()
        elif self.workspace.shows(id):
            self._behind = question.draft.before(self._behind)
        elif (conversation := self._conversations.get(id)) is not None:
            unsent = self._drafts.of(conversation)
            draft = question.draft.before(unsent.draft)
            await self._drafts.put(id, replace(unsent, draft=draft, place=self._places.get(id)))
        await self._drafts.keep()

    async def take_back(self, id: str, item: Queued) -> bool:
        """Put a message that is in the queue into the composer; it goes back to its place there. False: it was sent
        just now."""
        await self._drafts.keep()
        conversation = self._conversations.load(id)
        unsent = self._drafts.of(conversation)
        taken = replace(unsent, draft=item.question.draft.before(unsent.draft), place=item.place)
        if not await self._service.queue.take_back(id, item, taken.encoded()):
            return False
        if item.place is not None:
            self._places[id] = item.place
        await self.put_back(id, item.question)
        return True

    def take_place(self, id: str) -> float | None:
        """The place in the queue of the message that is written, which leaves the composer; None: it comes last."""
        return self._places.pop(id, None)

    # -- edits of questions

    def begin_edit(self, node: str, draft: Draft | None = None) -> None:
        """Put a question into the composer, to be asked again: as it was left when it was last changed, or as `draft`
        has it."""
        from kvchat.text.prices import in_brief

        self._composer.flush()
        conversation = self.workspace.conversation
        if self.workspace.editing is None:
            self._behind = self._composer.contents
        elif (written := self.written()) is not None:
            self._drafts.put(*written)
        left = next((one.draft for one in self._drafts.of(conversation).edits if one.question == node), None)
        question = question_draft(conversation.tree[node], is_edit=True)
        if (sending := self.workspace.outgoing.get(conversation.id)) is not None and sending.editing == node:
            draft = sending.later  # the edit itself is on its way
        self.workspace.editing = node
        self._composer.load("", "")
        self._composer.replace(next(one for one in (draft, left, question) if one is not None))
        asked = self._service.prices.estimate(conversation.id, "edit", node)
        cost = f" · {in_brief(asked)}" if asked.worth_asking else ""
        self._composer.add_class("-editing")
        self._composer.border_title = Content(
            f"editing, on a new branch · {self.workspace.key_of('stop')} cancels{cost}"
        )
        self._composer.focus()

    def leave_edit(self) -> None:
        """Show the message again; what was changed of a question is stored already, or is not wanted."""
        self.workspace.editing = None
        self._composer.remove_class("-editing")
        self._composer.border_title = ""
        self._composer.load(self._behind.encoded(), self.workspace.open_id)

    async def edit_sent(self, id: str, question: str, later: Draft) -> None:
        """An edit was sent; what was written since, `later` where something else is shown by now, is a part of the
        message."""
        if self.workspace.shows(id) and self.workspace.editing is not None:
            is_here = self.workspace.editing == question
            self._behind = self._behind.before(self._composer.contents if is_here else later)
            if is_here:
                self.leave_edit()
            later = Draft()
        unsent = self._drafts.of(self._conversations.load(id)).edited(question, None)
        await self._drafts.put(id, replace(unsent, draft=unsent.draft.before(later)))

    def stop_editing(self) -> bool:
        """Leave the editing, and drop what was changed; of an edit that is on its way, what was written since. Whether
        a question was edited."""
        if (node := self.workspace.editing) is None:
            return False
        id, edit = self.workspace.open_id, None
        self.leave_edit()
        if (sending := self.workspace.outgoing.get(id)) is not None and sending.editing == node:
            sending.later, edit = Draft(), sending.event.question.draft
        self._drafts.put(id, self._drafts.of(self._conversations.load(id)).edited(node, edit))
        return True

    # -- the user's editor

    @in_worker("editor")
    async def write_outside(self) -> None:
        """Write the message in the user's editor; the answer streams on meanwhile, unseen."""
        from textual.app import SuspendNotSupported

        app, trouble = self.workspace.app, ""
        try:
            # Nothing may be raised in here, or Textual would not take the terminal back; and without the batch it
            # would paint the streaming answer over the editor.
            with self.workspace.key_queue.hold(), app.suspend(), app.batch_update():
                trouble = await self._edit_outside()
        except SuspendNotSupported:
            trouble = "This terminal cannot run an editor"
        if trouble:
            self.workspace.say(trouble, "error")
        self._composer.focus()

    async def _edit_outside(self) -> str:
        """Let the editor run; what went wrong, in words."""
        from kvchat.commands.editor import EditorError, OutsideText

        trouble = ""
        self._closed.clear()
        try:
            outside = self._outside = await asyncio.to_thread(OutsideText, self._composer.text)
            await outside.edit(self._service.settings.editor, self._drafts.keep)
        except EditorError as error:
            trouble = str(error)
        if self._outside is not None and (text := self._outside.saved) is not None:
            self._composer.take_edited(text)
        self._outside = None
        self._closed.set()
        return trouble

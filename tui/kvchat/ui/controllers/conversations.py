"""What can be done with conversations as a whole: open, new, walk, find, name, delete, undo, give out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.ui.controllers.context import ContextController
    from kvchat.ui.controllers.sending import SendingController
    from kvchat.ui.controllers.view import ConversationView
    from kvchat.ui.widgets.composer.widget import Composer
    from kvchat.ui.widgets.findbar import FindBar
    from kvchat.ui.widgets.sidebar import Sidebar
    from kvchat.ui.widgets.transcript.widget import Transcript


class ConversationController:
    """Opens conversations, and does what concerns all of one."""

    def __init__(self, workspace: Workspace, service: ChatService, view: ConversationView, sending: SendingController,
                 context: ContextController, sidebar: Sidebar, transcript: Transcript, composer: Composer,
                 findbar: FindBar) -> None:
        self.workspace = workspace
        self._service = service
        self._conversations = service.conversations
        self._branches = service.branches
        self._view = view
        self._sending = sending
        self._context = context
        self._sidebar = sidebar
        self._transcript = transcript
        self._composer = composer
        self._findbar = findbar

    async def open(self, id: str, node: str | None = None) -> None:
        """Show a conversation, at a message if one is given. Raises ChatError."""
        workspace = self.workspace
        if workspace.current is not None and not workspace.shows(id):
            self._composer.flush()
            self._sending.stop_editing()
        await self._sending.keep_draft()  # of the same conversation: what was typed since the draft was last kept
        workspace.current = conversation = await self._conversations.open(id)
        if node is not None and node in conversation.tree and node not in {n.id for n in conversation.path()}:
            await workspace.attempt(self._branches.select(id, node))
        if self._findbar.is_open:
            self._findbar.action_close()
        self._composer.load(self._sending.draft_of(conversation), id)
        self._sending.show_looking_up()
        self._context.show_attached()
        self._view.show()
        self._sidebar.set_open(id)
        if node is not None:
            self._transcript.select(node)
            self._transcript.focus()
        else:
            self._composer.focus()

    async def new(self) -> None:
        await self.workspace.attempt(self._open_new())

    async def _open_new(self) -> None:
        await self.open((await self._service.new_conversations.create()).id)

    async def next(self) -> None:
        await self._step(1)

    async def previous(self) -> None:
        await self._step(-1)

    async def _step(self, step: int) -> None:
        ids, current = [c.id for c in self._conversations.all()], self.workspace.current
        if not ids or current is None:
            return
        at = ids.index(current.id) + step if current.id in ids else 0
        if 0 <= at < len(ids):
            await self.open(ids[at])

    @in_worker("dialog")
    async def pick(self) -> None:
        from kvchat.ui.screens.conversations import ConversationPicker

        match await self.workspace.ask(ConversationPicker(
                self._conversations.all(), current=self.workspace.open_id, mark=self._view.mark,
                now=self.workspace.now())):
            case ("open", str(id)):
                await self.open(id)
            case ("new", _):
                await self.new()
            case ("delete", str(id)):
                await self._delete(id)

    @in_worker("dialog")
    async def search(self, query: str = "") -> None:
        from kvchat.ui.screens.conversations import SearchScreen

        found = await self.workspace.ask(
            SearchScreen(self._conversations, query=query, now=self.workspace.now()))
        if found is not None:
            await self.open(found.conversation, found.node)

    @in_worker("dialog")
    async def rename(self, title: str = "", id: str = "") -> None:
        from kvchat.ui.screens.conversations import RenameScreen

        id = id or self.workspace.conversation.id
        title = title or await self.workspace.ask(RenameScreen(self._conversations.find(id).title)) or ""
        if title:
            await self._conversations.rename(id, title)

    async def delete(self, id: str = "") -> None:
        """Put a conversation, else the open one, into the trash."""
        if not id and self.workspace.conversation.record.turns == 0:
            self.workspace.say("This conversation is empty: nothing to delete")
            return
        await self._delete(id or self.workspace.conversation.id)

    async def _delete(self, id: str) -> None:
        """To the trash; the next one in the list is shown."""
        ids = [c.id for c in self._conversations.all()]
        at = ids.index(id) if id in ids else 0
        await self._conversations.delete(id)
        self.workspace.deleted = id
        self.workspace.say(f"Moved to trash · {self.workspace.key_of('undo')} brings it back")
        if self.workspace.shows(id):
            left = self._conversations.all()
            if left:
                await self.open(left[min(at, len(left) - 1)].id)
            else:
                await self.new()

    async def undo(self) -> None:
        id, self.workspace.deleted = self.workspace.deleted, None
        if id is None:
            await self.workspace.attempt(self._undo_branch())
            return
        await self._conversations.restore(id)
        if not self.workspace.shows(id):  # else what is being written there stays
            await self.open(id)

    async def _undo_branch(self) -> None:
        if not await self._branches.undo(self.workspace.conversation.id):
            self.workspace.say("Nothing to undo in this conversation")

    @in_worker("dialog")
    async def export(self, path: str = "") -> None:
        from kvchat.transfer.formats import TransferError
        from kvchat.ui.screens.export import ExportRequest, ExportScreen

        conversation = self.workspace.conversation
        written = [c for c in self._conversations.all() if c.turns]
        request: ExportRequest | None
        if path:
            target = Path(path)
            request = ExportRequest(target.suffix.removeprefix(".") or "md", target)
        else:
            request = await self.workspace.ask(ExportScreen(
                conversation.record if conversation.record.turns else None, conversations=len(written),
                branches=len(conversation.tree.leaves())))
        if request is None:
            return
        ids = [c.id for c in written] if request.all_conversations else [conversation.id]
        try:
            done = await self._service.exports.write(
                ids, request.format, request.path, all_branches=request.all_branches, overwrite=request.overwrite)
        except TransferError as error:
            self.workspace.say(str(error), "error")
        else:
            self.workspace.say(f"Exported to {done}")

    @in_worker("dialog")
    async def menu(self, id: str) -> None:
        """What can be done with a conversation of the list."""
        from kvchat.ui.screens.confirm import ConfirmScreen

        record = self._conversations.find(id)
        choices = [("o", "Open", "open"), ("r", "Rename", "rename"), ("e", "Export", "export"),
                   ("d", "Delete", "delete")]
        match await self.workspace.ask(ConfirmScreen(record.title, [], choices)):
            case "open":
                await self.open(id)
            case "rename":
                self.rename(id=id)
            case "export":
                await self.open(id)
                self.export()
            case "delete":
                await self._delete(id)

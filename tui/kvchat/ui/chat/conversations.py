"""Actions on conversations: new, walk, find, name, delete, give out."""

from __future__ import annotations

from pathlib import Path

from textual import work

from kvchat.prompt.conversation import Conversation
from kvchat.ui.chat.base import ChatBase
from kvchat.ui.widgets.sidebar_rows import Mark


class ConversationActs(ChatBase):
    """What can be done with conversations as a whole."""

    _deleted: str | None = None
    """The conversation deleted last, for undo."""

    async def action_new(self) -> None:
        await self.attempt(self._new())

    async def _new(self) -> None:
        await self.open_conversation((await self.service.new_conversations.create()).id)

    async def action_next(self) -> None:
        await self._step(1)

    async def action_previous(self) -> None:
        await self._step(-1)

    async def _step(self, step: int) -> None:
        ids = [c.id for c in self.service.conversations.all()]
        if not ids or self.current is None:
            return
        at = ids.index(self.current.id) + step if self.current.id in ids else 0
        if 0 <= at < len(ids):
            await self.open_conversation(ids[at])

    @work(group="dialog")
    async def action_list(self) -> None:
        from kvchat.ui.screens.picker import ConversationPicker

        picked = await self.ask(ConversationPicker(
            self.service.conversations.all(), current=self.current.id if self.current else None, mark=self.mark,
            now=self.now()))
        match picked:
            case ("open", str(id)):
                await self.open_conversation(id)
            case ("new", _):
                await self.action_new()
            case ("delete", str(id)):
                await self.delete_conversation(id)

    @work(group="dialog")
    async def action_search(self, query: str = "") -> None:
        from kvchat.ui.screens.search import SearchScreen

        found = await self.ask(SearchScreen(self.service.conversations.search, query=query, now=self.now()))
        if found is not None:
            await self.open_conversation(found.conversation, found.node)

    @work(group="dialog")
    async def action_rename(self, title: str = "", id: str = "") -> None:
        from kvchat.ui.screens.rename import RenameScreen

        id = id or self.conversation.id
        if not title:
            given = await self.ask(RenameScreen(self.service.conversations.find(id).title))
            title = given or ""
        if title:
            await self.service.conversations.rename(id, title)

    async def action_delete(self) -> None:
        if self.conversation.record.turns == 0:
            self.say("This conversation is empty; there is nothing to delete.")
            return
        await self.delete_conversation(self.conversation.id)

    async def delete_conversation(self, id: str) -> None:
        """To the trash; the next one in the list is shown."""
        ids = [c.id for c in self.service.conversations.all()]
        at = ids.index(id) if id in ids else 0
        await self.service.conversations.delete(id)
        self._deleted = id
        self.say(f"Deleted. {self.app.key_of('undo')} brings it back.")
        if self.current is not None and self.current.id == id:
            left: list[Conversation] = self.service.conversations.all()
            if left:
                await self.open_conversation(left[min(at, len(left) - 1)].id)
            else:
                await self.action_new()

    def deleted_elsewhere(self, id: str) -> None:
        """Another window deleted a conversation: undo brings it back here too."""
        self._deleted = id

    async def action_undo(self) -> None:
        if self._deleted is not None:
            id, self._deleted = self._deleted, None
            await self.service.conversations.restore(id)
            if self.current is None or self.current.id != id:  # else what is being written there stays
                await self.open_conversation(id)
            return
        await self.attempt(self._undo_branch())

    async def _undo_branch(self) -> None:
        if not await self.service.branches.undo(self.conversation.id):
            self.say("There is nothing to undo in this conversation.")

    @work(group="dialog")
    async def action_export(self, path: str = "") -> None:
        from kvchat.transfer.formats import TransferError
        from kvchat.ui.screens.export import ExportRequest, ExportScreen

        conversation = self.conversation
        written = [c for c in self.service.conversations.all() if c.turns]
        request: ExportRequest | None
        if path:
            target = Path(path)
            request = ExportRequest(target.suffix.removeprefix(".") or "md", target)
        else:
            request = await self.ask(ExportScreen(
                conversation.record if conversation.record.turns else None, conversations=len(written),
                branches=len(conversation.tree.leaves())))
        if request is None:
            return
        ids = [c.id for c in written] if request.all_conversations else [conversation.id]
        try:
            done = await self.service.exports.write(
                ids, request.format, request.path, all_branches=request.all_branches, overwrite=request.overwrite)
        except TransferError as error:
            self.say(str(error), "error")
        else:
            self.say(f"Exported to {done}.")

    @work(group="dialog")
    async def action_menu(self, id: str) -> None:
        """What can be done with a conversation of the list."""
        from kvchat.ui.screens.confirm import ConfirmScreen

        record = self.service.conversations.find(id)
        choices = [("o", "Open", "open"), ("r", "Rename", "rename"), ("e", "Export", "export"),
                   ("d", "Delete", "delete")]
        match await self.ask(ConfirmScreen(record.title, [], choices)):
            case "open":
                await self.open_conversation(id)
            case "rename":
                self.action_rename(id=id)
            case "export":
                await self.open_conversation(id)
                self.action_export()
            case "delete":
                await self.delete_conversation(id)

    def mark(self, id: str) -> Mark:
        """The mark of a conversation, as the sidebar shows it."""
        raise NotImplementedError

"""Act on whole conversations: open, new, walk, find, name, delete, undo, give out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.chat.events import ToolAsked
from kvchat.commands.acts import Imported
from kvchat.prompt.tags import ARCHIVE, FAVOURITE
from kvchat.text.messages import queued_words
from kvchat.text.snapshots import kept_short
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.ui.controllers.context import ContextController
    from kvchat.ui.controllers.drafts import DraftController
    from kvchat.ui.controllers.sending import SendingController
    from kvchat.ui.controllers.view import ConversationView


class ConversationController:
    """Opens conversations, and does what concerns all of one."""

    def __init__(
        self,
        workspace: Workspace,
        view: ConversationView,
        drafts: DraftController,
        sending: SendingController,
        context: ContextController,
    ) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._conversations = service.conversations
        self._branches = service.branches
        self._view = view
        self._drafts = drafts
        self._sending = sending
        self._context = context
        self._sidebar = screen.sidebar
        self._transcript = screen.transcript
        self._composer = screen.composer
        self._findbar = screen.findbar

    async def open(self, id: str, node: str | None = None) -> None:
        """Show a conversation, at a message if one is given. Raises ChatError."""
        workspace = self.workspace
        if not workspace.shows(id):
            workspace.key_queue.give_up(long=False)  # what was to be asked about the one that is left
            await self._drafts.editor_closed()
        await self._service.drafts.keep()
        conversation = await self._conversations.open(id)
        self._drafts.leave()
        workspace.current = conversation
        if node is not None and node in conversation.tree and node not in {n.id for n in conversation.path()}:
            await workspace.attempt(self._branches.select(id, node))
        if self._findbar.is_open:
            self._findbar.action_close()
        self._drafts.load(conversation)
        self._sending.show_looking_up()
        self._context.show_attached()
        self._view.show()
        self._sidebar.set_open(id)
        workspace.questions.look()
        if id in self._service.tools.waiting:
            self._service.events.tell(ToolAsked(id))
        if node is not None:
            self._transcript.select(node)
        self._composer.focus()

    @in_worker("dialog")
    async def pick(self) -> None:
        from kvchat.ui.screens.conversations import ConversationPicker, ConversationRowData

        workspace, acts = self.workspace, self.workspace.acts.conversations
        query, at, row = "", workspace.open_id, 0
        while True:
            with workspace.key_queue.coming() as dialog:
                states = (await self._service.kept.room()).states
            if dialog.is_given_up:
                return None
            kept = {state.kept.id: kept_short(state) for state in states}
            data = ConversationRowData(
                now=workspace.now(),
                mark=self._view.mark,
                state=self._view.state,
                turns=self._conversations.branch_turns,
                queued={id: queued_words(number) for id, number in self._view.held().items()},
                kept=kept,
            )
            known = self._conversations.all()
            picker = ConversationPicker(known, data, current=workspace.open_id, query=query, at=at, row=row)
            match await workspace.ask(picker):
                case ("open", str(id)):
                    return await self.open(id)
                case ("rename", str(id)):
                    await workspace.attempt(acts.rename(id=id))
                case ("delete", str(id)):
                    await workspace.attempt(acts.delete(id))
                case ("menu", str(id)):
                    if await self._menu(id):
                        return None
                case ("search", str(words)):
                    self.search(words)
                    return None
                case ("new", _):
                    await workspace.attempt(acts.new())
                    return None
                case _:
                    return None
            query, at, row = picker.query_text, id, picker.row

    @in_worker("dialog")
    async def search(self, query: str = "") -> None:
        from kvchat.ui.screens.conversations import SearchScreen

        found = await self.workspace.ask(SearchScreen(self._conversations, query=query, now=self.workspace.now()))
        if found is not None:
            await self.open(found.conversation, found.node)

    def known_tags(self) -> list[str]:
        """The tags that conversations have, by name."""
        return sorted({tag for one in self._conversations.all() for tag in one.tags})

    async def export(self) -> None:
        """Ask what to export and where to, and write it. Raises ChatError and TransferError."""
        from kvchat.ui.screens.export import ExportScreen

        conversation = self.workspace.conversation
        request = await self.workspace.ask(
            ExportScreen(
                conversation.record if conversation.record.turns else None,
                conversations=sum(bool(one.turns) for one in self._conversations.all()),
                branches=len(conversation.tree.leaves()),
            )
        )
        if request is not None:
            await self.workspace.acts.conversations.write(request)

    @in_worker("dialog")
    async def take_in(self, path: str = "") -> None:
        """Import conversations."""
        from kvchat.ui.screens.imports import ImportScreen

        report = await self.workspace.ask(
            ImportScreen(
                lambda path, report, stopped: self._service.imports.run([path], on_progress=report, stopped=stopped),
                path,
            )
        )
        if report is not None and report.batch:
            self.workspace.acts.conversations.did(Imported(report.batch))
            self.workspace.say(f"{report.lines()[0]} {self.workspace.key_of('undo')} undoes it.")

    @in_worker("dialog")
    async def menu(self, id: str) -> None:
        """What can be done with a conversation of the list."""
        await self._menu(id)

    async def _menu(self, id: str) -> bool:
        """Ask what to do with a conversation, and do it; whether it is open by that."""
        record = self._conversations.find(id)
        favourite, archived = FAVOURITE in record.tags, ARCHIVE in record.tags
        choices = [
            ("o", "Open", "open"),
            ("r", "Rename", "rename"),
            ("f", "No longer a favourite" if favourite else "Favourite", "favourite"),
            ("k", "No longer kept" if id in self._service.claims.conversations() else "Keep", "keep"),
            ("a", "Back into the list" if archived else "Archive", "archive"),
            ("t", "Tags", "tags"),
            ("e", "Export", "export"),
            ("d", "Delete", "delete"),
        ]
        workspace, acts = self.workspace, self.workspace.acts.conversations
        match await workspace.choose(record.title, [], choices, letter=True):
            case "open":
                await self.open(id)
                return True
            case "rename":
                await workspace.attempt(acts.rename(id=id))
            case "favourite":
                await workspace.attempt(acts.favourite(id))
            case "keep":
                await workspace.attempt(acts.keep(id=id))
            case "archive":
                await workspace.attempt(acts.archive(id))
            case "tags":
                await workspace.attempt(acts.tag(id=id))
            case "export":
                await self.open(id)
                await workspace.attempt(acts.export())
                return True
            case "delete":
                await workspace.attempt(acts.delete(id))
        return False

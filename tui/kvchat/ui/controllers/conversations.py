"""Act on whole conversations: open, new, walk, find, name, delete, undo, give out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.errors import ChatError
from kvchat.chat.events import ToolAsked
from kvchat.prompt.tags import ARCHIVE, FAVOURITE, TagError, written_tags
from kvchat.text.messages import queued_words
from kvchat.text.options import changed_words
from kvchat.text.problems import ChatProblem
from kvchat.text.snapshots import KEPT, KEPT_HERE, RELEASED, kept_short
from kvchat.ui.controllers.workspace import Deleted, Forked, Imported, Tagged, Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.chat.conversations.personas import Personas
    from kvchat.chat.service import ChatService
    from kvchat.chat.trunks import Trunks
    from kvchat.ui.controllers.context import ContextController
    from kvchat.ui.controllers.sending import SendingController
    from kvchat.ui.controllers.view import ConversationView
    from kvchat.ui.widgets.composer.widget import Composer
    from kvchat.ui.widgets.findbar import FindBar
    from kvchat.ui.widgets.sidebar import Sidebar
    from kvchat.ui.widgets.transcript.widget import Transcript


class ConversationController:
    """Opens conversations, and does what concerns all of one."""

    def __init__(
        self,
        workspace: Workspace,
        service: ChatService,
        view: ConversationView,
        sending: SendingController,
        context: ContextController,
        sidebar: Sidebar,
        transcript: Transcript,
        composer: Composer,
        findbar: FindBar,
        personas: Personas,
    ) -> None:
        self.workspace = workspace
        self._personas = personas
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
        await self._service.drafts.keep()
        if workspace.editing is not None:
            self._sending.leave_edit()
        workspace.current = conversation = await self._conversations.open(id)
        if node is not None and node in conversation.tree and node not in {n.id for n in conversation.path()}:
            await workspace.attempt(self._branches.select(id, node))
        if self._findbar.is_open:
            self._findbar.action_close()
        self._sending.load(conversation)
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

    async def new(self, tools: str = "") -> None:
        """`tools`: names of those that the model may call; empty: the usual ones."""
        await self.workspace.attempt(self._open_new(tools.replace(",", " ").split() or None))

    async def _open_new(self, tools: Sequence[str] | None) -> None:
        await self.open((await self._service.new_conversations.create(tools=tools)).id)
        if tools:
            self.workspace.say(self.workspace.tools_sentence())

    @in_worker("dialog")
    async def new_with_persona(self, name: str = "") -> None:
        from kvchat.ui.screens.beginnings import persona_screen

        if not name:
            chosen = await self.workspace.ask(persona_screen(self._personas.all(), str(self._personas.folder)))
            if chosen is None:
                return
            name = chosen
        await self.workspace.attempt(self.begin_as(name))

    async def begin_as(self, name: str) -> None:
        """Open a new conversation with a persona; the composer holds the beginning of its first message. Raises
        ChatError."""
        persona = self._personas.find(name).below(self.workspace.app.layers().options)
        for problem in self._personas.problems(name):
            self.workspace.say(problem, "warning")
        await self.open((await self._service.new_conversations.create(persona=persona)).id)
        if persona.first_message:
            self._composer.fill(persona.first_message)

    @in_worker("dialog")
    async def new_with_trunk(self, words: str = "") -> None:
        if self._service.trunks is None:
            self.workspace.say(ChatProblem.NO_TRUNKS, "warning")
            return
        await self.workspace.attempt(self._begin_with_trunk(self._service.trunks, words.split()))

    async def _begin_with_trunk(self, trunks: Trunks, words: list[str]) -> None:
        name: str | None
        if words[:1] == ["add"]:
            from kvchat.commands.trunks import made

            name, sentence = await made(trunks, words[1:])
            self.workspace.say(sentence)
        else:
            name = words[0] if words else await self._chosen_trunk(trunks)
        if name:
            await self.begin_with_trunk(name)

    async def _chosen_trunk(self, trunks: Trunks) -> str | None:
        from kvchat.ui.screens.beginnings import trunk_screen

        with self.workspace.app.key_queue.coming() as dialog:
            found = [await trunks.find(name) for name in trunks.names()]
        if dialog.is_given_up:
            return None
        return await self.workspace.ask(trunk_screen(found))

    async def begin_with_trunk(self, name: str) -> None:
        """Open a new conversation that begins with a trunk. Raises ChatError."""
        trunks = self._service.trunks
        if trunks is None:
            raise ChatError(ChatProblem.NO_TRUNKS)
        conversation, changed = await trunks.begin(name)
        await self.open(conversation.id)
        if changed:
            self.workspace.say(changed_words(name, changed), "warning")

    async def next(self) -> None:
        await self._step(1)

    async def previous(self) -> None:
        await self._step(-1)

    async def _step(self, step: int) -> None:
        ids, current = [c.id for c in self._conversations.shown()], self.workspace.current
        if not ids or current is None:
            return
        at = ids.index(current.id) + step if current.id in ids else 0
        if 0 <= at < len(ids):
            await self.open(ids[at])
        else:
            self.workspace.say(
                "This is the last conversation of the list"
                if step > 0
                else "This is the first conversation of the list"
            )

    @in_worker("dialog")
    async def pick(self) -> None:
        from kvchat.ui.screens.conversations import ConversationPicker

        query, at, row = "", self.workspace.open_id, 0
        while True:
            with self.workspace.app.key_queue.coming() as dialog:
                states = (await self._service.kept.room()).states
            if dialog.is_given_up:
                return None
            kept = {state.kept.id: kept_short(state) for state in states}
            picker = ConversationPicker(
                self._conversations.all(),
                current=self.workspace.open_id,
                mark=self._view.mark,
                state=self._view.state,
                queued={id: queued_words(number) for id, number in self._view.held().items()},
                query=query,
                at=at,
                row=row,
                now=self.workspace.now(),
                kept=kept,
                turns=self._conversations.branch_turns,
            )
            match await self.workspace.ask(picker):
                case ("open", str(id)):
                    return await self.open(id)
                case ("rename", str(id)):
                    await self._rename(id)
                case ("delete", str(id)):
                    await self._delete(id)
                case ("menu", str(id)):
                    if await self._menu(id):
                        return None
                case ("search", str(words)):
                    self.search(words)
                    return None
                case ("new", _):
                    return await self.new()
                case _:
                    return None
            query, at, row = picker.query_text, id, picker.row

    @in_worker("dialog")
    async def search(self, query: str = "") -> None:
        from kvchat.ui.screens.conversations import SearchScreen

        found = await self.workspace.ask(SearchScreen(self._conversations, query=query, now=self.workspace.now()))
        if found is not None:
            await self.open(found.conversation, found.node)

    @in_worker("dialog")
    async def rename(self, title: str = "", id: str = "") -> None:
        await self._rename(id or self.workspace.conversation.id, title)

    async def _rename(self, id: str, title: str = "") -> None:
        from kvchat.ui.screens.conversations import rename_screen

        title = title or await self.workspace.ask(rename_screen(self._conversations.find(id).title)) or ""
        if title:
            await self._conversations.rename(id, title)

    async def fork(self, node: str) -> None:
        """Open a fork of the open conversation that ends at a message. Raises ChatError."""
        origin = self.workspace.conversation.id
        fork = await self._branches.fork(origin, node)
        await self.open(fork.id)
        self.workspace.did(Forked(fork.id, origin))

    async def favourite(self, id: str = "") -> None:
        """Have a conversation, else the open one, stand first in the list, or no longer."""
        await self._toggle(id, FAVOURITE, "Favourite: first in the list.", "No longer a favourite.")

    async def keep(self, argument: str = "", id: str = "") -> None:
        """Keep the state of a conversation, else that of the open one, up to the selected answer if there is one; or
        keep it no longer, for `off` and the second time."""
        node = "" if id else self._transcript.marked or ""
        id, states = id or self.workspace.conversation.id, self._service.kept
        if await self.workspace.attempt(states.release(id) if argument == "off" else states.switch(id, node)):
            now = self._service.claims.conversations().get(id)
            self.workspace.say(RELEASED if now is None else KEPT_HERE if now.node else KEPT)

    async def archive(self, id: str = "") -> None:
        """Take a conversation, else the open one, out of the list, or back into it."""
        await self._toggle(id, ARCHIVE, "Archived: out of the list · a filter finds it", "Back in the list.")

    async def _toggle(self, id: str, tag: str, on: str, off: str) -> None:
        id = id or self.workspace.conversation.id
        there = tag in self._conversations.find(id).tags
        if await self._retag(id, () if there else (tag,), (tag,) if there else ()):
            self.workspace.say(off if there else on)

    @in_worker("dialog")
    async def tag(self, names: str = "") -> None:
        """Put these tags on the open conversation, with a minus take them off; without a name they are asked for."""
        id = self.workspace.conversation.id
        if not names:
            return await self._ask_tags(id)
        try:
            return await self._tag(id, *written_tags(names))
        except TagError as error:
            return self.workspace.say(str(error), "warning")

    def known_tags(self) -> list[str]:
        """The tags that conversations have, by name."""
        return sorted({tag for one in self._conversations.all() for tag in one.tags})

    async def _ask_tags(self, id: str) -> None:
        from kvchat.ui.screens.conversations import tags_screen

        record = self._conversations.find(id)
        if record.turns == 0:
            return self.workspace.say("This conversation is empty; there is nothing to tag.", "warning")
        changes = await self.workspace.ask(tags_screen(record.title, record.tags, self.known_tags()))
        if changes is not None and any(changes):
            await self._tag(id, *changes)
        return None

    async def _tag(self, id: str, add: Iterable[str], remove: Iterable[str]) -> None:
        if await self._retag(id, add, remove):
            tags = self._conversations.find(id).tags
            words = f"Tags: {' '.join(f'#{tag}' for tag in tags)}" if tags else "No tags"
            self.workspace.say(f"{words} · {self.workspace.key_of('undo')} undoes it")

    async def _retag(self, id: str, add: Iterable[str], remove: Iterable[str]) -> bool:
        """Change tags, so that it can be undone; whether that was done."""
        before = self._conversations.find(id)
        if not await self.workspace.attempt(self._conversations.tag(id, add, remove)):
            return False
        was, now = set(before.tags), set(self._conversations.find(id).tags)
        self.workspace.did(Tagged(id, frozenset(now - was), frozenset(was - now)))
        return True

    async def delete(self, id: str = "") -> None:
        """Put a conversation, else the open one, into the trash."""
        if not id and self.workspace.conversation.record.turns == 0:
            self.workspace.say("This conversation is empty: nothing to delete")
            return
        await self._delete(id or self.workspace.conversation.id)

    async def _delete(self, id: str) -> None:
        """To the trash; the next one in the list is shown."""
        ids = [c.id for c in self._conversations.shown()]
        at = ids.index(id) if id in ids else 0
        await self._conversations.delete(id)
        self._composer.act_done()
        self.workspace.say(f"Moved to trash · {self.workspace.key_of('undo')} brings it back")
        if self.workspace.shows(id):
            await self._open_another(at)
        self.workspace.did(Deleted(id))

    async def _open_another(self, at: int = 0) -> None:
        """Show the conversation at this place of the list; without any a new one."""
        left = self._conversations.shown()
        if left:
            await self.open(left[min(at, len(left) - 1)].id)
        else:
            await self.new()

    async def undo(self) -> None:
        """Take back what is on the screen: the last act with whole conversations, unless another one is open since or
        this one went on; then its last change of branch. Where it has none, what was deleted or imported."""
        self._composer.act_undone()
        await self.workspace.attempt(self._undo())

    async def _undo(self) -> None:
        workspace, here = self.workspace, self.workspace.conversation.record
        last = workspace.last_act
        if last is None or (last.shown, last.head) != (here.id, here.head):
            if await self._branches.undo(here.id):
                return
            if last is None or isinstance(last.act, Tagged | Forked):
                workspace.say("Nothing to undo in this conversation")
                return
        workspace.last_act = None
        match last.act:
            case Deleted(id):
                await self._conversations.restore(id)
                if not workspace.shows(id):  # else what is being written there stays
                    await self.open(id)
            case Imported(batch):
                await self._undo_import(batch)
            case Tagged(id, added, removed):
                await self._conversations.tag(id, removed, added)
                workspace.say("The tags are as they were")
            case Forked(id, origin):
                await self.open(origin)
                await self._conversations.delete(id)
                workspace.say("Back where it was forked · the fork is in the trash")

    @in_worker("dialog")
    async def export(self, path: str = "") -> None:
        from kvchat.transfer import format_by_suffix
        from kvchat.transfer.formats import TransferError
        from kvchat.ui.screens.export import ExportRequest, ExportScreen

        conversation = self.workspace.conversation
        written = [c for c in self._conversations.all() if c.turns]
        request: ExportRequest | None
        if path:
            target = Path(path)
            request = ExportRequest(format_by_suffix(target), target)
        else:
            request = await self.workspace.ask(
                ExportScreen(
                    conversation.record if conversation.record.turns else None,
                    conversations=len(written),
                    branches=len(conversation.tree.leaves()),
                )
            )
        if request is None:
            return
        ids = [c.id for c in written] if request.all_conversations else [conversation.id]
        try:
            done = await self._service.exports.write(
                ids, request.format, request.path, all_branches=request.all_branches, overwrite=request.overwrite
            )
        except TransferError as error:
            self.workspace.say(str(error), "error")
        else:
            self.workspace.say(f"Exported to {done}")

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
            self.workspace.did(Imported(report.batch))
            self.workspace.say(f"{report.lines()[0]} {self.workspace.key_of('undo')} undoes it.")

    async def _undo_import(self, batch: str) -> None:
        from kvchat.text.imports import undone

        done = await self._service.imports.undo(batch)
        if self.workspace.conversation.record.trashed is not None:
            await self._open_another()
        self.workspace.last_act = None
        self.workspace.say(undone(done.trashed, done.kept, done.back))

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
        match await self.workspace.choose(record.title, [], choices, letter=True):
            case "open":
                await self.open(id)
                return True
            case "rename":
                await self._rename(id)
            case "favourite":
                await self.favourite(id)
            case "keep":
                await self.keep(id=id)
            case "archive":
                await self.archive(id)
            case "tags":
                await self._ask_tags(id)
            case "export":
                await self.open(id)
                self.export()
                return True
            case "delete":
                await self._delete(id)
        return False

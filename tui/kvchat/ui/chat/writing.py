"""What comes out of the composer: messages, edits, drafts, commands.

The rule: a message that could not be sent is put back into the composer, never lost.
"""

from __future__ import annotations

from textual import on, work
from textual.content import Content

from kvchat.chat.mentioning import counted_in
from kvchat.text.cache import cost_words
from kvchat.ui import actions
from kvchat.ui.chat.remembering import RememberingActs
from kvchat.ui.chat.sending import SendingActs
from kvchat.ui.chat.server import ServerActs
from kvchat.ui.widgets.composer import Composer


class WritingActs(ServerActs, RememberingActs, SendingActs):
    """Editing, drafts and commands."""

    def begin_edit(self, node: str, text: str) -> None:
        self.composer.flush()
        self.editing = node
        self.composer.load("", "")
        question = self.conversation.tree[node]
        self.composer.replace_text(text, counted_in(text, question.message.blocks) if text == question.text else ())
        asked = self.service.prices.estimate(self.conversation.id, "edit", node)
        cost = f" · reads up to {cost_words(asked.tokens, asked.seconds)}" if asked.worth_asking else ""
        self.composer.add_class("-editing")
        self.composer.border_title = Content(f"editing; Enter asks anew on a new branch, Esc cancels{cost}")
        self.composer.focus()

    def stop_editing(self) -> None:
        if self.editing is not None:
            self.editing = None
            self.composer.remove_class("-editing")
            self.composer.border_title = ""
            self.composer.load(self.draft_of(self.conversation), self.conversation.id)

    def draft_now(self) -> tuple[str, str] | None:
        """The open conversation and the draft to store of it, without waiting for the typing to rest."""
        if self.current is None or self.editing is not None:
            return None
        return self.current.id, self.kept_draft(self.current.id, self.composer.draft)

    async def keep_draft(self) -> None:
        """Store what is in the composer now."""
        if (now := self.draft_now()) is not None:
            await self.service.conversations.set_draft(*now)

    @on(Composer.DraftChanged)
    async def _draft_changed(self, event: Composer.DraftChanged) -> None:
        event.stop()
        self.show_attached()
        if not event.draft:
            self.forget_refusal(event.key)
        if event.key:
            if event.draft and self.current is not None and event.key == self.current.id and not self.current.draft:
                self.service.warm_up.typing_began(event.key)
            await self.service.conversations.set_draft(event.key, self.kept_draft(event.key, event.draft))

    @on(Composer.Rested)
    def _rested(self, event: Composer.Rested) -> None:
        """The typing rests: show what would be recalled for what was written, and what is found in the documents."""
        event.stop()
        self._recall(event.key, event.text)
        self.consult(event.text, event.typed)
        self.look_for_changes()

    @work(exclusive=True, group="recall")
    async def _recall(self, key: str, text: str) -> None:
        found = await self.service.memory.recall(key, text) if key and text else ()
        if self.current is not None and key == self.current.id:
            # The profile comes first in the question; what belongs to the question itself is shown first.
            self.composer.set_memories([entry for recalled in reversed(found) for entry in recalled.entries], text)

    def action_choose_memories(self) -> None:
        """Take the passages that are offered; go through what goes with the message; then leave all of it out."""
        if not self.composer.choose_context():
            self.say("No memories and no passages go with what is written.")

    @on(Composer.Notice)
    def _composer_notice(self, event: Composer.Notice) -> None:
        event.stop()
        self.say(event.text, "warning")

    @on(Composer.SlashCommand)
    async def _slash(self, event: Composer.SlashCommand) -> None:
        event.stop()
        action = actions.by_slash(event.name)
        if action is not None:
            await self.app.run_table_action(action, event.argument)

    @on(Composer.StopRequested)
    async def _stop_requested(self, event: Composer.StopRequested) -> None:
        event.stop()
        await self.action_interrupt()

    async def action_interrupt(self) -> None:
        """Ctrl+C: copy what is selected, else stop the answer. It never quits."""
        if selected := self.get_selected_text():
            self.copy(selected, "The selection")
            self.clear_selection()
        elif not await self._stopped():
            self.say(f"Nothing runs. {self.app.key_of('quit')} quits.")

    @on(Composer.QuitRequested)
    async def _quit_requested(self, event: Composer.QuitRequested) -> None:
        event.stop()
        await self.app.action_quit()

    async def _stopped(self) -> bool:
        if self.stop_looking_up():
            return True
        if self.current is None or self.current.id not in self.service.conversations.streaming():
            return False
        await self.service.conversations.stop(self.current.id)
        return True

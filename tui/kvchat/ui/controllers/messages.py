"""Act on the message that is marked on the screen, else on the last one: edit, ask again, copy, fork, delete, walk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kvchat.commands.acts import number_of
from kvchat.prompt.message import Node, Role
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.terminal import copy
from kvchat.ui.widgets.transcript import TranscriptItem, as_text

if TYPE_CHECKING:
    from kvchat.ui.controllers.costs import CostQuestions
    from kvchat.ui.controllers.drafts import DraftController


class MessageController:
    """Acts on messages and branches, by a key on a message, from the palette, or by a slash command."""

    def __init__(
        self,
        workspace: Workspace,
        costs: CostQuestions,
        drafts: DraftController,
    ) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._branches = service.branches
        self._tracker = service.tracker
        self._costs = costs
        self._drafts = drafts
        self._transcript = screen.transcript
        self._composer = screen.composer

    def edit(self) -> None:
        """Put the question into the composer; sending it asks again on a branch of its own. A price is asked first."""
        node = self.workspace.target()
        if node is None:
            self.workspace.say("No message to edit yet")
            return
        question, _ = self.workspace.conversation.tree.turn_of(node)
        id = self.workspace.conversation.id
        is_known = self._tracker.looked_lately(id)
        if not is_known or self.workspace.service.prices.estimate(id, "edit", question.id).worth_asking:
            self._ask_edit(question)
        else:
            self._drafts.begin_edit(question.id)

    @in_worker("dialog")
    async def _ask_edit(self, question: Node) -> None:
        conversation = self.workspace.conversation
        number = number_of(conversation, question)
        decision = await self._costs.decided(
            "edit", question.id, title=f"Edit message {number}?", instead=True, fork=True
        )
        if self.workspace.current is not conversation:
            return
        match decision:
            case "go":
                self._drafts.begin_edit(question.id)
            case "instead":
                self._composer.begin(f"Correction to my message {number}: ")
            case "fork":
                await self._fork(question.id)

    @in_worker("dialog")
    async def tree(self, node: str | None = None) -> None:
        from kvchat.ui.screens.branches import BranchTreeScreen

        conversation = self.workspace.conversation
        match await self.workspace.ask(
            BranchTreeScreen(
                conversation.tree,
                conversation.record.head,
                title=conversation.record.title,
                at=node or self._transcript.marked or conversation.elsewhere,
                now=self.workspace.now(),
                warmth=lambda tip: self._tracker.branch_warmth(conversation.id, tip),
            )
        ):
            case ("go", str(id)):
                await self.workspace.attempt(self._branches.select(conversation.id, id))
                self._transcript.select(id)
            case ("fork", str(id)):
                await self._fork(id)

    async def _fork(self, node: str) -> None:
        await self.workspace.attempt(self.workspace.acts.conversations.fork(node))

    async def show_sibling(self, step: int) -> None:
        """Go to the version of the message that is `step` away."""
        node = self.workspace.target()
        if node is None:
            return
        siblings = [n.id for n in self.workspace.conversation.tree.siblings(node)]
        at = siblings.index(node) + step
        if not 0 <= at < len(siblings):
            self.workspace.say(
                "This message has one version only"
                if len(siblings) == 1
                else f"There is no {'earlier' if step < 0 else 'later'} version of this message"
            )
        elif await self.workspace.attempt(self._branches.walk(self.workspace.conversation.id, node, step)):
            self._transcript.select(siblings[at])

    def copy_message(self) -> None:
        """Copy the messages that are selected, else the last one."""
        items = self._transcript.selected_items or self._transcript.items[-1:]
        self._copy_items(items, "No message to copy yet")

    def copy_answer(self) -> None:
        """Copy the last answer that has text."""
        answers = (item for item in reversed(self._transcript.items) if item.role is Role.ASSISTANT and item.text)
        self._copy_items([*islice(answers, 1)], "No answer to copy yet")

    def copy_all(self) -> None:
        """Copy every message of the branch that is shown."""
        self._copy_items(self._transcript.items, "No message to copy yet")

    def _copy_items(self, items: Sequence[TranscriptItem], otherwise: str) -> None:
        if items:
            self.copy(as_text(items), messages=len(items))
        else:
            self.workspace.say(otherwise)

    def copy_code(self, number: str = "1") -> None:
        """Copy the `number`-th code block of the message marked on the screen, else of the last answer that has one."""
        known = number.isdecimal() and len(number) < 10
        self.copied_code(number, self._transcript.code_text(int(number)) if known else None)

    def copied_code(self, number: int | str, text: str | None) -> None:
        """Copy the text of a code block; None says that there is no such block."""
        if text is None:
            self.workspace.say(f"There is no code block {number} here")
        else:
            self.copy(text, f"Code block {number}")

    def copy(self, text: str, what: str = "", messages: int = 1) -> None:
        """Put text on the clipboard. `what`: its name in the notice; empty: the text of `messages` messages."""
        what = what or ("Message" if messages == 1 else f"{messages:,} messages")
        self.workspace.say(f"{what} copied to {copy(self.workspace.app, text)}")

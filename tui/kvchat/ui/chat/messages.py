"""Actions on messages and branches: edit, ask again, copy, fork, delete, walk, find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from textual import on, work

from kvchat.cache.price import Act, Way
from kvchat.prompt.message import Node, Role
from kvchat.ui.chat.base import ChatBase
from kvchat.ui.clipboard import copy
from kvchat.ui.widgets.transcript import Transcript

Decision = Literal["go", "instead", "fork"]
"""Do it, do the cheaper thing, or do it in a fork."""

FORK = "Fork: edit it in a new conversation, this one stays as it is"

TITLES: dict[Act, str] = {
    "edit": "Edit this message?", "regenerate": "Another answer?", "delete": "Delete this turn?",
    "system": "Change the system prompt?", "template": "Change this for the whole conversation?",
    "model": "Switch to another model here?",
}


class MessageActs(ChatBase):
    """What can be done with a message; without a selected one it is the last."""

    # What the transcript asks for, and the same from the palette and by slash commands.

    @on(Transcript.EditRequested)
    def _edit_requested(self, event: Transcript.EditRequested) -> None:
        self.action_edit(event.node)

    @on(Transcript.RegenerateRequested)
    def _regenerate_requested(self, event: Transcript.RegenerateRequested) -> None:
        self.action_regenerate(event.node)

    @on(Transcript.CopyRequested)
    def _copy_requested(self, event: Transcript.CopyRequested) -> None:
        self.copy(event.text, "The message")

    @on(Transcript.CodeCopyRequested)
    def _code_requested(self, event: Transcript.CodeCopyRequested) -> None:
        self.copy(event.text, f"Code block {event.number}")

    @on(Transcript.SiblingRequested)
    async def _sibling_requested(self, event: Transcript.SiblingRequested) -> None:
        tree = self.conversation.tree
        if event.node not in tree:
            return
        siblings = [n.id for n in tree.siblings(event.node)]
        at = siblings.index(event.node) + event.step
        if 0 <= at < len(siblings) and await self.attempt(
                self.service.branches.walk(self.conversation.id, event.node, event.step)):
            self.transcript.select(siblings[at])

    @on(Transcript.BranchesRequested)
    def _branches_requested(self, event: Transcript.BranchesRequested) -> None:
        self.action_tree(event.node)

    @on(Transcript.ForkRequested)
    async def _fork_requested(self, event: Transcript.ForkRequested) -> None:
        await self.action_fork(event.node)

    @on(Transcript.DeleteRequested)
    def _delete_requested(self, event: Transcript.DeleteRequested) -> None:
        self.action_delete_turn(event.node)

    def action_edit(self, node: str | None = None) -> None:
        """Put the question into the composer; sending it asks anew on a branch of its own. A price is asked first."""
        node = self.target(node)
        if node is None:
            self.say("There is no message to edit yet.")
            return
        question, _ = self.conversation.tree.turn_of(node)
        if self.service.prices.estimate(self.conversation.id, "edit", question.id).worth_asking:
            self._ask_edit(question)
        else:
            self.begin_edit(question.id, question.text)

    @work(group="dialog")
    async def _ask_edit(self, question: Node) -> None:
        conversation = self.conversation
        number = self.number_of(question)
        decision = await self.decided("edit", question.id, title=f"Edit message {number}?", instead=True, fork=True)
        if self.current is not conversation:
            return
        match decision:
            case "go":
                self.begin_edit(question.id, question.text)
            case "instead":
                self.append_words(f"Correction to my message {number}: ")
            case "fork":
                await self.action_fork(question.id)

    def number_of(self, question: Node) -> int:
        """Which of the person's messages on its branch it is, from 1."""
        return sum(n.role is Role.USER for n in self.conversation.tree.path(question.id))

    def append_words(self, words: str) -> None:
        """Put words into the composer, to be finished and sent as the next message."""
        self.composer.restore(words)
        self.composer.focus()

    def begin_edit(self, node: str, text: str) -> None:
        raise NotImplementedError

    @work(group="dialog")
    async def action_regenerate(self, node: str | None = None) -> None:
        node = self.target(node)
        if node is None:
            self.say("There is no answer to have again yet.")
        elif (await self.agreed("regenerate", node) and await self.may_leave_this_machine()
                and await self.attempt(self.service.turns.regenerate(self.conversation.id, node))):
            self.transcript.follow()

    @work(group="dialog")
    async def action_delete_turn(self, node: str | None = None) -> None:
        node = self.target(node)
        if node is None:
            self.say("There is no turn to delete yet.")
            return
        decision = await self.decided("delete", node, instead=True)
        if decision == "instead":
            question, _ = self.conversation.tree.turn_of(node)
            self.append_words(f"Disregard my message {self.number_of(question)} and its answer.")
        elif decision == "go" and await self.attempt(self.service.branches.delete_turn(self.conversation.id, node)):
            self.say(f"The turn is not on this branch. {self.app.key_of('undo')} goes back to the branch that has it.")

    async def action_fork(self, node: str | None = None) -> None:
        node = self.target(node)
        if node is None:
            self.say("There is nothing to fork from yet.")
            return
        await self.attempt(self._fork(node))

    async def _fork(self, node: str) -> None:
        fork = await self.service.branches.fork(self.conversation.id, node)
        await self.open_conversation(fork.id)

    @work(group="dialog")
    async def action_tree(self, node: str | None = None) -> None:
        from kvchat.ui.screens.branches import BranchTreeScreen

        conversation = self.conversation
        match await self.ask(BranchTreeScreen(
                conversation.tree, conversation.record.head, title=conversation.record.title,
                at=node or self.transcript.selected or conversation.elsewhere, now=self.now(),
                warmth=lambda tip: self.service.tracker.branch_warmth(conversation.id, tip))):
            case ("go", str(id)):
                await self.attempt(self.service.branches.select(conversation.id, id))
                self.transcript.select(id)
            case ("fork", str(id)):
                await self.action_fork(id)

    def action_branches(self) -> None:
        self.action_tree()

    async def agreed(self, act: Act, node: str | None = None, title: str = "",
                     options: Mapping[str, object] | None = None) -> bool:
        """Whether the person agrees to the price of an act; a small price is not asked about. `options`: the new
        options of the template."""
        return await self.decided(act, node, title=title, options=options) == "go"

    async def decided(self, act: Act, node: str | None = None, *, title: str = "", text: str = "",
                      instead: bool = False, fork: bool = False,
                      options: Mapping[str, object] | None = None) -> Decision | None:
        """What the person decides who sees the price of an act; a small price is not asked about. `text`: the new text
        of the act; `instead`: whether the cheaper way can be done, if there is one; `fork`: whether a fork can."""
        with self.app.key_queue.coming() as dialog:
            price = await self.service.prices.exact(self.conversation.id, act, node, text, options)
        if dialog.is_given_up:
            return None
        if not price.worth_asking:
            return "go"
        from kvchat.text.prices import cheaper
        from kvchat.ui.screens.confirm import Choice, ConfirmScreen, price_lines

        choices: list[Choice[Decision | None]] = [("y", "Edit" if act == "edit" else "Go on", "go")]
        way = price.alternative
        forks = way is not None and way.way is Way.FORK
        if instead and way is not None and not forks:
            choices.append(("a", cheaper(way), "instead"))
        if fork:
            choices.append(("f", cheaper(way) if way is not None and forks else FORK, "fork"))
        choices.append(("n", "Cancel", None))
        return await self.ask(ConfirmScreen(title or TITLES[act], price_lines(price, act), choices))

    # Copying

    def action_copy(self) -> None:
        node = self.target()
        if node is not None:
            self.copy(self.conversation.tree[node].text, "The message")

    def action_code(self, number: str = "1") -> None:
        """Copy the `number`-th code block of the selected message, else of the last answer that has one."""
        from kvchat.ui.render.markdown import code_blocks

        path = self.conversation.path()
        chosen = self.transcript.selected
        nodes = [self.conversation.tree[chosen]] if chosen is not None and chosen in self.conversation.tree else [
            n for n in reversed(path) if n.role is Role.ASSISTANT]
        for node in nodes:
            blocks = code_blocks(node.text)
            if number.isdecimal() and 0 < int(number) <= len(blocks):
                self.copy(blocks[int(number) - 1].text, f"Code block {number}")
                return
        self.say(f"There is no code block {number}.", "warning")

    def copy(self, text: str, what: str) -> None:
        self.say(f"{what} is in {copy(self.app, text)}.")

    def action_fold(self) -> None:
        self.transcript.action_fold()

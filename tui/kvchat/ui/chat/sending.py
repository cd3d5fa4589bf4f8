"""Messages on their way: what goes with one is looked up, then it is sent, and the screen works on meanwhile.

The rule: one message of a conversation at a time; what is not sent yet stays in the conversation's draft, and what
could not be sent is put back into the composer, in front of what has been typed since.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textual import on, work

from kvchat.chat.errors import ChatError, TooLongError
from kvchat.chat.mentioning import NOTHING, Meant, OutsideError, counted_in
from kvchat.chat.question import Question
from kvchat.numbers import counted
from kvchat.prompt.drafts import decoded, draft_of
from kvchat.prompt.message import Role
from kvchat.ui.chat.consulting import SLOW_S, ConsultingActs
from kvchat.ui.chat.too_long import TITLE, Way, choices, question_lines, refusal_words
from kvchat.ui.widgets.composer import Composer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvchat.chat.events import QuestionRefused
    from kvchat.chat.live import OpenConversation
    from kvchat.chat.retrieval import Consulted
    from kvchat.chat.service import ChatService

UNDER_WAY = "The message before it is still on its way. Esc takes that one back, or wait for it."


@dataclass(slots=True)
class Sending:
    """A message on its way."""

    id: str
    """Its conversation."""
    event: Composer.Submitted
    editing: str | None
    """The question that it takes the place of, if it is an edit."""
    later: str = ""
    """The draft that was begun after it."""
    looking: asyncio.Task[Consulted] | None = None
    """The look-up, while it runs."""
    is_begun: bool = False
    """Whether it may leave this machine."""
    is_slow: bool = False
    is_stopped: bool = False
    """Whether the person took it back."""
    comes_back: bool = False
    """Whether it is too long, and is put back to be shortened."""
    compacts: bool = False
    """Whether the person would rather compact the conversation first."""


class SendingActs(ConsultingActs):
    """Sending messages and edits."""

    def __init__(self, service: ChatService) -> None:
        super().__init__(service)
        self._sending: dict[str, Sending] = {}
        """The messages on their way, by their conversations."""
        self._too_long: dict[str, str] = {}
        """By conversation: what is said of a question that the server refused, until something is done about it."""

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        event.stop()
        id, editing = event.key or self.conversation.id, self.editing
        sending = Sending(id, event, editing)
        self.forget_refusal(id)
        if id in self._sending:
            self.say(UNDER_WAY, "warning")
            self._restore(event)
        elif editing is not None and self._is_unchanged(editing, event):
            self.stop_editing()
            self.say("Nothing was changed; the message is as it was.")
        else:
            self._sending[id] = sending
            self._send(sending)

    def _is_unchanged(self, editing: str, event: Composer.Submitted) -> bool:
        """Whether an edit says what the question says, and mentions what that mentioned."""
        question = self.conversation.tree[editing]
        asked = event.question
        return question.text == asked.text and asked.meant.typed == counted_in(asked.text, question.message.blocks)

    @work(group="send")
    async def _send(self, sending: Sending) -> None:
        slow = self.set_timer(SLOW_S, lambda: self._is_slow(sending))
        try:
            sent = await self.may_leave_this_machine()
            if sent:
                sending.is_begun = True
                self.show_looking_up()
                sent = await self.attempt(self._sent(sending)) and not sending.comes_back
        finally:
            slow.stop()
            del self._sending[sending.id]
        self.show_looking_up()
        await (self._was_sent if sent else self._put_back)(sending)
        if sending.compacts:
            self.action_compact()

    async def _sent(self, sending: Sending) -> None:
        """Send it with what was shown with it; what had not been found for it by then is found now. The person is asked
        about files from outside, and what to do where it is too long. Raises ChatError."""
        question, anyway = await self._looked_up(sending), False
        while True:
            try:
                return await self._sent_with(sending, question, anyway)
            except OutsideError as error:
                question = replace(question, meant=await self._with_agreed(sending, question.meant, error.paths))
            except TooLongError as error:
                if sending.is_stopped or not self._is_here(sending):
                    raise
                way = await self._way_of(sending, error)
                if way != "send":
                    sending.comes_back, sending.compacts = True, way == "compact"
                    return None
                anyway = True

    async def _with_agreed(self, sending: Sending, meant: Meant, paths: Sequence[str]) -> Meant:
        """What is meant, with the person's word that these files from outside are sent. What Enter takes is no. Raises
        ChatError where they are not."""
        from kvchat.ui.screens.confirm import ConfirmScreen

        sending.is_begun = False  # nothing is looked up while the person is asked
        self.show_looking_up()
        it = "them" if len(paths) > 1 else "it"
        if not await self.ask(ConfirmScreen(
                f"Send {counted(len(paths), 'file')} from outside the working folder?", paths,
                [("n", "Go back to the message", False), ("y", f"Send {it}", True)])):
            raise ChatError("The message was not sent.")
        sending.is_begun = True
        self.show_looking_up()
        return replace(meant, agreed=meant.agreed | {*paths})

    async def _way_of(self, sending: Sending, error: TooLongError) -> Way | None:
        """What the person decides about a message that is too long."""
        from kvchat.ui.screens.confirm import ConfirmScreen

        sending.is_slow = False  # it is the person now who is waited for
        self.show_looking_up()
        conversation = self.conversation
        used = conversation.context_used if sending.editing is None else None
        try:
            price = self.service.compactor.price(conversation.id)
        except ChatError:
            price = None
        return await self.ask(ConfirmScreen(TITLE, question_lines(error, used), choices(error, used, price)))

    async def _sent_with(self, sending: Sending, question: Question, anyway: bool) -> None:
        if sending.editing is not None:
            await self.service.turns.edit(sending.id, sending.editing, question.text, anyway=anyway,
                                          meant=question.meant)
        else:
            await self.service.turns.send(sending.id, question, anyway=anyway)

    async def _looked_up(self, sending: Sending) -> Question:
        """The question with what goes with it. Looking that up is all that can be stopped. Raises ChatError."""
        question = sending.event.question
        if sending.editing is not None:
            look_up = self._consulted(sending.id, question.text, question.meant, sending.editing)
        else:
            look_up = self.service.retrieval.consult(sending.id, question.text, search=question.passages is None,
                                           meant=question.meant)
        sending.looking = asyncio.create_task(look_up)
        try:
            found = await sending.looking
        except asyncio.CancelledError:
            if sending.is_stopped:
                raise ChatError("The message was not sent.") from None
            raise
        finally:
            sending.looking = None
        if found.problems:
            raise ChatError(found.problems[0])
        if question.passages is None:
            passages = sending.event.picked.of(found.passages, found.taken)
            question = replace(question, passages=tuple(one.block for one in passages))
        return question if question.files is not None else replace(question, files=found.files)

    async def _was_sent(self, sending: Sending) -> None:
        if sending.is_stopped:
            await self.service.conversations.stop(sending.id)
        here = self._is_here(sending)
        if sending.editing is None:
            await self._keep(sending.id, self.composer.draft if here else sending.later)
        elif here:
            self.stop_editing()
        if self.current is not None and self.current.id == sending.id:
            self.transcript.follow()

    async def _put_back(self, sending: Sending) -> None:
        """Into the composer, or where that shows something else by now into the conversation's draft."""
        if self._is_here(sending):
            self._restore(sending.event)
        elif sending.editing is None:
            await self._keep(sending.id, sending.event.before(sending.later))

    def _restore(self, event: Composer.Submitted) -> None:
        question = event.question
        self.composer.restore(question.text, question.blocks, question.without, question.recalls, event.taken,
                              question.meant)

    def _is_here(self, sending: Sending) -> bool:
        """Whether the composer still is where the message was written."""
        return self.current is not None and self.current.id == sending.id and self.editing == sending.editing

    # -- refused for its length

    def question_refused(self, event: QuestionRefused) -> None:
        """The server found a question too long: put it back to be shortened, and say what can be done."""
        conversation = self.service.conversations.get(event.conversation)
        if conversation is None:
            return
        sending, path = self._sending.get(conversation.id), conversation.path()
        turns = sum(n.role is Role.USER for n in path)
        self._too_long[conversation.id] = refusal_words(event.tokens, event.window, turns)
        question, is_here = conversation.tree[event.question], self.current is conversation and self.editing is None
        edited = next((n for n in path if n.parent == question.parent and n.role is Role.USER), None)
        if sending is not None:
            sending.comes_back = True
        elif edited is not None:
            if is_here and edited.id != question.id:
                self.begin_edit(edited.id, question.text)
        else:
            draft = decoded(draft_of(question.text, question.message.blocks))
            submitted = Composer.Submitted(Question(draft.text, tuple(draft.chips.values()), NOTHING), conversation.id)
            if is_here:
                self._restore(submitted)
            else:
                self.run_worker(self._keep(conversation.id, submitted.before(conversation.draft)), group="send")

    def forget_refusal(self, id: str) -> None:
        """Something was done about it."""
        self._too_long.pop(id, None)
        self.show_refusal()

    def show_refusal(self) -> None:
        """In the status line, as long as nothing was done about it."""
        self.status.set_problem(self._too_long.get(self.current.id, "") if self.current is not None else "")

    # -- while it is on its way

    def _is_slow(self, sending: Sending) -> None:
        sending.is_slow = True
        self.show_looking_up()
        if sending.editing is None:
            self.run_worker(self._keep(sending.id, sending.event.before(sending.later)), group="send")

    def show_looking_up(self) -> None:
        """On the line over the composer: what goes with the message before is still being looked up."""
        sending = self._sending.get(self.current.id) if self.current is not None else None
        self.composer.set_sending(sending is not None and sending.is_slow and sending.is_begun
                                  and not self.service.conversations.awaits_reply(sending.id))

    def waits_for_another_window(self) -> None:
        """The message of the open conversation begins to wait for the reply of another window, or waits no longer."""
        sending = self._sending.get(self.current.id) if self.current is not None else None
        if sending is not None and sending.is_stopped:
            self.service.conversations.give_up(sending.id)
        self.show_looking_up()

    def stop_looking_up(self) -> bool:
        """Take back the message of the open conversation that is on its way; where it is too late for that, have its
        answer stopped at once. Whether there is one."""
        sending = self._sending.get(self.current.id) if self.current is not None else None
        if sending is None or not sending.is_begun:
            return False
        sending.is_stopped = True
        if sending.looking is not None:
            sending.looking.cancel()
        self.service.conversations.give_up(sending.id)
        return True

    # -- drafts

    def draft_of(self, conversation: OpenConversation) -> str:
        """What is in the composer of a conversation: its draft without the message that is on its way."""
        sending = self._sending.get(conversation.id)
        return conversation.draft if sending is None or sending.editing is not None else sending.later

    def kept_draft(self, id: str, draft: str) -> str:
        """What is stored of a conversation for which `draft` is in the composer: what is on its way stands in front."""
        sending = self._sending.get(id)
        if sending is None or sending.editing is not None:
            return draft
        sending.later = draft
        return sending.event.before(draft)

    async def _keep(self, id: str, draft: str) -> None:
        conversation = self.service.conversations.get(id)
        if conversation is not None and conversation.draft != draft:
            await self.service.conversations.set_draft(id, draft)

    def begin_edit(self, node: str, text: str) -> None:
        """Put a question into the composer, to be asked anew."""
        raise NotImplementedError

    def stop_editing(self) -> None:
        """Leave the editing, and show the draft."""
        raise NotImplementedError

    def action_compact(self) -> object:
        """Offer to compact the conversation."""
        raise NotImplementedError

"""Send messages and edits: look up what goes with one, then send it, while the screen stays responsive.

One message of a conversation at a time; what comes while it is busy goes into its queue; what could not be sent is put
back into the composer, in front of what has been typed since.

In the order in which they are called:

1. `submit`: sends at once, or puts the message into the queue (`_queue_up`).
2. `_delivered`: asks whether it may leave this machine, then sends; `_sent` goes on until nothing is to be asked.
3. `_looked_up`: finds what goes with it. `_with_agreed`, `_way_of`: ask about files from outside, and what is too long.
4. `_sent_with`: hands it to the turns of the service.
5. `_was_sent`, or `_put_back` into the composer; `refused` where the server found it too long later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.errors import AnsweredElsewhere, ChatError, TooLongError
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import MentionScope, OutsideError, question_draft, spans_in
from kvchat.prompt.drafts import Draft, given
from kvchat.prompt.message import Role
from kvchat.prompt.queued import HoldKind
from kvchat.sanitize import exact
from kvchat.text.format import counted
from kvchat.text.problems import ChatProblem
from kvchat.ui.controllers.context import SLOW_S
from kvchat.ui.controllers.outgoing import (
    Asking,
    Delivering,
    Edited,
    FromQueue,
    LookingUp,
    Phase,
    Returning,
    Sending,
    Several,
    TakenBack,
)
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.widgets.composer.widget import Composer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.events import QuestionRefused
    from kvchat.chat.turns.alternatives import AlternativesRequest
    from kvchat.chat.turns.queue import Queued
    from kvchat.ui.controllers.compaction import CompactionController
    from kvchat.ui.controllers.context import ContextController
    from kvchat.ui.controllers.drafts import DraftController
    from kvchat.ui.controllers.too_long import TooLongMessages, Way

QUEUED_BEFORE = "Messages wait before this one · /queue lists them"
UNDER_WAY = "The previous message is still being sent · {key} takes it back"


class SendingController:
    """Sends messages and edits."""

    def __init__(
        self,
        workspace: Workspace,
        drafts: DraftController,
        context: ContextController,
        compaction: CompactionController,
        too_long: TooLongMessages,
    ) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._conversations = service.conversations
        self._drafts = drafts
        self._turns = service.turns
        self._queue = service.queue
        self._context = context
        self._compaction = compaction
        self._too_long = too_long
        self._transcript = screen.transcript
        self._composer = screen.composer
        self._sending = workspace.outgoing

    def submit(self, event: Composer.Submitted) -> None:
        """Send what was written, or ask an edited question again. While the conversation is busy, or messages wait in
        its queue, it goes behind those; a message that was taken out of the queue to be edited goes back.
        """
        id, editing = event.key or self.workspace.conversation.id, self.workspace.editing
        self._too_long.forget(id)
        self._transcript.select(None)
        place = self._drafts.take_place(id) if editing is None else None
        if editing is None and (self._is_busy(id) or self._queue.of(id)):
            self._queue_up(id, event.question, place)
        elif editing is not None and self._is_unchanged(editing, event):
            self._drafts.stop_editing()
            self.workspace.say("Message unchanged")
        elif id in self._sending:  # an edit, and one before it
            self.workspace.say(UNDER_WAY.format(key=self.workspace.key_of("stop")), "warning")
            self._drafts.restore(event.question)
        else:
            self._begin(Sending(id, event, Edited(editing) if editing is not None else None))

    def _is_busy(self, id: str) -> bool:
        """Whether a message would have to wait: for one before it, or for an answer, here or in another window."""
        return (
            id in self._sending
            or self._conversations.is_taken(id)
            or self._queue.flows(id)
            or self._conversations.answered_elsewhere(id)
        )

    @in_worker("send")
    async def _queue_up(self, id: str, question: Question, place: float | None) -> None:
        if (sending := self._sending.get(id)) is not None:  # behind the answer to that one
            sending.is_followed = True
            await self._queue.put(id, question, place=place)
        else:
            await self._turns.queue_up(id, question, place=place)
        await self._service.drafts.keep()

    def send_queued(self, id: str, item: Queued) -> None:
        """Send a message of the queue now, and let the queue go on behind it."""
        if id not in self._sending:
            self._begin(Sending(id, Composer.Submitted(item.question, id), FromQueue(item)))

    async def send_several(
        self,
        event: Composer.Submitted,
        wanted: AlternativesRequest,
        agrees: Callable[[AlternativesRequest, Question], Awaitable[bool]],
    ) -> bool:
        """Ask for several answers if the user agrees to their cost; return whether they are asked for."""
        id = event.key or self.workspace.conversation.id
        if self._is_busy(id) or self._queue.of(id):
            self.workspace.say(ChatProblem.RUNNING if self._is_busy(id) else QUEUED_BEFORE, "warning")
            self._drafts.restore(event.question)
            return False
        self._too_long.forget(id)
        self._transcript.select(None)
        sending = self._sending[id] = Sending(id, event, Several(wanted, agrees))
        return await self._delivered(sending)

    def _begin(self, sending: Sending) -> None:
        self._sending[sending.id] = sending
        self._send(sending)

    def _is_unchanged(self, editing: str, event: Composer.Submitted) -> bool:
        """Whether an edit says what the question says, and mentions what that mentioned."""
        question = self.workspace.conversation.tree[editing]
        asked = event.question
        return question.text == asked.text and asked.meant.spans == question_draft(question, is_edit=True).spans

    @in_worker("send")
    async def _send(self, sending: Sending) -> None:
        await self._delivered(sending)

    async def _delivered(self, sending: Sending) -> bool:
        """Send it; whether it was sent."""
        slow = self.workspace.screen.set_timer(SLOW_S, lambda: self._is_slow(sending))
        self._service.warm_up.sent.add(sending.id)
        try:
            sent = (
                await self.workspace.acts.messages.may_leave_this_machine(sending.id)
                and await self.workspace.attempt(self._sent(sending))
                and not isinstance(sending.phase, Returning)
            )
        finally:
            slow.stop()
            self._service.warm_up.sent.discard(sending.id)
        if not sent or sending.editing is not None:  # something else is shown then
            await self._drafts.editor_closed()
        del self._sending[sending.id]  # where kvchat ends, it is unsent
        if not sent:
            self._queue.hold(sending.id, HoldKind.NOT_SENT)  # what was to follow it
        self.show_looking_up()
        await (self._was_sent if sent else self._put_back)(sending)
        if isinstance(sending.phase, Returning) and sending.phase.compacts:
            self._compaction.compact()
        return sent

    async def _sent(self, sending: Sending) -> None:
        """Send it with what was shown with it; what had not been found for it by then is found now. The user is asked
        about files from outside, and what to do where it is too long. Raises ChatError."""
        question, anyway = await self._looked_up(sending), False
        if isinstance(several := sending.kind, Several):
            self._enter(sending, Asking())
            if not await several.agrees(several.request, question):
                sending.phase = Returning()
                return None
            sending.phase = Delivering()
        while True:
            try:
                return await self._sent_with(sending, question, anyway)
            except OutsideError as error:
                if isinstance(sending.phase, TakenBack):
                    raise ChatError(ChatProblem.NOT_SENT) from None
                question = replace(question, meant=await self._with_agreed(sending, question.meant, error))
            except AnsweredElsewhere:
                if not isinstance(sending.kind, FromQueue):
                    return await self._turns.queue_up(
                        sending.id, replace(sending.event.question, meant=question.meant), first=sending.is_followed
                    )
                self._queue.release(sending.id)
                return self._turns.send_next(sending.id)
            except TooLongError as error:
                if isinstance(sending.phase, TakenBack) or not self._is_here(sending):
                    raise
                way = await self._way_of(sending, error)
                if way != "send":
                    sending.phase = Returning(compacts=way == "compact")
                    return None
                sending.phase, anyway = Delivering(), True

    async def _with_agreed(self, sending: Sending, meant: MentionScope, error: OutsideError) -> MentionScope:
        """What is meant, with the user's consent to sending these files; Enter alone means no. Raises ChatError without
        consent."""
        self._enter(sending, Asking())
        it = "them" if len(error.paths) > 1 else "it"
        files = counted(len(error.paths), "file")
        if not await self.workspace.choose(
            f"Send {files} with secrets?" if error.is_secret else f"Send {files} from outside the working folder?",
            error.sentences if error.is_secret else [*map(exact, error.paths)],
            [("n", "Go back to the message", False), ("y", f"Send {it}", True)],
            unasked=True,
        ):
            raise ChatError(ChatProblem.NOT_SENT)
        self._enter(sending, Delivering())
        return replace(meant, agreed=meant.agreed | {*error.paths})

    async def _way_of(self, sending: Sending, error: TooLongError) -> Way | None:
        """What the user decides about a message that is too long."""
        sending.is_slow = False  # all is looked up
        self._enter(sending, Asking())
        return await self._too_long.way(error, is_edit=sending.editing is not None)

    async def _sent_with(self, sending: Sending, question: Question, anyway: bool) -> None:
        match sending.kind:
            case Several(request=request):
                await self._turns.ask_for(sending.id, request, question, anyway=anyway)
            case Edited(question=edited):
                await self._turns.edit(sending.id, edited, question.text, anyway=anyway, meant=question.meant)
            case FromQueue(item=item):
                await self._turns.send_now(sending.id, question, anyway=anyway, queued=item.id)
            case None:
                await self._turns.send_now(sending.id, question, anyway=anyway)

    async def _looked_up(self, sending: Sending) -> Question:
        """The question with what goes with it. Looking that up is all that can be stopped. Raises ChatError."""
        question = sending.event.question
        if sending.editing is not None:
            look_up = self._context.retrieve(sending.id, question.text, question.meant, sending.editing)
        else:
            look_up = self._service.retrieval.retrieve(
                sending.id, question.text, search=question.passages is None, meant=question.meant
            )
        task = asyncio.create_task(look_up)
        self._enter(sending, LookingUp(task))
        try:
            found = await task
        except asyncio.CancelledError:
            if isinstance(sending.phase, TakenBack):
                raise ChatError(ChatProblem.NOT_SENT) from None
            raise
        if isinstance(sending.phase, LookingUp):
            sending.phase = Delivering()
        if found.problems:
            raise ChatError.of(found.problems[0])
        if question.passages is None:
            question = replace(question, passages=found.picked(question))
            if found.nothing:
                self.workspace.say(found.nothing)
        return question if question.files is not None else replace(question, files=found.files)

    async def _was_sent(self, sending: Sending) -> None:
        if isinstance(sending.phase, TakenBack):
            await self._conversations.stop(sending.id)
        if sending.editing is not None:
            await self._drafts.edit_sent(sending.id, sending.editing, sending.later)
        elif sending.is_in_draft and not self.workspace.shows(sending.id):
            unsent = self._service.drafts.of(self._conversations.load(sending.id))
            await self._service.drafts.put(sending.id, replace(unsent, draft=sending.later))
        await self._service.drafts.keep()
        if self.workspace.shows(sending.id):
            self._transcript.follow()

    async def _put_back(self, sending: Sending) -> None:
        """Into the composer; where that shows something else by now, it is stored as unsent already. A message of the
        queue stays there, unless it is to be shortened."""
        if isinstance(sending.kind, FromQueue):
            if isinstance(sending.phase, Returning):
                await self._drafts.take_back(sending.id, sending.kind.item)
            else:
                self._queue.read(sending.id)  # another window may have sent it
        elif sending.editing is not None and self._is_here(sending):
            self._drafts.restore(sending.event.question)
        elif sending.editing is None and self.workspace.shows(sending.id):
            await self._drafts.put_back(sending.id, sending.event.question)

    def _is_here(self, sending: Sending) -> bool:
        """Whether the composer still is where the message was written."""
        return self.workspace.shows(sending.id) and self.workspace.editing == sending.editing

    # -- refused for its length

    def refused(self, event: QuestionRefused) -> None:
        """The server found a question too long: put it back to be shortened, and say what can be done."""
        conversation = self._conversations.get(event.conversation)
        if conversation is None:
            return
        sending, path = self._sending.get(conversation.id), conversation.path()
        self._too_long.refused(event, conversation)
        question = conversation.tree[event.question]
        edited = next((n for n in path if n.parent == question.parent and n.role is Role.USER), None)
        if sending is not None:
            sending.phase = Returning()
        elif edited is not None:
            if edited.id != question.id:
                self._edit_again_soon(
                    conversation, edited.id, Draft(question.text, given(question.text, spans_in(question.message)))
                )
        else:
            draft = question_draft(question)
            self._put_back_soon(conversation.id, Question(draft.text, draft.blocks, MentionScope(draft.spans)))

    @in_worker("send")
    async def _put_back_soon(self, id: str, question: Question) -> None:
        await self._drafts.editor_closed()
        await self._drafts.put_back(id, question)

    @in_worker("send")
    async def _edit_again_soon(self, conversation: OpenConversation, question: str, draft: Draft) -> None:
        await self._drafts.editor_closed()
        if self.workspace.current is conversation and self.workspace.editing is None:
            self._drafts.begin_edit(question, draft)

    # -- while it is on its way

    def _enter(self, sending: Sending, phase: Phase) -> None:
        sending.phase = phase
        self.show_looking_up()

    def _is_slow(self, sending: Sending) -> None:
        sending.is_slow = True
        self.show_looking_up()
        self._keep_soon()

    @in_worker("send")
    async def _keep_soon(self) -> None:
        await self._service.drafts.keep()

    def show_looking_up(self) -> None:
        """On the line over the composer: what goes with the message before is still being looked up."""
        sending = self._sending.get(self.workspace.open_id)
        self._composer.context.set_sending(sending is not None and sending.shows_looking_up)

    def stop_looking_up(self) -> bool:
        """Take back the message of the open conversation that is on its way; where it is too late for that, have its
        answer stopped at once. Whether there is one."""
        sending = self._sending.get(self.workspace.open_id)
        return sending is not None and sending.take_back()

    # -- stopping

    async def stop(self) -> bool:
        """Take back the message that is on its way, else stop the answer. Whether there was one."""
        if self.stop_looking_up():
            return True
        current = self.workspace.current
        if current is None or current.id not in self._conversations.streaming():
            return False
        await self._conversations.stop(current.id)
        return True

"""Messages on their way, edits and drafts: what goes with one is looked up, then it is sent, and the screen works on.

The rule: one message of a conversation at a time; what comes while it is busy goes into its queue; what is not sent yet
stays in the conversation's draft, and what could not be sent is put back into the composer, in front of what has been
typed since.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from textual.content import Content

from kvchat.chat.errors import AnsweredElsewhere, ChatError, TooLongError
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import Meant, OutsideError, asked_as
from kvchat.prompt.drafts import Draft, given
from kvchat.prompt.message import Role
from kvchat.prompt.queued import HoldKind
from kvchat.text.format import count, counted, short_count
from kvchat.text.problems import ChatProblem
from kvchat.ui.controllers.context import SLOW_S
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.widgets.composer.widget import Composer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kvchat.chat.compactor import CompactionPrice
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.events import QuestionRefused
    from kvchat.chat.question.retrieval import RetrievalResult
    from kvchat.chat.service import ChatService
    from kvchat.chat.turns.alternatives import Wanted
    from kvchat.chat.turns.queue import Queued
    from kvchat.ui.controllers.compaction import CompactionController
    from kvchat.ui.controllers.context import ContextController
    from kvchat.ui.controllers.server import ServerController
    from kvchat.ui.screens.confirm import Choice
    from kvchat.ui.widgets.statusline import StatusLine
    from kvchat.ui.widgets.transcript.widget import Transcript

Way = Literal["compact", "edit", "send"]
"""What to do with a message that is too long: make room for it, shorten it, send it all the same."""
TITLE = "Too long for the window"
UNDER_WAY = "The previous message is still being sent · Esc takes it back"


@dataclass(slots=True)
class Sending:
    """A message on its way."""

    id: str
    """Its conversation."""
    event: Composer.Submitted
    editing: str | None
    """The question that it takes the place of, if it is an edit."""
    queued: Queued | None = None
    """The message of the queue that it is, if the person has that sent."""
    later: str = ""
    """The draft that was begun after it."""
    looking: asyncio.Task[RetrievalResult] | None = None
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
    is_followed: bool = False
    """Whether another one was put into the queue behind it."""
    wanted: Wanted | None = None
    """Several answers are asked for."""
    agrees: Callable[[Wanted, Question], Awaitable[bool]] | None = None
    """Asks whether the person agrees to what those cost."""

    @property
    def is_in_draft(self) -> bool:
        """Whether the conversation's draft keeps it until it is sent."""
        return self.editing is None and self.queued is None


class SendingController:
    """Sends messages and edits, and keeps drafts."""

    def __init__(
        self,
        workspace: Workspace,
        service: ChatService,
        server: ServerController,
        context: ContextController,
        compaction: CompactionController,
        transcript: Transcript,
        composer: Composer,
        status: StatusLine,
    ) -> None:
        self.workspace = workspace
        self._service = service
        self._conversations = service.conversations
        self._turns = service.turns
        self._queue = service.queue
        self._server = server
        self._context = context
        self._compaction = compaction
        self._transcript = transcript
        self._composer = composer
        self._status = status
        self._sending: dict[str, Sending] = {}
        """The messages on their way, by their conversations."""
        self._too_long: dict[str, str] = {}
        """By conversation: what is said of a question that the server refused, until something is done about it."""
        self._places: dict[str, float] = {}
        """By conversation: the place in the queue of the message that was taken back to be edited."""

    def submit(self, event: Composer.Submitted) -> None:
        """Send what was written, or ask an edited question anew. While the conversation is busy it goes into the queue,
        and what was taken out of that to be edited goes back.
        """
        id, editing = event.key or self.workspace.conversation.id, self.workspace.editing
        self.forget_refusal(id)
        place = self._places.pop(id, None)
        if editing is None and (self._is_busy(id) or (place is not None and self._queue.of(id))):
            self._queue_up(id, event.question, place)
        elif editing is not None and self._is_unchanged(editing, event):
            self.stop_editing()
            self.workspace.say("Message unchanged")
        elif id in self._sending:  # an edit, and one before it
            self.workspace.say(UNDER_WAY, "warning")
            self._restore(event)
        else:
            self._begin(Sending(id, event, editing))

    def _is_busy(self, id: str) -> bool:
        """Whether a message would have to wait: for one before it, or for an answer, here or in another window."""
        return (
            id in self._sending
            or id in self._conversations.streaming()
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

    def send_queued(self, id: str, item: Queued) -> None:
        """Send a message of the queue now, and let the queue go on behind it."""
        if id not in self._sending:
            self._begin(Sending(id, Composer.Submitted(item.question, id), None, item))

    async def take_back(self, item: Queued) -> None:
        """Put a message that was in the queue into the composer; it goes back to its place there."""
        self._restore(Composer.Submitted(item.question, self.workspace.open_id))
        if item.place is not None:
            self._places[self.workspace.open_id] = item.place
        await self.keep_draft()
        self._composer.focus()

    async def send_several(
        self, event: Composer.Submitted, wanted: Wanted, agrees: Callable[[Wanted, Question], Awaitable[bool]]
    ) -> bool:
        """Ask for several answers, where the person agrees to what they cost; whether they are asked for."""
        id = event.key or self.workspace.conversation.id
        if self._is_busy(id):
            self.workspace.say(ChatProblem.RUNNING, "warning")
            self._restore(event)
            return False
        self.forget_refusal(id)
        sending = self._sending[id] = Sending(id, event, None, wanted=wanted, agrees=agrees)
        return await self._delivered(sending)

    def _begin(self, sending: Sending) -> None:
        self._sending[sending.id] = sending
        self._send(sending)

    def _is_unchanged(self, editing: str, event: Composer.Submitted) -> bool:
        """Whether an edit says what the question says, and mentions what that mentioned."""
        question = self.workspace.conversation.tree[editing]
        asked = event.question
        return question.text == asked.text and asked.meant.spans == asked_as(question, is_edit=True).spans

    @in_worker("send")
    async def _send(self, sending: Sending) -> None:
        await self._delivered(sending)

    async def _delivered(self, sending: Sending) -> bool:
        """Send it; whether it was sent."""
        slow = self.workspace.screen.set_timer(SLOW_S, lambda: self._is_slow(sending))
        self._service.warm_up.sent.add(sending.id)
        try:
            sent = await self._server.may_leave_this_machine()
            if sent:
                sending.is_begun = True
                self.show_looking_up()
                sent = await self.workspace.attempt(self._sent(sending)) and not sending.comes_back
        finally:
            slow.stop()
            self._service.warm_up.sent.discard(sending.id)
            del self._sending[sending.id]
        if not sent:
            self._queue.hold(sending.id, HoldKind.NOT_SENT)  # what was to follow it
        self.show_looking_up()
        await (self._was_sent if sent else self._put_back)(sending)
        if sending.compacts:
            self._compaction.compact()
        return sent

    async def _sent(self, sending: Sending) -> None:
        """Send it with what was shown with it; what had not been found for it by then is found now. The person is asked
        about files from outside, and what to do where it is too long. Raises ChatError."""
        question, anyway = await self._looked_up(sending), False
        if sending.wanted is not None and sending.agrees is not None:
            sending.is_begun = False  # nothing is looked up while the person is asked
            self.show_looking_up()
            if not await sending.agrees(sending.wanted, question):
                sending.comes_back = True
                return None
            sending.is_begun = True
        while True:
            try:
                return await self._sent_with(sending, question, anyway)
            except OutsideError as error:
                question = replace(question, meant=await self._with_agreed(sending, question.meant, error.paths))
            except AnsweredElsewhere:
                if sending.queued is None:
                    return await self._turns.queue_up(
                        sending.id, replace(sending.event.question, meant=question.meant), first=sending.is_followed
                    )
                self._queue.release(sending.id)
                return self._turns.send_next(sending.id)
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
        if not await self.workspace.ask(
            ConfirmScreen(
                f"Send {counted(len(paths), 'file')} from outside the working folder?",
                paths,
                [("n", "Go back to the message", False), ("y", f"Send {it}", True)],
            )
        ):
            raise ChatError(ChatProblem.NOT_SENT)
        sending.is_begun = True
        self.show_looking_up()
        return replace(meant, agreed=meant.agreed | {*paths})

    async def _way_of(self, sending: Sending, error: TooLongError) -> Way | None:
        """What the person decides about a message that is too long."""
        from kvchat.ui.screens.confirm import ConfirmScreen

        sending.is_slow = False  # it is the person now who is waited for
        self.show_looking_up()
        conversation = self.workspace.conversation
        used = conversation.context_used if sending.editing is None else None
        try:
            price = self._service.compactor.price(conversation.id)
        except ChatError:
            price = None
        return await self.workspace.ask(ConfirmScreen(TITLE, question_lines(error, used), choices(error, used, price)))

    async def _sent_with(self, sending: Sending, question: Question, anyway: bool) -> None:
        if sending.wanted is not None:
            await self._turns.ask_for(sending.id, sending.wanted, question, anyway=anyway)
        elif sending.editing is not None:
            await self._turns.edit(sending.id, sending.editing, question.text, anyway=anyway, meant=question.meant)
        else:
            await self._turns.send_now(
                sending.id, question, anyway=anyway, queued=sending.queued.id if sending.queued is not None else ""
            )

    async def _looked_up(self, sending: Sending) -> Question:
        """The question with what goes with it. Looking that up is all that can be stopped. Raises ChatError."""
        question = sending.event.question
        if sending.editing is not None:
            look_up = self._context.retrieve(sending.id, question.text, question.meant, sending.editing)
        else:
            look_up = self._service.retrieval.retrieve(
                sending.id, question.text, search=question.passages is None, meant=question.meant
            )
        sending.looking = asyncio.create_task(look_up)
        try:
            found = await sending.looking
        except asyncio.CancelledError:
            if sending.is_stopped:
                raise ChatError(ChatProblem.NOT_SENT) from None
            raise
        finally:
            sending.looking = None
        if found.problems:
            raise ChatError.of(found.problems[0])
        if question.passages is None:
            question = replace(question, passages=found.picked(question))
        return question if question.files is not None else replace(question, files=found.files)

    async def _was_sent(self, sending: Sending) -> None:
        if sending.is_stopped:
            await self._conversations.stop(sending.id)
        here = self._is_here(sending)
        if sending.is_in_draft:
            await self._keep(sending.id, self._composer.draft if here else sending.later)
        elif sending.editing is not None and here:
            self.stop_editing()
        if self.workspace.shows(sending.id):
            self._transcript.follow()

    async def _put_back(self, sending: Sending) -> None:
        """Into the composer, or where that shows something else by now into the conversation's draft. A message of the
        queue stays there, unless it is to be shortened."""
        if sending.queued is not None and not sending.comes_back:
            self._queue.read(sending.id)  # another window may have sent it
            return
        if sending.queued is not None:
            await self._queue.take_back(sending.id, sending.queued)
        if self._is_here(sending):
            self._restore(sending.event)
        elif sending.editing is None:
            await self._keep(sending.id, sending.event.before(sending.later))

    def _restore(self, event: Composer.Submitted) -> None:
        question = event.question
        self._composer.restore(
            question.draft, question.without, question.recalls, question.taken, question.meant.agreed
        )

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
        turns = sum(n.role is Role.USER for n in path)
        self._too_long[conversation.id] = refusal_words(event.tokens, event.window, turns)
        question = conversation.tree[event.question]
        is_here = self.workspace.current is conversation and self.workspace.editing is None
        edited = next((n for n in path if n.parent == question.parent and n.role is Role.USER), None)
        if sending is not None:
            sending.comes_back = True
        elif edited is not None:
            if is_here and edited.id != question.id:
                self.begin_edit(edited.id, question.text)
        else:
            draft = asked_as(question)
            submitted = Composer.Submitted(Question(draft.text, draft.blocks, Meant(draft.spans)), conversation.id)
            if is_here:
                self._restore(submitted)
            else:
                self._keep_soon(conversation.id, submitted.before(conversation.draft))

    def forget_refusal(self, id: str) -> None:
        """Something was done about it."""
        self._too_long.pop(id, None)
        self.show_refusal()

    def show_refusal(self) -> None:
        """In the status line, as long as nothing was done about it."""
        self._status.set_problem(self._too_long.get(self.workspace.open_id, ""))

    # -- while it is on its way

    def _is_slow(self, sending: Sending) -> None:
        sending.is_slow = True
        self.show_looking_up()
        if sending.is_in_draft:
            self._keep_soon(sending.id, sending.event.before(sending.later))

    def show_looking_up(self) -> None:
        """On the line over the composer: what goes with the message before is still being looked up."""
        sending = self._sending.get(self.workspace.open_id)
        self._composer.set_sending(sending is not None and sending.is_slow and sending.is_begun)

    def stop_looking_up(self) -> bool:
        """Take back the message of the open conversation that is on its way; where it is too late for that, have its
        answer stopped at once. Whether there is one."""
        sending = self._sending.get(self.workspace.open_id)
        if sending is None or not sending.is_begun:
            return False
        sending.is_stopped = True
        if sending.looking is not None:
            sending.looking.cancel()
        return True

    # -- drafts

    def draft_of(self, conversation: OpenConversation) -> str:
        """What is in the composer of a conversation: its draft without the message that is on its way."""
        sending = self._sending.get(conversation.id)
        return conversation.draft if sending is None or not sending.is_in_draft else sending.later

    def _kept_draft(self, id: str, draft: str) -> str:
        """What is stored of a conversation for which `draft` is in the composer: what is on its way stands in front."""
        sending = self._sending.get(id)
        if sending is None or not sending.is_in_draft:
            return draft
        sending.later = draft
        return sending.event.before(draft)

    @in_worker("send")
    async def _keep_soon(self, id: str, draft: str) -> None:
        await self._keep(id, draft)

    async def _keep(self, id: str, draft: str) -> None:
        conversation = self._conversations.get(id)
        if conversation is not None and conversation.draft != draft:
            await self._conversations.set_draft(id, draft)

    def draft_now(self) -> tuple[str, str] | None:
        """The open conversation and the draft to store of it, without waiting for the typing to rest."""
        current = self.workspace.current
        if current is None or self.workspace.editing is not None:
            return None
        return current.id, self._kept_draft(current.id, self._composer.draft)

    async def keep_draft(self) -> None:
        """Store what is in the composer now."""
        if (now := self.draft_now()) is not None:
            await self._conversations.set_draft(*now)

    async def draft_changed(self, event: Composer.DraftChanged) -> None:
        """Store what was typed."""
        id, current = event.key, self.workspace.current
        if not event.draft:
            self.forget_refusal(id)
            self._places.pop(id, None)
        if id:
            if event.draft and current is not None and id == current.id and not current.draft:
                self._service.warm_up.typing_began(id)
            await self._conversations.set_draft(id, self._kept_draft(id, event.draft))

    @in_worker("editor")
    async def write_outside(self) -> None:
        """Write the message in the person's editor; the answer streams on meanwhile, unseen."""
        from textual.app import SuspendNotSupported

        app, trouble = self.workspace.app, ""
        try:
            # Nothing may be raised in here, or Textual would not take the terminal back; and without the batch it
            # would paint the streaming answer over the editor.
            with app.key_queue.hold(), app.suspend(), app.batch_update():
                trouble = await self._edit_outside()
        except SuspendNotSupported:
            trouble = "This terminal cannot run an editor"
        if trouble:
            self.workspace.say(trouble, "error")
        self._composer.focus()

    async def _edit_outside(self) -> str:
        """Let the editor run; what went wrong, in words."""
        from kvchat.ui.terminal.editor import EditorError, edited

        try:
            self._composer.take_edited(await edited(self._composer.text, self._service.settings.editor))
        except EditorError as error:
            return str(error)
        return ""

    # -- edits of questions

    def begin_edit(self, node: str, text: str) -> None:
        """Put a question into the composer, to be asked anew."""
        from kvchat.text.prices import in_brief

        self._composer.flush()
        self.workspace.editing = node
        self._composer.load("", "")
        question = self.workspace.conversation.tree[node]
        self._composer.replace(asked_as(question, is_edit=True) if text == question.text else Draft(text, given(text)))
        asked = self._service.prices.estimate(self.workspace.conversation.id, "edit", node)
        cost = f" · {in_brief(asked)}" if asked.worth_asking else ""
        self._composer.add_class("-editing")
        self._composer.border_title = Content(f"editing, on a new branch · Esc cancels{cost}")
        self._composer.focus()

    def stop_editing(self) -> bool:
        """Leave the editing, and show the draft. Whether a question was edited."""
        if self.workspace.editing is None:
            return False
        self.workspace.editing = None
        self._composer.remove_class("-editing")
        self._composer.border_title = ""
        conversation = self.workspace.conversation
        self._composer.load(self.draft_of(conversation), conversation.id)
        return True

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


def refusal_words(tokens: int | None, window: int | None, turns: int) -> str:
    """`Too long: 13k of 8.2k tokens · shorten it or /compact`, once the server has refused it. `turns`: of the
    conversation without it."""
    size = f"{short_count(tokens)} of {short_count(window)} tokens" if tokens and window else "refused by the server"
    return f"Too long: {size} · shorten it" + (" or /compact" if turns > 1 else "")


def question_lines(error: TooLongError, used: int | None) -> list[str]:
    """The figures, before it is sent. `used`: tokens of the conversation without it."""
    about = "" if error.counted else "about "
    lines = [f"The prompt has {about}{counted(error.tokens, 'token')}; the window holds {count(error.window)}."]
    if used:
        lines.append(f"The conversation has {count(used)} of them, this message {count(max(0, error.tokens - used))}.")
    return lines


def choices(error: TooLongError, used: int | None, price: CompactionPrice | None) -> Sequence[Choice[Way]]:
    """What can be done. `price`: of compacting the conversation, where that can be done; it is offered where it makes
    room enough."""
    found: list[Choice[Way]] = [("e", "Edit the message", "edit")]
    if price is not None and used and price.plan.after + error.tokens - used < error.window:
        found.append(
            ("c", f"Compact the conversation: {count(used)} → at most {count(price.plan.after)} tokens", "compact")
        )
    return [*found, ("s", "Send anyway", "send")]

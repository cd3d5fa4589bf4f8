"""The conversation in plain mode: what is open, sending messages, reading what was said."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.cache import Act
from kvchat.chat.errors import ChatError, TooLongError
from kvchat.chat.events import (
    AnswerStarted,
    DeletedElsewhere,
    FallbackChosen,
    MemoriesNoted,
    Noticed,
    QuestionRefused,
    ServerChanged,
    ServiceEvent,
    StorageChanged,
    SummaryPrepared,
    WrittenElsewhere,
)
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import MentionScope, OutsideError, question_draft
from kvchat.commands.acts import Acts, Deleted
from kvchat.plain.answers import Answers
from kvchat.plain.speaker import Speaker
from kvchat.prompt.context import NOTE, TIME, ContextBlock
from kvchat.prompt.drafts import PASTE, Draft, Unsent, filled, given
from kvchat.prompt.message import Node, Role
from kvchat.sanitize import one_line
from kvchat.text.cache import HEAT_NAMES, shown_heat
from kvchat.text.format import counted, moment, percent, spoken_title
from kvchat.text.prices import TITLES, price_lines, summary_offer, summary_ready
from kvchat.text.servers import fallback_words
from kvchat.text.tools import shown_call

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.commands.editor import OutsideText


class Typed(Struct, frozen=True):
    """What the user entered."""

    text: str
    is_pasted: bool = False
    """Whether it was pasted or is between quotes: nothing in it is a command or a mention."""


class PlainChat:
    """The open conversation, and what is said in it."""

    acts: Acts
    """What is done here as in the app."""

    def __init__(self, service: ChatService, speaker: Speaker, answers: Answers) -> None:
        self.service = service
        self.speaker = speaker
        self.answers = answers
        self._current: OpenConversation | None = None
        self.attached: list[ContextBlock] = []
        """What goes with the next message."""
        self.beginning = ""
        """What the next message begins with, with its fields."""
        self.unsent = ""
        """What the next prompt begins with: a draft, or what could not be sent."""
        self._draft = Draft()
        """The draft that the prompt began with: what was pasted in the app is text here too."""
        self._kept = Draft()
        """A draft that is left to the app, for what is attached to it."""
        self.line: Typed | None = None
        """What is typed at the prompt just now, or is about to be sent."""
        self.editing = ""
        """The question that it is the edit of; empty: it is a message."""
        self.outside: OutsideText | None = None
        """What is written in the editor."""
        self._told_server = ""
        self._offered = ""
        """The conversation in which compacting was offered last."""
        service.drafts.surface = self
        service.events.subscribe(self._heard)

    @property
    def conversation(self) -> OpenConversation:
        """The open one. Only called once one is open."""
        assert self._current is not None
        return self._current

    @property
    def id(self) -> str:
        return self.conversation.id

    # -- opening and reading

    async def open(self, id: str, node: str | None = None) -> None:
        """Open a conversation, and say how it ends; with `node`: at this message. Raises ChatError."""
        await self.service.drafts.keep()
        conversation = await self.service.conversations.open(id)
        if self._current is not conversation:
            self.attached, self.beginning = [], ""
        self._current = conversation
        self.unsent, self._draft, self._kept = "", Draft(), Draft()
        self.line = None
        draft = self.service.drafts.of(conversation).draft
        if draft.blocks:
            self._kept = draft
        else:
            self.unsent, self._draft = draft.text, draft
        if node is not None and node in conversation.tree and node not in {one.id for one in conversation.path()}:
            await self.service.branches.select(id, node)
        if not conversation.record.turns:
            self.speaker.say("New conversation.")
        else:
            self.speaker.say(f"{spoken_title(conversation.record.title)}. {self.facts(id)}.")
            path = self.messages()
            at = next((at for at, one in enumerate(path) if one.id == node), len(path) - 2)
            self.read(range(max(0, at), len(path) if node is None else at + 1))
        if self._kept.text:
            self.speaker.say("The draft of this conversation has attachments; it is kept for the app.")

    def written(self) -> tuple[str, Unsent] | None:
        """What is typed, or could not be sent, in front of a draft that is left to the app."""
        if self._current is None:
            return None
        line, unsent = self.line, self.service.drafts.of(self._current)
        if self.outside is not None and self.outside.saved is not None:
            line = Typed(self.outside.saved)
        if line is not None and self.editing:
            asked = question_draft(self.conversation.tree[self.editing], is_edit=True)
            unsent, line = unsent.edited(self.editing, _draft_of(line, asked)), None
        if line is None or (self.unsent and line.text.startswith("/")):
            line = Typed(self.unsent)
        draft = _draft_of(line, self._draft)
        return self.id, replace(unsent, draft=draft.before(self._kept) if draft.text.strip() else self._kept)

    def messages(self) -> list[Node]:
        """Those of the open branch, without the system prompt."""
        return self.conversation.path()[1:]

    def read(self, numbers: Sequence[int]) -> None:
        """Say messages of the open branch, by their places from 0."""
        path = self.messages()
        for number in numbers:
            node = path[number]
            who = said_by(node)
            self.speaker.output.line(f"{number + 1}. {who}:")
            for block in (one for one in node.message.blocks if one.kind not in (TIME, NOTE)):
                self.speaker.say(f"Sent with it: {one_line(block.source, 80)}.")
            self.speaker.output.write(node.text)
            self.speaker.output.end()

    def facts(self, id: str) -> str:
        """`3 turns, today 09:16, warm`"""
        record = self.service.conversations.find(id)
        turns = counted(self.service.conversations.branch_turns(record), "turn")
        heat = HEAT_NAMES[shown_heat(self.service.tracker.warmth(id))]
        return f"{turns}, {moment(record.updated, self.service.clock())}, {heat}"

    # -- sending

    async def send(self, typed: Typed) -> None:
        """Send a message, and print its answer."""
        text = filled(self.beginning, typed.text)
        self.line, self._draft, self.unsent = typed, _draft_of(typed, self._draft), ""
        whole = Draft(text[: text.find(typed.text)]).then(self._draft)
        question = Question(text, tuple(self.attached), MentionScope(whole.spans))
        if await self._sent(question):
            self.attached, self.beginning, self._draft = [], "", Draft()
            self._offer_compaction()
        else:
            self.unsent = typed.text
        self.line = None
        await self.service.drafts.keep()

    async def edit(self, node: str, text: str) -> bool:
        """Ask a question differently, and print the answer; whether it was sent."""
        drafts, conversation = self.service.drafts, self.conversation
        draft = question_draft(conversation.tree[node], is_edit=True).rewritten(text)
        await drafts.put(self.id, drafts.of(conversation).edited(node, draft))
        is_sent = await self._sent(Question(text, meant=MentionScope(draft.spans)), node)
        if is_sent:
            await drafts.put(self.id, drafts.of(conversation).edited(node, None))
        return is_sent

    async def _sent(self, question: Question, edited: str | None = None) -> bool:
        """Whether it was sent; where not, why is said."""
        if not await self.acts.messages.may_leave_this_machine(self.id):
            return False
        anyway, turns = False, self.service.turns
        while True:
            act = (
                turns.send(self.id, question, anyway=anyway)
                if edited is None
                else turns.edit(self.id, edited, question.text, anyway=anyway, meant=question.meant)
            )
            try:
                await self.answers.carry_out(self.id, act)
                return True
            except OutsideError as error:
                it = "them" if len(error.paths) > 1 else "it"
                if not await self.speaker.agreed(f"Send {it}?", error.sentences):
                    return False
                question = replace(
                    question, meant=replace(question.meant, agreed=question.meant.agreed | {*error.paths})
                )
            except TooLongError as error:
                if error.counted:  # the server would refuse it
                    self.speaker.say(str(error))
                    return False
                if not await self.speaker.agreed("Send it all the same?", [str(error)]):
                    return False
                anyway = True
            except ChatError as error:
                self.speaker.say(str(error))
                return False

    async def attempt(self, act: Awaitable[object]) -> bool:
        """Carry out an act that an answer may come of; what cannot be done is said. Whether it was done."""
        try:
            await self.answers.carry_out(self.id, act)
        except ChatError as error:
            self.speaker.say(str(error))
            return False
        return True

    async def agreed(
        self,
        act: Act,
        node: str | None = None,
        *,
        title: str = "",
        text: str = "",
        options: Mapping[str, object] | None = None,
    ) -> bool:
        """Whether the user agrees to the price of an act; a small one is not asked about."""
        price = await self.service.prices.exact(self.id, act, node, text, options)
        return not price.worth_asking or await self.speaker.agreed(title or TITLES[act], price_lines(price, act))

    def _offer_compaction(self) -> None:
        full = percent(self.service.servers.window_share(self.conversation))
        if self.service.compactor.offers_rest(self.conversation):
            self.speaker.say(f"{summary_offer(full, 'the setting cache.summary_at_rest')}.")
        if not self.service.servers.is_nearly_full(self.conversation):
            self._offered = ""
        elif self._offered != self.id:
            self._offered = self.id
            self.speaker.say(f"The window is {full} full. /compact sums up the older turns.")

    # -- what the service tells

    def _heard(self, event: ServiceEvent) -> None:
        here = self._current.id if self._current is not None else ""
        match event:
            case Noticed(text):
                self._tell(text)
            case FallbackChosen(off, used):
                self._tell(f"{fallback_words(off, used)}.")
            case StorageChanged(trouble) if trouble:
                self._tell(f"{trouble} Messages stay in memory; kvchat tries again every 10 s.")
            case StorageChanged():
                self._tell("The disk takes what is written again.")
            case WrittenElsewhere(conversation, followed) if conversation == here:
                self._tell(
                    "Another window wrote here. /read tells what."
                    if followed
                    else "Another window wrote here, on another branch. /tree lists the branches."
                )
            case DeletedElsewhere(conversation) if conversation == here:
                self.acts.conversations.did(Deleted(conversation))
                self._tell("Another window deleted this conversation. /undo brings it back.")
            case MemoriesNoted(noted=noted, pending=pending):
                parts = [f"{len(noted)} noted" if noted else "", f"{len(pending)} to confirm" if pending else ""]
                self._tell(f"Memory: {', '.join(filter(None, parts))}. /memory list shows them.")
            case SummaryPrepared(conversation) if conversation == here:
                price = self.service.compactor.price(here)
                self._tell(f"{summary_ready('/compact', price.plan.after, price.read_seconds)}.")
            case AnswerStarted(conversation) if conversation == here:
                self.line = None  # it is stored as a question
            case QuestionRefused(conversation) if conversation == here and self._current is not None:
                self.unsent = self._current.tree[event.question].text
            case ServerChanged():
                self._server_changed()
            case _:
                pass

    def _server_changed(self) -> None:
        connection = self.service.servers.connection
        if connection.phase in ("lost", "failed") and connection.sentence != self._told_server:
            self._told_server = connection.sentence
            self._tell(connection.sentence)
        elif connection.phase == "ready":
            self._told_server = ""

    def _tell(self, sentence: str) -> None:
        """At once while an answer runs; else when the user is done typing."""
        if self.answers.is_running:
            self.speaker.say(sentence)
        else:
            self.speaker.say_later(sentence)


def said_by(node: Node) -> str:
    """Whose message it is."""
    if node.role is Role.TOOL:
        return f"Called {shown_call(node.message.call)}"
    return "You" if node.role is Role.USER else "Answer"


def _draft_of(line: Typed, before: Draft) -> Draft:
    """`before`: what the line began with."""
    return Draft(line.text, given(line.text, kind=PASTE)) if line.is_pasted else before.rewritten(line.text)

"""An answer, printed as it comes: its text, states in words while none comes, and one line of figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kvchat.chat.errors import ChatError
from kvchat.chat.events import (
    AnswerEnded,
    AnswerProgressed,
    AnswerStarted,
    ConversationChanged,
    HeadAwaited,
    ServiceEvent,
    ToolAsked,
)
from kvchat.plain.speaker import Speaker
from kvchat.prompt.citations import name_of, sources
from kvchat.prompt.compaction import turns_of
from kvchat.prompt.message import Role, has_end_only
from kvchat.sanitize import one_line
from kvchat.text.cache import figures_sentence
from kvchat.text.messages import prefill_sentence, waiting_sentence
from kvchat.text.notes import note_sentence
from kvchat.text.tools import ask_words, decided, letters, question_lines, shown_call

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import LiveAnswer
    from kvchat.chat.service import ChatService

T = TypeVar("T")
STATE_S = 3.0
"""Seconds without text before the first state is said."""
LONGEST_S = 15.0
"""Seconds between two states at most: they come less and less often."""
AWAITS = "Another window is answering in this conversation. Waiting for it; Ctrl+C gives up."


class Answers:
    """Carries out what makes an answer come, and prints that."""

    def __init__(self, service: ChatService, speaker: Speaker, state_seconds: float = STATE_S) -> None:
        self._service = service
        self._conversations = service.conversations
        self._speaker = speaker
        self._state_seconds = state_seconds
        self._id = ""
        """The conversation in which one is made; empty: in none."""
        self._is_stopped = False
        self._given_up: asyncio.Event | None = None
        """Ends what is waited for before an answer; None: nothing is."""
        self._is_pressed = False
        """Whether Ctrl+C was pressed while there was nothing to stop."""
        self._text = self._reasoning = 0
        self._turned = False
        """Whether the text was a thought until its end came."""
        """Characters of the running answer that are printed."""
        self._called = ""
        """The call that was said last."""
        self._section, self._answer = "", ""
        """What the text that comes is said to be, and what the answer's own will be."""

    @property
    def is_running(self) -> bool:
        return bool(self._id)

    async def carry_out(self, id: str, act: Awaitable[object]) -> None:
        """Do `act`, and print the answers that come of it until nothing runs in the conversation. Raises ChatError."""
        self._id, self._is_stopped = id, False
        forget = self._service.events.subscribe(self._heard)
        states = asyncio.create_task(self._say_states())
        try:
            if self.taken_press():
                self.stop()
            await act
            if self._is_stopped:
                await self._conversations.stop(id)
            await self._conversations.wait(id)
        finally:
            self._id = ""
            forget()
            states.cancel()
            with suppress(asyncio.CancelledError):
                await states

    async def awaited(
        self, work: Coroutine[Any, Any, T], state: Callable[[], str] = lambda: "", *, goes_on: bool = True
    ) -> T | None:
        """What comes of `work`; None: the user no longer waited, and it goes on by itself, or is ended. `state`: how it
        is in words, said while it takes long. Raises what `work` does."""
        found, failed = list[T](), list[ChatError]()

        async def kept() -> None:
            try:
                found.append(await work)
            except ChatError as error:
                failed.append(error)

        self._given_up = asyncio.Event()
        if self.taken_press():
            self._given_up.set()
        given_up = asyncio.create_task(self._given_up.wait())
        task, said = self._service.core.in_background(kept()), ""
        try:
            while True:
                done, _ = await asyncio.wait(
                    {task, given_up}, timeout=self._state_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    for error in failed:
                        raise error
                    return found[0] if found else None
                if (words := state()) != said:
                    self._speaker.say(words)
                    said = words
        finally:
            if not goes_on:
                task.cancel()
            given_up.cancel()
            self._given_up = None

    def stop(self) -> None:
        """Ctrl+C: stop what runs, and keep what came, or what is waited for. Where there is neither, what comes next is
        stopped, unless somebody takes the press before that."""
        if self._given_up is not None:
            self._given_up.set()
        elif not self._id:
            self._is_pressed = True
        else:
            if not self._is_stopped:
                self._is_stopped = True
                self._speaker.say("Stopping.")
            self._service.core.in_background(self._conversations.stop(self._id))

    def taken_press(self) -> bool:
        """Whether a press of Ctrl+C has stopped nothing yet; true once for each press."""
        pressed, self._is_pressed = self._is_pressed, False
        return pressed

    # -- the text

    def _heard(self, event: ServiceEvent) -> None:
        match event:
            case AnswerStarted(conversation=id) if id == self._id:
                self._begin()
            case AnswerProgressed(conversation=id) if id == self._id:
                if (live := self._live()) is not None:
                    self._print(live.text, live.reasoning, live.reasoning_field)
            case AnswerEnded(conversation=id, node=node) if id == self._id:
                self._end(node)
            case ConversationChanged(conversation=id) if id == self._id:
                self._call()
            case ToolAsked(conversation=id) if id == self._id and id in self._service.tools.waiting:
                self._service.core.in_background(self._ask_about_call(id))
            case HeadAwaited(conversation=id) if id == self._id and self._conversations.awaits_reply(id):
                self._speaker.say(AWAITS)

    def _live(self) -> LiveAnswer | None:
        conversation = self._conversations.get(self._id)
        if conversation is not None and conversation.live is not None:
            return conversation.live
        running = self._service.compacting
        return running.live if running is not None and running.conversation == self._id else None

    def _begin(self) -> None:
        live = self._live()
        begins = live is not None and live.continued is not None
        self._text, self._reasoning = (len(live.text), len(live.reasoning)) if live is not None and begins else (0, 0)
        self._turned = begins and live is not None and has_end_only(live.reasoning_field)
        self._section, self._answer = "", "Continued:" if begins else "Answer:"

    def _call(self) -> None:
        """Say which call of a tool is carried out now, once."""
        conversation, live = self._conversations.get(self._id), self._live()
        node = conversation.tree[live.node] if conversation and live and live.node in conversation.tree else None
        if node is not None and node.role is Role.TOOL and node.id != self._called:
            self._called = node.id
            if conversation is not None and (answer := conversation.tree[node.parent or ""]).role is Role.ASSISTANT:
                self._print(answer.text, answer.message.reasoning, answer.message.reasoning_field)
                if note := note_sentence(answer.note):
                    self._speaker.say(note)
            self._speaker.output.end()
            self._speaker.say(f"Calls {shown_call(node.message.call)}.")

    async def _ask_about_call(self, id: str) -> None:
        tools = self._service.tools
        question, decision = tools.waiting[id], None
        self._speaker.show(*question_lines(question, tools.choices))
        while decision is None and tools.waiting.get(id) is question:
            line = await self._speaker.asked(f"{ask_words(question)} {letters(tools.choices)}: ")
            decision = decided(line or "", tools.choices)
        if decision is not None:
            tools.decide(id, decision, question)

    def _print(self, text: str, reasoning: str, field: str) -> None:
        """What is new of both."""
        if has_end_only(field) and not self._turned:
            self._text, self._section, self._turned = 0, "", True
        if self._service.settings.show_reasoning and len(reasoning) > self._reasoning:
            self._under("Thinking:")
            self._speaker.output.write(reasoning[self._reasoning :])
        self._reasoning = len(reasoning)
        if len(text) > self._text:
            self._under(self._answer)
            self._speaker.output.write(text[self._text :])
            self._text = len(text)

    def _under(self, section: str) -> None:
        if self._section != section:
            self._section = section
            self._speaker.output.line(section)

    def _end(self, node: str) -> None:
        conversation = self._conversations.get(self._id)
        if conversation is None or node not in conversation.tree:
            return
        answer = conversation.tree[node]
        self._print(answer.text, answer.message.reasoning, answer.message.reasoning_field)
        self._speaker.output.end()
        for number, block in sources(turns_of(conversation.tree.path(node))[-1]).items():
            self._speaker.say(f"Source {number}: {one_line(name_of(block))}.")
        if note := note_sentence(answer.note):
            self._speaker.say(note)
        if answer.figures is not None and (figures := figures_sentence(answer.figures)):
            self._speaker.say(figures)

    # -- the states

    async def _say_states(self) -> None:
        """Say the state while no text comes."""
        seconds, text, said = self._state_seconds, 0, ""
        while True:
            await asyncio.sleep(seconds)
            live, before, text = self._live(), text, self._text
            state = state_sentence(live, time.monotonic()) if live is not None and text == before else ""
            if state and state != said:
                self._speaker.say(state)
                said, seconds = state, max(min(seconds * 1.5, LONGEST_S), seconds)


def state_sentence(live: LiveAnswer, now: float) -> str:
    """The state of an answer while no text comes; empty: that is plain to see. `now` in monotonic seconds."""
    if live.stopping:
        return ""
    if live.waiting is not None and live.waiting.phase == "consent":
        return ""
    if live.waiting is not None:
        return waiting_sentence(live.waiting.phase, now - live.sent_at, live.waiting.words)
    if live.first_token_at is not None:
        if live.call is not None and live.call.name:
            return f"Writing a call of {one_line(live.call.name, 40)}."
        return "Thinking." if live.reasoning and not live.text else ""
    if live.prefill is not None:
        return prefill_sentence(live.prefill)
    return waiting_sentence("queued", now - live.sent_at)

"""Printing an answer while it comes: its text on standard output, what is waited for on standard error."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
from kvchat.chat.events import AnswerProgressed, ServerChanged, ServiceEvent
from kvchat.chat.server.connection_state import Connecting
from kvchat.cli import say
from kvchat.cli.plain_output import Printer, width_of
from kvchat.prompt.message import Message, Role, has_end_only
from kvchat.text.notes import note_sentence
from kvchat.text.tools import shown_call

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService

CANCELS = "The server is finishing a cancelled batch. Waiting for it; Ctrl+C gives up."
WAS_REASONING = "What came so far was the model's reasoning; its answer follows."
LOADS = "The server is loading its model. Waiting for it; Ctrl+C gives up (--wait sets a limit)."
IS_BUSY = "The server takes no more requests now. Waiting for it; Ctrl+C gives up (--wait sets a limit)."
PROGRESS_S = 5.0
"""Seconds between two lines on how far a call is."""
SURE_S = 1.5
"""Seconds for which the beginning of an answer is kept from a pipe: it may prove to be a thought of which only the end
is marked. Whoever sits at a terminal reads along. After a model's first such answer, no thought is printed."""
SILENT_LOADING_S = 1.0
"""Seconds after which it is said that a model is being loaded."""


class _Step(Struct):
    """A node of the turn, an answer or a call, and what is printed of it."""

    node: str = ""
    printed: int = 0
    """Characters of its text."""
    was_reasoning: bool = False
    """Whether what was printed first proved to be reasoning."""


class AnswerStream:
    """Prints the steps of a turn as they come. `on_event` takes the events of the service."""

    def __init__(
        self, service: ChatService, conversation: OpenConversation, printer: Printer, *, is_printed: bool
    ) -> None:
        """`is_printed`: whether the text is printed at all."""
        self._service = service
        self._conversation = conversation
        self._printer = printer
        self._is_printed = is_printed
        self._at_terminal = width_of(sys.stdout) is not None
        self._step = _Step()
        self._marks_both: bool | None = None
        """Whether the model's last answer marked where its reasoning begins; None: not looked up."""
        self._says_cancelled = True
        self._next_progress = 0.0

    def on_event(self, event: ServiceEvent) -> None:
        live = self._conversation.live
        if live is not None and live.node != self._step.node:
            self._begin_step(live.node)
        if isinstance(event, AnswerProgressed) and live is not None and event.conversation == self._conversation.id:
            self._say_waiting(live)
            if self._is_printed and live.text and self._is_sure(live):
                with suppress(OSError):  # it is said at the end; the answer is kept all the same
                    cut = self._conversation.tree[live.continued].message if live.continued else None
                    self.write(live.text, live.reasoning_field, cut)

    def _begin_step(self, node: str) -> None:
        """Another step of the turn has begun: what came before it is printed whole."""
        tree = self._conversation.tree
        before = tree[self._step.node] if self._step.node else None
        if before is not None and before.role is Role.ASSISTANT:
            if self._is_printed and before.text:
                with suppress(OSError):
                    self.write(before.text, before.message.reasoning_field)
                    self._printer.end()
            if before.note is not None:
                say(note_sentence(before.note))
        self._step = _Step(node)
        if tree[node].role is Role.TOOL:
            say(shown_call(tree[node].message.call))

    def _say_waiting(self, live: LiveAnswer) -> None:
        if live.waiting and live.waiting.phase == "cancelled" and self._says_cancelled:
            say(CANCELS)
            self._says_cancelled = False
        if live.waiting and live.waiting.words and time.monotonic() >= self._next_progress:
            say(live.waiting.words)
            self._next_progress = time.monotonic() + PROGRESS_S

    def _is_sure(self, live: LiveAnswer) -> bool:
        """Whether what has come can be printed: which of it is reasoning is known, or is not waited for any longer."""
        if self._marks_both is None:
            model = self._conversation.tree[live.node].model
            self._marks_both = not has_end_only(self._service.store.last_reasoning_field(model))
        waited = time.monotonic() - (live.first_token_at or 0)
        return bool(live.reasoning) or (self._marks_both and (self._at_terminal or waited > SURE_S))

    def write(self, text: str, field: str, cut: Message | None = None) -> None:
        """Print what is new of an answer. `field`: of its reasoning; `cut`: the cut answer that it goes on with."""
        step = self._step
        if cut is not None and has_end_only(cut.reasoning_field) == has_end_only(field):
            step.printed = max(step.printed, len(cut.text))
        elif has_end_only(field) and not step.was_reasoning:
            if step.printed:
                self._printer.end()
                say(WAS_REASONING)
            step.printed, step.was_reasoning = 0, True
        self._printer.write(text[step.printed :])
        step.printed = len(text)


class WaitNotices:
    """Says once what is waited for: that the server loads its model, or takes no requests now."""

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self._said: set[str] = set()

    def __call__(self, event: ServiceEvent) -> None:
        if isinstance(event, ServerChanged):
            for link in self._service.servers.links:
                match link.connector.connection:
                    case Connecting(loading_s=seconds) if (seconds or 0.0) >= SILENT_LOADING_S:
                        self._say(LOADS)
        elif isinstance(event, AnswerProgressed) and (one := self._service.conversations.get(event.conversation)):
            waiting = one.live.waiting if one.live is not None else None
            if waiting is not None and waiting.phase == "loading" and waiting.seconds >= SILENT_LOADING_S:
                self._say(LOADS)
            elif waiting is not None and waiting.phase == "busy":
                self._say(IS_BUSY)

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            say(sentence)

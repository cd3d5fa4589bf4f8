"""Servers that are part of a program with settings of its own: errors say what to change in that very program, and
what it does silently becomes a warning."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import (
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    ReasoningDelta,
    Reported,
    StreamEvent,
    TextDelta,
    Trouble,
    WasThought,
    failure,
)
from kvchat.backends.http.payload import count_at, figures_at, is_object
from kvchat.backends.http.stream import Payload
from kvchat.backends.http.transport import ResponseHead
from kvchat.prompt.message import NoteKind, State
from kvchat.text.faults import Fault
from kvchat.values import Statement, said

# -- what follows from the token counts of several turns; what they do not show is None -------------------------------


SLACK = 16
"""Tokens by which a prompt may shrink though nothing is left out: what a template puts behind the last question."""
MOST_PROMPTS = 64
SURE = 0.5
"""The share of new text's likely tokens that is counted on: text differs in tokens per byte."""


class Counted(Struct, frozen=True):
    """A prompt that was read, and the answer to it."""

    session: str
    model: str
    template_options: Mapping[str, object]
    wires: tuple[bytes, ...]
    tokens: int
    reply: str
    reply_tokens: int
    """0 where it is not known how many of the answer's tokens stay in the prompt: it holds reasoning."""

    def expected(self, turn: ChatTurn) -> tuple[int, int] | None:
        """How many tokens the prompt of `turn` has for sure, those of the prompt that it extends and of the answer to
        that, and with a careful guess for what this turn added; None where it does not extend this one."""
        length = len(self.wires)
        if (turn.session_id, turn.model, turn.template_options) != (
            self.session,
            self.model,
            self.template_options,
        ) or turn.wires[:length] != self.wires:
            return None
        added = [(wire, json.loads(wire)) for wire in turn.wires[length:]]
        is_kept = bool(added) and added[0][1].get("content") == self.reply
        least = self.tokens + (self.reply_tokens if is_kept else 0)
        size = sum(len(wire) for wire, message in added if message.get("role") != "assistant")
        return least, least + int(size * self.tokens / sum(map(len, self.wires)) * SURE)


class PromptCounts:
    """The prompts read lately."""

    def __init__(self) -> None:
        self._prompts: deque[Counted] = deque(maxlen=MOST_PROMPTS)

    def expected(self, turn: ChatTurn) -> int | None:
        """How many tokens the prompt of `turn` has, with a careful guess for what it added; None where nothing that it
        extends was counted."""
        found = [expected for counted in self._prompts if (expected := counted.expected(turn)) is not None]
        return max(found, default=(0, None))[1]

    def remember(self, turn: ChatTurn, tokens: int, reply: str, reply_tokens: int) -> None:
        options = dict(turn.template_options)
        self._prompts.append(Counted(turn.session_id, turn.model, options, turn.wires, tokens, reply, reply_tokens))


# -- asking and reading -----------------------------------------------------------------------------------------------


ANSWERED = (State.DONE, State.LENGTH, State.CONTEXT_FULL)


class ReplyWatch:
    """Passes events on, and remembers the text and whether the model reasoned."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._texts: list[str] = []
        self.reasoned = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def __call__(self, event: StreamEvent) -> None:
        match event:
            case TextDelta(text):
                self._texts.append(text)
            case WasThought():
                self._texts, self.reasoned = [], True
            case ReasoningDelta():
                self.reasoned = True
        self._emit(event)


class ProgramAnswer(ChatAnswer):
    """An answer whose usage tells what the program left out."""

    _left_out = 0

    def take(self, payload: Payload) -> None:
        if is_object(payload.value) and (usage := figures_at(payload.value, "usage")):
            self._left_out = count_at(figures_at(usage, "compression_meta"), "dropped_turns") or self._left_out
            if usage.get("prompt_tokens") == 0:  # it does not count
                payload = replace(payload, value={**payload.value, "usage": None})
        super().take(payload)

    def ended(self, error: BackendError | None = None) -> Ended:
        ended = super().ended(error)
        if not self._left_out:
            return ended
        return replace(ended, warnings=(*ended.warnings, said(NoteKind.SUMMARISED, messages=self._left_out)))


class ProgramBackend(HttpBackend):
    """A server that is part of a program."""

    answers = ProgramAnswer

    @cached_property
    def _counts(self) -> PromptCounts:
        return PromptCounts()

    def body(self, turn: ChatTurn) -> bytes:
        given, name = turn.parameters, self.kind.repeat_penalty
        if given.repeat_penalty is not None and name != "repeat_penalty":
            given = replace(given, repeat_penalty=None, extra={name: given.repeat_penalty, **given.extra})
        return super().body(replace(turn, parameters=given))

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        seen = ReplyWatch(emit)
        ended = self._explained_end(await super().chat(turn, seen))
        if ended.state is State.CONTEXT_FULL:
            ended = replace(ended, remark=said(NoteKind.FILLS_WINDOW, size=self.window_of(turn), room=self.kind.room))
        if ended.state not in ANSWERED:
            return ended
        return replace(
            ended,
            warnings=(*ended.warnings, *self._other_model(turn, ended), *self._left_out(turn, seen, ended.reported)),
        )

    def _other_model(self, turn: ChatTurn, ended: Ended) -> list[Statement]:
        asked = self.model_of(turn)
        if not self.kind.ignores_model or not asked or not ended.model or _bare(asked) == _bare(ended.model):
            return []
        return [
            said(
                NoteKind.OTHER_MODEL_ANSWERED,
                answered=errors.quoted(ended.model),
                asked=errors.quoted(asked),
                title=self.kind.title,
            )
        ]

    def _left_out(self, turn: ChatTurn, seen: ReplyWatch, reported: Reported) -> list[Statement]:
        """A warning if the prompt is shorter than the conversation; else it is remembered for the next turn."""
        tokens, expected = reported.prompt_tokens, self._counts.expected(turn)
        if not tokens:
            return []
        if expected is not None and tokens < expected - SLACK:  # what it was before stays the measure
            return [
                said(NoteKind.LEFT_OUT, title=self.kind.title, tokens=tokens, expected=expected, room=self.kind.room)
            ]
        reply_tokens = 0 if seen.reasoned else reported.predicted_tokens or 0
        self._counts.remember(turn, tokens, seen.text, reply_tokens)
        return []

    def _error(self, head: ResponseHead, body: str) -> BackendError:
        return self._explained(super()._error(head, body), body)

    def _explained_end(self, ended: Ended) -> Ended:
        error = ended.error and self._explained(ended.error, ended.error.server_words)
        begun = not (ended.state is State.EMPTY or (error and error.trouble is Trouble.CUT))
        if begun or self.info.model or not self.kind.unloaded:
            return replace(ended, error=error)
        trouble = error.trouble if error else Trouble.REFUSED
        unloaded = self._program_error(trouble, self.kind.unloaded)
        return replace(ended, remark=unloaded.note, error=error and unloaded)

    def _program_error(self, trouble: Trouble, told: str, status: int | None = None) -> BackendError:
        return failure(trouble, Fault.PROGRAM, status=status, title=self.kind.title, url=self.url, told=told)

    def _explained(self, error: BackendError, said: str) -> BackendError:
        """The error, with what to change in this program; `said`: the server's own words."""
        if type(error) is not BackendError:  # such errors mean something to those who catch them
            return error
        words = said.lower()
        for remedy in self.kind.remedies:
            if remedy.words in words:
                return self._program_error(Trouble(remedy.trouble), remedy.shown, error.status)
        if error.trouble is Trouble.UNAUTHORIZED and error.status == 401:
            return error.with_arguments(keys=f" {self.kind.keys}")
        return error.with_arguments(room=self.kind.room) if error.trouble is Trouble.CONTEXT_OVERFLOW else error


def _bare(model: str) -> str:
    """A model's name without what servers put around it: folders, the end of a file's name, a variant, a number."""
    name = model.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".gguf")
    return name.partition("@")[0].partition(":")[0]

"""What the dialects of programs with settings of their own share: errors that say what to change in that very
program, and warnings about what it does without a word.

The rule: nothing is sent that such a program does not know, and no session fields: it serves one person.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import Answer, HttpBackend, Images, no_images
from kvchat.backends.dialect import (
    PLAIN,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    ReasoningDelta,
    Reported,
    ServerOptions,
    StreamEvent,
    TextDelta,
    Trouble,
    WasThought,
    failure,
)
from kvchat.backends.http.endpoint import Endpoint
from kvchat.backends.http.transport import Clock, Head
from kvchat.cache.causes.cause import Statement, said
from kvchat.prompt.message import NoteKind, State
from kvchat.prompt.request import Parameters
from kvchat.text.faults import Fault

# -- what follows from the token counts of several turns: what cannot be told from them is None -----------------------


SLACK = 16
"""Tokens by which a prompt may shrink though nothing is left out: what a template puts behind the last question."""
MOST_PROMPTS = 64
MOST_SAMPLES = 32
SURE = 0.5
"""Of the tokens that new text seems to have, so many are counted on: text differs in tokens per byte."""
LEAST_NEW = 16
"""Tokens: reading fewer says more about overhead than about speed."""
AGREEMENT = 2.0
"""The slowest and the fastest possible speed may differ by this factor for an estimate."""


class Expected(Struct, frozen=True):
    """How long a prompt has to be."""

    least: int
    """Tokens that it has for sure: those of the prompt that it extends, and of the answer to that."""
    likely: int
    """Tokens with a careful guess for what this turn added."""


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

    def expected(self, turn: ChatTurn) -> Expected | None:
        """How long the prompt of `turn` has to be; None where it does not extend this one."""
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
        return Expected(least, least + int(size * self.tokens / sum(map(len, self.wires)) * SURE))


class PromptCounts:
    """The prompts read lately."""

    def __init__(self) -> None:
        self._prompts: deque[Counted] = deque(maxlen=MOST_PROMPTS)

    def expected(self, turn: ChatTurn) -> Expected | None:
        """How long the prompt of `turn` has to be; None where nothing that it extends was counted."""
        found = [expected for counted in self._prompts if (expected := counted.expected(turn)) is not None]
        return max(found, key=lambda expected: expected.least, default=None)

    def remember(self, turn: ChatTurn, tokens: int, reply: str, reply_tokens: int) -> None:
        options = dict(turn.template_options)
        self._prompts.append(Counted(turn.session_id, turn.model, options, turn.wires, tokens, reply, reply_tokens))


class PrefillTimes:
    """Estimates how much of a prompt came from the cache, for a server that tells only how long reading took.

    Reading took at most as long per token as per new token, and at least as long as per token of the whole prompt;
    where a few turns together leave little room between the two, the speed is known.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float | None]] = deque(maxlen=MOST_SAMPLES)

    def cached(self, prompt_tokens: int, prompt_ms: float, new_tokens: int | None) -> int | None:
        """About how many tokens came from the cache; None until the speed is known. `new_tokens`: those that this
        turn added, where that is known."""
        if prompt_tokens <= 0 or prompt_ms <= 0:
            return None
        new = new_tokens if new_tokens and new_tokens >= LEAST_NEW else None
        self._samples.append((prompt_ms / prompt_tokens, prompt_ms / new if new else None))
        least = max(sample[0] for sample in self._samples)
        most = min((sample[1] for sample in self._samples if sample[1] is not None), default=None)
        if most is None or most > least * AGREEMENT or least > most * AGREEMENT:
            return None
        read = prompt_ms / ((least + most) / 2)
        return round(min(max(0.0, prompt_tokens - read), prompt_tokens - (new_tokens or 1)))


# -- the dialects -----------------------------------------------------------------------------------------------------


ANSWERED = (State.DONE, State.LENGTH, State.CONTEXT_FULL)


class Remedy(NamedTuple):
    """What to say when a program says something known."""

    words: str
    """A part of what it says, in lower case."""
    told: str
    """What is told instead, behind "<program> at <address>"."""
    trouble: Trouble = Trouble.REFUSED


class Seen:
    """Passes events on, and remembers what they told."""

    def __init__(self, emit: Emit, clock: Clock) -> None:
        self._emit = emit
        self._clock = clock
        self._started = clock.now()
        self._texts: list[str] = []
        self.reported = Reported()
        self.reasoned = False
        self.waited: float | None = None
        """Seconds until the first token."""

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
            case Reported():
                self.reported = event
        if self.waited is None and isinstance(event, TextDelta | ReasoningDelta):
            self.waited = self._clock.now() - self._started
        self._emit(event)


class ProgramBackend(HttpBackend):
    """A server that is part of a program."""

    session_fields = ()
    room: ClassVar[str]
    """How its window is made larger, behind "Start a new conversation, delete a turn, or"."""
    keys: ClassVar[str] = ""
    """Where its API keys are: a sentence."""
    remedies: ClassVar[tuple[Remedy, ...]] = ()
    renamed: ClassVar[Mapping[str, str]] = {}
    """Its own names for parameters."""
    ignores_model: ClassVar[bool] = False
    """Whether it answers with the model that is loaded, whatever model was asked for."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        embedded: bool = False,
        clock: Clock | None = None,
        options: ServerOptions = PLAIN,
        images: Images = no_images,
    ) -> None:
        super().__init__(endpoint, embedded=embedded, clock=clock, options=options, images=images)
        self._counts = PromptCounts()

    @property
    def title(self) -> str:
        return self.kind.title

    def model_of(self, turn: ChatTurn) -> str:
        """The model that `turn` asks for."""
        return turn.model or self.info.model

    def window_of(self, turn: ChatTurn) -> int | None:
        """Tokens of the window of the model that `turn` asks for."""
        return self.info.window(self.model_of(turn))

    def body(self, turn: ChatTurn) -> bytes:
        return super().body(replace(turn, parameters=self._in_its_names(turn.parameters)))

    def _in_its_names(self, parameters: Parameters) -> Parameters:
        if parameters.repeat_penalty is None or "repeat_penalty" not in self.renamed:
            return parameters
        extra = {self.renamed["repeat_penalty"]: parameters.repeat_penalty, **parameters.extra}
        return replace(parameters, repeat_penalty=None, extra=extra)

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        return ChatAnswer(self.url, emit, self.window_of(turn))

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        seen = Seen(emit, self._clock)
        ended = self._explained_end(await super().chat(turn, seen))
        if ended.state is State.CONTEXT_FULL:
            ended = replace(ended, remark=said(NoteKind.FILLS_WINDOW, size=self.window_of(turn), room=self.room))
        if ended.state not in ANSWERED:
            return ended
        expected = self._counts.expected(turn)
        warnings = [*ended.warnings, *self._other_model(turn, ended), *self._left_out(turn, seen, expected)]
        await self.judge(turn, seen, expected)
        return replace(ended, warnings=tuple(warnings))

    async def judge(self, turn: ChatTurn, seen: Seen, expected: Expected | None) -> None:
        """Report what can be told of the cache now that the answer is there. `expected`: how long the prompt has to be,
        where an earlier turn that this one extends was counted."""

    def _other_model(self, turn: ChatTurn, ended: Ended) -> list[Statement]:
        asked = self.model_of(turn)
        if not self.ignores_model or not asked or not ended.model or _bare(asked) == _bare(ended.model):
            return []
        return [
            said(
                NoteKind.OTHER_MODEL_ANSWERED,
                answered=errors.quoted(ended.model),
                asked=errors.quoted(asked),
                title=self.title,
            )
        ]

    def _left_out(self, turn: ChatTurn, seen: Seen, expected: Expected | None) -> list[Statement]:
        """A warning if the prompt is shorter than the conversation; else it is remembered for the next turn."""
        tokens = seen.reported.prompt_tokens
        if not tokens:
            return []
        if expected is not None and tokens < expected.likely - SLACK:  # what it was before stays the measure
            return [said(NoteKind.LEFT_OUT, title=self.title, tokens=tokens, expected=expected.likely, room=self.room)]
        reply_tokens = 0 if seen.reasoned else seen.reported.predicted_tokens or 0
        self._counts.remember(turn, tokens, seen.text, reply_tokens)
        return []

    def _error(self, head: Head, body: str) -> BackendError:
        return self._explained(super()._error(head, body), body)

    def _explained_end(self, ended: Ended) -> Ended:
        if ended.error is None:
            return ended
        return replace(ended, error=self._explained(ended.error, ended.error.said))

    def _explained(self, error: BackendError, said: str) -> BackendError:
        """The error, with what to change in this program; `said`: the server's own words."""
        if type(error) is not BackendError:  # such errors mean something to those who catch them
            return error
        words = said.lower()
        for remedy in self.remedies:
            if remedy.words in words:
                return failure(
                    remedy.trouble, Fault.PROGRAM, status=error.status, title=self.title, url=self.url, told=remedy.told
                )
        if error.trouble is Trouble.UNAUTHORIZED and error.status == 401:
            return error.told_with(keys=f" {self.keys}")
        return error.told_with(room=self.room) if error.trouble is Trouble.CONTEXT_OVERFLOW else error


def _bare(model: str) -> str:
    """A model's name without what servers put around it: folders, the end of a file's name, a variant, a number."""
    name = model.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".gguf")
    return name.partition("@")[0].partition(":")[0]

"""An OpenAI chat answer: deltas in, events out, and at the end the state it ended in.

An answer is complete when a `finish_reason` came, and only then. `[DONE]`, or a clean end of HTTP,
proves nothing. A figure that was not reported is None, never 0.

In the order in which they are called, by `base.HttpBackend`:

1. `resume`: what a cut answer had already.
2. `take`: one value of the stream. `_choice` and `_delta` hand its parts to `answer_text`, `tool_calls` and
   `answer_figures`, which emit the events.
3. `ended`: the end. `_ended` chooses its state and note, `_failure` its error.

`Alternatives` hands each part of an answer to several to the `ChatAnswer` that it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import partial

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer_figures import AnswerFigures, progress_of
from kvchat.backends.answer_text import REFUSAL, AnswerText, FieldText, parts_of
from kvchat.backends.dialect import (
    BackendError,
    CallWritten,
    Emit,
    Ended,
    OfAlternative,
    Progressed,
    PromptShown,
    ReasoningDelta,
    Reported,
    StreamEvent,
    TextDelta,
    Trouble,
    WasThought,
)
from kvchat.backends.http.payload import (
    count_at,
    figures_at,
    is_object,
    name_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import Timings
from kvchat.backends.tool_calls import ToolCalls
from kvchat.prompt.message import NoteKind, State
from kvchat.prompt.thoughts import Thoughts
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault
from kvchat.values import Statement, said

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
IN_PARTS = ""
"""The field of reasoning that came as parts of the content: it is not sent back, for few servers take it so."""
_PART = re.compile(r'^\s*(?:\{|\[\s*\{)|"(?:choices|delta|message|content)"\s*:')
"""How what cannot be read begins, or holds, where it was a part of an answer."""
_CHUNK_KEYS = frozenset({"choices", "usage", "timings", "prompt_progress"})
_UNFINISHED = frozenset(
    {"abort", "aborted", "cancelled", "canceled", "error", "network_error", "insufficient_system_resource"}
)
"""Values of `finish_reason` by which a server says that it stopped without finishing."""
_LENGTHS = frozenset({"length", "max_tokens", "max_output_tokens", "max_length", "model_length"})
_FILTERS = frozenset(
    {
        "content_filter",
        "content_filtered",
        "content-filter",
        "filter",
        "safety",
        "prohibited_content",
        "recitation",
        "blocklist",
        "spii",
        "sensitive",
        "guardrail_intervened",
    }
)
"""Values by which it says that a filter stopped the answer."""
REFUSAL_LIMIT = 600
"""Characters of a refusal in the note."""


class AnswerForm(Enum):
    NOTHING = auto()
    """Nothing came yet."""
    DOCUMENT = auto()
    """One whole message."""
    STREAM = auto()
    """Parts, or several messages."""


class _Reception:
    """In what form an answer came, and what came in its place."""

    def __init__(self) -> None:
        self.form = AnswerForm.NOTHING
        self._has_parts = self._has_others = False
        """Whether something came that is a part of an answer, and that is none."""
        self._lost = 0
        """How many parts came damaged."""
        self._ends_in_loss = False
        """Whether the last one did: of a cut answer that is the cut."""

    def part(self) -> None:
        """A part came, whatever is in it."""
        self._has_parts, self._ends_in_loss = True, False

    def delta(self) -> None:
        self.form = AnswerForm.STREAM

    def message(self) -> None:
        self.form = AnswerForm.DOCUMENT if self.form is AnswerForm.NOTHING else AnswerForm.STREAM

    def other(self, value: object) -> None:
        """A value came that is no part of an answer: a damaged one, or a sign of life."""
        self._has_others = True
        if isinstance(value, str) and _PART.search(value):
            self._lost += 1
            self._ends_in_loss = True

    @property
    def is_no_answer(self) -> bool:
        """Whether all that came is something else."""
        return self._has_others and not self._has_parts and not self._lost

    def lacks_a_part(self, *, finished: bool) -> bool:
        """Whether a part is missing within what came."""
        return self._has_parts and self._lost > (self._ends_in_loss and not finished)


class ChatAnswer:
    """Collects one answer. Of what a server puts around it nothing costs it: what is odd is passed over.

    silent ──► begun ──► finished      a `finish_reason` came
       └──────────┴────► broken off    `ended` without one
    """

    def __init__(
        self,
        url: str,
        emit: Emit,
        context_size: int | None,
        *,
        thoughts: Thoughts | None = None,
        timings: Timings | None = None,
    ) -> None:
        """`thoughts`: how those in the text are known; None: by their common tags. `timings`: what the usage has of
        them."""
        self._url = url
        self._emit = emit
        self._context_size = context_size
        self._finish: str | None = None
        """Why it ended; None: it is not finished."""
        self._index: int | None = None
        """The number of this answer, as its first part has it."""
        self._model = ""
        self._fields = {"content": FieldText(), "reasoning": FieldText(), REFUSAL: FieldText()}
        self._reasoning_field: str | None = None
        self._text = AnswerText(emit, thoughts or Thoughts(None))
        self._calls = ToolCalls()
        self._refusal = ""
        self._words = ""
        """What the server said in place of an answer: an error, if there is none."""
        self._reception = _Reception()
        self._figures = AnswerFigures(timings)
        self._begun = False
        self.moves = 0
        """How often the answer went on: deltas, calls of tools, and prompt progress."""

    @property
    def finished(self) -> bool:
        return self._finish is not None

    @property
    def has_begun(self) -> bool:
        """Whether the first token has come."""
        return self._begun

    @property
    def has_usage(self) -> bool:
        """Whether the figures at the end have come."""
        return self._figures.has_usage

    def went_on(self) -> None:
        """Something of the answer has come that is not shown yet."""
        self.moves += 1
        if not self._begun:  # its first token has come
            self._begun = True
            self._emit(TextDelta(""))

    def resume(self, content: str, thought: str = "") -> None:
        """Read on from a cut answer, which came before, with its thought. A server may begin with that once more."""
        self._fields["content"].begin(content)
        self._fields["reasoning"].echo = thought
        if content:
            self._text.resume(content)

    def take(self, payload: Payload) -> None:
        """One value of the stream. Raises BackendError for a reported error."""
        value = payload.value
        found = errors.error_in(value)
        if found is None and payload.is_error:
            found = value if isinstance(value, str) else errors.words_in(value), {}
        if found is not None:
            raise errors.of_stream(self._url, *found)
        if isinstance(value, list):
            for one in value:
                self.take(Payload(one))
            return
        if not is_object(value):
            self.pass_over(value)
            return
        self._model = name_at(value, "model") or self._model
        choices = value.get("choices")
        if not choices:
            self._words = errors.words_in(value) or self._words
        if value.keys().isdisjoint(_CHUNK_KEYS):
            self._reception.other(None)
            return
        self._reception.part()
        if value.get("object") == "chat.completion.chunk":
            self._reception.delta()
        for choice in choices if isinstance(choices, list) else (choices,):
            if is_object(choice):
                self._choice(choice)
        self._take_figures(value)

    def pass_over(self, value: object) -> None:
        """Note a value that is no part of an answer: a damaged one, or a sign of life."""
        self._reception.other(value)

    def _choice(self, choice: Mapping[str, object]) -> None:
        if "error" in choice and (found := errors.error_in(choice)) is not None:
            raise errors.of_stream(self._url, *found)
        if isinstance(index := choice.get("index"), int):
            self._index = index if self._index is None else self._index
            if index != self._index:
                return  # of another answer, which was not asked for
        finish = _finish_in(choice)
        self._finish = finish or self._finish
        delta, message = choice.get("delta"), choice.get("message")
        if delta is None and message is None:
            delta = {"content": choice.get("text")}
        if delta:
            self._reception.delta()
            self._delta(delta if is_object(delta) else {"content": delta}, last=finish is not None)
        if message:
            self._reception.message()
            self._delta(message if is_object(message) else {"content": message}, whole=True, last=finish is not None)

    def _delta(self, delta: Mapping[str, object], *, whole: bool = False, last: bool = False) -> None:
        for name in REASONING_FIELDS:
            value = delta.get(name)
            if value and self._reasoning_field in (None, name):
                self._reasoning_field = name
                field = name if isinstance(value, str) else IN_PARTS
                text = "".join(text for _, text in parts_of(value))
                self._take_reasoning(self._fields["reasoning"].new(text, whole=whole, last=last), field)
        content = delta.get("content")
        if isinstance(content, str):
            self._take_content(self._fields["content"].new(content, whole=whole, last=last))
        elif content:
            self._take_parts(content, whole=whole, last=last)
        if REFUSAL in delta:
            self._take_parts({"type": REFUSAL, REFUSAL: delta[REFUSAL]}, whole=whole, last=last)
        if self._calls.take(delta, whole=whole):
            self.went_on()
            self._emit(CallWritten(self._calls.written))

    def _take_parts(self, content: object, *, whole: bool, last: bool) -> None:
        came = {"content": "", "reasoning": "", REFUSAL: ""}
        for kind, text in parts_of(content):
            came[kind] += text
        if came["reasoning"] and self._reasoning_field in (None, IN_PARTS):
            self._reasoning_field = IN_PARTS
            self._take_reasoning(self._fields["reasoning"].new(came["reasoning"], whole=whole, last=last), IN_PARTS)
        self._take_content(self._fields["content"].new(came["content"], whole=whole, last=last))
        if refusal := self._fields[REFUSAL].new(came[REFUSAL], whole=whole, last=last):
            self._refusal += refusal
            self.moves += 1

    def _take_content(self, text: str) -> None:
        if text:
            self._begun = True
            self.moves += 1
            self._text.content(text)

    def _take_reasoning(self, text: str, field: str) -> None:
        if text:
            self._begun = True
            self.moves += 1
            self._text.reasoning(text, field)

    def _take_figures(self, chunk: Mapping[str, object]) -> None:
        progress = progress_of(figures_at(chunk, "prompt_progress"))
        if progress is not None:
            self.moves += 1
            self._emit(Progressed(progress))
        if progress is not None and progress.processed < progress.total:
            return  # until the prompt is read, the timings count only the part read so far
        verbose = figures_at(chunk, "__verbose")
        if isinstance(prompt := verbose.get("prompt"), str) and prompt:
            self._emit(PromptShown(prompt, count_at(verbose, "id_slot"), count_at(verbose, "tokens_cached")))
        if self._figures.take(chunk):
            self._emit(self._figures.reported)

    def ended(self, error: BackendError | None = None) -> Ended:
        """How it ended, given the `error` that cut it off, if one did. Text that was held back is emitted first."""
        if self._finish is None and error is None and self._reception.form is AnswerForm.DOCUMENT:
            self._finish = "stop"  # a document is whole, whatever it says of its end
        self._text.end(is_cut=self._finish is None or self._finish in _LENGTHS)
        ended = replace(self._ended(error), model=whole_characters(self._model), reported=self._figures.reported)
        if self._reception.lacks_a_part(finished=self.finished):
            ended = _with_loss(ended)
        return replace(ended, calls=self._calls.all) if self._finish is not None else ended

    def _ended(self, error: BackendError | None) -> Ended:
        if self._finish is None or self._finish in _UNFINISHED:
            error = self._failure(error)
            state = State.INTERRUPTED if error.trouble in (Trouble.CUT, Trouble.DEAD) else State.ERROR
            return Ended(state, error=error)
        if self._refusal or self._finish in _FILTERS or self._finish == REFUSAL:
            kind = NoteKind.FILTERED if self._finish in _FILTERS else NoteKind.MODEL_REFUSED
            words = errors.quoted(self._refusal, REFUSAL_LIMIT)
            return Ended(State.INTERRUPTED if self._text.has_words else State.EMPTY, said(kind, words=words))
        if self._finish in _LENGTHS and self._figures.fills(self._context_size):
            return Ended(State.CONTEXT_FULL, said(NoteKind.FILLS_WINDOW, size=self._context_size))
        called = self._calls.note
        if not self._text.has_words and not (called and self._text.has_reasoning):
            state, kind = State.EMPTY, NoteKind.NO_WORDS
            if self._text.has_reasoning:
                kind = NoteKind.ONLY_REASONING
                state = State.LENGTH if self._finish in _LENGTHS else state
            return Ended(state, called or self._said_of_nothing(kind))
        if self._finish in _LENGTHS:
            return Ended(State.LENGTH, said(NoteKind.LONGEST))
        return Ended(State.DONE, called)

    def _said_of_nothing(self, kind: NoteKind) -> Statement:
        """What is known of an answer without words."""
        if kind is not NoteKind.NO_WORDS:
            return said(kind)
        return said(
            kind, tokens=self._figures.reported.predicted_tokens or None, cut=(self._finish in _LENGTHS) or None
        )

    def _failure(self, error: BackendError | None) -> BackendError:
        """Why it did not finish: what the server said, else what broke it off."""
        if self._finish is not None:
            return errors.unfinished(self._url, self._finish)
        if error is None or error.fault is Fault.UNFINISHED:
            if self._words:
                return errors.of_stream(self._url, self._words, {})
            if self._reception.is_no_answer:
                return errors.not_json(self._url)
        return error or errors.cut(self._url, before_answer=False)


class Alternatives:
    """Collects the answers to one request that asked for several. Their parts come mixed, each with the number of its
    answer; an answer's figures follow its end, without a number. Every event of an answer is emitted as
    `OfAlternative`; the progress of the prompt, which is prefilled once, belongs to the first."""

    def __init__(self, url: str, emit: Emit, context_size: int | None, count: int) -> None:
        self._url = url
        self._emit = emit
        self._answers = [ChatAnswer(url, partial(self._of, at), context_size) for at in range(count)]
        self._ended: set[int] = set()
        self._others: dict[object, int] = {}

    def _of(self, at: int, event: StreamEvent) -> None:
        if isinstance(event, TextDelta | ReasoningDelta | WasThought | Reported):
            self._emit(OfAlternative(at, event))
        elif at == 0:
            self._emit(event)

    @property
    def moves(self) -> int:
        return sum(answer.moves for answer in self._answers)

    @property
    def has_begun(self) -> bool:
        return any(answer.has_begun for answer in self._answers)

    @property
    def finished(self) -> bool:
        return all(answer.finished for answer in self._answers)

    def resume(self, content: str, thought: str = "") -> None:
        raise NotImplementedError  # only a single answer is continued

    def take(self, payload: Payload) -> None:
        """As of `ChatAnswer`."""
        chunk = payload.value if is_object(payload.value) else {}
        choices = [choice for choice in _listed(chunk) if is_object(choice)]
        if payload.is_error or not choices:
            at = next((at for at, answer in enumerate(self._answers) if answer.finished and not answer.has_usage), 0)
            self._take(at, payload)
            return
        for choice in choices:
            at = self._place(choice.get("index"))
            self._take(at, Payload({**chunk, "choices": [{**choice, "index": at}]}))

    def _place(self, index: object) -> int:
        """The answer that a number is of; of one that is out of place, the first that nothing came of yet."""
        try:
            at = int(index) if isinstance(index, int | float | str) else 0
        except (ValueError, OverflowError):
            at = 0
        if 0 <= at < len(self._answers):
            return at
        if index not in self._others:
            unused = (at for at, answer in enumerate(self._answers) if not answer.has_begun and not answer.finished)
            self._others[index] = next(unused, len(self._answers) - 1)
        return self._others[index]

    def _take(self, at: int, payload: Payload) -> None:
        answer = self._answers[at]
        answer.take(payload)
        if answer.finished and answer.has_usage:
            self._end(at, answer.ended())

    def _end(self, at: int, ended: Ended) -> None:
        if at not in self._ended:
            self._ended.add(at)
            self._emit(OfAlternative(at, ended))

    def ended(self, error: BackendError | None = None) -> Ended:
        """How the first one ended; how each ended is emitted."""
        for at, answer in enumerate(self._answers):
            self._end(at, answer.ended(error))
        return self._answers[0].ended(error)


def _listed(chunk: Mapping[str, object]) -> Sequence[object]:
    found = chunk.get("choices")
    return found if isinstance(found, list) else ()


def _finish_in(choice: Mapping[str, object]) -> str | None:
    """Why a choice ended, in small letters; None: it goes on. What is no word says only that it ended."""
    found = choice.get("finish_reason")
    if not isinstance(found, str):
        return "stop" if found else None
    return reason if (reason := found.strip().lower()) not in ("", "null", "none") else None


def _with_loss(ended: Ended) -> Ended:
    """`ended` with the word that a part is missing, in addition to what else is said of it."""
    if ended.error is not None:
        return replace(ended, error=ended.error.with_arguments(damaged=True))
    if ended.remark is None or ended.remark.is_a(NoteKind.LONGEST):
        return replace(ended, remark=said(NoteKind.PART_LOST))
    return replace(ended, remark=replace(ended.remark, arguments=(*ended.remark.arguments, ("damaged", True))))

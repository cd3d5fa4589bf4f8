"""An OpenAI chat answer: deltas in, events out, and at the end the state it ended in.

An answer is complete when a `finish_reason` came, and only then. `[DONE]`, or a clean end of HTTP,
proves nothing. A figure that was not reported is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.dialect import (
    MOST_TOKENS,
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
    figure_at,
    figures_at,
    is_object,
    name_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import Timings
from kvchat.backends.tool_calls import ToolCalls
from kvchat.cache.accounting import PromptProgress
from kvchat.cache.causes.cause import Statement, said
from kvchat.prompt.message import NoteKind, State
from kvchat.prompt.thoughts import Part, Thoughts, end_marks
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault

_T = TypeVar("_T", int, float)
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
_REFUSAL = "refusal"
ECHO = 8
"""Characters from which on an answer that begins with the cut one is taken to repeat it."""
REFUSAL_LIMIT = 600
"""Characters of a refusal in the note."""


def parts_of(value: object) -> Iterator[tuple[Literal["content", "reasoning", "refusal"], str]]:
    """The texts in a content: itself, or those of its parts; of a kind of part that is not known, none."""
    if isinstance(value, str):
        yield "content", value
    elif isinstance(value, list):
        for part in value:
            yield from parts_of(part)
    elif is_object(value):
        kind = name_at(value, "type").lower()
        inner = next((found for name in _PART_FIELDS if (found := value.get(name))), None)
        for within, text in parts_of(inner):
            if "think" in kind or "reason" in kind or "thought" in kind or within == "reasoning":
                yield "reasoning", text
            elif kind == _REFUSAL:
                yield "refusal", text
            elif not kind or "text" in kind:
                yield within, text


_PART_FIELDS = ("text", "thinking", "reasoning", "content", "value", "parts", "summary", _REFUSAL)


class _Field:
    """What came in one field of an answer: in pieces, or as a whole message that may say again what came before."""

    def __init__(self) -> None:
        self._came: list[str] = []
        self._in_deltas = False
        self._grows = False
        """Whether each message holds those before it."""
        self.echo = ""
        """What the first piece may repeat: the cut answer that it goes on with."""

    def begin(self, text: str) -> None:
        self._came = [text]
        self.echo = text

    def new(self, text: str, *, whole: bool, last: bool) -> str:
        """What of `text` did not come before. `whole`: it is of a message, no delta; `last`: the answer's last."""
        if text and self.echo and not whole:
            if len(self.echo) >= ECHO:  # what is shorter may be what the model says next
                text = text.removeprefix(self.echo)
            self.echo = ""
        if not self._came:
            pass
        elif whole:
            before = "".join(self._came)
            if text.startswith(before) and (len(text) > len(before) or last or self._in_deltas or self._grows):
                self._grows = True
                text = text[len(before) :]
            elif self._in_deltas or (self._grows and before.strip() == text.strip()):
                text = ""
        elif last and len(self._came) > 1 and text == "".join(self._came):
            text = ""
        if text:
            self._came.append(text)
            self._in_deltas = self._in_deltas or not whole
        return text


class ChatAnswer:
    """Collects one answer. Of what a server puts around it nothing costs it: what is odd is passed over."""

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
        self._index: int | None = None
        """The number of this answer, as its first part has it."""
        self._reasoning_field: str | None = None
        self._fields = {"content": _Field(), "reasoning": _Field(), "refusal": _Field()}
        self._thoughts = thoughts or Thoughts(None)
        self._timings = timings
        self._frame = ""
        self._texts: list[str] = []
        """The text, without thoughts and end marks."""
        self._held = ""
        """What may be a mark at its end."""
        self._has_reasoning = self._begun = False
        self._refusal = ""
        self._model = ""
        self._reported = Reported()
        self._total: int | None = None
        self._was_read = self._is_foreign = False
        self._lost_parts = 0
        """How many parts came damaged."""
        self._ends_in_loss = False
        """Whether the last one did: of a cut answer that is the cut."""
        self._documents = 0
        """How many whole messages came; less than 0 once a part did."""
        self._words = ""
        """What the server said in place of an answer: an error, if there is none."""
        self._calls = ToolCalls()
        self.moves = 0
        """How often the answer went on: deltas, calls of tools, and prompt progress."""
        self.has_usage = False
        """Whether the figures at the end have come."""

    @property
    def finished(self) -> bool:
        return self._finish is not None

    @property
    def begun(self) -> bool:
        """Whether the first token has come."""
        return self._begun

    @property
    def _has_words(self) -> bool:
        return any(text.strip() for text in self._texts)

    def went_on(self) -> None:
        """Something of the answer has come that is not shown yet."""
        self.moves += 1
        if not self._begun:  # its first token has come
            self._begun = True
            self._emit(TextDelta(""))

    def resume(self, content: str, thought: str = "") -> None:
        """Read on from a cut answer, which came before, with its thought. A server may begin with that once more."""
        emit, self._emit = self._emit, _ignored
        self._fields["content"].begin(content)
        self._fields["reasoning"].echo = thought
        self._take_content(content)
        self._texts.append(self._held)
        self._held = ""
        self._say(self._thoughts.ended())
        self._emit, self._begun, self.moves = emit, False, 0

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
            self._is_foreign = True
            return
        self._was_read, self._ends_in_loss = True, False
        if value.get("object") == "chat.completion.chunk":
            self._documents = -1
        for choice in choices if isinstance(choices, list) else (choices,):
            if is_object(choice):
                self._choice(choice)
        self._figures(value)

    def pass_over(self, value: object) -> None:
        """Note a value that is no part of an answer: a damaged one, or a sign of life."""
        self._is_foreign = True
        if isinstance(value, str) and _PART.search(value):
            self._lost_parts += 1
            self._ends_in_loss = True

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
            self._documents = -1
            self._delta(delta if is_object(delta) else {"content": delta}, last=finish is not None)
        if message:
            self._documents += self._documents >= 0
            self._delta(message if is_object(message) else {"content": message}, whole=True, last=finish is not None)

    def _delta(self, delta: Mapping[str, object], *, whole: bool = False, last: bool = False) -> None:
        for name in REASONING_FIELDS:
            value = delta.get(name)
            if value and self._reasoning_field in (None, name):
                self._reasoning_field = name
                field = name if isinstance(value, str) else IN_PARTS
                text = "".join(text for _, text in parts_of(value))
                self._reason(self._fields["reasoning"].new(text, whole=whole, last=last), field)
        content = delta.get("content")
        if isinstance(content, str):
            self._take_content(self._fields["content"].new(content, whole=whole, last=last))
        elif content:
            self._take_parts(content, whole=whole, last=last)
        if _REFUSAL in delta:
            self._take_parts({"type": _REFUSAL, _REFUSAL: delta[_REFUSAL]}, whole=whole, last=last)
        if self._calls.take(delta, whole=whole):
            self.went_on()
            self._emit(CallWritten(self._calls.written))

    def _take_parts(self, content: object, *, whole: bool, last: bool) -> None:
        came = {"content": "", "reasoning": "", _REFUSAL: ""}
        for kind, text in parts_of(content):
            came[kind] += text
        if came["reasoning"] and self._reasoning_field in (None, IN_PARTS):
            self._reasoning_field = IN_PARTS
            self._reason(self._fields["reasoning"].new(came["reasoning"], whole=whole, last=last), IN_PARTS)
        self._take_content(self._fields["content"].new(came["content"], whole=whole, last=last))
        if refusal := self._fields[_REFUSAL].new(came[_REFUSAL], whole=whole, last=last):
            self._refusal += refusal
            self.moves += 1

    def _take_content(self, text: str) -> None:
        if text:
            self._begun = True
            self.moves += 1
            if self._thoughts.passes(text):
                self._text(self._held + text, ended=False)
            else:
                self._say(self._thoughts.take(text))

    def _say(self, parts: Sequence[Part]) -> None:
        """Tell parts of the content, and what they say of the frame around a thought in it."""
        for kind, text in parts:
            match kind:
                case "content":
                    self._text(self._held + text, ended=False)
                case "reasoning_content":
                    self._reason(text, self._thoughts.frame)
                case "was_thought":
                    self._texts, self._held, self._has_reasoning = [], "", True
                    self._emit(WasThought(text, self._thoughts.frame))
        if self._thoughts.frame != self._frame:
            self._frame = self._thoughts.frame
            self._emit(ReasoningDelta("", self._frame))

    def _text(self, text: str, *, ended: bool) -> None:
        """Tell text, but for what is, or may be, a mark of its end."""
        at = len(text)
        if "<" in text or "[" in text:
            at -= end_marks(text, ended=ended)
        if ended and at < len(text):
            before = "".join(self._texts)
            if self._finish in _LENGTHS or self._finish is None or before.count("```") % 2 or "<s>" in before:
                at = len(text)  # it is spoken of
        self._held = "" if ended else text[at:]
        if at:
            self._texts.append(text[:at])
            self._emit(TextDelta(text[:at]))

    def _reason(self, text: str, field: str) -> None:
        if text:
            self._begun = self._has_reasoning = True
            self.moves += 1
            self._emit(ReasoningDelta(text, field))

    def _figures(self, chunk: Mapping[str, object]) -> None:
        progress = progress_of(figures_at(chunk, "prompt_progress"))
        if progress is not None:
            self.moves += 1
            self._emit(Progressed(progress))
        if progress is not None and progress.processed < progress.total:
            return  # until the prompt is read, the timings count only the part read so far
        verbose = figures_at(chunk, "__verbose")
        if isinstance(prompt := verbose.get("prompt"), str) and prompt:
            self._emit(PromptShown(prompt, count_at(verbose, "id_slot"), count_at(verbose, "tokens_cached")))
        before = self._reported
        timings, usage = figures_at(chunk, "timings"), figures_at(chunk, "usage")
        if usage:
            self.has_usage = True
            self._reported = _with_usage(self._reported, usage)
            self._total = count_at(usage, "total_tokens") or self._total
            timings = timings or (timings_of(usage, self._timings) if self._timings else {})
        if timings:
            self._reported = _with_timings(self._reported, timings)
        if self._reported != before:
            self._emit(self._reported)

    def ended(self, error: BackendError | None = None) -> Ended:
        """How it ended, given the `error` that cut it off, if one did. Text that was held back is emitted first."""
        if self._finish is None and error is None and self._documents == 1:
            self._finish = "stop"  # a document is whole, whatever it says of its end
        self._say(self._thoughts.ended())
        self._text(self._held, ended=True)
        ended = replace(self._ended(error), model=whole_characters(self._model), reported=self._reported)
        if self._was_read and self._lost_parts > (self._ends_in_loss and self._finish is None):
            ended = _with_loss(ended)
        return replace(ended, calls=self._calls.all) if self._finish is not None else ended

    def _ended(self, error: BackendError | None) -> Ended:
        if self._finish is None or self._finish in _UNFINISHED:
            error = self._failure(error)
            state = State.INTERRUPTED if error.trouble in (Trouble.CUT, Trouble.DEAD) else State.ERROR
            return Ended(state, error=error)
        if self._refusal or self._finish in _FILTERS or self._finish == _REFUSAL:
            kind = NoteKind.FILTERED if self._finish in _FILTERS else NoteKind.MODEL_REFUSED
            words = errors.quoted(self._refusal, REFUSAL_LIMIT)
            return Ended(State.INTERRUPTED if self._has_words else State.EMPTY, said(kind, words=words))
        if self._finish in _LENGTHS and self._window_is_full():
            return Ended(State.CONTEXT_FULL, said(NoteKind.FILLS_WINDOW, size=self._context_size))
        called = self._calls.note
        if not self._has_words and not (called and self._has_reasoning):
            state, kind = State.EMPTY, NoteKind.NO_WORDS
            if self._has_reasoning:
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
        return said(kind, tokens=self._reported.predicted_tokens or None, cut=(self._finish in _LENGTHS) or None)

    def _failure(self, error: BackendError | None) -> BackendError:
        """Why it did not finish: what the server said, else what broke it off."""
        if self._finish is not None:
            return errors.unfinished(self._url, self._finish)
        if error is None or error.fault is Fault.UNFINISHED:
            if self._words:
                return errors.of_stream(self._url, self._words, {})
            if self._is_foreign and not self._was_read and not self._lost_parts:
                return errors.not_json(self._url)
        return error or errors.cut(self._url, before_answer=False)

    def _window_is_full(self) -> bool:
        """Whether the window has no room for another token (the last one sampled is not always counted)."""
        total = self._total
        if total is None and self._reported.prompt_tokens is not None:
            total = self._reported.prompt_tokens + (self._reported.predicted_tokens or 0)
        return total is not None and self._context_size is not None and total >= self._context_size - 1


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
    def begun(self) -> bool:
        return any(answer.begun for answer in self._answers)

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
            unused = (at for at, answer in enumerate(self._answers) if not answer.begun and not answer.finished)
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
        return replace(ended, error=ended.error.told_with(damaged=True))
    if ended.remark is None or ended.remark.is_a(NoteKind.LONGEST):
        return replace(ended, remark=said(NoteKind.PART_LOST))
    return replace(ended, remark=replace(ended.remark, arguments=(*ended.remark.arguments, ("damaged", True))))


def _ignored(_: StreamEvent) -> None:
    """Drop an event that the user has already seen."""


def progress_of(found: Mapping[str, object]) -> PromptProgress | None:
    total, cached, processed = (count_at(found, key) for key in ("total", "cache", "processed"))
    if total is None or cached is None or processed is None or cached > total or total > MOST_TOKENS:
        return None
    return PromptProgress(total, cached, processed, figure_at(found, "time_ms") or 0.0)


def _with_usage(known: Reported, usage: Mapping[str, object]) -> Reported:
    """`known` with what `usage` reports in addition."""
    cached = count_at(figures_at(usage, "prompt_tokens_details"), "cached_tokens")
    return replace(
        known,
        prompt_tokens=_first(count_at(usage, "prompt_tokens"), known.prompt_tokens),
        cached_tokens=_first(cached, known.cached_tokens),
        predicted_tokens=_first(count_at(usage, "completion_tokens"), known.predicted_tokens),
    )


def timings_of(usage: Mapping[str, object], names: Timings) -> dict[str, object]:
    """The timings that follow from a usage, in llama.cpp's names; those that do not are left out."""
    spans = {"prompt_ms": figure_at(usage, names.prompt), "predicted_ms": figure_at(usage, names.predicted)}
    found: dict[str, object] = {name: span * names.ms for name, span in spans.items() if span}
    prompt, rate = count_at(usage, "prompt_tokens"), figure_at(usage, names.rate)
    if prompt and rate is not None and (span := spans["prompt_ms"]):
        evaluated = round(rate * span / (1000 / names.ms))
        if evaluated <= prompt:
            found |= {"prompt_n": evaluated, "cache_n": prompt - evaluated}
    return found


def _with_timings(known: Reported, timings: Mapping[str, object]) -> Reported:
    """`known` with llama.cpp's timings: `prompt_n` counts the evaluated tokens only, without `cache_n`."""
    cached, evaluated = count_at(timings, "cache_n"), count_at(timings, "prompt_n")
    prompt = None if cached is None or evaluated is None else cached + evaluated
    return Reported(
        prompt_tokens=_first(prompt, known.prompt_tokens),
        cached_tokens=_first(cached, known.cached_tokens),
        predicted_tokens=_first(count_at(timings, "predicted_n"), known.predicted_tokens),
        prompt_ms=_first(figure_at(timings, "prompt_ms"), known.prompt_ms),
        predicted_ms=_first(figure_at(timings, "predicted_ms"), known.predicted_ms),
    )


def _first(value: _T | None, other: _T | None) -> _T | None:
    return other if value is None else value

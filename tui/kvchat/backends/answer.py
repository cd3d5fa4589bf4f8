"""An OpenAI chat answer: deltas in, events out, and at the end the state it ended in.

The rule: an answer is complete when a `finish_reason` came, and only then. `[DONE]`, or a clean end of HTTP,
proves nothing. A figure that was not reported is None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from kvchat.backends import errors
from kvchat.backends.dialect import (
    MOST_TOKENS,
    BackendError,
    Emit,
    Ended,
    OfAlternative,
    Progressed,
    ReasoningDelta,
    Reported,
    StreamEvent,
    TextDelta,
    Trouble,
)
from kvchat.backends.errors import quoted
from kvchat.backends.http.payload import (
    PayloadError,
    as_object,
    count_at,
    figure_at,
    figures_at,
    is_object,
    list_at,
    name_at,
    object_at,
    text_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.cache.accounting import PromptProgress
from kvchat.cache.causes.cause import Statement, said
from kvchat.prompt.message import NoteKind, State
from kvchat.prompt.wire import whole_characters

# -- the tools it calls: kvchat offers none, so a call is a decoration of the answer and never carried out ------------


MOST, TOLD = 32, 3
"""Calls that are kept of an answer, and that are told."""
KEPT = 256
"""Characters that are kept of a name, and of the arguments."""
NAME_LIMIT, ARGUMENTS_LIMIT = 60, 80
"""Characters that are told of them."""


@dataclass(slots=True)
class _Call:
    name: str = ""
    arguments: str = ""

    def take(self, function: Mapping[str, object]) -> None:
        name, arguments = name_at(function, "name"), function.get("arguments")
        if name != self.name:  # some servers send the whole name with every fragment
            self.name = (self.name + name)[:KEPT]
        if is_object(arguments):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):
            self.arguments = (self.arguments + arguments)[:KEPT]

    def __str__(self) -> str:
        return f"{quoted(self.name, NAME_LIMIT)}({quoted(self.arguments, ARGUMENTS_LIMIT)})"


class ToolCalls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}

    def take(self, message: Mapping[str, object]) -> bool:
        """Take what a message, or a part of one, says of calls. Whether it says anything."""
        found = False
        for call in _calls_in(message):
            function = figures_at(call, "function")
            if not name_at(function, "name") and not function.get("arguments"):
                continue
            found = True
            self._at(call, function).take(function)
        return found

    def _at(self, call: Mapping[str, object], function: Mapping[str, object]) -> _Call:
        """The call that a fragment belongs to. Without an index a name begins a new one."""
        last = max(self._calls, default=-1)
        index = count_at(call, "index")
        if index is None:
            index = last + 1 if name_at(function, "name") or last < 0 else last
        if index not in self._calls and len(self._calls) >= MOST:
            return _Call()
        return self._calls.setdefault(index, _Call())

    @property
    def note(self) -> Statement | None:
        """That these tools were called; None where none was."""
        calls = [call for _, call in sorted(self._calls.items())]
        if not calls:
            return None
        return said(
            NoteKind.TOOL_CALLS,
            calls="\n".join(map(str, calls[:TOLD])),
            more=max(0, len(calls) - TOLD),
            nameless=len(calls) == 1 and not calls[0].name,
        )


def _calls_in(message: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The calls in a message: as they are today, and the single one of OpenAI's older interface."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        yield from filter(is_object, calls)
    if is_object(old := message.get("function_call")):
        yield {"index": 0, "function": old}


# -- the answer -------------------------------------------------------------------------------------------------------


_T = TypeVar("_T", int, float)
REASONING_FIELDS = ("reasoning_content", "reasoning")
_CHUNK_KEYS = frozenset({"choices", "usage", "timings", "prompt_progress"})
_UNFINISHED = frozenset({"abort", "aborted", "cancelled", "error"})
"""Values of `finish_reason` by which a server says that it stopped without finishing."""


class ChatAnswer:
    """Collects one answer."""

    def __init__(self, url: str, emit: Emit, context_size: int | None) -> None:
        self._url = url
        self._emit = emit
        self._context_size = context_size
        self._finish: str | None = None
        self._reasoning_field: str | None = None
        self._has_words = False
        self._model = ""
        self._reported = Reported()
        self._total: int | None = None
        self._is_foreign = False
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
        return self._has_words

    def take(self, payload: Payload) -> None:
        """One value of the stream. Raises BackendError for a reported error, PayloadError for what is not allowed."""
        found = errors.error_in(payload.value)
        if found is None and payload.is_error:
            words = payload.value if isinstance(payload.value, str) else ""
            found = (words or _message_of(payload.value), {})
        if found is not None:
            raise errors.of_stream(self._url, *found)
        chunk = as_object(payload.value, "a part of an answer")
        self._model = name_at(chunk, "model") or self._model
        self._is_foreign = self._is_foreign or not chunk.keys() & _CHUNK_KEYS
        for choice in list_at(chunk, "choices"):
            self._choice(as_object(choice, "a choice"))
        self._figures(chunk)

    def _choice(self, choice: Mapping[str, object]) -> None:
        if choice.get("index") not in (0, None):
            return
        for key in ("delta", "message"):
            self._delta(object_at(choice, key))
        self._finish = text_at(choice, "finish_reason") or self._finish

    def _delta(self, delta: Mapping[str, object]) -> None:
        for name in REASONING_FIELDS:
            text = text_at(delta, name)
            if text and self._reasoning_field in (None, name):
                self._reasoning_field = name
                self._has_words = True
                self.moves += 1
                self._emit(ReasoningDelta(text, name))
        text = text_at(delta, "content")
        if text:
            self._has_words = True
            self.moves += 1
            self._emit(TextDelta(text))
        if self._calls.take(delta):
            self.moves += 1

    def _figures(self, chunk: Mapping[str, object]) -> None:
        progress = progress_of(figures_at(chunk, "prompt_progress"))
        if progress is not None:
            self.moves += 1
            self._emit(Progressed(progress))
        if progress is not None and progress.processed < progress.total:
            return  # until the prompt is read, the timings count only the part read so far
        before = self._reported
        timings, usage = figures_at(chunk, "timings"), figures_at(chunk, "usage")
        if usage:
            self.has_usage = True
            self._reported = _with_usage(self._reported, usage)
            self._total = count_at(usage, "total_tokens") or self._total
        if timings:
            self._reported = _with_timings(self._reported, timings)
        if self._reported != before:
            self._emit(self._reported)

    def ended(self, error: BackendError | None = None) -> Ended:
        """How it ended, given the `error` that cut it off, if one did."""
        model = whole_characters(self._model)
        if self._finish is None or self._finish in _UNFINISHED:
            if error is None:
                error = errors.not_json(self._url) if self._is_foreign else errors.cut(self._url, before_answer=False)
            state = State.INTERRUPTED if error.trouble in (Trouble.CUT, Trouble.DEAD) else State.ERROR
            return Ended(state, error=error, model=model)
        if self._finish == "length" and self._window_is_full():
            return Ended(State.CONTEXT_FULL, said(NoteKind.FILLS_WINDOW, size=self._context_size), model=model)
        called = self._calls.note
        if not self._has_words:
            return Ended(State.EMPTY, called or said(NoteKind.NO_WORDS), model=model)
        if self._finish == "length":
            return Ended(State.LENGTH, said(NoteKind.LONGEST), model=model)
        return Ended(State.DONE, called, model=model)

    def _window_is_full(self) -> bool:
        """Whether the window has no room for another token (the last one sampled is not always counted)."""
        total = self._total
        if total is None and self._reported.prompt_tokens is not None:
            total = self._reported.prompt_tokens + (self._reported.predicted_tokens or 0)
        return total is not None and self._context_size is not None and total >= self._context_size - 1


class Alternatives:
    """Collects the answers to one request that asked for several. Their parts come mixed, each with the number of its
    answer; an answer's figures come right behind its end, without a number. Every event of an answer is told as
    `OfAlternative`; the progress of the prompt, which is prefilled once, is that of the first."""

    def __init__(self, url: str, emit: Emit, context_size: int | None, count: int) -> None:
        self._url = url
        self._emit = emit
        self._answers = [ChatAnswer(url, partial(self._of, at), context_size) for at in range(count)]
        self._ended: set[int] = set()

    def _of(self, at: int, event: StreamEvent) -> None:
        if isinstance(event, TextDelta | ReasoningDelta | Reported):
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

    def take(self, payload: Payload) -> None:
        """As of `ChatAnswer`."""
        chunk = payload.value if is_object(payload.value) else {}
        choices = [choice for choice in _listed(chunk) if is_object(choice)]
        if payload.is_error or not choices:
            at = next((at for at, answer in enumerate(self._answers) if answer.finished and not answer.has_usage), 0)
            self._take(at, payload)
            return
        for choice in choices:
            at = count_at(choice, "index") or 0
            if at < len(self._answers):
                self._take(at, Payload({**chunk, "choices": [{**choice, "index": 0}]}))

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
        """How the first one ended; that of each is told."""
        for at, answer in enumerate(self._answers):
            self._end(at, answer.ended(error))
        return self._answers[0].ended(error)


def _listed(chunk: Mapping[str, object]) -> Sequence[object]:
    found = chunk.get("choices")
    return found if isinstance(found, list) else ()


def _message_of(value: object) -> str:
    try:
        return text_at(as_object(value, "an error"), "message") or ""
    except PayloadError:
        return ""


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

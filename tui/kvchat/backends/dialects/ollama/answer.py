"""An answer of Ollama's `/api/chat`, and what is remembered from answer to answer to find what went wrong.

Ollama says nothing when it loads a model again or leaves messages out; both are inferred from its own figures, and the
warning gives the numbers. A cached count that is computed here is always marked as an estimate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.dialect import BackendError, Emit, Ended, Reported, Trouble, failure
from kvchat.backends.dialects.ollama.messages import RUNNER_OPTIONS, keep_alive_seconds, text_bytes
from kvchat.backends.dialects.ollama.models import full_name
from kvchat.backends.http.payload import (
    count_at,
    figure_at,
    figures_at,
    is_object,
    name_at,
    parsed_or_none,
)
from kvchat.backends.http.stream import Payload
from kvchat.figures.speed import SPEED_SAMPLE
from kvchat.prompt.message import NoteKind, State, chained
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault
from kvchat.values import Statement, said

NS_PER_MS = 1_000_000
_WITHOUT_ANSWER = ("load", "unload")
"""Why Ollama is done where it has only done that."""
RELOAD_MS = 200.0
"""A loaded model is handed out in less than this; starting one takes longer."""
_SLACK = 16
"""Tokens by which a prompt may shrink although nothing is left out: what a template puts behind the last question."""
_SURE, _SPARSE = 0.5, 1 / 12
"""The share of the new messages' likely tokens that is counted on, and the most tokens counted for each of their bytes:
text differs in tokens per byte, and the rules of a table have few."""
_MOST_SESSIONS = 256
WIDEN = "give it a larger window (server.context_size, sent as num_ctx)"


class ModelUse(Struct):
    """How a model was last used from here."""

    is_loaded: bool = False
    """Whether it was in memory when last heard of."""
    runner: Mapping[str, object] | None = None
    """The options it was loaded with; None when it was not this backend that asked."""
    last: float | None = None
    """When a request to it last began or ended, by the backend's clock."""
    tokens_per_ms: float | None = None
    """How fast it reads what is not cached, from a prompt that was read whole."""


class Read(Struct, frozen=True):
    """What a session's prompt was when it was last read."""

    model: str
    messages: int
    digest: bytes
    """Of those messages: what begins with them goes on from there."""
    text_bytes: int
    tokens: int

    def is_beginning_of(self, asked: OllamaRequest) -> bool:
        return self.model == asked.model and self.digest == _digest(asked.wires[: self.messages])


class OllamaMemory(Struct):
    """What is known from one server's answers so far."""

    models: dict[str, ModelUse] = field(default_factory=dict)
    sessions: OrderedDict[str, Read] = field(default_factory=OrderedDict)
    counts_whole_prompt: bool = True
    """Whether `prompt_eval_count` counts cached tokens too."""
    reports_cached: bool = False
    """Whether an answer has reported how many tokens came from the cache."""

    def use_of(self, model: str) -> ModelUse:
        return self.models.setdefault(full_name(model), ModelUse())

    def remember(self, session: str, read: Read) -> None:
        self.sessions[session] = read
        self.sessions.move_to_end(session)
        if len(self.sessions) > _MOST_SESSIONS:
            self.sessions.popitem(last=False)


class OllamaRequest(Struct, frozen=True):
    """The request that is answered."""

    model: str
    session: str
    wires: tuple[bytes, ...]
    options: Mapping[str, object]
    keep_alive: str
    now: Callable[[], float]
    """The backend's clock."""

    @property
    def context_size(self) -> int | None:
        return count_at(self.options, "num_ctx")

    @property
    def runner(self) -> Mapping[str, object]:
        return {name: value for name, value in self.options.items() if name in RUNNER_OPTIONS}


class OllamaAnswer(ChatAnswer):
    """Collects one answer; the states are those of any chat answer."""

    def __init__(self, url: str, emit: Emit, asked: OllamaRequest, memory: OllamaMemory) -> None:
        super().__init__(url, emit, asked.context_size)
        self._asked = asked
        self._memory = memory
        self._use = memory.use_of(asked.model)
        self._before = replace(self._use)
        self._sent = self._use.last = asked.now()
        self._warnings: list[Statement] = []

    def take(self, payload: Payload) -> None:
        part = payload.value
        if (found := errors.error_in(part)) is not None:
            raise stream_error(self._url, found[0])
        if not is_object(part) or not part.keys() & {"message", "done"}:
            self.pass_over(part)
            return
        self._reception.part()
        self._model = name_at(part, "model") or self._model
        message = figures_at(part, "message")
        self._delta({**message, "reasoning_content": message.get("thinking"), "thinking": None})
        if part.get("done") is True:
            self._finish = name_at(part, "done_reason") or "stop"
            self._judge(part)

    def _judge(self, part: Mapping[str, object]) -> None:
        """The final figures, and what they say of the cache."""
        asked, use = self._asked, self._use
        use.last = asked.now()
        if self._finish in _WITHOUT_ANSWER:
            use.is_loaded = self._finish == "load"
            return
        reported = Reported(
            count_at(part, "prompt_eval_count") if self._memory.counts_whole_prompt else None,
            count_at(part, "prompt_eval_cached_count"),
            count_at(part, "eval_count"),
            _ms(part, "prompt_eval_duration"),
            _ms(part, "eval_duration"),
        )
        self._memory.reports_cached = self._memory.reports_cached or reported.cached_tokens is not None
        loaded_in = _ms(part, "load_duration") or 0.0
        if loaded_in > RELOAD_MS and self._is_cold(reported):
            if self._before.is_loaded:
                self._warnings.append(_reloaded(asked, self._before, self._sent, loaded_in))
            if reported.prompt_ms and (reported.prompt_tokens or 0) >= SPEED_SAMPLE:
                use.tokens_per_ms = (reported.prompt_tokens or 0) / reported.prompt_ms
        use.is_loaded, use.runner = True, asked.runner
        self._figures.reported = self._estimated(reported)
        self._emit(self._figures.reported)
        self._check_length(reported.prompt_tokens)
        self._check_model(part)

    def _is_cold(self, reported: Reported) -> bool:
        """Whether nothing speaks against a cache that was empty: a busy machine hands out a loaded model late, too."""
        if reported.cached_tokens is not None:
            return reported.cached_tokens == 0
        guess = self._estimated(reported)
        return not guess.estimated or 2 * (guess.cached_tokens or 0) < (guess.prompt_tokens or 0)

    def _estimated(self, known: Reported) -> Reported:
        """`known` with the cached tokens that the time for the others tells, where the speed is known."""
        speed, prompt = self._use.tokens_per_ms, known.prompt_tokens
        if known.cached_tokens is not None or speed is None or not prompt or known.prompt_ms is None:
            return known
        evaluated = round(min(prompt, known.prompt_ms * speed))
        return replace(known, cached_tokens=min(prompt - evaluated, prompt - 1), estimated=True)

    def _check_length(self, tokens: int | None) -> None:
        """Warn when the prompt is shorter than the conversation; remember it for the next turn."""
        if not tokens:
            return
        asked, before = self._asked, self._memory.sessions.get(self._asked.session)
        if before is None or not before.is_beginning_of(asked):
            size = text_bytes(asked.wires)
        else:
            added = text_bytes(asked.wires[before.messages :])
            size = before.text_bytes + added
            per_byte = before.tokens / max(1, before.text_bytes)
            if tokens < before.tokens - _SLACK + added * min(per_byte * _SURE, _SPARSE):
                self._warnings.append(
                    said(
                        NoteKind.LEFT_OUT_UNASKED,
                        tokens=tokens,
                        expected=before.tokens + round(added * per_byte),
                        size=asked.context_size,
                        room=WIDEN,
                    )
                )
                return  # what it was before stays the measure
        self._memory.remember(asked.session, Read(asked.model, len(asked.wires), _digest(asked.wires), size, tokens))

    def _check_model(self, part: Mapping[str, object]) -> None:
        answered = self._model
        if answered and full_name(answered) != full_name(self._asked.model):
            self._warnings.append(
                said(
                    NoteKind.OTHER_MODEL_ANSWERED,
                    answered=errors.quoted(answered),
                    asked=errors.quoted(self._asked.model),
                )
            )
        if isinstance(host := part.get("remote_host"), str) and host:
            self._warnings.append(said(NoteKind.RUNS_ELSEWHERE, host=errors.quoted(host)))

    def _said_of_nothing(self, kind: NoteKind) -> Statement:
        if self._finish in _WITHOUT_ANSWER:
            return said(NoteKind.ONLY_LOADED, loads=self._finish == "load" or None)
        return super()._said_of_nothing(kind)

    def ended(self, error: BackendError | None = None) -> Ended:
        ended = super().ended(error)
        if ended.state is State.CONTEXT_FULL:
            ended = replace(ended, remark=said(NoteKind.FILLS_OWN_WINDOW, size=self._asked.context_size, room=WIDEN))
        return replace(ended, warnings=tuple(self._warnings))


def _digest(wires: Sequence[bytes]) -> bytes:
    digest = b""
    for wire in wires:
        digest = chained(digest, wire)
    return digest


def _ms(part: Mapping[str, object], key: str) -> float | None:
    nanoseconds = figure_at(part, key)
    return None if nanoseconds is None else nanoseconds / NS_PER_MS


def _reloaded(asked: OllamaRequest, before: ModelUse, sent: float, took_ms: float) -> Statement:
    """That the model was loaded again, and why as far as it is known."""
    seconds = took_ms / 1000
    if before.runner is None:
        return said(NoteKind.LOADED_AGAIN, seconds=seconds, known=False)
    changed = [
        name
        for name in sorted(before.runner.keys() | asked.runner.keys())
        if before.runner.get(name) != asked.runner.get(name)
    ]
    if changed:
        return said(NoteKind.LOADED_AGAIN, seconds=seconds, known=True, changed=", ".join(changed))
    limit = keep_alive_seconds(asked.keep_alive)
    idle = sent - before.last if before.last is not None else 0.0
    if limit is not None and idle >= limit:
        return said(NoteKind.LOADED_AGAIN, seconds=seconds, known=True, idle=idle, limit=limit)
    return said(NoteKind.LOADED_AGAIN, seconds=seconds, known=True)


def unwrapped(body: str) -> str:
    """An error body; where Ollama passes on the JSON error of its engine as the text of its own, that one."""
    value = parsed_or_none(body)
    inner = value.get("error") if is_object(value) else None
    return inner if isinstance(inner, str) and is_object(parsed_or_none(inner)) else body


def roomier(error: BackendError) -> BackendError:
    """An error with what helps against a full window at Ollama."""
    if error.trouble is not Trouble.CONTEXT_OVERFLOW:
        return error
    return failure(
        Trouble.CONTEXT_OVERFLOW,
        Fault.OWN_WINDOW_FULL,
        status=error.status,
        prompt_tokens=error.prompt_tokens,
        context_size=error.context_size,
        prompt=error.prompt_tokens,
        window=error.context_size,
        room=WIDEN,
    )


def stream_error(url: str, message: str) -> BackendError:
    """An error that came inside an answer."""
    found = errors.error_in(parsed_or_none(message))
    return roomier(errors.of_stream(url, *(found or (whole_characters(message), {}))))

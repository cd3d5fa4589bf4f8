"""llama.cpp's `/completion` with a prompt of token ids: the request's fields, its answer, and the thoughts and calls in
that.

The chat endpoint renders, tokenises and takes an answer apart; here kvchat does the last of these. The request holds
nothing that a request to the chat endpoint would not hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.calls import CallShape, Channels, TaggedCalls
from kvchat.backends.dialect import BackendError, CallWritten, Emit, Ended, Sampled, TokenPrompt
from kvchat.backends.http.payload import is_object, name_at
from kvchat.backends.http.stream import Payload
from kvchat.prompt.request import Parameters
from kvchat.prompt.thoughts import NO_TAGS, Thoughts
from kvchat.prompt.tools import ToolCall

COMPLETION_PATH = "/completion"
_CHAT_ONLY = frozenset(
    {
        "stream_options",
        "chat_template_kwargs",
        "n",
        "add_generation_prompt",
        "continue_final_message",
        "verbose",
        "tools",
        "tool_choice",
    }
)
"""Fields of a chat request that mean nothing where the prompt is made already."""


# -- the request ------------------------------------------------------------------------------------------------------


def completion_fields(head: Mapping[str, object], prompt: TokenPrompt, tail: Mapping[str, object]) -> dict[str, object]:
    """The body's fields, given those that a chat request would have before and behind its messages."""
    fields = {name: value for name, value in head.items() if name not in _CHAT_ONLY}
    fields |= {"prompt": list(prompt.tokens), "return_tokens": True}
    marks = (*filter(None, (prompt.tags.begin, prompt.tags.end)), *(prompt.calls.marks if prompt.calls else ()))
    if marks:
        fields["preserved_tokens"] = list(marks)  # else one that is a special token has no text
    for name, value in tail.items():
        if name in ("max_tokens", "max_completion_tokens"):
            fields["n_predict"] = value
        elif name != "response_format":
            fields[name] = value
        elif (schema := schema_of(value)) is not None:
            fields["json_schema"] = schema
    return fields


def schema_of(response_format: object) -> Mapping[str, object] | None:
    """The JSON schema that a `response_format` asks for; None: text."""
    if not is_object(response_format):
        return None
    match response_format.get("type"):
        case "json_object":
            schema = response_format.get("schema")
        case "json_schema":
            holder = response_format.get("json_schema")
            schema = holder.get("schema") if is_object(holder) else None
        case _:
            return None
    return schema if is_object(schema) else {}


def wants_json(parameters: Parameters) -> bool:
    """Whether an answer is held to a schema from its first token on, so that it cannot think."""
    return schema_of(parameters.response_format) is not None


# -- the answer -------------------------------------------------------------------------------------------------------


_FINISH = {"eos": "stop", "word": "stop", "limit": "length"}


class CompletionAnswer:
    """Reads the parts of `/completion` as those of a chat answer, and tells the ids that were sampled."""

    def __init__(self, url: str, emit: Emit, context_size: int | None, prompt: TokenPrompt) -> None:
        # Where the template's tags are known, no others count.
        unknown = prompt.tags is NO_TAGS and prompt.begins != "answer" and prompt.calls is not CallShape.CHANNELS
        self._chat = ChatAnswer(url, emit, context_size, thoughts=Thoughts(None if unknown else NO_TAGS))
        self._emit = emit
        self._reader = _reader(prompt)
        self._silent: list[int] = []
        """The last ids, which have brought no text yet: the end of the answer, a stop word, a part of a character."""

    @property
    def moves(self) -> int:
        return self._chat.moves

    @property
    def finished(self) -> bool:
        return self._chat.finished

    @property
    def has_begun(self) -> bool:
        return self._chat.has_begun

    def resume(self, content: str, thought: str = "") -> None:
        self._chat.resume(content, thought)

    def take(self, payload: Payload) -> None:
        if not is_object(payload.value) or payload.is_error or "content" not in payload.value:
            self._chat.take(payload)  # an error
            return
        part = payload.value
        if "prompt_progress" in part:  # its `tokens` are none
            self._chat.take(Payload({name: part[name] for name in ("prompt_progress", "timings") if name in part}))
            return
        text, tokens = name_at(part, "content"), part.get("tokens")
        ids = [id for id in tokens if isinstance(id, int)] if isinstance(tokens, list) else []
        self._silent += ids
        if text:
            self._flush()
        ended = part.get("stop") is True
        deltas = self._reader.take(text)
        if text and not deltas:
            self._chat.went_on()
            if not isinstance(self._reader, Thoughts) and (call := self._reader.written) is not None:
                self._emit(CallWritten(ToolCall("", call.name, call.arguments)))
        deltas += self._reader.ended() if ended else ()
        finish = _FINISH.get(str(part.get("stop_type"))) if ended else None
        if ended:
            match part.get("stop_type"):
                case "eos":
                    del self._silent[-1:]  # the token that ended it
                case "word":
                    self._silent.clear()
            self._flush()
        chunk = {name: part[name] for name in ("timings", "model") if name in part}
        self._chat.take(
            Payload(
                {
                    "choices": [
                        *({"index": 0, "delta": {kind: words}} for kind, words in deltas),
                        *({"index": 0, "delta": {"tool_calls": [call]}} for call in (self._calls() if ended else ())),
                        *([{"index": 0, "delta": {}, "finish_reason": finish}] if finish else []),
                    ],
                    **chunk,
                }
            )
        )

    def _calls(self) -> list[dict[str, object]]:
        calls = () if isinstance(self._reader, Thoughts) else self._reader.calls
        return [
            {"index": at, "function": {"name": call.name, "arguments": call.arguments}} for at, call in enumerate(calls)
        ]

    def _flush(self) -> None:
        if self._silent:
            self._emit(Sampled(tuple(self._silent)))
            self._silent = []

    def ended(self, error: BackendError | None = None) -> Ended:
        if not self._chat.finished:
            self._chat.take(
                Payload({"choices": [{"index": 0, "delta": {kind: words}} for kind, words in self._reader.ended()]})
            )
        return self._chat.ended(error)


def _reader(prompt: TokenPrompt) -> Thoughts | TaggedCalls | Channels:
    """What takes the answer to a prompt apart."""
    if prompt.calls is CallShape.CHANNELS:
        return Channels(prompt.begins)
    thoughts = Thoughts(prompt.tags, prompt.begins)
    return TaggedCalls(thoughts, prompt.calls, prompt.tools) if prompt.calls is not None else thoughts

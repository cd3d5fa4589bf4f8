"""Stand-ins for services on the internet: strict about fields and keys, with caches of their own units and shapes.

`CloudStandIn("openai")` and so on. A prompt is one token per word; a cache is found by the key that the service takes,
in whole units, from a smallest length on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from standins.llamacpp_router import words_of
from toyserver import Answer, ToyServer, Visit, error, event, reply, sse

KEY = "sk-cloud-1"
REPLY = ("Fine", " thanks")
COMMON = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "response_format",
        "max_tokens",
    }
)


@dataclass(frozen=True, slots=True)
class Service:
    """What tells one service from another."""

    fields: frozenset[str]
    """What it takes; anything else is refused, except by a tolerant one."""
    unit: int
    """The cache holds whole units of so many tokens."""
    least: int = 0
    tolerant: bool = False


SERVICES = {
    "openai": Service(COMMON | {"max_completion_tokens", "reasoning_effort", "prompt_cache_key"}, 128, 1024),
    "openrouter": Service(COMMON | {"prompt_cache_key", "session_id", "reasoning_effort"}, 1, tolerant=True),
    "deepseek": Service(COMMON, 64, tolerant=True),
    "moonshot": Service(COMMON | {"max_completion_tokens"}, 1, tolerant=True),
    "mistral": Service(COMMON - {"stream_options", "seed"}, 1),
}


def answered(
    prompt: int, cached: int, model: str, usage: Mapping[str, object] | None = None, *, in_choice: bool = False
) -> Answer:
    """A streamed answer of `REPLY`; `usage` comes with the last part, or inside the last choice."""
    part = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    parts = [{**part, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in REPLY]
    told = {"prompt_tokens": prompt, "completion_tokens": len(REPLY), "total_tokens": prompt + len(REPLY)}
    last: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    if usage is not None and in_choice:
        last["usage"] = {**told, **usage}
    parts.append({**part, "choices": [last]})
    if usage is not None and not in_choice:
        parts.append({**part, "choices": [], "usage": {**told, **usage}})
    return sse([b": OPENROUTER PROCESSING\n\n", *map(event, parts), b"data: [DONE]\n\n"])


class CloudStandIn(ToyServer):
    """A service by name. Its models: `new` takes only the new name for the largest length, `old` only the old one."""

    def __init__(self, service: str) -> None:
        super().__init__("openai")
        self.service = SERVICES[service]
        self.name = service
        self.held: dict[str, list[str]] = {}
        """What is cached, by cache key."""

    def _answer_to(self, visit: Visit) -> Answer:
        if visit.headers.get("authorization") != f"Bearer {KEY}":
            return error(401, "Incorrect API key provided.", "invalid_request_error", code="invalid_api_key")
        if visit.method == "GET":
            return self._listing() if visit.path == "/v1/models" else reply(404, {"error": {"message": "Not found"}})
        body = visit.json
        foreign = sorted(body.keys() - self.service.fields)
        if foreign and not self.service.tolerant:
            return self._refused(foreign[0])
        if self.name == "openai" and body["model"] == "new" and "max_tokens" in body:
            return error(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                "invalid_request_error",
                param="max_tokens",
                code="unsupported_parameter",
            )
        return self._completion(body)

    def _refused(self, field: str) -> Answer:
        if self.name == "mistral":
            problem = {"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted"}
            return reply(422, {"object": "error", "message": {"detail": [problem]}, "type": "invalid_request_error"})
        return error(400, f"Unrecognized request argument supplied: {field}", "invalid_request_error")

    def _listing(self) -> Answer:
        entries: list[dict[str, object]] = [
            {"id": "text-embedding-3-small", "object": "model", "owned_by": "system"},
            {"id": "new", "object": "model", "owned_by": "system"},
            {"id": "old", "object": "model", "owned_by": "system"},
        ]
        if self.name == "openrouter":
            entries = [
                {"id": "some/painter", "architecture": {"output_modalities": ["image"]}},
                {"id": "some/talker", "context_length": 131072, "architecture": {"output_modalities": ["text"]}},
            ]
        if self.name == "mistral":
            entries = [
                {"id": "m-embed", "capabilities": {"completion_chat": False}},
                {"id": "m-large", "max_context_length": 32768, "capabilities": {"completion_chat": True}},
            ]
        return reply(200, {"object": "list", "data": entries})

    def _completion(self, body: Mapping[str, Any]) -> Answer:
        prompt = words_of(body["messages"])
        key = str(body.get("prompt_cache_key") or body.get("session_id") or "")
        pairs = zip(prompt, self.held.get(key, ()), strict=False)
        shared = min(len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))), len(prompt) - 1)
        cached = shared // self.service.unit * self.service.unit
        cached = cached if cached >= self.service.least else 0
        self.held[key] = [*prompt, *(text.strip() for text in REPLY)]
        if self.name == "deepseek":
            usage: dict[str, object] = {
                "prompt_cache_hit_tokens": cached,
                "prompt_cache_miss_tokens": len(prompt) - cached,
            }
        elif self.name == "moonshot":
            return answered(len(prompt), cached, body["model"], {"cached_tokens": cached}, in_choice=True)
        else:
            usage = {"prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0}}
        wanted = self.name in ("openrouter", "mistral") or (body.get("stream_options") or {}).get("include_usage")
        return answered(len(prompt), cached, body["model"], usage if wanted else None)


def asked(visit: Visit) -> dict[str, Any]:
    """The fields of a request."""
    found: dict[str, Any] = json.loads(visit.body)
    return found

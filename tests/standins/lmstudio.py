"""A stand-in for LM Studio: loads models on demand, unloads idle ones, answers unknown paths with 200, tells no cache
hits, and ends an answer without a word where it cannot go on."""

from __future__ import annotations

from typing import Any

from standins.prefix import DONE, WordServer, rendered, streamed
from toyserver import Answer, Visit, error, event, reply

FIELDS = frozenset(
    {
        "model",
        "messages",
        "top_p",
        "top_k",
        "temperature",
        "max_tokens",
        "stream",
        "stream_options",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "repeat_penalty",
        "seed",
        "ttl",
        "reasoning_effort",
        "response_format",
        "tools",
        "tool_choice",
        "min_p",
        "logprobs",
    }
)
"""What its documentation names. The real one is not known to refuse others; this one does."""
KEY_WANTED = (
    "An LM Studio API token is required to make requests to this server, but none was provided using the "
    "Authorization header using the 'Bearer' scheme (i.e., 'Authorization: Bearer $LM_API_TOKEN')."
)


class LMStudioStandIn(WordServer):
    """`version`: 0.4 has `/api/v1`, 0.3 only `/api/v0`, 0.2 neither."""

    def __init__(self, *, version: str = "0.4", loads_on_demand: bool = True, slots: int = 4, **options: Any) -> None:
        super().__init__(slots=slots, **options)
        self.loads_on_demand = loads_on_demand
        self.parallel = slots
        self.loaded: dict[str, int] = {}
        """The models in memory, each with its context length."""
        self.ttl: int | None = None
        """Of the last model that was loaded on demand."""
        self.is_mute = False
        self.longest = 131072
        self._version = version
        self.load(self.model)

    def load(self, model: str) -> None:
        self.loaded[model] = self.context_size

    def unload(self) -> None:
        """As after the idle time: the model goes, and its cache with it."""
        self.loaded.clear()
        self.cache.clear()

    @property
    def _names(self) -> tuple[str, ...]:
        return ("text-embedding-nomic", "sleepy-70b", self.model)

    def refusal(self, visit: Visit) -> Answer | None:
        if self.has_key(visit):
            return None
        return reply(401, {"error": {"type": "invalid_request", "code": "invalid_api_key", "message": KEY_WANTED}})

    def unknown(self, visit: Visit) -> Answer:
        if visit.method == "GET":
            if visit.path == "/v1/models":
                return reply(
                    200,
                    {
                        "object": "list",
                        "data": [
                            {"id": name, "object": "model", "owned_by": "organization_owner"} for name in self._names
                        ],
                    },
                )
            if visit.path == "/api/v1/models" and self._version >= "0.4":
                return reply(200, {"models": [self._entry(name) for name in self._names]})
            if visit.path == "/api/v0/models" and self._version >= "0.3":
                return reply(200, {"object": "list", "data": [self._old_entry(name) for name in self._names]})
        return reply(200, {"error": f"Unexpected endpoint or method. ({visit.method} {visit.path})"})

    def _entry(self, name: str) -> dict[str, object]:
        config = {"context_length": self.loaded.get(name), "eval_batch_size": 512, "parallel": self.parallel}
        instances = [{"id": name, "config": config}] if name in self.loaded else []
        return {
            "type": "embedding" if "embed" in name else "llm",
            "publisher": "someone",
            "key": name,
            "display_name": name.title(),
            "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
            "size_bytes": 4_000_000_000,
            "params_string": "8B",
            "loaded_instances": instances,
            "max_context_length": self.longest,
            "format": "gguf",
        }

    def _old_entry(self, name: str) -> dict[str, object]:
        entry: dict[str, object] = {
            "id": name,
            "object": "model",
            "type": "embeddings" if "embed" in name else "llm",
            "publisher": "someone",
            "compatibility_type": "gguf",
            "quantization": "Q4_K_M",
            "max_context_length": self.longest,
            "state": "loaded" if name in self.loaded else "not-loaded",
        }
        return entry | ({"loaded_context_length": self.loaded[name]} if name in self.loaded else {})

    def chat(self, visit: Visit) -> Answer:
        body = visit.json
        if strange := body.keys() - FIELDS:
            return reply(400, {"error": f"Unrecognized key(s) in object: {', '.join(map(repr, sorted(strange)))}"})
        if "ttl" in body and not isinstance(body["ttl"], int):
            return reply(400, {"error": "'ttl' must be a number"})
        model = body.get("model")
        if model not in self.loaded:
            if not self.loads_on_demand:
                if not self.loaded:
                    return error(
                        404,
                        "No models loaded. Please load a model in the developer page or use the `lms load` command.",
                        "invalid_request_error",
                        param="model",
                    )
                model = next(iter(self.loaded))
            elif model not in self._names:
                return error(404, f'Failed to load model "{model}". Error: Model not found.', "invalid_request_error")
            else:
                self.unload()
                self.load(model)
                self.ttl = body.get("ttl")
        words = rendered(body["messages"])
        window = self.loaded[model]
        if len(words) >= window:
            text = (
                f"Trying to keep the first {len(words)} tokens when context the overflows. However, the model is "
                f"loaded with context length of only {window} tokens, which is not enough."
            )
            failure = event({"error": {"message": text}, "message": text.partition(" However")[0]})
            return streamed([b"event: error\n" + failure])
        if self.is_mute:
            return streamed(
                [
                    event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}),
                    event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
                    DONE,
                ]
            )
        usage = self.usage(self.read(words)) if body.get("stream_options", {}).get("include_usage") else None
        return self.told(usage, model=model)

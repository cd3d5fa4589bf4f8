"""A small vLLM for tests: a prefix cache of whole blocks, shared by all, and counters of it.

    async with VllmStandIn(details=True) as server:
        ...
    assert server.reads[-1].evaluated <= 20

What vLLM refuses it refuses, in the same words: no tokens to answer with, stream options without a stream, an unknown
model, a prompt that is too long. Without `details` it says nothing of cache hits, as vLLM does without
--enable-prompt-tokens-details.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from standins.blocks import (
    DONE,
    END,
    LOST,
    EngineStandIn,
    PrefixCache,
    Read,
    Words,
    part,
    pieces,
    rendered,
    say,
    stream_head,
)
from standins.blocks import uvicorn as answered
from toyserver import Answer, Visit, reply

BLOCK = 16


class VllmStandIn(EngineStandIn):
    def __init__(
        self,
        *,
        details: bool = False,
        counters: bool = True,
        only_api: bool = False,
        context_size: int = 4096,
        reasoning: str = "",
        keeps_by: tuple[str, bool] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.details = details
        self.counters = counters
        self.only_api = only_api
        """Behind a proxy that passes only /v1."""
        self.context_size = context_size
        self.reasoning = reasoning
        """What it thinks before each answer; its template leaves that out of later prompts."""
        self.keeps_by = keeps_by
        """The option of its template that keeps it in; the others it does not know."""
        self.queries = self.hits = 0
        self._caches: dict[str, PrefixCache] = {}

    def answer_to(self, visit: Visit) -> Answer:
        if visit.path == "/v1/chat/completions":
            return self._chat_with(visit)
        if visit.path == "/v1/models":
            return answered(
                200,
                {
                    "object": "list",
                    "data": [
                        {
                            "id": self.model,
                            "object": "model",
                            "created": 1795325417,
                            "owned_by": "vllm",
                            "root": self.model,
                            "parent": None,
                            "max_model_len": self.context_size,
                            "permission": [],
                        }
                    ],
                },
            )
        routes = {"/version": answered(200, {"version": "0.32.0"}), "/health": answered(200)}
        if visit.path == "/tokenize":
            prompt = self.prompt(visit.json)
            return answered(
                200,
                {
                    "count": len(prompt),
                    "max_model_len": self.context_size,
                    "token_strs": None,
                    "tokens": [zlib.crc32(word.encode()) for word in prompt],
                },
            )
        if self.counters:
            routes["/metrics"] = reply(200, self._metrics(), content_type="text/plain; version=0.0.4", server="uvicorn")
        return LOST if self.only_api else routes.get(visit.path, LOST)

    def _metrics(self) -> bytes:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        return "".join(
            (
                "# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.\n",
                "# TYPE vllm:prefix_cache_queries_total counter\n",
                f"vllm:prefix_cache_queries_total{labels} {float(self.queries)}\n",
                f"vllm:prefix_cache_queries_created{labels} 1.795325386e+09\n",
                "# TYPE vllm:prefix_cache_hits_total counter\n",
                f"vllm:prefix_cache_hits_total{labels} {float(self.hits)}\n",
            )
        ).encode()

    def prompt(self, request: Mapping[str, Any]) -> Words:
        """What the template makes of a request's messages."""
        options = dict(request.get("chat_template_kwargs") or {})
        kept = self.keeps_by is not None and options.get(self.keeps_by[0]) is self.keeps_by[1]
        for name in ("preserve_thinking", "clear_thinking", "drop_thinking"):
            options.pop(name, None)
        return rendered(
            [
                {**message, "content": f"{thought_of(message['reasoning'])} {message['content']}"}
                if kept and message.get("reasoning")
                else message
                for message in request["messages"]
            ],
            options,
        )

    def read(self, prompt: tuple[str, ...], salt: str = "") -> int:
        """Look a prompt up in the cache, as its computation does; the hits."""
        cached = self._caches.setdefault(salt, PrefixCache(BLOCK)).found(prompt)
        self.queries += len(prompt)
        self.hits += cached
        return cached

    def _chat_with(self, visit: Visit) -> Answer:
        request = visit.json
        longest = request.get("max_tokens", request.get("max_completion_tokens"))
        if longest is not None and longest < 1:
            return refused(
                400,
                f"max_tokens must be at least 1, got {longest}. (parameter=max_tokens, value={longest})",
                "max_tokens",
            )
        if request.get("stream_options") and not request.get("stream"):
            return refused(400, "Stream options can only be defined when `stream=True`.", "stream_options")
        if request["model"] != self.model:
            return refused(404, f"The model `{request['model']}` does not exist.", "model", "NotFoundError")
        prompt = self.prompt(request)
        if len(prompt) + (longest or 1) > self.context_size:
            return refused(
                400,
                f"This model's maximum context length is {self.context_size} tokens. However, you "
                f"requested {longest or 0} output tokens and your prompt contains {len(prompt)} input "
                "tokens. Please reduce the length of the input prompt. (parameter=input_tokens, "
                f"value={len(prompt)})",
                "input_tokens",
            )
        words, finish = self.words(request, longest)
        options = request.get("stream_options") or {}

        async def stream(visit: Visit) -> None:
            cached = self.read(prompt, request.get("cache_salt", ""))
            usage = {"prompt_tokens": len(prompt), "total_tokens": len(prompt), "completion_tokens": 0}
            each = bool(options.get("continuous_usage_stats"))

            def counted(said: int) -> dict[str, Any]:
                now = {**usage, "total_tokens": len(prompt) + said, "completion_tokens": said}
                return {"usage": now} if each else {}

            await visit.send(stream_head("uvicorn"))
            await say(visit, part(self.model, {"role": "assistant", "content": ""}, **counted(0)))
            if self.reasoning:
                await say(visit, part(self.model, {"reasoning": self.reasoning}))
            said = 0
            for piece in pieces(words):
                if await self.hold(visit, said):
                    break
                said += 1
                last = finish if said == len(words) else None
                await say(visit, part(self.model, {"content": piece}, last, **counted(said)))
            # the token that was sampled last is not computed
            thought = thought_of(self.reasoning).split()
            self._caches[request.get("cache_salt", "")].keep((*prompt, *thought, *words[: max(0, said - 1)]))
            self.reads.append(Read(len(prompt), cached, said))
            if options.get("include_usage"):
                final = {**usage, "total_tokens": len(prompt) + said, "completion_tokens": said}
                if self.details:
                    final["prompt_tokens_details"] = {"cached_tokens": cached}
                await say(visit, {**part(self.model, {}), "choices": [], "usage": final})
            if not visit.gone.is_set():
                await visit.send(DONE + END)

        return stream


def thought_of(reasoning: str) -> str:
    """Reasoning as the template writes it in front of an answer."""
    return f"<think> {reasoning} </think>" if reasoning else ""


def refused(status: int, message: str, field: str, kind: str = "BadRequestError") -> Answer:
    return answered(status, {"error": {"message": message, "type": kind, "param": field, "code": status}})

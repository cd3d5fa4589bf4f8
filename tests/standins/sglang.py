"""A small SGLang for tests: a radix cache, token by token, and usage on every part of a stream.

    async with SglangStandIn(cache_report=True) as server:
        ...

Without `cache_report` it says nothing of cache hits. Its health check generates a token on an idle server and does
not answer on one that reads a prompt. It refuses `session_id` beside `session_params`, and unknown sessions.
"""

from __future__ import annotations

from typing import Any

from standins.blocks import DONE, END, LOST, EngineStandIn, PrefixCache, Read, part, pieces, rendered, say, stream_head
from standins.blocks import uvicorn as answered
from toyserver import Answer, Visit, hang


class SglangStandIn(EngineStandIn):
    def __init__(
        self,
        *,
        cache_report: bool = False,
        tells_of_itself: bool = True,
        context_size: int = 4096,
        model_path: str = "",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.cache_report = cache_report
        self.tells_of_itself = tells_of_itself
        self.context_size = context_size
        self.model_path = model_path
        self._caches: dict[str, PrefixCache] = {}
        self._reading = 0

    def answer_to(self, visit: Visit) -> Answer:
        if visit.path == "/v1/chat/completions":
            return self._chat_with(visit)
        if visit.path in ("/health", "/health_generate"):
            return hang() if self._reading else answered(200)
        routes = {
            "/": answered(200, "SGLang is running"),
            "/v1/models": answered(
                200,
                {
                    "object": "list",
                    "data": [
                        {
                            "id": self.model,
                            "object": "model",
                            "created": 1795325417,
                            "owned_by": "sglang",
                            "root": self.model,
                            "parent": None,
                            "max_model_len": self.context_size,
                        }
                    ],
                },
            ),
            "/version": LOST,
            "/api/tags": answered(200, {"models": [{"name": self.model, "model": self.model}]}),
        }
        if self.tells_of_itself:
            routes["/server_info"] = answered(
                200,
                {
                    "model_path": self.model_path or self.model,
                    "context_length": None,
                    "enable_cache_report": self.cache_report,
                    "max_total_num_tokens": 100_000,
                    "internal_states": [{}],
                    "version": "0.5.23",
                },
            )
        return routes.get(visit.path, LOST)

    def _chat_with(self, visit: Visit) -> Answer:
        request = visit.json
        if request.get("session_id") and request.get("session_params"):
            return refused("session_id and session_params cannot both be set")
        if request.get("session_params"):
            return refused(f"session id {request['session_params'].get('id')} does not exist")
        prompt = rendered(request["messages"], request.get("chat_template_kwargs"))
        if len(prompt) >= self.context_size:
            return refused(
                f"The input ({len(prompt)} tokens) is longer than the model's context length "
                f"({self.context_size} tokens)."
            )
        words, finish = self.words(request, request.get("max_completion_tokens") or request.get("max_tokens"))
        options = request.get("stream_options") or {}

        def details(cached: int, *, always: bool) -> dict[str, Any]:
            shown = self.cache_report and (always or cached > 0)
            return {"prompt_tokens_details": {"cached_tokens": cached} if shown else None}

        async def stream(visit: Visit) -> None:
            cache = self._caches.setdefault(f"{request.get('extra_key')} {request.get('cache_salt')}", PrefixCache())
            cached = cache.found(prompt)
            self._reading += 1

            def counted(said: int, *, always: bool) -> dict[str, Any]:
                return {
                    "prompt_tokens": len(prompt),
                    "total_tokens": len(prompt) + said,
                    "completion_tokens": said,
                    "reasoning_tokens": 0,
                    **details(cached, always=always),
                }

            def extra(said: int) -> dict[str, Any]:
                return {"usage": counted(said, always=True) if options.get("continuous_usage_stats") else None}

            await visit.send(stream_head("uvicorn"))
            await say(visit, part(self.model, {"role": "assistant", "content": ""}, **extra(0)))
            said = 0
            for piece in pieces(words):
                if await self.hold(visit, said):
                    break
                said += 1
                await say(visit, part(self.model, {"content": piece}, **extra(said)))
            self._reading -= 1
            cache.keep((*prompt, *words[: max(0, said - 1)]))
            self.reads.append(Read(len(prompt), cached, said))
            await say(visit, part(self.model, {}, finish, usage=None))
            if options.get("include_usage"):
                await say(visit, {**part(self.model, {}), "choices": [], "usage": counted(said, always=False)})
            if not visit.gone.is_set():
                await visit.send(DONE + END)

        return stream


def refused(message: str) -> Answer:
    return answered(400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400})

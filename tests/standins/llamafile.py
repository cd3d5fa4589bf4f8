"""A small llamafile up to 0.9 for tests, in both its forms.

    async with LlamafileStandIn() as server:            # the old llama.cpp server
    async with LlamafileStandIn(is_new=True) as server: # LLaMAfiler

The first reuses a prompt only with `cache_prompt`, streams no figures and ends without `[DONE]`; the second reuses by
itself and counts the prompt. Both leave old text out once the window is full.
"""

from __future__ import annotations

from typing import Any

from standins.blocks import DONE, END, EngineStandIn, PrefixCache, Read, part, pieces, rendered, say, stream_head
from toyserver import Answer, Visit, reply

OLD, NEW = "llama.cpp", "llamafile/0.9.3"
UNSUPPORTED = (
    "n",
    "tools",
    "audio",
    "logprobs",
    "functions",
    "modalities",
    "tool_choice",
    "top_logprobs",
    "function_call",
    "parallel_tool_calls",
)


class LlamafileStandIn(EngineStandIn):
    def __init__(self, *, is_new: bool = False, context_size: int = 8192, **options: Any) -> None:
        super().__init__(**options)
        self.is_new = is_new
        self.context_size = context_size
        self.server = NEW if is_new else OLD
        self._cache = PrefixCache(capacity=1)

    def answer_to(self, visit: Visit) -> Answer:
        if visit.path == "/v1/chat/completions":
            return self._chat_with(visit)
        owner = "llamafile" if self.is_new else "llamacpp"
        routes = {
            "/v1/models": self._json(
                200,
                {
                    "object": "list",
                    "data": [{"id": self.model, "object": "model", "created": 1749000000, "owned_by": owner}],
                },
            )
        }
        if not self.is_new:
            routes |= {
                "/health": self._json(200, {"status": "ok"}),
                "/props": self._json(
                    200,
                    {
                        "user_name": "",
                        "assistant_name": "",
                        "total_slots": 1,
                        "default_generation_settings": {"n_ctx": self.context_size, "model": self.model},
                    },
                ),
            }
        return routes.get(visit.path, self._text(404, "Not Found" if self.is_new else "File Not Found"))

    def _json(self, status: int, value: object) -> Answer:
        return reply(status, value, server=self.server)

    def _text(self, status: int, text: str) -> Answer:
        return reply(status, text.encode(), content_type="text/plain; charset=utf-8", server=self.server)

    def _chat_with(self, visit: Visit) -> Answer:
        request = visit.json
        if self.is_new:
            if not isinstance(request.get("model"), str):
                return self._text(400, "JSON missing model string\r\n")
            for field in UNSUPPORTED:
                if request.get(field) is not None:
                    return self._text(400, f"OpenAI {field} field not supported\r\n")
        messages = list(request["messages"])
        while len(rendered(messages)) > self.context_size and len(messages) > 2:
            del messages[1]
        prompt = rendered(messages)
        words, finish = self.words(request, request.get("max_tokens"))
        counts = self.is_new and (request.get("stream_options") or {}).get("include_usage")

        async def stream(visit: Visit) -> None:
            cached = self._cache.found(prompt) if self.is_new or request.get("cache_prompt") else 0
            await visit.send(stream_head(self.server))
            extra = {"usage": None} if counts else {}
            await say(visit, part(self.model, {"role": "assistant"}, **extra))
            said = 0
            for piece in pieces(words):
                if await self.hold(visit, said):
                    break
                said += 1
                await say(visit, part(self.model, {"content": piece}, **extra))
            self._cache.keep((*prompt, *words[: max(0, said - 1)]))
            self.reads.append(Read(len(prompt), cached, said))
            if counts:
                extra = {
                    "usage": {
                        "prompt_tokens": len(prompt),
                        "completion_tokens": said,
                        "total_tokens": len(prompt) + said,
                    }
                }
            await say(visit, part(self.model, {}, finish, **extra))
            if not visit.gone.is_set():
                await visit.send((DONE if self.is_new else b"") + END)

        return stream

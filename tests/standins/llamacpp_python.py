"""A small server of llama-cpp-python for tests: one sequence in its cache, one request at a time.

    async with LlamaCppPythonStandIn() as server:
        ...

Another request for the model, and a look at its list of models is one, makes it break a running answer off with
`[DONE]` and no finish reason. It streams without figures, and where it would refuse a request, the stream ends before
it began; without streaming it says why. Of a request it knows only what its own types name.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from standins.blocks import DONE, END, LOST, EngineStandIn, PrefixCache, Read, part, pieces, rendered, say, stream_head
from standins.blocks import uvicorn as answered
from toyserver import Answer, Visit, reply

UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")


class LlamaCppPythonStandIn(EngineStandIn):
    def __init__(
        self, *, interrupts: bool = True, context_size: int = 2048, refuses_system: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.interrupts = interrupts
        self.context_size = context_size
        self.refuses_system = refuses_system
        self._cache = PrefixCache(capacity=1)
        self._model_lock = asyncio.Lock()
        self._waiting = 0
        """Requests that want the model while another one has it."""

    def answer_to(self, visit: Visit) -> Answer:
        request_id = visit.headers.get("x-request-id")
        if request_id is not None and not UUID.fullmatch(request_id):
            return answered(400)
        if visit.path == "/v1/models":
            return self._models
        if visit.path == "/v1/chat/completions":
            return self._chat_with(visit)
        if visit.path == "/extras/tokenize/count" and visit.method == "GET":
            return reply(405, {"detail": "Method Not Allowed"}, headers={"allow": "POST"}, server="uvicorn")
        return LOST

    async def _models(self, visit: Visit) -> None:
        async with self.model_for(visit):
            await answered(
                200,
                {
                    "object": "list",
                    "data": [{"id": self.model, "object": "model", "owned_by": "me", "permissions": []}],
                },
            )(visit)

    def model_for(self, visit: Visit) -> _Turn:
        return _Turn(self)

    def _refusal(self, request: dict[str, Any], prompt: tuple[str, ...]) -> Answer | None:
        if self.refuses_system and request["messages"][0]["role"] == "system":
            return failed(500, "System role not supported", "internal_server_error", None)
        if len(prompt) >= self.context_size:
            longest = request.get("max_tokens") or 0
            return failed(
                400,
                f"This model's maximum context length is {self.context_size} tokens. However, you "
                f"requested {len(prompt) + longest} tokens ({len(prompt)} in the messages, {longest} "
                "in the completion). Please reduce the length of the messages or completion.",
                "invalid_request_error",
                "context_length_exceeded",
            )
        return None

    def _chat_with(self, visit: Visit) -> Answer:
        request = visit.json
        prompt = rendered(request["messages"])
        words, finish = self.words(request, request.get("max_tokens") or None)
        refusal = self._refusal(request, prompt)

        async def stream(visit: Visit) -> None:
            await visit.send(stream_head("uvicorn"))
            async with self.model_for(visit):
                if refusal is not None:
                    await visit.send(END)
                    return
                cached = self._cache.found(prompt)
                await say(visit, part(self.model, {"role": "assistant"}))
                said = 0
                for piece in pieces(words):
                    if await self.hold(visit, said) or (self.interrupts and self._waiting):
                        break
                    said += 1
                    await say(visit, part(self.model, {"content": piece}))
                self._cache.keep((*prompt, *words[: max(0, said - 1)]))
                self.reads.append(Read(len(prompt), cached, said))
                if visit.gone.is_set():
                    return
                if said == len(words):
                    await say(visit, part(self.model, {}, finish))
                await visit.send(DONE + END)

        async def whole(visit: Visit) -> None:
            async with self.model_for(visit):
                if refusal is not None:
                    await refusal(visit)
                    return
                cached = self._cache.found(prompt)
                self.reads.append(Read(len(prompt), cached, len(words)))
                await answered(
                    200,
                    {
                        "object": "chat.completion",
                        "model": self.model,
                        "choices": [
                            {
                                "index": 0,
                                "message": {"role": "assistant", "content": " ".join(words)},
                                "finish_reason": finish,
                            }
                        ],
                    },
                )(visit)

        return stream if request.get("stream") else whole


class _Turn:
    """Waits for the model; who has it can see that somebody waits."""

    def __init__(self, server: LlamaCppPythonStandIn) -> None:
        self._server = server

    async def __aenter__(self) -> None:
        self._server._waiting += 1
        try:
            await self._server._model_lock.acquire()
        finally:
            self._server._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._server._model_lock.release()


def failed(status: int, message: str, kind: str, code: str | None) -> Answer:
    error = {"message": message, "type": kind, "param": "messages", "code": code}
    return answered(status, json.dumps({"error": error}).encode())

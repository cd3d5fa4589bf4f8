"""A small mlx-lm server for tests: a cache of the last ten sequences, and comments that count the prompt.

    async with MlxLmStandIn() as server:
        ...
    assert server.loads == 0

It answers in HTTP/1.0 until the connection ends, stops at 512 tokens unless told otherwise, and loads whatever model
is named; a name is another model than `default_model`, even if it is the same. Whatever keeps it from beginning an
answer comes as a 404.
"""

from __future__ import annotations

import json
from typing import Any

from standins.blocks import EngineStandIn, PrefixCache, Read, part, pieces, rendered
from toyserver import Answer, Visit, event, raw

SERVER = "BaseHTTP/0.6 Python/3.12.1"
DEFAULT_LENGTH, KEPT_SEQUENCES = 512, 10
LOST = "Not Found"


class MlxLmStandIn(EngineStandIn):
    def __init__(
        self,
        *,
        model: str | None = "/models/toy",
        downloaded: tuple[str, ...] = (),
        refuses_system: bool = False,
        has_hub: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(model=model or "", **options)
        self.downloaded = downloaded
        """What lies in the cache of downloads, listed before the model it was started with."""
        self.refuses_system = refuses_system
        self.has_hub = has_hub
        """False: no model was ever downloaded, and the list breaks off."""
        self.loads: list[str] = []
        """The models that were loaded by name since it started."""
        self._loaded = "default_model"
        self._cache = PrefixCache(capacity=KEPT_SEQUENCES)

    def answer_to(self, visit: Visit) -> Answer:
        if visit.path == "/v1/chat/completions":
            return self._chat_with(visit)
        if visit.path == "/health":
            return plain(200, {"status": "ok"})
        if visit.path.startswith("/v1/models"):
            if not self.has_hub:
                return plain(200, b"")
            started = [self.model] if self.model.startswith("/") else []
            names = [*self.downloaded, *started]
            return plain(
                200,
                {"object": "list", "data": [{"id": name, "object": "model", "created": 1795324514} for name in names]},
            )
        return plain(404, LOST.encode())

    def _chat_with(self, visit: Visit) -> Answer:
        if "content-length" not in visit.headers:
            return plain(411, {"error": "Content-Length header is required"})
        request = visit.json
        longest = request.get("max_completion_tokens") or request.get("max_tokens", DEFAULT_LENGTH)
        if longest < 1:
            return plain(400, {"error": "max_tokens must be at least 1"})
        wanted = request.get("model", "default_model")
        if wanted == "default_model" and not self.model:
            return plain(
                404,
                {
                    "error": "argument should be a str or an os.PathLike object where __fspath__ returns "
                    "a str, not 'NoneType'"
                },
            )
        if wanted not in ("default_model", self.model, *self.downloaded):
            return plain(
                404,
                {
                    "error": "Cannot find an appropriate cached snapshot folder for the specified revision "
                    "on the local disk and outgoing traffic has been disabled."
                },
            )
        if wanted != self._loaded:
            self.loads.append(wanted)
            self._loaded, self._cache = wanted, PrefixCache(capacity=KEPT_SEQUENCES)
        messages = request["messages"]
        if self.refuses_system and messages[0]["role"] == "system":
            return plain(404, {"error": "System role not supported"})
        prompt = rendered(messages, request.get("chat_template_kwargs"))
        words, finish = self.words(request, longest)
        options = request.get("stream_options") or {}

        async def stream(visit: Visit) -> None:
            cached = self._cache.found(prompt)
            fresh = len(prompt) - cached
            await visit.send(head(200, "text/event-stream"))
            for done in (0, fresh - 1, fresh):
                await visit.send(b": keepalive %d/%d\n\n" % (done, fresh))
            self._cache.keep(prompt[:-1])
            said = 0
            for piece in pieces(words):
                if await self.hold(visit, said):
                    break
                said += 1
                await visit.send(event(part(wanted, {"role": "assistant", "content": piece})))
            else:
                self._cache.keep((*prompt, *words))
            self.reads.append(Read(len(prompt), cached, said))
            if visit.gone.is_set():
                return
            await visit.send(event(part(wanted, {"role": "assistant"}, finish)))
            if options.get("include_usage"):
                await visit.send(
                    event(
                        {
                            **part(wanted, {}),
                            "object": "chat.completion",
                            "choices": [],
                            "usage": {
                                "prompt_tokens": len(prompt),
                                "completion_tokens": said,
                                "total_tokens": len(prompt) + said,
                                "prompt_tokens_details": {"cached_tokens": cached},
                            },
                        }
                    )
                )
            await visit.send(b"data: [DONE]\n\n")

        return stream


def head(status: int, content_type: str) -> bytes:
    return (
        f"HTTP/1.0 {status} {'OK' if status == 200 else LOST}\r\nServer: {SERVER}\r\n"
        f"Content-type: {content_type}\r\nAccess-Control-Allow-Origin: *\r\n\r\n"
    ).encode()


def plain(status: int, value: object) -> Answer:
    """It calls everything JSON, and says nothing of its length."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return raw(head(status, "application/json") + body)

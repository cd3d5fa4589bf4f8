"""A stand-in for text-generation-webui: it answers to local host names only, and leaves the oldest messages out of a
prompt that is too long, without a word."""

from __future__ import annotations

from typing import Any

from standins.prefix import WordServer, event, rendered, streamed
from toyserver import Answer, Visit, reply


class TextGenStandIn(WordServer):
    """`counts`: some loaders do not count the prompt, and say 0."""

    def __init__(self, *, listens: bool = False, counts: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.listens = listens
        self.counts = counts
        self.loader = "llama.cpp"

    def refusal(self, visit: Visit) -> Answer | None:
        if not self.listens and visit.headers["host"].split(":")[0] not in ("localhost", "127.0.0.1"):
            return reply(400, {"detail": "Invalid host header"})
        return None if self.has_key(visit) else reply(401, {"detail": "Unauthorized"})

    def unknown(self, visit: Visit) -> Answer:
        entries = [{"id": self.model, "object": "model", "created": 0, "owned_by": "user"}] * (self.model != "None")
        found: dict[str, object] = {
            "/v1/internal/model/info": {"model_name": self.model, "lora_names": [], "loader": self.loader},
            "/v1/internal/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": entries},
        }
        return reply(200, found[visit.path]) if visit.path in found else reply(404, {"detail": "Not Found"})

    def chat(self, visit: Visit) -> Answer:
        body = visit.json
        first = event(
            {
                "model": self.model,
                "choices": [
                    {"index": 0, "finish_reason": None, "delta": {"role": "assistant", "refusal": None, "content": ""}}
                ],
                "usage": None,
            }
        )
        if self.model == "None":
            return streamed([first], whole=False)
        messages = list(body["messages"])
        room = self.context_size - body.get("max_tokens", 512)
        while len(rendered(messages)) > room and len(messages) > 2:
            messages.pop(1 if messages[0]["role"] == "system" else 0)
        usage = self.usage(self.read(rendered(messages)))
        if not self.counts:
            usage |= {"prompt_tokens": 0, "total_tokens": usage["completion_tokens"]}
        return self.told(usage if body.get("stream_options", {}).get("include_usage") else None, before=[first])

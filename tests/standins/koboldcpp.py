"""A stand-in for KoboldCpp: one KV cache for all; it imitates Ollama, llama.cpp and a router, cuts the beginning off a
prompt that is too long, and takes a request with `timings_per_token` for one to go on with the last message."""

from __future__ import annotations

from typing import Any

from standins.prefix import WordServer, rendered
from toyserver import Answer, Visit, reply

HELP = b"Error: KoboldCpp HTTP Server is running, but this endpoint does not exist."
NAMES = {
    "name": "koboldcpp/toy-8b",
    "model": "koboldcpp/toy-8b:latest",
    "details": {"format": "gguf", "family": "koboldcpp", "families": ["koboldcpp"]},
}


class KoboldCppStandIn(WordServer):
    def __init__(self, *, longest_answer: int = 100, more: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(model=options.pop("model", "koboldcpp/toy-8b"), **options)
        self.longest_answer = longest_answer
        self.is_busy = False
        self.holds_back = False
        self.aborted = 0
        entries = [
            {"id": name, "object": "model", "owned_by": "koboldcpp", "root": "koboldcpp", "status": {"value": "loaded"}}
            for name in (self.model, *more)
        ]
        for path in ("/v1/models", "/api/v1/models"):
            self.get(path, {"object": "list", "data": entries})
        self.get(
            "/.well-known/serviceinfo",
            {
                "version": "0.2",
                "software": {"name": "KoboldCpp", "version": "1.117.1"},
                "api": {"koboldai": {"name": "KoboldAI API", "rel_url": "/api"}},
            },
        )
        self.get("/api/extra/version", {"result": "KoboldCpp", "version": "1.117.1", "protected": bool(self.key)})
        self.get("/api/extra/true_max_context_length", {"value": self.context_size})
        self.get("/api/tags", {"models": [NAMES]})
        self.get("/api/ps", {"models": [NAMES]})
        self.get("/api/version", {"version": "0.7.0"})
        self.get(
            "/props",
            {
                "chat_template": "",
                "id": 0,
                "total_slots": 1,
                "model_path": self.model,
                "n_ctx": self.context_size,
                "default_generation_settings": {"n_ctx": self.context_size},
            },
        )
        self.get("/slots", {"error": {"code": 501, "message": "This server does not support slots endpoint."}}, 501)

    def unknown(self, visit: Visit) -> Answer:
        return reply(404, HELP, content_type="text/html")

    def chat(self, visit: Visit) -> Answer:
        if self.is_busy:
            return reply(
                503, {"detail": {"msg": "Server is busy; please try again later.", "type": "service_unavailable"}}
            )
        if not self.has_key(visit):
            return reply(
                401,
                {
                    "detail": {
                        "error": "Unauthorized",
                        "type": "unauthorized",
                        "msg": "Authentication key is missing or invalid.",
                    }
                },
            )
        body = visit.json
        words = rendered(body["messages"], unfinished="timings_per_token" in body)
        room = self.context_size - body.get("max_tokens", self.longest_answer)
        read = self.read(words[-room:])
        if self.holds_back:
            return self._until_gone
        usage = self.usage(read) if body.get("stream_options", {}).get("include_usage") else None
        return self.told(usage)

    async def _until_gone(self, visit: Visit) -> None:
        """Reading takes long; the closed connection ends it."""
        await visit.gone.wait()
        self.aborted += 1

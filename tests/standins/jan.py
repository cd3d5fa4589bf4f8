"""A stand-in for Jan: a proxy that looks at the host name and the key, passes requests to llama.cpp as they are, and
those for remote models to a service on the internet, headers and all."""

from __future__ import annotations

from typing import Any

from standins.prefix import WordServer, rendered
from toyserver import Answer, Visit, event, reply

OPEN = ("/", "/openapi.json", "/favicon.ico")
"""What it answers to any host, and without a key."""


class JanStandIn(WordServer):
    """`owner`: how its version calls a model that llama.cpp runs; `remote`: models of services that it passes on to."""

    def __init__(
        self,
        *,
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost"),
        owner: str = "llama.cpp",
        remote: tuple[str, ...] = (),
        slots: int = 4,
        **options: Any,
    ) -> None:
        super().__init__(slots=slots, **options)
        self.hosts = hosts
        self.owner = owner
        self.remote = remote
        self.running = [self.model]
        self.sent_away: list[Visit] = []
        """The chat requests that left this machine."""

    def refusal(self, visit: Visit) -> Answer | None:
        if visit.path in OPEN:
            return None
        if visit.headers["host"].split(":")[0] not in self.hosts:
            return reply(403, b"Invalid host header", content_type="text/plain")
        return (
            None
            if self.has_key(visit)
            else reply(401, b"Invalid or missing authorization token", content_type="text/plain")
        )

    def unknown(self, visit: Visit) -> Answer:
        models = [{"id": name, "object": "model", "created": 1, "owned_by": self.owner} for name in self.running]
        models += [{"id": name, "object": "model", "created": 1, "owned_by": "remote"} for name in self.remote]
        found: dict[str, object] = {
            "/openapi.json": {"openapi": "3.0.0", "info": {"title": "Jan API Server Endpoints", "version": "1.0"}},
            "/v1/models": {"object": "list", "data": models},
            "/v1/models/available": {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", "engine": "llamacpp", "status": "available"}
                    for name in (self.model, "on-disk-4b")
                ],
            },
        }
        if visit.path == "/":
            return reply(200, b"<!DOCTYPE html><title>API Docs</title>", content_type="text/html")
        return reply(200, found[visit.path]) if visit.path in found else self._text(404, "Not Found")

    def _text(self, status: int, text: str) -> Answer:
        return reply(status, text.encode(), content_type="text/plain")

    def chat(self, visit: Visit) -> Answer:
        body = visit.json
        model = body.get("model")
        if model is None:
            return self._text(400, "Request body must contain a 'model' field")
        if model in self.remote:
            self.sent_away.append(visit)
            return self.told(self.usage(self.read(rendered(body["messages"]))), model=model)
        if not self.running:
            return self._text(503, "No models are available")
        if model not in self.running:
            return self._text(404, f"No running session found for model '{model}'")
        return self._by_llamacpp(body)

    def _by_llamacpp(self, body: dict[str, Any]) -> Answer:
        words = rendered(body["messages"])
        if len(words) > self.context_size:
            return reply(
                400,
                {
                    "error": {
                        "code": 400,
                        "type": "exceed_context_size_error",
                        "n_ctx": self.context_size,
                        "n_prompt_tokens": len(words),
                        "message": "the request exceeds the context",
                    }
                },
            )
        read = self.read(words)
        usage = self.usage(read) | {"prompt_tokens_details": {"cached_tokens": read.cached}}
        progress = event(
            {
                "choices": [],
                "prompt_progress": {"total": read.prompt, "cache": read.cached, "processed": read.cached, "time_ms": 0},
            }
        )
        return self.told(usage, before=[progress] if body.get("return_progress") else [])

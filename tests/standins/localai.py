"""A stand-in for LocalAI: it imitates Ollama, tells what is loaded to the administrator, and how long reading took to
those who ask for it by a header."""

from __future__ import annotations

from typing import Any

from standins.prefix import Read, WordServer, rendered, streamed
from toyserver import Answer, Visit, event, reply


class LocalAIStandIn(WordServer):
    """`is_admin`: whether the key, or the lack of one, opens the administrator's paths."""

    def __init__(self, *, ms_per_token: float = 1.0, is_admin: bool = True, loading: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.ms_per_token = ms_per_token
        self.is_admin = is_admin
        self.loading = loading
        """So many chat requests are answered with 503 first."""
        self.loaded = False
        self.is_disabled = False
        self.left_out = 0

    def refusal(self, visit: Visit) -> Answer | None:
        if visit.path in ("/.well-known/localai.json", "/readyz", "/healthz") or self.has_key(visit):
            return None
        return self._failure(401, "An authentication key is required", "invalid_request_error")

    def _failure(self, status: int, message: str, kind: str = "") -> Answer:
        return reply(status, {"error": {"code": status, "message": message, "type": kind}})

    def unknown(self, visit: Visit) -> Answer:
        names = ("bert-embeddings", "loose-file.gguf", self.model)
        abilities = {"bert-embeddings": ["embeddings"], self.model: ["chat", "completion", "tools"]}
        system = {"backends": ["llama-cpp"], "loaded_models": [{"id": self.model}] if self.loaded else []}
        found: dict[str, object] = {
            "/.well-known/localai.json": {
                "version": "v3.9.0 (abc)",
                "endpoints": {"models": "/v1/models", "chat_completions": "/v1/chat/completions"},
                "capabilities": {},
            },
            "/v1/models": {"object": "list", "data": [{"id": name, "object": "model"} for name in names]},
            "/v1/models/capabilities": {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", **({"capabilities": abilities[name]} if name in abilities else {})}
                    for name in names
                ],
            },
            "/api/tags": {"models": [{"name": f"{name}:latest"} for name in names]},
            "/api/version": {"version": "0.9.0"},
            "/version": {"version": "v3.9.0 (abc)"},
            "/readyz": "",
        }
        admins: dict[str, object] = {
            "/system": system,
            f"/api/models/config-json/{self.model}": {"context_size": self.context_size},
        }
        if visit.path in admins:
            return (
                reply(200, admins[visit.path])
                if self.is_admin
                else self._failure(403, "Admin access required", "authorization_error")
            )
        if visit.path == "/":
            return reply(200, b"Ollama is running", content_type="text/plain")
        return reply(200, found[visit.path]) if visit.path in found else self._failure(404, "Resource not found")

    def chat(self, visit: Visit) -> Answer:
        body = visit.json
        if body["model"] not in (self.model, "loose-file.gguf"):
            return self._failure(
                404,
                f'model "{body["model"]}" not found. To see available models, call GET /v1/models',
                "invalid_request_error",
            )
        if self.is_disabled:
            return self._failure(
                403,
                f'model "{self.model}" is disabled and cannot be loaded. Enable it via the '
                "System page or API to use it.",
                "model_disabled",
            )
        if self.loading:
            self.loading -= 1
            return reply(
                503,
                {
                    "error": {"message": "the backend is staged", "code": "model_loading", "type": "model_loading"},
                    "loading": {"progress": 0.5},
                },
            )
        self.loaded = True
        words = rendered(body["messages"])
        if len(words) > self.context_size:
            return streamed(
                [
                    event(
                        {
                            "error": {
                                "code": 500,
                                "type": "server_error",
                                "message": f"rpc error: code = Internal desc = request ({len(words)} tokens) exceeds the available "
                                f"context size ({self.context_size} tokens), try increasing it",
                            }
                        }
                    )
                ]
            )
        usage = self.usage(self.read(words))
        if visit.headers.get("extra-usage"):
            usage |= self._times(self.reads[-1])
        if self.left_out:
            usage["compression_meta"] = {"dropped_turns": self.left_out, "compressor": "summary"}
        return self.told(usage if body.get("stream_options", {}).get("include_usage") else None, model=body["model"])

    def _times(self, read: Read) -> dict[str, float]:
        return {"timing_prompt_processing": read.evaluated * self.ms_per_token, "timing_token_generation": 50.0}

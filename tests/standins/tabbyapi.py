"""A stand-in for TabbyAPI: it wants a key, ignores the model that is named, and tells speeds and times in its usage."""

from __future__ import annotations

from typing import Any

from standins.prefix import Read, WordServer, rendered
from toyserver import Answer, Visit, reply


class TabbyAPIStandIn(WordServer):
    """`rest`: other models in its folder, which it shows to the admin key only."""

    def __init__(
        self,
        *,
        key: str = "tabby-key",
        admin_key: str = "tabby-admin",
        ms_per_token: float = 2.5,
        slots: int = 8,
        rest: tuple[str, ...] = ("other-70b",),
        **options: Any,
    ) -> None:
        super().__init__(key=key, slots=slots, **options)
        self.admin_key = admin_key
        self.ms_per_token = ms_per_token
        self.parallel = slots
        self.rest = rest
        self.cache_size = self.context_size * 2
        self.is_loaded = True
        self.loads_inline = False

    def _is_admin(self, visit: Visit) -> bool:
        return self.admin_key in (
            visit.headers.get("x-admin-key"),
            visit.headers.get("authorization", "").removeprefix("Bearer "),
        )

    def refusal(self, visit: Visit) -> Answer | None:
        if visit.path in ("/.well-known/serviceinfo", "/health") or self._is_admin(visit):
            return None
        given = visit.headers.get("x-api-key") or visit.headers.get("authorization", "").removeprefix("Bearer ")
        if given == self.key:
            return None
        return reply(401, {"detail": "Invalid API key" if given else "Please provide an API key"})

    def unknown(self, visit: Visit) -> Answer:
        names = [self.model] * self.is_loaded
        if self._is_admin(visit):
            names = [*self.rest, self.model]
        card = {
            "id": self.model,
            "object": "model",
            "owned_by": "tabbyAPI",
            "parameters": {
                "max_seq_len": self.context_size,
                "cache_size": self.cache_size,
                "cache_mode": "Q8",
                "max_batch_size": self.parallel,
            },
        }
        found: dict[str, object] = {
            "/.well-known/serviceinfo": {
                "version": 0.1,
                "software": {"name": "TabbyAPI", "repository": "https://github.com/theroyallab/tabbyAPI"},
                "api": {
                    "openai": {"name": "OpenAI API", "relative_url": "/v1"},
                    "koboldai": {"name": "KoboldAI API", "relative_url": "/api"},
                },
            },
            "/health": {"status": "healthy", "issues": []},
            "/v1/models": {
                "object": "list",
                "data": [{"id": name, "object": "model", "owned_by": "tabbyAPI"} for name in names],
            },
            "/v1/model": card,
            "/props": {
                "total_slots": self.parallel,
                "chat_template": "",
                "default_generation_settings": {"n_ctx": self.context_size},
            },
        }
        if visit.path in ("/v1/model", "/props") and not self.is_loaded:
            return reply(503, {"detail": "No models are currently loaded."})
        return reply(200, found[visit.path]) if visit.path in found else reply(404, {"detail": "Not Found"})

    def chat(self, visit: Visit) -> Answer:
        body = visit.json
        asked = body.get("model")
        if self.loads_inline and asked and asked != self.model:
            if not self._is_admin(visit):
                return reply(401, {"detail": f"Unable to switch model to {asked} because an admin key isn't provided"})
            self.model, self.is_loaded = asked, True
            self.cache.clear()
        if not self.is_loaded:
            return reply(503, {"detail": "No models are currently loaded."})
        words = rendered(body["messages"])
        if len(words) > self.context_size:
            text = f"Prompt length {len(words)} exceeds the available context size of {self.context_size} tokens"
            return reply(
                400,
                {
                    "error": {
                        "message": text,
                        "type": "invalid_request_error",
                        "param": None,
                        "code": "context_length_exceeded",
                    }
                },
            )
        read = self.read(words)
        asked_for = body.get("stream_options", {}).get("include_usage")
        return self.told(self.usage(read) | self._speeds(read) if asked_for else None)

    def _speeds(self, read: Read) -> dict[str, object]:
        """As it computes them: the time is rounded first, and 0.00 s gives no speed."""
        seconds = round(read.evaluated * self.ms_per_token / 1000, 2)
        rate: float | str = round(read.evaluated / seconds, 2) if seconds else "Indeterminate"
        return {
            "prompt_time": seconds,
            "prompt_tokens_per_sec": rate,
            "completion_time": 0.25,
            "completion_tokens_per_sec": 20.0,
            "total_time": seconds + 0.25,
        }

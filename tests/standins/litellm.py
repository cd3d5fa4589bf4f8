"""A stand-in for a LiteLLM proxy: two replicas behind one model, chosen by the session, and its own errors.

With `affinity` a conversation stays on its replica, else the replicas take turns. An OpenAI field that the model does
not support is refused unless `drop_params`; fields that LiteLLM does not know are passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from standins.cloud import REPLY, answered
from standins.llamacpp_router import words_of
from toyserver import Answer, ToyServer, Visit, reply

KEY = "sk-litellm-1"
HEADERS = {"x-litellm-call-id": "c-1", "x-litellm-version": "1.108.7"}
"""Of its answers to chats; no other answer has them."""
OPENAI_FIELDS = {"reasoning_effort", "stream_options", "prompt_cache_key", "user"}


class LiteLLMStandIn(ToyServer):
    def __init__(
        self, *, key: str = "", drop_params: bool = False, unsupported: tuple[str, ...] = (), affinity: bool = True
    ) -> None:
        super().__init__("openai")
        self.replicas: list[list[str]] = [[], []]
        """What each replica has cached."""
        self.sessions: dict[str, int] = {}
        self._key = key
        self._drop_params = drop_params
        self._unsupported = set(unsupported) & OPENAI_FIELDS
        self._affinity = affinity
        self._next = 0

    def _answer_to(self, visit: Visit) -> Answer:
        if visit.path in ("/health/liveliness", "/health/liveness"):
            return reply(200, "I'm alive!")
        if self._key and visit.headers.get("authorization") != f"Bearer {self._key}":
            return _error(401, "Authentication Error, No api key passed in.", "auth_error")
        if visit.method == "GET":
            return self._get(visit.path)
        return self._completion(visit)

    def _get(self, path: str) -> Answer:
        if path == "/v1/models":
            return reply(
                200,
                {
                    "object": "list",
                    "data": [
                        {"id": name, "object": "model", "created": 1, "owned_by": "openai"}
                        for name in ("vectors", "chat")
                    ],
                },
            )
        if path == "/model_group/info":
            return reply(
                200,
                {
                    "data": [
                        {
                            "model_group": "vectors",
                            "mode": "embedding",
                            "max_input_tokens": 8191,
                            "providers": ["openai"],
                        },
                        {
                            "model_group": "chat",
                            "mode": "chat",
                            "max_input_tokens": 32768,
                            "providers": ["hosted_vllm"],
                        },
                    ]
                },
            )
        return reply(404, {"detail": "Not Found"})

    def _completion(self, visit: Visit) -> Answer:
        body = visit.json
        if body.get("model") != "chat":
            return _error(
                400,
                f"/chat/completions: Invalid model name passed in model={body.get('model')}. Call "
                "`/v1/models` to view available models for your key.",
                "invalid_request_error",
            )
        refused = sorted(self._unsupported & body.keys())
        if refused and not self._drop_params:
            return _error(
                400,
                f"litellm.UnsupportedParamsError: hosted_vllm does not support parameters: {refused}, "
                "for model=chat. To drop these, set `litellm.drop_params=True`",
                "None",
            )
        return self._by(self._replica(visit, body), body)

    def _replica(self, visit: Visit, body: Mapping[str, Any]) -> int:
        session = visit.headers.get("x-litellm-session-id") or body.get("litellm_session_id") or ""
        turn, self._next = self._next % 2, self._next + 1
        return self.sessions.setdefault(session, turn) if self._affinity and len(session) >= 8 else turn

    def _by(self, replica: int, body: Mapping[str, Any]) -> Answer:
        prompt = words_of(body["messages"])
        pairs = zip(prompt, self.replicas[replica], strict=False)
        cached = min(len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))), len(prompt) - 1)
        self.replicas[replica] = [*prompt, *(text.strip() for text in REPLY)]
        return answered(len(prompt), cached, "chat", {"prompt_tokens_details": {"cached_tokens": cached}})


def _error(status: int, message: str, kind: str) -> Answer:
    return reply(
        status, {"error": {"message": message, "type": kind, "param": "None", "code": str(status)}}, headers=HEADERS
    )

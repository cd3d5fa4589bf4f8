"""A stand-in for llama-server as a router, and the model behind it that other stand-ins run too.

A model renders its messages with a trivial template, one token per word, and reuses the longest common prefix with what
it held last, so that every count can be checked by hand.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from toyserver import Answer, ToyServer, Visit, error, event, reply, sse, tokens

SERVER = "llama.cpp"
REPLY = ("Fine", " thanks")


def words_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The prompt that the template makes of messages, as tokens."""
    found = []
    for message in messages:
        found += [f"<{message['role']}>", *message["content"].split(), "<end>"]
    return [*found, "<assistant>"]


@dataclass
class LlamaModel:
    """The llama-server of one model, with one slot, while it is loaded."""

    name: str
    context_size: int = 4096
    held: list[str] = field(default_factory=list)
    """The tokens in its slot."""
    tasks: int = 0
    process: str = field(default_factory=lambda: secrets.token_hex(4))
    _vocabulary: list[str] = field(default_factory=list)

    def start(self) -> None:
        """A new process: nothing is cached."""
        self.held, self.tasks, self.process = [], 0, secrets.token_hex(4)

    def chat(self, body: Mapping[str, Any], texts: Sequence[str] = REPLY) -> Answer:
        """An answer of these texts, each one token."""
        prompt = words_of(body["messages"])
        if len(prompt) >= self.context_size:
            return error(
                400,
                f"request ({len(prompt)} tokens) exceeds the available context size "
                f"({self.context_size} tokens), try increasing it",
                "exceed_context_size_error",
                n_prompt_tokens=len(prompt),
                n_ctx=self.context_size,
            )
        cached = self._read(prompt)
        self.held += [text.strip() for text in texts]
        return tokens(
            *texts, prompt=len(prompt), cached=cached, model=self.name, progress=body.get("return_progress") is True
        )

    def _read(self, prompt: list[str]) -> int:
        """The tokens that were cached; the slot then holds `prompt`."""
        pairs = zip(prompt, self.held, strict=False)
        cached = min(len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))), len(prompt) - 1)
        self.held, self.tasks = list(prompt), self.tasks + 1
        return cached

    def get(self, path: str) -> Answer:
        if path == "/props":
            return reply(
                200,
                {
                    "default_generation_settings": {"n_ctx": self.context_size},
                    "total_slots": 1,
                    "model_alias": self.name,
                    "build_info": "b7-toy",
                    "media_marker": self.process,
                    "chat_template": "{{ toy }}",
                    "chat_template_caps": {"supports_preserve_reasoning": True},
                },
                server=SERVER,
            )
        if path == "/slots":
            task = self.tasks if self.tasks else None
            return reply(200, [{"id": 0, "n_prompt_tokens": len(self.held), "id_task": task}], server=SERVER)
        if path == "/v1/models":
            return reply(
                200,
                {"data": [{"id": self.name, "owned_by": "llamacpp", "meta": {"n_ctx": self.context_size}}]},
                server=SERVER,
            )
        return error(404, "File Not Found", "not_found_error")

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        if path == "/v1/chat/completions":
            return self.chat(body)
        if path == "/apply-template":
            return reply(200, {"prompt": " ".join(words_of(body["messages"]))}, server=SERVER)
        if path == "/tokenize":
            return reply(200, {"tokens": [self._id(word) for word in body["content"].split()]}, server=SERVER)
        if path == "/completion":
            prompt = [self._vocabulary[id] for id in body["prompt"]]
            cached = self._read(prompt)
            progress = {"total": len(prompt), "cache": cached, "processed": len(prompt), "time_ms": 1}
            return sse(
                [
                    event({"prompt_progress": progress, "stop": False}),
                    event({"stop": True, "timings": {"cache_n": cached}, "id_slot": 0}),
                ]
            )
        return error(404, "File Not Found", "not_found_error")

    def _id(self, word: str) -> int:
        if word not in self._vocabulary:
            self._vocabulary.append(word)
        return self._vocabulary.index(word)


class RouterStandIn(ToyServer):
    """llama-server without a model of its own: it loads those that requests name."""

    def __init__(self, *models: LlamaModel, loaded: Sequence[str] = (), autoload: bool = True, most: int = 4) -> None:
        super().__init__()
        self.models = {model.name: model for model in models}
        self.loaded = list(loaded)
        """Least recently used first."""
        self.loads: list[str] = []
        """Every load since the start."""
        self.gate = asyncio.Event()
        """While it is not set, a model that is being loaded does not become ready."""
        self.gate.set()
        self.states: dict[str, str] = {}
        """The states of models that are neither loaded nor unloaded: `loading`, `failed`, `sleeping`."""
        self._autoload = autoload
        self._most = most

    def _answer_to(self, visit: Visit) -> Answer:
        url = urlsplit(visit.path)
        asked = dict(parse_qsl(url.query))
        if visit.method == "GET":
            if url.path in ("/v1/models", "/models"):
                return reply(200, {"object": "list", "data": [*map(self._entry, self.models)]}, server=SERVER)
            if url.path == "/health":
                return reply(200, {"status": "ok"}, server=SERVER)
            if url.path == "/props" and "model" not in asked:
                return reply(
                    200,
                    {
                        "role": "router",
                        "max_instances": self._most,
                        "models_autoload": self._autoload,
                        "model_alias": "llama-server",
                        "model_path": "none",
                        "build_info": "b7-toy",
                        "default_generation_settings": {"params": {}, "n_ctx": 0},
                    },
                    server=SERVER,
                )
            return self._routed(asked.get("model", ""), asked, lambda model: model.get(url.path))
        body = json.loads(visit.body)
        return self._routed(body.get("model", ""), asked, lambda model: model.post(url.path, body))

    def _entry(self, name: str) -> dict[str, object]:
        value = self.states.get(name) or ("loaded" if name in self.loaded else "unloaded")
        return {
            "id": name,
            "object": "model",
            "owned_by": "llamacpp",
            "aliases": [],
            "tags": [],
            "status": {"value": value, "args": ["llama-server", "--alias", name]},
            "source": "models_dir",
        }

    def _routed(self, name: str, asked: Mapping[str, str], answer: Any) -> Answer:
        if not name:
            return error(400, "model name is missing from the request", "invalid_request_error")
        if name not in self.models:
            return error(400, f"model '{name}' not found", "invalid_request_error")
        autoload = asked.get("autoload", str(self._autoload).lower()) in ("true", "1")
        if name not in self.loaded and not autoload:
            return error(400, "model is not loaded", "invalid_request_error")

        async def when_ready(visit: Visit) -> None:
            await self.gate.wait()
            await answer(self.models[name])(visit)

        self._load(name)
        return when_ready

    def _load(self, name: str) -> None:
        if name in self.loaded:
            self.loaded.remove(name)
        else:
            self.loads.append(name)
            self.models[name].start()
            del self.loaded[: max(0, len(self.loaded) - self._most + 1)]
        self.loaded.append(name)

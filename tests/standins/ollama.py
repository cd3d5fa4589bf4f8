"""A small Ollama for tests: its native interface with its quirks, and the OpenAI one that lacks half of it.

    async with OllamaStandIn() as server:
        ...
    assert server.turns[-1].evaluated <= 10

It loads a model anew when a runner option differs, leaves out the oldest messages of a conversation that is too long
unless it is told not to, unloads by its clock, and keeps one slot. What Ollama refuses it refuses, in the same words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from standins.ollama_engine import QWEN, Broken, Engine, Prompt, Refused, StandInModel, Turn
from toyserver import SSE_HEAD, Answer, ToyServer, Visit, chunked, event, reply

__all__ = ["QWEN", "OllamaStandIn", "StandInModel", "Turn"]

NDJSON_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
BROKE = {"error": "an error was encountered while running the model"}


class OllamaStandIn(ToyServer):
    def __init__(
        self,
        *models: StandInModel,
        version: str = "0.32.0",
        knows_truncate: bool = True,
        reports_cached: bool = False,
        default_context: int = 4096,
        tokens_per_ms: float = 0.5,
        load_ms: float = 1500,
        now: Callable[[], float] = time.time,
        say: Callable[[int], str] = lambda turn: f"This is answer {turn} .",
        think: Callable[[int], str] = lambda turn: f"hmm , question {turn}",
    ) -> None:
        super().__init__("ollama")
        self.version = version
        self.engine = Engine(
            models,
            now=now,
            knows_truncate=knows_truncate,
            reports_cached=reports_cached,
            default_context=default_context,
            tokens_per_ms=tokens_per_ms,
            load_ms=load_ms,
            say=say,
            think=think,
        )
        self.holds = False
        """Read prompts for ever, until the client goes."""

    @property
    def turns(self) -> list[Turn]:
        """What each request really cost."""
        return self.engine.turns

    @property
    def asked(self) -> list[Any]:
        """The bodies of the chat requests."""
        return [visit.json for visit in self.visits if visit.path in ("/api/chat", "/v1/chat/completions")]

    def _answer_to(self, visit: Visit) -> Answer:
        self.engine.expire()
        routes: dict[tuple[str, str], Callable[[Visit], Answer]] = {
            ("GET", "/"): lambda _: reply(200, b"Ollama is running", content_type="text/plain; charset=utf-8"),
            ("GET", "/api/version"): lambda _: reply(200, {"version": self.version}),
            ("GET", "/api/tags"): lambda _: reply(200, {"models": list(map(_listed, self.engine.models.values()))}),
            ("GET", "/api/ps"): lambda _: reply(200, {"models": list(map(self._loaded, self.engine.running))}),
            ("GET", "/v1/models"): lambda _: reply(
                200,
                {
                    "object": "list",
                    "data": [
                        {"id": name, "object": "model", "created": 1, "owned_by": "library"}
                        for name in self.engine.models
                    ],
                },
            ),
            ("POST", "/api/show"): self._show,
            ("POST", "/api/chat"): self._chat_answer,
            ("POST", "/v1/chat/completions"): self._openai_answer,
        }
        route = routes.get((visit.method, visit.path))
        if route is None:
            return reply(404, b"404 page not found", content_type="text/plain")
        try:
            return route(visit)
        except Refused as refused:
            said: object = {"error": refused.message}
            if visit.path.startswith("/v1"):
                said = {"error": {"message": refused.message, "type": "api_error", "param": None, "code": None}}
            return reply(refused.status, said)

    def _loaded(self, name: str) -> dict[str, object]:
        runner = self.engine.running[name]
        expires = datetime.fromtimestamp(min(runner.expires, 4e9), UTC).isoformat()
        return {
            "name": name,
            "model": name,
            "size": 6_000_000_000,
            "size_vram": 6_000_000_000,
            "digest": "0" * 64,
            "details": _details(self.engine.models[name]),
            "expires_at": expires,
            "context_length": runner.options["num_ctx"],
        }

    def _show(self, visit: Visit) -> Answer:
        model = self.engine.model(_json(visit).get("model"))
        return reply(
            200,
            {
                "license": "x" * 5000,
                "template": model.template,
                "details": _details(model),
                "parameters": f"num_ctx                        {model.num_ctx}" if model.num_ctx else "",
                "model_info": {
                    "general.architecture": model.family,
                    f"{model.family}.context_length": model.longest,
                    "tokenizer.ggml.tokens": None,
                },
                "capabilities": model.abilities,
                **({"renderer": model.renderer} if model.renderer else {}),
            },
        )

    def _chat_answer(self, visit: Visit) -> Answer:
        body, engine = _json(visit), self.engine
        model = engine.model(body.get("model"))
        options, messages = body.get("options") or {}, body.get("messages") or []
        keep_alive, think = _seconds(body.get("keep_alive")), body.get("think")
        if think not in (None, True, False, "low", "medium", "high", "max"):
            raise Refused(
                400, f'invalid think value: "{think}" (must be "high", "medium", "low", "max", true, or false)'
            )
        if think and not model.thinks:
            raise Refused(400, f'"{body["model"]}" does not support thinking')
        if model.embeds:
            raise Refused(400, f'"{body["model"]}" does not support chat')
        if not messages and keep_alive == 0:
            engine.unload(model.name)
            return reply(200, _part(body, "", done=True, done_reason="unload"))
        runner, loaded = engine.runner(model, options, body.get("shift"), keep_alive)
        if not messages:
            return reply(200, _part(body, "", done=True, done_reason="load"))
        truncate = body.get("truncate") is not False or not engine.knows_truncate
        prompt = engine.prompt(model, runner, loaded, messages, truncate)
        return self._native(body, prompt, model.thinks and think is not False, options.get("num_predict", -1))

    def _openai_answer(self, visit: Visit) -> Answer:
        """The OpenAI interface: no `num_ctx`, no `truncate`, no `keep_alive`; unknown fields are ignored."""
        body = _json(visit)
        model = self.engine.model(body.get("model"))
        options = {"num_predict": body["max_tokens"]} if "max_tokens" in body else {}
        runner, loaded = self.engine.runner(model, options, None, None)
        messages = [{**message, "thinking": message.get("reasoning", "")} for message in body["messages"]]
        prompt = self.engine.prompt(model, runner, loaded, messages, truncate=True)
        return self._events(body, prompt, options.get("num_predict", -1))

    async def _generated(
        self, visit: Visit, prompt: Prompt, thoughts: bool, most: int, send: Callable[[str, bool], Any]
    ) -> dict[str, object]:
        if self.holds:
            await visit.gone.wait()
            raise Broken
        return await self.engine.generate(prompt, thoughts, most, send, visit.gone.is_set)

    def _native(self, body: Mapping[str, Any], prompt: Prompt, thoughts: bool, most: int) -> Answer:
        remote = {"remote_host": prompt.model.remote_host} if prompt.model.remote_host else {}

        async def stream(visit: Visit) -> None:
            begun = False

            async def line(value: object) -> None:
                nonlocal begun
                head, begun = b"" if begun else NDJSON_HEAD, True
                await visit.send(head + chunked(json.dumps(value).encode() + b"\n"))

            async def send(text: str, is_thought: bool) -> None:
                await line(_part(body, "", thinking=text) if is_thought else _part(body, text))

            try:
                figures = await self._generated(visit, prompt, thoughts, most, send)
            except Broken:
                if not visit.gone.is_set():
                    await line(BROKE)
                    await visit.send(b"0\r\n\r\n")
                return
            await line(_part(body, "") | {"done": True} | figures | remote)
            await visit.send(b"0\r\n\r\n")

        async def whole(visit: Visit) -> None:
            said = {True: "", False: ""}

            async def send(text: str, is_thought: bool) -> None:
                said[is_thought] += text

            try:
                figures = await self._generated(visit, prompt, thoughts, most, send)
            except Broken:
                await reply(500, BROKE)(visit)
                return
            value = _part(body, said[False], thinking=said[True]) | {"done": True} | figures | remote
            await reply(200, value, content_type="application/json; charset=utf-8")(visit)

        return whole if body.get("stream") is False else stream

    def _events(self, body: Mapping[str, Any], prompt: Prompt, most: int) -> Answer:
        def part(delta: Mapping[str, object], finish: object = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return chunked(event({"object": "chat.completion.chunk", "model": body["model"], "choices": [choice]}))

        async def answer(visit: Visit) -> None:
            async def send(text: str, is_thought: bool) -> None:
                await visit.send(part({"role": "assistant", "reasoning" if is_thought else "content": text}))

            await visit.send(SSE_HEAD)
            try:
                figures = await self._generated(visit, prompt, prompt.model.thinks, most, send)
            except Broken:
                return
            usage = {"prompt_tokens": figures["prompt_eval_count"], "completion_tokens": figures["eval_count"]}
            await visit.send(part({}, figures["done_reason"]))
            await visit.send(chunked(event({"object": "chat.completion.chunk", "choices": [], "usage": usage})))
            await visit.send(chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")

        return answer


def _details(model: StandInModel) -> dict[str, object]:
    return {
        "format": "gguf",
        "family": model.family,
        "families": [model.family],
        "parameter_size": "8.0B",
        "quantization_level": "Q4_K_M",
    }


def _listed(model: StandInModel) -> dict[str, object]:
    remote = {"remote_host": model.remote_host, "remote_model": model.name} if model.remote_host else {}
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": "2026-08-01T10:00:00Z",
        "size": 5_200_000_000,
        "digest": "0" * 64,
        "details": _details(model),
        **remote,
    }


def _part(body: Mapping[str, Any], text: str, *, thinking: str = "", **extra: object) -> dict[str, object]:
    message = {"role": "assistant", "content": text, **({"thinking": thinking} if thinking else {})}
    return {"model": body["model"], "created_at": "2026-08-21T18:48:22.0Z", "message": message, "done": False, **extra}


def _json(visit: Visit) -> Any:
    try:
        return visit.json
    except ValueError as error:
        raise Refused(400, str(error)) from None


def _seconds(keep_alive: object) -> float | None:
    """`keep_alive` as Go reads it: a number of seconds, or a duration with its unit."""
    if keep_alive is None:
        return None
    if isinstance(keep_alive, int | float):
        return float("inf") if keep_alive < 0 else float(keep_alive)
    found = re.fullmatch(r"(-?)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", str(keep_alive))
    if not found or not any(found.groups()[1:]):
        raise Refused(400, f'time: missing unit in duration "{keep_alive}"')
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    return float("inf") if found[1] else hours * 3600.0 + minutes * 60 + seconds

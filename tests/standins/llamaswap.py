"""A stand-in for llama-swap: models that push each other out, their own servers behind /upstream, and its remarks.

What it keeps to: any request for a model that is not loaded loads it, also a GET of /upstream or /props; errors come
in an envelope that names llama-swap; and it may stream remarks about loading as if they were the model's reasoning.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from standins.llamacpp_router import LlamaModel
from toyserver import SSE_HEAD, Answer, ToyServer, Visit, chunked, error, event, reply, tokens

MODELS_PATH = "/v1/models"


@dataclass
class OtherModel:
    """The server of a model that is not llama.cpp: it reports little, and can refuse fields that it does not know."""

    name: str
    strict: bool = False

    def start(self) -> None:
        """It keeps nothing."""

    def get(self, path: str) -> Answer:
        if path == MODELS_PATH:
            return reply(200, {"data": [{"id": self.name, "owned_by": "vllm"}]})
        return reply(404, {"detail": "Not Found"})

    def post(self, path: str, body: dict[str, object]) -> Answer:
        foreign = {"cache_prompt", "return_progress", "timings_per_token", "sse_ping_interval"} & body.keys()
        if self.strict and foreign:
            return error(400, f"Extra inputs are not permitted: {min(foreign)}", "BadRequestError")
        return tokens("Fine", prompt=10, model=self.name, progress=False)


@dataclass
class RealModel:
    """A real llama-server that is passed on to."""

    name: str
    port: int

    def start(self) -> None:
        """It runs already."""

    def get(self, path: str) -> Answer:
        return self._passed_on("GET", path, b"")

    def post(self, path: str, body: dict[str, object]) -> Answer:
        return self._passed_on("POST", path, json.dumps(body).encode())

    def _passed_on(self, method: str, path: str, body: bytes) -> Answer:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )

        async def answer(visit: Visit) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(head.encode() + body)
            while data := await reader.read(65536):
                await visit.send(data)
            writer.close()

        return answer


class LlamaSwapStandIn(ToyServer):
    """One group of models, of which one is loaded at a time."""

    def __init__(
        self,
        *models: LlamaModel | OtherModel | RealModel,
        ready: str = "",
        ttl: int = 0,
        remarks: Sequence[str] = (),
        breaks: bool = False,
        has_status: bool = True,
    ) -> None:
        """`remarks`: what it streams while it loads; `breaks`: no model can be loaded; `has_status`: whether the list
        of models says which are loaded, as newer versions do."""
        super().__init__()
        self.models = {model.name: model for model in models}
        self.ready = ready
        """The one model that is loaded."""
        self.loads: list[str] = []
        """Every load since the start."""
        self.gate = asyncio.Event()
        """While it is not set, a model that is being loaded does not become ready."""
        self.gate.set()
        self._ttl = ttl
        self._remarks = tuple(remarks)
        self._breaks = breaks
        self._has_status = has_status

    def _answer_to(self, visit: Visit) -> Answer:
        url = urlsplit(visit.path)
        if visit.method == "GET" and not url.path.startswith("/upstream/"):
            return self._get(url.path, dict(parse_qsl(url.query)))
        body = json.loads(visit.body) if visit.body else {}
        if url.path.startswith("/upstream/"):
            name, path = self._in_path(unquote(url.path).removeprefix("/upstream/"))
            return self._swapped(
                name, lambda model: model.get(path) if visit.method == "GET" else model.post(path, body)
            )
        return self._swapped(
            str(body.get("model") or ""), lambda model: model.post(url.path, body), streams=bool(body.get("stream"))
        )

    def _get(self, path: str, asked: dict[str, str]) -> Answer:
        if path == "/":
            return reply(302, headers={"Location": "/ui"})
        if path == "/health":
            return reply(200, b"OK", content_type="text/plain")
        if path == "/running":
            running = (
                [
                    {
                        "model": self.ready,
                        "state": "ready" if self.gate.is_set() else "starting",
                        "cmd": "llama-server --port 9001",
                        "proxy": "http://127.0.0.1:9001",
                        "ttl": self._ttl,
                        "name": "",
                        "description": "",
                    }
                ]
                if self.ready
                else []
            )
            return reply(200, {"running": running})
        if path == MODELS_PATH:
            return reply(200, {"object": "list", "data": [self._entry(name) for name in sorted(self.models)]})
        if path == "/props":
            return self._swapped(asked.get("model", ""), lambda model: model.get("/props"))
        return reply(404, b"404 page not found\n", content_type="text/plain")

    def _entry(self, name: str) -> dict[str, object]:
        entry: dict[str, object] = {"id": name, "object": "model", "created": 1, "owned_by": "llama-swap"}
        if self._has_status:
            entry["status"] = {"value": "loaded" if name == self.ready else "unloaded"}
        return entry

    def _in_path(self, path: str) -> tuple[str, str]:
        """The model that a path begins with, which may hold slashes, and the rest."""
        name = next((name for name in self.models if path.startswith(f"{name}/")), "")
        return name, path.removeprefix(name)

    def _swapped(self, name: str, answer: object, *, streams: bool = False) -> Answer:
        if not name:
            return _refusal(404, "no model id could be identified", "not_found")
        if name not in self.models:
            return _refusal(404, "no router for requested model", "not_found")
        loads = name != self.ready
        if loads:
            self.ready = name
            self.loads.append(name)
            self.models[name].start()

        async def swap(visit: Visit) -> None:
            remarks = self._remarks if loads and streams else ()
            if remarks:
                await visit.send(SSE_HEAD.replace(b"Server: llama.cpp\r\n", b""))
                for remark in remarks:
                    await visit.send(chunked(event({"choices": [{"delta": {"reasoning_content": remark}}]})))
            await self.gate.wait()
            if self._breaks:
                self.ready = ""
                failed = _envelope(500, "unspecific error: upstream command exited prematurely", "internal_error")
                await (
                    visit.send(chunked(failed) + b"0\r\n\r\n")
                    if remarks
                    else reply(500, failed, content_type="application/json")(visit)
                )
                return
            if remarks:
                visit = _Continued(visit)
            await answer(self.models[name])(visit)  # type: ignore[operator]

        return swap


class _Continued(Visit):
    """A visit whose head has been sent: what follows is the rest of the body."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit.method, visit.path, visit.headers, visit.body, visit.head, visit.writer, visit.gone)

    async def send(self, data: bytes) -> None:
        await super().send(data.removeprefix(SSE_HEAD))


def _envelope(status: int, message: str, code: str) -> bytes:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return json.dumps(
        {"src": "llama-swap", "error": {"message": message, "type": kind, "param": None, "code": code}}
    ).encode()


def _refusal(status: int, message: str, code: str) -> Answer:
    return reply(status, _envelope(status, message, code))

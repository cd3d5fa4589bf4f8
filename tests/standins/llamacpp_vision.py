"""A stand-in for llama-server with a model that sees: `--mmproj`, or one that does not.

An image is as many tokens as it has patches of 28 x 28, and two images share nothing but their equal bytes. A server
that does not see answers as the real one does (HTTP 500). What it shows of itself, and its answers to images that it
cannot decode, are those of llama-server b11434's sources.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from PIL import Image

from standins.llamacpp_router import REPLY, SERVER, LlamaModel
from toyserver import Answer, ToyServer, Visit, error, reply, tokens

MARKER = "<__media__>"
BLIND = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
BROKEN = "Failed to load image or audio file"


class NoImageError(Exception):
    """What stands for an image is none."""


def image_in(url: str) -> tuple[str, int]:
    """The hash of an image, and how many tokens it is."""
    head, _, data = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        raise NoImageError("url must be a data: URL")
    try:
        decoded = base64.b64decode(data, validate=True)
        image = Image.open(io.BytesIO(decoded), formats=("PNG", "JPEG"))  # what stb_image reads of those that are sent
        image.load()
    except (binascii.Error, OSError, ValueError):
        raise NoImageError(BROKEN) from None
    return hashlib.sha256(decoded).hexdigest(), -(-image.width // 28) * -(-image.height // 28)


def words_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The prompt, a word for a token; those of an image are its own."""
    found: list[str] = []
    for message in messages:
        found.append(f"<{message['role']}>")
        content = message["content"]
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if part["type"] == "text":
                found += part["text"].split()
            else:
                name, count = image_in(part["image_url"]["url"])
                found += [f"{name}:{at}" for at in range(count)]
        found.append("<end>")
    return [*found, "<assistant>"]


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        isinstance(message["content"], list) and any(part["type"] != "text" for part in message["content"])
        for message in messages
    )


class SeeingServer(ToyServer):
    """`sees` False: without a projector."""

    def __init__(self, *, sees: bool = True, model: str = "seer-2b", context_size: int = 4096) -> None:
        super().__init__(model=model, context_size=context_size)
        self.sees = sees
        self.model = LlamaModel(model, context_size)
        self.reads: list[tuple[int, int]] = []
        """Of each chat the tokens of its prompt, and how many of those were cached."""

    def _answer_to(self, visit: Visit) -> Answer:
        path = visit.path.partition("?")[0]
        if visit.method == "GET":
            return self._get(path)
        body = json.loads(visit.body)
        messages = body.get("messages", [])
        if has_images(messages) and not self.sees:
            return error(500, BLIND)
        try:
            if path == "/apply-template":
                return reply(200, {"prompt": " ".join(self._marked(messages))}, server=SERVER)
            if path == "/v1/chat/completions":
                return self._chat_of(words_of(messages))
        except NoImageError as wrong:
            return error(400, str(wrong), "invalid_request_error")
        return self.model.post(path, body)

    def _marked(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            MARKER if word.endswith(":0") else word
            for word in words_of(messages)
            if ":" not in word or word.endswith(":0")
        ]

    def _chat_of(self, prompt: list[str]) -> Answer:
        model = self.model
        cached = min(
            len(list(takewhile(lambda pair: pair[0] == pair[1], zip(prompt, model.held, strict=False)))),
            len(prompt) - 1,
        )
        model.held, model.tasks = [*prompt, *(text.strip() for text in REPLY)], model.tasks + 1
        self.reads.append((len(prompt), cached))
        return tokens(*REPLY, prompt=len(prompt), cached=cached, model=model.name)

    def _get(self, path: str) -> Answer:
        modalities = {"vision": self.sees, "video": False, "audio": False}
        if path == "/props":
            return reply(
                200,
                {
                    "default_generation_settings": {"n_ctx": self.model.context_size},
                    "total_slots": 1,
                    "model_alias": self.model.name,
                    "build_info": "b11434-toy",
                    "media_marker": self.model.process,
                    "modalities": modalities,
                    "chat_template": "{{ toy }}",
                    "chat_template_caps": {},
                },
                server=SERVER,
            )
        if path == "/v1/models":
            inputs = ["text", "image"] if self.sees else ["text"]
            return reply(
                200,
                {
                    "object": "list",
                    "data": [
                        {
                            "id": self.model.name,
                            "object": "model",
                            "owned_by": "llamacpp",
                            "meta": {"n_ctx": self.model.context_size},
                            "architecture": {"input_modalities": inputs, "output_modalities": ["text"]},
                        }
                    ],
                },
                server=SERVER,
            )
        return reply(200, {"status": "ok"}) if path == "/health" else self.model.get(path)

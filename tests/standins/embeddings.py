"""A stand-in for a server that gives vectors: the same text gives the same vector, and texts that share words, or words
it takes for the same, are near each other."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping

from toyserver import Answer, ToyServer, Visit, error, reply

SAME = {
    "automobile": "car",
    "vehicle": "car",
    "physician": "doctor",
    "feline": "cat",
    "kitten": "cat",
    "lives": "home",
    "resides": "home",
    "address": "home",
}
"""Words that mean the same to its model."""


def vector(text: str, length: int = 64, same: Mapping[str, str] = SAME) -> list[float]:
    """The vector of a text: each word adds its own direction."""
    sums = [0.0] * length
    for word in re.findall(r"\w+", text.lower()):
        found = hashlib.sha256(same.get(word, word).encode()).digest()
        for place in range(length):
            sums[place] += found[place % len(found)] / 127.5 - 1 if place < len(found) else 0.0
    size = math.hypot(*sums) or 1.0
    return [number / size for number in sums]


class EmbeddingsStandIn(ToyServer):
    """`longest`: characters of a text that fit. `asked` holds the texts of each request."""

    def __init__(
        self, *, model: str = "toy-embed", length: int = 64, longest: int | None = None, key: str = ""
    ) -> None:
        super().__init__("openai", model=model)
        self.length = length
        self.longest = longest
        self.key = key
        self.asked: list[list[str]] = []
        self.models: list[str | None] = []
        self._next: list[Answer] = []

    def once(self, *answers: Answer) -> None:
        """Answer the next requests for vectors so, then as usual again."""
        self._next += answers

    def _answer_to(self, visit: Visit) -> Answer:
        if visit.method != "POST":
            return super()._answer_to(visit)
        if visit.path != "/v1/embeddings":
            return error(404, "File Not Found", "not_found_error")
        body = visit.json
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        self.asked.append(texts)
        self.models.append(body.get("model"))
        if self._next:
            return self._next.pop(0)
        if self.key and visit.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "Invalid API Key", "authentication_error")
        if self.longest is not None and (too_long := [text for text in texts if len(text) > self.longest]):
            return error(
                500,
                f"input ({len(too_long[0])} tokens) is too large to process. increase the physical batch "
                f"size (current batch size: {self.longest})",
            )
        return given(vector(text, self.length) for text in texts)


def given(vectors: Iterable[list[float]]) -> Answer:
    """An answer with these vectors."""
    data = [{"object": "embedding", "index": place, "embedding": found} for place, found in enumerate(vectors)]
    return reply(
        200, {"object": "list", "model": "toy-embed", "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}}
    )

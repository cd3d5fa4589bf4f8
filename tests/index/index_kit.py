"""What the tests of the index share."""

from __future__ import annotations

from kvchat.index.index import Chunk, Hit


def keys(hits: list[Hit]) -> list[str]:
    return [hit.chunk.key for hit in hits]


def lines(*texts: str, **named: str) -> list[Chunk]:
    """Chunks without heads: of texts, with the keys 0, 1, 2, and by name."""
    return [Chunk(str(n), "", text) for n, text in enumerate(texts)] + [Chunk(k, "", text) for k, text in named.items()]

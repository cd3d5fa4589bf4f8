"""GGUF headers for tests, written byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

STRING, ARRAY, U32, U64, F32 = 8, 9, 4, 10, 6


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str, value: object) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", U32, value)
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(text(item) for item in value)
    raise TypeError(value)


def header(entries: Mapping[str, object], *, tensors: int = 1, version: int = 3) -> bytes:
    body = b"".join(entry(key, value) for key, value in entries.items())
    return b"GGUF" + struct.pack("<IQQ", version, tensors, len(entries)) + body


def chat_model(**more: object) -> dict[str, object]:
    """The entries of an ordinary chat model; `more` adds or replaces with `__` for a dot."""
    entries: dict[str, object] = {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": "Tiny Test",
        "general.size_label": "1M",
        "llama.context_length": 4096,
        "general.file_type": 15,
        "tokenizer.ggml.tokens": ["a", "b"],
    }
    return entries | {key.replace("__", "."): value for key, value in more.items()}


def write(path: Path, entries: Mapping[str, object] | None = None, *, tensors: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header(chat_model() if entries is None else entries, tensors=tensors) + bytes(64))
    return path

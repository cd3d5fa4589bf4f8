"""A chat request's body: stored wire bytes joined, between a head and a tail of options in a fixed order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from kvchat.prompt.message import Node
from kvchat.prompt.wire import canonical


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sampling parameters of a conversation. None leaves the server's default alone. They never touch the prefix."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields passed through as they are."""

    def given(self) -> dict[str, object]:
        """The parameters that are set, in a fixed order, as request fields."""
        found: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "extra" or value is None or value == ():
                continue
            found[item.name] = list(value) if isinstance(value, tuple) else value
        return {**found, **{k: v for k, v in self.extra.items() if k not in RESERVED}}


RESERVED = frozenset({"messages", "model", "stream", "session_id", "tools"})
"""Fields that parameters can never set: they belong to the prefix or to the client."""


def chat_body(head: Mapping[str, object], wires: Sequence[bytes], tail: Mapping[str, object]) -> bytes:
    """`{head..., "messages": [wires...], tail...}` as bytes; the wires go in as they are."""
    before = canonical(dict(head))[1:-1]
    after = canonical(dict(tail))[1:-1]
    parts = [before, b'"messages":[' + b",".join(wires) + b"]", after]
    return b"{" + b",".join(part for part in parts if part) + b"}"


def system_in_user(wires: Sequence[bytes]) -> tuple[bytes, ...]:
    """The messages with the system message's text at the beginning of the first user message; for templates that
    have no place for a system message. A pure function of the stored bytes, so a prefix stays a prefix."""
    if len(wires) < 2:
        return tuple(wires)
    first, second = json.loads(wires[0]), json.loads(wires[1])
    if first.get("role") != "system" or second.get("role") != "user":
        return tuple(wires)
    second["content"] = f"{first['content']}\n\n{second['content']}"
    return (canonical(second), *wires[2:])


def wires_of(path: Sequence[Node]) -> tuple[bytes, ...]:
    """The stored wire bytes along a branch."""
    return tuple(node.wire for node in path)


def body_sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

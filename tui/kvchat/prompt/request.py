"""A chat request's body: stored wire bytes joined, between a head and a tail of options in a fixed order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum, auto
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.prompt.message import Node
from kvchat.prompt.wire import canonical


class Parameters(Struct, frozen=True):
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
    """Fields passed through as they are, after the others."""
    response_format: Mapping[str, object] | None = None
    """The shape of the answer, passed through as it is: `{"type": "json_object"}`."""

    def given(self) -> dict[str, object]:
        """The parameters that are set, in a fixed order, as request fields."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in self.named().items()}
        return {**found, **{name: value for name, value in self.extra.items() if reserved(name) is None}}

    def named(self) -> dict[str, Any]:
        """The named parameters that are set."""
        named = {name: getattr(self, name) for name in self.__struct_fields__ if name != "extra"}
        return {name: value for name, value in named.items() if value is not None and value != () and value != {}}


def merged(base: Parameters, over: Parameters) -> Parameters:
    """`base` with whatever `over` sets put over it, field by field; fields of `extra` too."""
    chosen = over.named()
    kept = {name: value for name, value in base.extra.items() if name not in chosen}
    return replace(base, **chosen, extra={**kept, **over.extra})


class Reserved(StrEnum):
    """Why parameters can never set a field: with it a parameter could touch the prefix, the session or the stream."""

    OWN = auto()
    STREAM = auto()
    PROMPT = auto()
    TEMPLATE = auto()
    CACHE = auto()
    CONTEXT_SIZE = auto()
    KEEP_ALIVE = auto()
    OPTIONS = auto()


_RESERVED: Mapping[Reserved, Sequence[str]] = {
    Reserved.OWN: ("messages", "model", "stream", "stream_options", "session_id"),
    Reserved.STREAM: ("n", "n_cmpl", "best_of", "echo", "use_beam_search", "response_fields"),
    # Tools, documents and search results are rendered before or among the messages; the others cut the prompt, or
    # make the model another one, for which nothing that was read counts.
    Reserved.PROMPT: (
        "prompt",
        "input",
        "input_ids",
        "system",
        "context",
        "memory",
        "documents",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "plugins",
        "web_search_options",
        "transforms",
        "add_generation_prompt",
        "continue_final_message",
        "continue_",
        "add_special_tokens",
        "truncate",
        "truncate_prompt_tokens",
        "truncation",
        "truncation_side",
        "truncation_length",
        "shift",
        "n_keep",
        "num_keep",
        "n_discard",
        "max_context_length",
        "lora",
        "lora_path",
        "adapters",
        "draft_model",
    ),
    Reserved.TEMPLATE: (
        "template",
        "chat_template",
        "chat_template_str",
        "chat_template_kwargs",
        "template_vars",
        "prompt_template",
        "instruction_template",
        "instruction_template_str",
        "chat_instruct_command",
        "response_prefix",
        "mode",
        "character",
        "greeting",
        "name1",
        "name2",
        "bot_name",
        "user_name",
        "user_bio",
        "reasoning",
        "reasoning_effort",
        "think",
        "thinking",
        "enable_thinking",
        "preserve_reasoning",
        "preserve_thinking",
        "clear_thinking",
        "drop_thinking",
        "date_string",
    ),
    # Where a turn is computed, what it may reuse there, and whether the state of it stays. Logits of the prompt are
    # among them: to give them, a server computes all of the prompt again.
    Reserved.CACHE: (
        "cache_prompt",
        "cache_salt",
        "extra_key",
        "prompt_cache_key",
        "n_cache_reuse",
        "id_slot",
        "slot_id",
        "session_params",
        "litellm_session_id",
        "conversation",
        "previous_response_id",
        "rid",
        "request_id",
        "data_parallel_rank",
        "kv_transfer_params",
        "prompt_logprobs",
        "logprob_start_len",
    ),
    Reserved.CONTEXT_SIZE: ("num_ctx",),
    Reserved.KEEP_ALIVE: ("keep_alive", "ttl"),
    Reserved.OPTIONS: ("options",),
}
RESERVED: Mapping[str, Reserved] = {name: why for why, names in _RESERVED.items() for name in names}
"""Fields that parameters can never set, and why; `kvchat.text.options` has the words."""


def reserved(name: str) -> Reserved | None:
    """Why parameters cannot set the field `name`; None where they can. Servers written in Go take a field's name in
    any case, so case does not count."""
    return RESERVED.get(name.casefold())


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
    if isinstance(second["content"], list):
        second["content"].insert(0, {"type": "text", "text": f"{first['content']}\n\n"})
    else:
        second["content"] = f"{first['content']}\n\n{second['content']}"
    return (canonical(second), *wires[2:])


def wires_of(path: Sequence[Node]) -> tuple[bytes, ...]:
    """The stored wire bytes along a branch."""
    return tuple(node.wire for node in path)


def body_sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

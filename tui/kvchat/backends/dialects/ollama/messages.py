"""Requests in Ollama's shape: stored wires as its messages, parameters as its options.

Pure, and message by message, so that a prefix stays a prefix and the same bytes give the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvchat.prompt.wire import canonical
from kvchat.text.format import span

REASONING = ("reasoning_content", "reasoning")
RUNNER_OPTIONS = frozenset(
    {
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "use_mmap",
        "num_thread",
        "draft_num_predict",
        "numa",
        "low_vram",
        "f16_kv",
        "vocab_only",
        "use_mlock",
        "logits_all",
    }
)
"""Options the model is loaded with: another value loads it again, and everything cached is lost."""
_SAMPLING_OPTIONS = frozenset(
    {
        "num_keep",
        "seed",
        "num_predict",
        "top_k",
        "top_p",
        "min_p",
        "tfs_z",
        "typical_p",
        "repeat_last_n",
        "temperature",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
        "penalize_newline",
        "stop",
    }
)
"""Options that are free to differ from request to request."""
_OPTIONS = RUNNER_OPTIONS | _SAMPLING_OPTIONS
_RENAMED = {"max_tokens": "num_predict", "max_completion_tokens": "num_predict"}
_MAPPED = frozenset({"options", "response_format", "reasoning_effort"})
"""Parameters that go out under another name or in another place."""
_EFFORTS: Mapping[object, str | bool] = {
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "max",
    "minimal": "low",
    "none": False,
}

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|h|m|s)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?")
_USUAL_KEEP_ALIVE_S = 300.0


def messages(wires: Sequence[bytes]) -> tuple[bytes, ...]:
    """The stored messages as Ollama takes them: an answer's reasoning goes back as `thinking`, images are in a field
    next to the text, and the arguments of calls are objects."""
    return tuple(map(_message, wires))


def _message(wire: bytes) -> bytes:
    if all(mark not in wire for mark in (b'"reasoning', b'"image_url"', b'"tool_call')):
        return wire
    fields = json.loads(wire)
    if fields.get("role") == "tool":
        return canonical({"role": "tool", "content": fields["content"], "tool_name": fields["name"]})
    if calls := fields.get("tool_calls"):
        functions = [call["function"] for call in calls]
        fields["tool_calls"] = [
            {"function": {"name": one["name"], "arguments": json.loads(one["arguments"])}} for one in functions
        ]
        wire = canonical(fields)
    if isinstance(fields.get("content"), list):
        return canonical(_with_images(fields))
    if fields.get("role") != "assistant" or not any(name in fields for name in REASONING):
        return wire
    thoughts = next((fields[name] for name in REASONING if fields.get(name)), "")
    kept = {name: value for name, value in fields.items() if name not in REASONING}
    return canonical({**kept, "thinking": thoughts} if thoughts else kept)


def _with_images(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content is in parts: the text in one, the images as their base64 alone."""
    texts = [part["text"] for part in fields["content"] if part.get("type") == "text"]
    urls = [part["image_url"]["url"] for part in fields["content"] if part.get("type") == "image_url"]
    return {**fields, "content": "".join(texts), "images": [url.partition(",")[2] for url in urls]}


def text_bytes(wires: Sequence[bytes]) -> int:
    """How many bytes of text messages hold, without reasoning, which a template may leave out."""
    contents = (json.loads(wire).get("content") for wire in wires)
    return sum(len(content.encode()) for content in contents if isinstance(content, str))


def options_in(given: Mapping[str, object]) -> dict[str, object]:
    """Those of the parameters that Ollama takes as options, by its names."""
    found = {_RENAMED.get(name, name): value for name, value in given.items() if _RENAMED.get(name, name) in _OPTIONS}
    table = given.get("options")
    return found | dict(table) if isinstance(table, Mapping) else found


def fields_in(given: Mapping[str, object]) -> dict[str, object]:
    """The parameters that are fields of the request itself."""
    fields = {
        name: value for name, value in given.items() if _RENAMED.get(name, name) not in _OPTIONS and name not in _MAPPED
    }
    wanted = format_of(given.get("response_format"))
    return fields if wanted is None else {"format": wanted, **fields}


def format_of(response_format: object) -> object:
    """Ollama's `format` for an OpenAI `response_format`: a schema, `json`, or None for free text."""
    if not isinstance(response_format, Mapping):
        return None
    if response_format.get("type") == "json_object":
        return "json"
    described = response_format.get("json_schema")
    return described.get("schema") if isinstance(described, Mapping) else None


def think_of(template_options: Mapping[str, object], effort: object = None) -> str | bool | None:
    """Ollama's `think` for the options of a chat template: whether, or how hard; None leaves it to the model."""
    enabled = template_options.get("enable_thinking")
    if enabled is False:
        return False
    level = _EFFORTS.get(template_options.get("reasoning_effort", effort))
    return True if level is None and enabled is True else level


def keep_alive_of(text: str) -> str | int | float | None:
    """`keep_alive` as Ollama reads it: a bare number is seconds and must not go out as text. None where it is not
    set."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return text or None
    return float(text) if "." in text else int(text)


def keep_alive_seconds(text: str) -> float | None:
    """How long a model stays loaded; None: for ever, or not known."""
    value = keep_alive_of(text)
    if value is None:
        return _USUAL_KEEP_ALIVE_S
    if isinstance(value, int | float):
        return None if value < 0 else float(value)
    pieces = _DURATION.findall(value)
    if not pieces or "".join(map("".join, pieces)) != value:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


def unloads(text: str) -> str:
    """When the model is unloaded, in words; empty: never."""
    value = keep_alive_of(text)
    if value is None:
        return "after 5 minutes without use, unless OLLAMA_KEEP_ALIVE says otherwise (server.keep_alive)"
    seconds = keep_alive_seconds(text)
    if seconds == 0:
        return "right after each answer (server.keep_alive)"
    if seconds is None:
        return "" if str(value).startswith("-") else f"after {value} without use (server.keep_alive)"
    return f"after {span(seconds)} without use (server.keep_alive)"

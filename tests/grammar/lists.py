"""Lists of models and errors as servers of all kinds write them, by seed: fields, orders, what is missing, null, of an odd
type, repeated or more than is known, states of routers, models that do not chat, and bodies that are not quite JSON.

Shapes: llama-server and its router, llama-swap, Ollama, LM Studio, vLLM, LiteLLM, Xinference, Mistral, OpenRouter; errors
of those and of proxies before them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

from msgspec import Struct

CHATTING = ("qwen3-8b", "llama-3.2-3b-instruct", "gemma-3:4b", "mistral", "SmolLM2-135M", "org/model-v1", "größer", "x")
OTHERS = ("nomic-embed-text", "bge-m3", "bge-reranker-v2", "whisper-large-v3", "sdxl-turbo", "flux.1-dev", "kokoro-tts")
ODD: Sequence[Any] = (
    None,
    "",
    0,
    -1,
    7,
    3.5,
    True,
    False,
    [],
    {},
    [None],
    {"a": 1},
    "\ud800",
    "x" * 5000,
    10**30,
    1e300,
)
STATES = ("loaded", "unloaded", "sleeping", "loading", "failed")
RANKS = {state: rank for rank, state in enumerate(("loaded", "sleeping", "loading", "unloaded", "failed"))}


class Entry(Struct, frozen=True):
    """A model of a list."""

    id: str
    chats: bool
    state: str
    """One of STATES; empty: the list does not say."""
    fields: dict[str, Any]
    """As the list has it."""


class Listing(Struct, frozen=True):
    """The answer of `/v1/models`, and what was meant by it."""

    entries: tuple[Entry, ...]
    value: Any
    is_mutated: bool

    @property
    def best(self) -> set[str]:
        """The models one of which is to be chosen, where the list is as it was meant; none where none chats."""
        chatting = [entry for entry in self.entries if entry.chats]
        least = min((RANKS.get(entry.state, RANKS["unloaded"]) for entry in chatting), default=0)
        return {entry.id for entry in chatting if RANKS.get(entry.state, RANKS["unloaded"]) == least}


def _state(random: Random, state: str) -> dict[str, Any]:
    """A state as a router, or another server, says it."""
    if not state:
        return {}
    if state == "failed":
        shown: Any = {"value": "unloaded", "failed": True, "exit_code": random.choice((1, -9))}
    else:
        shown = {"value": state, "args": ["llama-server"]}
    if random.random() < 0.2:
        plain = "not-loaded" if state == "unloaded" else state
        return {random.choice(("status", "state")): plain}
    return {"status": shown}


def _task(random: Random, chats: bool) -> dict[str, Any]:
    """What a model is for, as lists say it; nothing where the name does."""
    if chats:
        ways: Sequence[dict[str, Any]] = (
            {},
            {"type": "llm"},
            {"type": "vlm"},
            {"mode": "chat"},
            {"model_type": "LLM"},
            {"capabilities": ["completion", "tools"]},
            {"capabilities": {"completion_chat": True, "vision": False}},
            {"architecture": {"input_modalities": ["text"], "output_modalities": ["text"]}},
        )
    else:
        ways = (
            {"type": random.choice(("embeddings", "embedding", "image", "rerank"))},
            {"mode": random.choice(("embedding", "image_generation", "audio_transcription", "rerank"))},
            {"capabilities": [random.choice(("embedding", "image"))]},
            {"architecture": {"output_modalities": [random.choice(("image", "audio", "embeddings", "decisions"))]}},
        )
    return random.choice(ways)


def _entry(random: Random, number: int) -> Entry:
    chats, state = random.random() < 0.6, random.choice((*STATES, ""))
    by_name = not chats and random.random() < 0.5
    id = f"{random.choice(OTHERS if by_name else CHATTING)}-{number}"
    fields: dict[str, Any] = {
        "id": id,
        "object": "model",
        "created": 1_700_000_000 + number,
        "owned_by": random.choice(("llamacpp", "vllm", "user", "organization_owner", None, 7)),
        **({} if by_name else _task(random, chats)),
        **_state(random, state),
    }
    if random.random() < 0.3:
        fields |= random.choice(
            (
                {"meta": {"n_ctx": 4096, "n_vocab": 49152}},
                {"max_model_len": 8192},
                {"context_length": 0},
                {"meta": None},
            )
        )
    items = list(fields.items())
    random.shuffle(items)
    return Entry(id, chats, state, dict(items))


def listing(random: Random) -> Listing:
    """A list of up to eight models. One in two is mutated: then only what is read of it is known to be sane."""
    entries = tuple(_entry(random, number) for number in range(random.choice((0, 1, 1, 2, 3, 5, 8))))
    value: Any = {"object": "list", "data": [entry.fields for entry in entries]}
    if random.random() < 0.2:
        value["models"] = [{"name": entry.id, "model": entry.id} for entry in entries]
    if random.random() < 0.1 and entries:
        value["data"] += [dict(random.choice(entries).fields)]  # as a proxy lists it for each of its servers
    is_mutated = random.random() < 0.5
    return Listing(entries, mutated(random, value) if is_mutated else value, is_mutated)


def tags(random: Random) -> Any:
    """An answer of Ollama's `/api/tags` or `/api/ps`."""
    models = []
    for number in range(random.choice((0, 1, 2, 5))):
        name = f"{random.choice(CHATTING + OTHERS)}-{number}:latest"
        models.append(
            {
                "name": name,
                "model": name,
                "size": random.randrange(1 << 34),
                "digest": "d" * 64,
                "details": {"family": random.choice(("llama", "bert", None)), "parameter_size": "8B"},
                **random.choice(({}, {"capabilities": ["completion"]}, {"capabilities": ["embedding"]})),
                **random.choice(({}, {}, {"remote_host": "https://ollama.com:443"})),
                **random.choice(({}, {"context_length": 4096})),
            }
        )
    return mutated(random, {"models": models}) if random.random() < 0.6 else {"models": models}


def shown(random: Random) -> Any:
    """An answer of Ollama's `/api/show`."""
    value = {
        "capabilities": random.choice((["completion", "thinking"], ["embedding"], [])),
        "model_info": {"llama.context_length": 131072, "general.architecture": "llama"},
        "parameters": "num_ctx 8192\nstop <end>",
        "template": "{{ .System }}{{ range .Messages }}{{ .Role }}{{ end }}",
        "details": {"family": "llama"},
    }
    return mutated(random, value) if random.random() < 0.7 else value


def props(random: Random) -> Any:
    """An answer of llama-server's `/props`, or of its router's."""
    value: dict[str, Any] = {
        "default_generation_settings": {"n_ctx": 4096, "params": {}},
        "total_slots": 1,
        "model_path": "/models/a.gguf",
        "model_alias": "a",
        "build_info": "b11549-abc",
        "chat_template": "{{ messages }}",
        "chat_template_caps": {"supports_tools": True},
        "modalities": {"vision": False},
    }
    if random.random() < 0.4:
        value |= {"role": "router", "max_instances": 4}
    return mutated(random, value) if random.random() < 0.7 else value


def mutated(random: Random, value: Any) -> Any:
    """`value` with up to three things missing, odd, repeated or added somewhere in it."""
    value = json.loads(json.dumps(value))
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return deepcopy(random.choice(ODD))
        holder, key = random.choice(places)
        match random.randrange(5):
            case 0:
                holder[key] = deepcopy(random.choice(ODD))
            case 1 if isinstance(holder, dict):
                del holder[key]
            case 2 if isinstance(holder, list):
                holder.insert(key, deepcopy(holder[key]))
            case 3 if isinstance(holder, dict):
                holder[random.choice(("extra", "status", "capabilities", "type", "id", "error"))] = deepcopy(
                    random.choice(ODD)
                )
            case _:
                holder[key] = [holder[key]]
    return deepcopy(random.choice(ODD)) if random.random() < 0.03 else value


def _places(value: Any) -> Any:
    """Every place in a value: what holds it, and its key or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def body(random: Random, value: Any) -> bytes:
    """`value` as bytes: most often as JSON, else not quite."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    match random.randrange(12):
        case 0:
            return text[: random.randrange(len(text) + 1)]
        case 1:
            return b"\xef\xbb\xbf" + text
        case 2:
            return text.replace(b"-", b"\t", 1).replace(b"-", b"\x1b", 1)
        case 3:
            return text.replace(b"4096", b"NaN").replace(b"8192", b"1e999").replace(b"49152", b"9" * 5000)
        case 4:
            at = random.randrange(len(text) + 1)
            return text[:at] + bytes(random.randrange(256) for _ in range(3)) + text[at:]
        case 5:
            return random.choice((b"", b"null", b"[]", b"<html><body>It works</body></html>", b"[" * 3000, b"OK"))
    return text


# -- errors -----------------------------------------------------------------------------------------------------------


class ErrorAnswer(Struct, frozen=True):
    """An answer with an error status."""

    status: int
    body: bytes
    retry_after: str
    words: str
    """What it says, where that can be found in it; empty: nothing."""
    loads: bool
    """Whether it says that a model is being loaded."""


LOADING = ("Loading model", "model is loading, please wait", "The model is being loaded", "server is starting up")
BROKEN = (
    "no slot available",
    "model zephyr failed to load",
    "error while loading the model",
    "unable to load zephyr",
    "all backends are busy",
    "zephyr broke down",
    "an odd \x1b[31mword\x07 of zephyr",
    "zephyr " * 300,
)
TYPES = ("unavailable_error", "server_error", "invalid_request_error", "api_error", None, 7)
AFTER = ("", "0", "3", "2.5", "120", "99999999999", "soon", "-1", "Sat, 21 Nov 2026 09:16:40 GMT", "Thu, 99 Foo 2026")


def error_answer(random: Random) -> ErrorAnswer:
    loads = random.random() < 0.3
    words = random.choice(LOADING if loads else BROKEN)
    kind = random.choice(TYPES)
    status = random.choice((400, 401, 402, 403, 404, 405, 409, 413, 422, 429, 500, 501, 502, 503, 503, 503, 504, 529))
    shapes: Sequence[Any] = (
        {"error": {"code": status, "message": words, "type": kind}},
        {"error": words},
        {"error": {"message": words}},
        {"error": {"msg": words, "code": None}},
        {"detail": words},
        {"detail": [{"loc": ["body"], "msg": words, "type": "odd"}]},
        {"message": words, "object": "error", "code": status},
        {"errors": [{"message": words}]},
        [{"error": {"message": words}}],
        {"error": [words]},
    )
    text = json.dumps(random.choice(shapes)).encode()
    match random.randrange(10):
        case 0:
            text = b"event: error\ndata: " + text + b"\n\ndata: [DONE]\n\n"
        case 1:
            text = b"data: " + text + b"\r\n\r\n"
        case 2 if len(words) < 400:
            text = words.encode()
        case 3:
            page = f"<html><title>{status} {words[:40]}</title><body>nginx</body></html>"
            return ErrorAnswer(status, page.encode(), random.choice(AFTER), "", False)
        case 4:
            odd = body(random, mutated(random, json.loads(text)))
            return ErrorAnswer(status, odd, random.choice(AFTER), "", False)
    return ErrorAnswer(status, text, random.choice(AFTER), words, loads and status == 503)

"""Recognition: which kind a server is, by its answers to a few harmless GETs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvchat.backends.http.payload import Responses, is_object, owners, response_at
from kvchat.backends.kinds import (
    KINDS,
    LLAMACPP,
    LOCALAI_PATH,
    MODELS_PATH,
    OPENAI,
    PROPS_PATH,
    RECOGNITION,
    SERVICE_PATH,
    ServerKind,
    Sign,
)

ORDER = tuple(KINDS[name] for name in RECOGNITION)
"""Every kind, in the order in which a server is recognised."""
OLLAMA_IMITATORS = (SERVICE_PATH, LOCALAI_PATH, "/running", PROPS_PATH, "/server_info", "/get_server_info")
"""Paths that Ollama does not have and its imitators do: KoboldCpp, LocalAI, llama-swap, llama.cpp, SGLang."""


def recognised(responses: Responses) -> ServerKind | None:
    """The kind of the server that gave these answers; None where nothing is known by them."""
    return next((kind for kind in ORDER if is_of(kind, responses)), None)


def is_of(kind: ServerKind, responses: Responses) -> bool:
    """Whether these are the answers of this kind of server."""
    if any(has(sign, responses) for sign in kind.signs) or (kind.owner and kind.owner in owners(responses)):
        return True
    if kind.header and any(name.startswith(kind.header) for answer in responses.values() for name in answer.headers):
        return True
    return kind.name in _BY_SHAPE and _BY_SHAPE[kind.name](responses)


def has(sign: Sign, responses: Responses) -> bool:
    """Whether a sign is among these answers."""
    answer = responses.get(sign.path)
    if answer is None or sign.status not in (0, answer.status):
        return False
    if not answer.headers.get("server", "").strip().lower().startswith(sign.server):
        return False
    if sign.text and answer.text.strip(" \"'\r\n\t") != sign.text:
        return False
    fields = answer.fields if sign.keys or sign.holds or sign.at else {}
    if not fields.keys() >= sign.keys or (sign.lacks and sign.lacks in fields):
        return False
    if sign.holds and not isinstance(fields.get(sign.holds), list | dict):
        return False
    found: object = fields
    for key in sign.at:
        found = found.get(key) if is_object(found) else None
    return not sign.at or (isinstance(found, str) and found.strip().lower().startswith(sign.begins))


def _is_llamacpp(responses: Responses) -> bool:
    """Behind a proxy that replaces its `Server` header: by its properties and the owner of its models."""
    has_properties = "default_generation_settings" in response_at(responses, PROPS_PATH).fields
    return has_properties and "llamacpp" in owners(responses)


def _is_ollama(responses: Responses) -> bool:
    """By its greeting and its version, where nothing answers that only an imitator has."""
    if any(response_at(responses, path).status == 200 for path in OLLAMA_IMITATORS):
        return False
    version = response_at(responses, "/api/version").fields.get("version")
    return response_at(responses, "/").text.strip() == "Ollama is running" and isinstance(version, str)


def _is_lmstudio(responses: Responses) -> bool:
    """By the shape of its listings, since it answers unknown paths with 200; where it wants a key, by its words about
    that."""
    listing = response_at(responses, "/api/v1/models")
    if listing.status == 401 and "LM Studio" in listing.text:
        return True
    models = listing.fields.get("models")
    if isinstance(models, list):
        return all(is_object(entry) and "key" in entry and "loaded_instances" in entry for entry in models)
    old = response_at(responses, "/api/v0/models").fields.get("data")
    return isinstance(old, list) and any(
        is_object(entry) and entry.get("state") in ("loaded", "not-loaded") and "compatibility_type" in entry
        for entry in old
    )


def _is_mlxlm(responses: Responses) -> bool:
    """By its health check, its kind of 404, and models without an owner."""
    lost = response_at(responses, PROPS_PATH)
    is_its_404 = (lost.status, lost.text.strip()) == (404, "Not Found") and "json" in lost.headers.get(
        "content-type", ""
    )
    return is_its_404 and response_at(responses, "/health").fields == {"status": "ok"} and not owners(responses)


def _is_openai(responses: Responses) -> bool:
    """By a list of models: the least that a server with OpenAI's API has."""
    listing = response_at(responses, MODELS_PATH)
    return isinstance(listing.value, list) or bool(listing.fields.keys() & {"data", "models"})


def lists_nothing(responses: Responses) -> bool:
    """Whether a list of models is there, and empty."""
    listing = response_at(responses, MODELS_PATH)
    entries = (listing.fields.get("data") or listing.fields.get("models")) if listing.fields else listing.value
    return _is_openai(responses) and not entries


_BY_SHAPE: Mapping[str, Callable[[Responses], bool]] = {
    LLAMACPP: _is_llamacpp,
    "ollama": _is_ollama,
    "lmstudio": _is_lmstudio,
    "mlx-lm": _is_mlxlm,
    OPENAI: _is_openai,
}
"""What no sign can say."""

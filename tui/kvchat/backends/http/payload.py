"""What servers say, read without trust: JSON, the answers to a few harmless GETs, and the list of models.

Whatever a server sends, reading it gives a value of the expected type or a `PayloadError`, never another
exception. Lone surrogates stay as they are: a pair may be split over two deltas, and whoever joins the deltas
passes the whole through `kvchat.prompt.wire.whole_characters`. A path that was not asked, or not answered, is missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import finite
from kvchat.text.faults import Unread
from kvchat.text.problems import ProblemError

DEEPEST = 100
"""Levels of arrays and objects: no protocol spoken here has a tenth of that."""
MOST_DIGITS = 400
"""A number with more digits than that is larger than any float."""
LARGEST = 2.0**63
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
"""What opens and closes in JSON; brackets inside a text are part of the text."""


class PayloadError(ProblemError):
    """The server sent something this protocol does not allow. `str` ends "The server sent ..."."""


def parsed(text: str) -> object:
    """The JSON value in `text`. A control character inside a text may stand as it is: servers that write their JSON
    themselves let tabs and escapes through. Null replaces unusable numbers (NaN, infinity, thousands of digits) and
    what is nested more than DEEPEST deep: an odd figure must not cost its neighbours. Raises PayloadError."""
    text = text.removeprefix("\ufeff")
    try:
        return _loaded(text)
    except RecursionError:
        return _loaded(_shallow(text))


def parsed_or_none(text: str) -> object:
    """As `parsed`; None for what is not JSON."""
    try:
        return parsed(text)
    except PayloadError:
        return None


def _loaded(text: str) -> object:
    try:
        try:
            value: object = json.loads(text, strict=False, parse_constant=_null, parse_float=_finite)
        except json.JSONDecodeError:
            raise
        except ValueError:  # Python makes no number of more than 4,300 digits
            value = json.loads(text, strict=False, parse_constant=_null, parse_float=_finite, parse_int=_countable)
    except ValueError:
        raise PayloadError(Unread.NO_JSON) from None
    return value


def _null(_: str) -> None:
    return None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return None if math.isinf(number) else number


def _countable(digits: str) -> int | None:
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _shallow(text: str) -> str:
    """JSON with null in place of what is nested too deep."""
    kept, start, depth = [], 0, 0
    for mark in _MARKS.finditer(text):
        if mark[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += [text[start : mark.start()], "null"]
        elif mark[0] in "]}":
            if depth == DEEPEST + 1:
                start = mark.end()
            depth -= 1
    if depth <= DEEPEST:
        kept.append(text[start:])
    return "".join(kept)


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def as_object(value: object, what: str) -> Mapping[str, object]:
    """`value` if it is a JSON object. Raises PayloadError that names `what`."""
    if not is_object(value):
        raise PayloadError(Unread.NO_OBJECT, what=what)
    return value


def name_at(value: Mapping[str, object], key: str) -> str:
    """The string under `key`; empty where there is none. A name is never worth an answer, as a figure is not."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def object_at(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under `key`; empty when it is missing or null. Raises PayloadError."""
    found = value.get(key)
    return {} if found is None else as_object(found, f'"{key}"')


def list_at(value: Mapping[str, object], key: str) -> Sequence[object]:
    """The array under `key`; empty when it is missing or null. Raises PayloadError."""
    found = value.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise PayloadError(Unread.NO_LIST, what=f'"{key}"')
    return found


def text_at(value: Mapping[str, object], key: str) -> str | None:
    """The string under `key`; None when it is missing or null. Raises PayloadError."""
    found = value.get(key)
    if found is None or isinstance(found, str):
        return found
    raise PayloadError(Unread.NO_TEXT, key=key)


def figure_at(value: Mapping[str, object], key: str) -> float | None:
    """The number from 0 to LARGEST under `key`, or None: a figure is never worth an answer, so anything else is "not
    reported"."""
    return _figure(value.get(key))


def _figure(value: object) -> float | None:
    number = finite(value)
    return float(number) if number is not None and 0 <= number < LARGEST else None


def count_at(value: Mapping[str, object], key: str) -> int | None:
    """The whole number >= 0 under `key`, or None; lenient as `figure_at`."""
    return as_count(value.get(key))


def as_count(value: object) -> int | None:
    """A whole number >= 0, or None; lenient as `figure_at`."""
    found = _figure(value)
    return int(found) if found is not None and found.is_integer() and found < 2**53 else None


def figures_at(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object of figures under `key`; empty when it is anything else."""
    found = value.get(key)
    return found if is_object(found) else {}


# -- the answers from which a dialect knows its own -------------------------------------------------------------------


class Response(Struct, frozen=True):
    """The answer to a GET."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def value(self) -> object:
        """The JSON value of the body; None where it is not JSON or the status is not 200."""
        return parsed_or_none(self.text) if self.status == 200 else None

    @property
    def fields(self) -> Mapping[str, object]:
        """The JSON object of the body; empty where it is none or the status is not 200."""
        value = self.value
        return value if is_object(value) else {}


Responses = Mapping[str, Response]
"""By path, as asked: `/props`."""
NO_RESPONSE = Response(0, {}, b"")


def response_at(responses: Responses, path: str) -> Response:
    """The answer to `path`; `NO_RESPONSE` where there is none."""
    return responses.get(path, NO_RESPONSE)


def owners(responses: Responses) -> frozenset[str]:
    """Who owns the models in `/v1/models`, as the server names them; lower case."""
    listing = response_at(responses, "/v1/models").fields.get("data")
    entries = listing if isinstance(listing, list) else ()
    return frozenset(
        str(entry.get("owned_by")).lower() for entry in entries if is_object(entry) and entry.get("owned_by")
    )


# -- the list of models at `/v1/models`, in the shapes that servers give it -------------------------------------------


class Model(Struct, frozen=True):
    """One model of a server."""

    id: str
    owner: str = ""
    context_size: int | None = None
    loaded: bool | None = None
    """Whether the model is in memory; None where the server does not say."""
    size: int | None = None
    """Bytes on the server's disk or in its memory."""
    about: str = ""
    """Quantisation and the like, in the server's words."""
    remote: str = ""
    """Where the server passes the text on to, when it does not answer itself: another machine's name."""
    chats: bool = True
    """False for a model that only makes embeddings and the like."""
    sees: bool | None = None
    """Whether it takes images; None where the server does not say."""
    vocabulary: int | None = None
    """How many tokens it knows; None where the server does not say."""
    state: str = ""
    """Where it is not in memory: `sleeping` (it wakes at once), `loading` or `failed` (it could not be loaded)."""

    @property
    def readiness(self) -> str:
        """`loaded`, or its state."""
        return _LOADED if self.loaded else self.state


class Models(Struct, frozen=True):
    """All models of a server, in its order."""

    all: tuple[Model, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.all)

    @property
    def chosen(self) -> Model | None:
        """The model to talk to when the user names none: of those that seem to chat one that is loaded, else one that
        wakes or is being loaded, else the first; one that failed to load only where there is no other."""
        if len(self.all) < 2:
            return next(iter(self.all), None)
        chatty = [model for model in self.all if model.chats]
        named = [model for model in chatty if not _OTHER_TASK.search(model.id)]
        return min(named or chatty or self.all, key=lambda model: _ORDER[model.readiness])


_OTHER_TASK = compiled_later(
    r"embed|rerank|whisper|parakeet|dall-?e|diffusion|gpt-image|qwen-image|"
    r"(?:^|[^a-z])(?:tts|asr|stt|clip|siglip|bge|e5|gte|sdxl|sd-?(?:3|turbo)|flux|vae|kokoro|piper|bark|musicgen|bert|"
    r"minilm|colbert|splade|reward|moderation|mmproj)(?:[^a-z]|$)",
    re.IGNORECASE,
)
"""In the names of models that draw, hear, speak, rank or embed."""
_LOADED, _SLEEPING, _LOADING, _FAILED = "loaded", "sleeping", "loading", "failed"
_READINESS = {
    _LOADED: ("loaded", "ready", "running", "online", "active"),
    _SLEEPING: ("sleeping", "asleep"),
    _LOADING: ("loading", "starting", "downloading"),
    _FAILED: ("failed", "error", "broken", "crashed"),
    "": ("unloaded", "not-loaded", "stopped", "offline", "inactive", "shutdown"),
}
_STATES = {word: readiness for readiness, words in _READINESS.items() for word in words}
"""What llama.cpp's router, llama-swap, LM Studio and others call the state of a model, and what that means."""
_ORDER = {_LOADED: 0, _SLEEPING: 1, _LOADING: 2, "": 3, _FAILED: 4}


def models_in(listing: object) -> Models:
    """The models in the answer of `/v1/models`, each once. An entry that cannot be read costs no other one. Raises
    PayloadError."""
    entries = listing if isinstance(listing, list) else _entries_in(as_object(listing, "a list of models"))
    found = (_model(entry if is_object(entry) else {"id": entry}) for entry in entries)
    return unique(model for model in found if model.id)


def unique(models: Iterable[Model]) -> Models:
    """Each model once: a proxy lists one for each server that it has it on."""
    found: dict[str, Model] = {}
    for model in models:
        found.setdefault(model.id, model)
    return Models(tuple(found.values()))


def _entries_in(listing: Mapping[str, object]) -> Sequence[object]:
    return list_at(listing, "data") or list_at(listing, "models")


def _model(entry: Mapping[str, object]) -> Model:
    context = (
        count_at(figures_at(entry, "meta"), "n_ctx")
        or count_at(entry, "max_model_len")
        or count_at(entry, "context_length")
        or None
    )
    peer = name_at(figures_at(figures_at(entry, "meta"), "llamaswap"), "peerID")
    readiness = readiness_in(entry)
    return Model(
        whole_characters(name_at(entry, "id") or name_at(entry, "name") or name_at(entry, "model")),
        whole_characters(name_at(entry, "owned_by")),
        context,
        None if readiness is None else readiness == _LOADED,
        remote=whole_characters(f"the peer {peer} of llama-swap") if peer else "",
        chats=chats_in(entry) is not False,
        sees=sees_in(entry),
        vocabulary=count_at(figures_at(entry, "meta"), "n_vocab"),
        state=readiness or "",
    )


def readiness_in(entry: Mapping[str, object]) -> str | None:
    """`loaded`, `sleeping`, `loading` or `failed`, as an entry of a list says; empty: none of these. None: it does not
    say."""
    status = entry.get("status", entry.get("state"))
    if not is_object(status):
        return _STATES.get(status.strip().lower()) if isinstance(status, str) else None
    found = _STATES.get(name_at(status, "value").strip().lower(), "")
    return _FAILED if not found and status.get("failed") is True else found


_TASKS = ("type", "mode", "task", "model_type", "pipeline_tag")
"""Fields of an entry that say what a model is for: of LM Studio, LiteLLM, Xinference, Together, Hugging Face."""
_CHATTING = compiled_later(r"chat|llm|vlm|language|completion|responses|text-?(?:to-text|2text|generation)")
_SILENT = compiled_later(r"embed|rank|image|audio|speech|transcri|draw|moderation|feature-extraction|similarity|video")
"""In what such a field says of models that answer in words, and of those that do not."""


def chats_in(entry: Mapping[str, object]) -> bool | None:
    """Whether a model answers in words, as its entry in a list says: by its output modalities (llama.cpp, OpenRouter),
    its abilities (Ollama, Mistral) or its task. None: it does not say."""
    outputs = figures_at(entry, "architecture").get("output_modalities") or entry.get("output_modalities")
    if isinstance(outputs, list) and outputs:
        return "text" in outputs
    abilities = entry.get("capabilities")
    if isinstance(abilities, list) and abilities:
        if "completion" in abilities or "chat" in abilities:
            return True
        if all(isinstance(one, str) and _SILENT.search(one.lower()) for one in abilities):
            return False
    if (says := flag_at(figures_at(entry, "capabilities"), "completion_chat")) is not None:
        return says
    for word in (name_at(entry, key).lower() for key in _TASKS):
        if _CHATTING.search(word):
            return True
        if _SILENT.search(word):
            return False
    return None


def sees_in(entry: Mapping[str, object]) -> bool | None:
    """Whether a model takes images, as its entry in a list says: by its input modalities (llama.cpp, OpenRouter), or
    by its abilities, in a list (Ollama, llama.cpp) or by name (LM Studio, Mistral). None: it does not say."""
    inputs = figures_at(entry, "architecture").get("input_modalities")
    if isinstance(inputs, list):
        return "image" in inputs
    abilities = entry.get("capabilities")
    if isinstance(abilities, list):
        return "vision" in abilities or "multimodal" in abilities if abilities else None
    return flag_at(figures_at(entry, "capabilities"), "vision")


def flag_at(value: Mapping[str, object], key: str) -> bool | None:
    """The truth value under `key`; None when there is none."""
    found = value.get(key)
    return found if isinstance(found, bool) else None

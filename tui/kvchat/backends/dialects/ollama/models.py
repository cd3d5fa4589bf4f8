"""What Ollama says of its models: the list, what is loaded, and what one is made for.

Pure, and read without trust. A field that a version does not have gives None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import TemplateFacts, is_cloud_name
from kvchat.backends.http.payload import (
    Model,
    as_object,
    count_at,
    figures_at,
    is_object,
    list_at,
    name_at,
    sees_in,
    text_at,
)
from kvchat.backends.kinds import KINDS
from kvchat.prompt.wire import whole_characters

THINKING, COMPLETION = "thinking", "completion"
USUAL_CONTEXT = 8192
"""The window asked for where nothing says which."""
LEAST_WEIGHTS = 1_000_000
"""Bytes that the smallest model takes; what is only listed takes a few hundred."""
MOST_TEMPLATE = 1 << 18
"""Characters of a template that are looked at; the longest real ones have a tenth of that."""
_EMBEDDERS = frozenset({"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert"})
_PARAMETER = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
_CONTEXT_LENGTH = ".context_length"

_CONDITION = re.compile(r"\{\{-?\s*(?:else\s+)?if\b([^{}]*)\}\}")
_LAST_ONLY = re.compile(r"\$last|\$i|\$index|len\s*(?:\(\s*)?slice|lastUser", re.IGNORECASE)
_LAST_MESSAGE = re.compile(r"\$last\b|len\s*(?:\(\s*)?slice")
_LAST_QUESTION = re.compile(r"\beq\s+\$\w+\s+\$lastUser")
"""Something is added to the last question alone, and goes from there with the next one."""
_ANY_ROLE = re.compile(r"\{\{-?\s*(?:\$?\w*)\.Role\s*-?\}\}")
_DATE = re.compile(r"\bcurrentDate\b|\byesterdayDate\b|strftime_now|\bnow\s*\(")


class OllamaModel(Struct, frozen=True):
    """A model of the list."""

    model: Model
    host: str = ""
    """Where it runs, when that is not this server: what is sent to it leaves the machine."""
    thinks: bool | None = None
    longest: int | None = None
    """Tokens of the largest window its weights allow."""


class Facts(Struct, frozen=True):
    """What `/api/show` says of one model."""

    longest: int | None = None
    """Tokens of the largest window its weights allow."""
    usual: int | None = None
    """`num_ctx` of its Modelfile."""
    thinks: bool | None = None
    sees: bool | None = None
    calls: bool | None = None
    """Whether it calls tools."""
    template: TemplateFacts | None = None


NO_FACTS = Facts()


def full_name(name: str) -> str:
    """A model's name with its tag, as the server lists it: `llama3.2` is `llama3.2:latest`."""
    return name if ":" in name.rpartition("/")[2] or not name else f"{name}:latest"


def running_in(listing: object) -> dict[str, int | None]:
    """The loaded models by name, each with the window it was loaded with. Raises PayloadError."""
    entries = list_at(as_object(listing, "a list of loaded models"), "models")
    return {
        full_name(_name(entry)): count_at(entry, "context_length") or None
        for entry in entries
        if is_object(entry) and _name(entry)
    }


def entries_in(listing: object, running: Mapping[str, int | None] | None) -> tuple[OllamaModel, ...]:
    """The models of `/api/tags`; `running`: None where it is not known what is loaded. Raises PayloadError."""
    found = list_at(as_object(listing, "a list of models"), "models")
    return tuple(_entry(entry, running) for entry in found if is_object(entry) and _name(entry))


def passed_on_to(listing: object, model: str) -> str:
    """Where the text of a model goes on to, by `/api/tags`; empty: it stays with the server. Raises PayloadError."""
    for one in entries_in(listing, None):
        if full_name(one.model.id) == full_name(model):
            return one.host
    return KINDS["ollama"].cloud if is_cloud_name(model) else ""


def _entry(entry: Mapping[str, object], running: Mapping[str, int | None] | None) -> OllamaModel:
    name = _name(entry)
    details = figures_at(entry, "details")
    abilities = entry.get("capabilities")
    host = whole_characters(name_at(entry, "remote_host"))
    if not host and (name_at(entry, "remote_model") or _is_only_a_name(name, entry)):
        host = KINDS["ollama"].cloud
    longest = count_at(details, "context_length") or None
    is_loaded = None if running is None or host else full_name(name) in running
    about = [
        name_at(details, "parameter_size"),
        name_at(details, "quantization_level"),
        f"runs at {host}" if host else "",
    ]
    model = Model(
        name,
        context_size=longest,
        loaded=is_loaded,
        size=count_at(entry, "size") or None,
        about=whole_characters(", ".join(filter(None, about))),
        remote=host,
        chats=COMPLETION in abilities
        if isinstance(abilities, list) and abilities
        else name_at(details, "family") not in _EMBEDDERS,
        sees=sees_in(entry),
    )
    thinks = THINKING in abilities if isinstance(abilities, list) and abilities else None
    return OllamaModel(model, host, thinks, longest)


def _is_only_a_name(name: str, entry: Mapping[str, object]) -> bool:
    """Whether an entry is named as those of the cloud are, and has no weights."""
    return is_cloud_name(name) and (count_at(entry, "size") or 0) < LEAST_WEIGHTS


def window(loaded: int | None, usual: int | None, longest: int | None) -> int | None:
    """The window to ask for when the user names none: what the model is loaded with, so that it is not loaded
    again; else what its Modelfile asks for; else a usual one within its largest. None where nothing is known."""
    if loaded or usual:
        return loaded or min(usual or USUAL_CONTEXT, longest or usual or USUAL_CONTEXT)
    return min(longest, USUAL_CONTEXT) if longest else None


def facts_in(shown: object) -> Facts:
    """The answer of `/api/show`. Raises PayloadError."""
    fields = as_object(shown, "the facts of a model")
    info = figures_at(fields, "model_info")
    longest = [count_at(info, key) for key in info if key.endswith(_CONTEXT_LENGTH)]
    usual = _PARAMETER.search(name_at(fields, "parameters"))
    abilities = fields.get("capabilities")
    text = name_at(fields, "template")
    own = not name_at(fields, "renderer")  # a renderer in the server's code takes the template's place
    thinks = THINKING in abilities if isinstance(abilities, list) else None
    template = template_facts(text) if text and own else None
    if template is not None and thinks is False:
        template = replace(template, drops_reasoning=None)
    if thinks is not None:
        template = replace(
            template or TemplateFacts(), switches_thinking=thinks, takes_effort=None if thinks else False
        )
    return Facts(
        next(filter(None, longest), None),
        int(usual[1]) or None if usual else None,
        thinks,
        sees_in(fields),
        "tools" in abilities if isinstance(abilities, list) else None,
        template,
    )


def template_facts(text: str) -> TemplateFacts:
    """What a template's text tells. Ollama's own are Go templates; newer versions show the model's Jinja template."""
    text = text[:MOST_TEMPLATE]
    has_date = bool(_DATE.search(text))
    if "{%" in text:
        return TemplateFacts(
            date=has_date,
            drops_reasoning=None if "reason" in text or "think" in text else True,
            system_role="system" in text,
            alternates=True if "must alternate" in text else None,
        )
    conditions = [found[1] for found in _CONDITION.finditer(text)]
    on_thoughts = [condition for condition in conditions if ".Thinking" in condition]
    moves_system = any(".System" in condition and _LAST_MESSAGE.search(condition) for condition in conditions)
    return TemplateFacts(
        date=has_date,
        drops_reasoning=".Thinking" not in text or any(map(_LAST_ONLY.search, on_thoughts)),
        system_role=".System" in text or '"system"' in text or _ANY_ROLE.search(text) is not None,
        moves_system=moves_system,
        alternates=False,
        keeps_prefix=False if moves_system or any(map(_LAST_QUESTION.search, conditions)) else None,
    )


def _name(entry: Mapping[str, object]) -> str:
    return whole_characters(text_at(entry, "name") or text_at(entry, "model") or "")


def chosen_among(entries: Sequence[OllamaModel]) -> tuple[Model, ...]:
    """The models one of which is talked to when the user names none: those of this machine, if it has any."""
    return tuple(entry.model for entry in entries if not entry.host) or tuple(entry.model for entry in entries)

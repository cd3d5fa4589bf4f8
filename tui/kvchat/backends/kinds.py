"""The kinds of servers there are: what is known of each, and where its dialect is.

The rule: a kind is one module in `dialects` and one line here. A kind is known by a server's answers, never by its
port; ports only say where to look. No dialect is imported before it is asked for: start-up is a feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.cache.causes.remedies import NO_FLAGS, Flags

if TYPE_CHECKING:
    from kvchat.backends.base import HttpBackend

    Dialect = type[HttpBackend]

DIALECTS = {
    "llama.cpp": "llamacpp.LlamaCppBackend",
    "llama-swap": "llamaswap.LlamaSwapBackend",
    "llamafile": "llamafile.LlamafileBackend",
    "ollama": "ollama.backend.OllamaBackend",
    "lmstudio": "lmstudio.LMStudioBackend",
    "vllm": "vllm.VllmBackend",
    "llama-cpp-python": "llamacpp_python.LlamaCppPythonBackend",
    "sglang": "sglang.SglangBackend",
    "mlx-lm": "mlxlm.MlxLmBackend",
    "koboldcpp": "koboldcpp.KoboldCppBackend",
    "tabbyapi": "tabbyapi.TabbyAPIBackend",
    "text-generation-webui": "textgen.TextGenBackend",
    "localai": "localai.LocalAIBackend",
    "jan": "jan.JanBackend",
    "litellm": "litellm.LiteLLMBackend",
    "openai": "openai.OpenAIBackend",
    "cloud": "cloud.CloudBackend",
}
"""Every kind by its name, as settings, JSON and what is stored have it; the best known first."""

_ORDER = (
    "llama-swap",
    "llamafile",
    "llama.cpp",  # the first two answer much as the third does
    "llama-cpp-python",  # known by one path, which is asked before anything that disturbs it
    "vllm",
    "sglang",
    "koboldcpp",
    "tabbyapi",
    "localai",  # they imitate Ollama, and answer /props
    "lmstudio",
    "ollama",
    "text-generation-webui",
    "litellm",
    "jan",
    "mlx-lm",
)  # known by what it does not answer
LLAMACPP = "llama.cpp"
"""What the built-in engine is."""
OPENAI = "openai"
CLOUD = "cloud"
_LAST = (CLOUD, OPENAI)


class Figures(StrEnum):
    """When and how well a server tells how many tokens came from its cache."""

    BEFORE = "before the first token"
    """Exact, while the prompt is read."""
    AFTER = "after the answer"
    """Exact, with the usage."""
    DERIVED = "derived"
    """Computed from other exact figures of the server."""
    ESTIMATED = "estimated"
    """From a time and a speed that was learnt."""
    NONE = "not reported"


class Continuing(StrEnum):
    """How far a server goes on with a reply that a request ends with."""

    NOT = "not"
    """It answers to it, or refuses it."""
    TEXT = "text"
    """Where that is text alone."""
    THOUGHTS = "thoughts"
    """Where it has reasoning too, and inside of that."""


class ServerKind(Struct, frozen=True):
    """What is known of a kind of server before one is asked."""

    name: str
    """As evidence, settings and JSON name it."""
    title: str
    """As the screen names it."""
    ports: tuple[int, ...] = ()
    """Where it usually listens, by itself first."""
    flags: Flags = NO_FLAGS
    """What it can be told to change."""
    block: int = 1
    """Tokens of a block of its prompt cache."""
    keeps_one: bool = False
    """Whether it holds what was asked last, and nothing else."""
    keeps_many: bool = False
    """Whether it keeps several conversations though it does not say how many slots it has."""
    answers_many: bool = False
    """Whether it answers many requests at a time, none of them at the cost of another."""
    small_window: bool = False
    """Whether a model has a window of 4,096 tokens there unless the server is told otherwise."""
    embeds_beside: bool = False
    """Whether an embedding model is loaded beside the chat's."""
    shows_template: bool = False
    """Whether `/props` has the text of the chat template."""
    takes_any_model: bool = False
    """Whether another model answers, without a word, where the one that is asked for is not there."""
    is_tracked: bool = False
    """Whether its cache can be followed: of the servers that are found, such a one is taken first."""
    tag: str = ""
    """What may be left out at the end of a model's name."""
    passes_on: bool = False
    """Whether a model that it does not list may be one that it fetches from a service on the internet."""
    continuing: Continuing = Continuing.NOT
    """Whether a reply that was cut can be gone on with."""
    answers_in_slots: bool = False
    """Whether one request can ask for several answers (`n`), one for each slot, from one prefill."""
    takes_token_ids: bool = False
    """Whether a prompt can go as token ids, and those of the answer come back."""


@cache
def dialect(name: str) -> Dialect:
    """The dialect of a kind, imported when it is first asked for. Raises KeyError for a name that is none."""
    module, _, backend = DIALECTS[name].rpartition(".")
    found: Dialect = getattr(import_module(f"kvchat.backends.dialects.{module}"), backend)
    return found


def in_order() -> Iterator[Dialect]:
    """Every dialect, in the order in which a server is recognised: whoever has a sign of its own comes before those
    whose sign others imitate; the most common come early, because each dialect that is not meant costs its
    questions."""
    others = (name for name in DIALECTS if name not in _ORDER and name not in _LAST)
    return map(dialect, (*_ORDER, *others, *_LAST))


def kind_of(name: str) -> ServerKind:
    """What is known of a kind, by its name in `DIALECTS`; of another name, a kind that is called so and no more."""
    return dialect(name).kind if name in DIALECTS else ServerKind(name, name)


@cache
def kinds() -> tuple[ServerKind, ...]:
    """What is known of every kind, the best known first."""
    return tuple(map(kind_of, DIALECTS))


@cache
def ports() -> tuple[int, ...]:
    """Every usual port, each once."""
    return tuple(dict.fromkeys(port for kind in kinds() for port in kind.ports))


def usual_places() -> str:
    """Where servers are looked for, in words: each port with the kind it is best known for."""
    known: dict[int, str] = {}
    for kind in kinds():
        for port in kind.ports if kind.name != OPENAI else ():
            known.setdefault(port, kind.title)
    places: dict[str, list[str]] = {}
    for port, title in known.items():
        places.setdefault(title, []).append(str(port))
    return ", ".join(f"{title} {' or '.join(ports)}" for title, ports in places.items())


def title_of(name: str) -> str:
    """A kind as the screen names it."""
    return kind_of(name).title

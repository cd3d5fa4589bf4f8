"""The kinds of servers there are: their names, usual ports, and how they report what came from the cache.

The rule: a kind is known by a server's answers, never by its port; ports only say where to look.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server."""

    name: str
    """As evidence, settings and JSON name it."""
    title: str
    """As the screen names it."""
    ports: tuple[int, ...] = ()
    """Where it usually listens."""


LLAMACPP = Kind("llama.cpp", "llama.cpp", (8080,))
LLAMAFILE = Kind("llamafile", "llamafile", (8080,))
LLAMACPP_PYTHON = Kind("llama-cpp-python", "llama-cpp-python", (8000,))
LLAMA_SWAP = Kind("llama-swap", "llama-swap", (8080,))
OLLAMA = Kind("ollama", "Ollama", (11434,))
LMSTUDIO = Kind("lmstudio", "LM Studio", (1234,))
VLLM = Kind("vllm", "vLLM", (8000,))
SGLANG = Kind("sglang", "SGLang", (30000,))
MLX_LM = Kind("mlx-lm", "mlx-lm", (8080,))
KOBOLDCPP = Kind("koboldcpp", "KoboldCpp", (5001,))
TABBYAPI = Kind("tabbyapi", "TabbyAPI", (5000,))
TEXTGEN = Kind("text-generation-webui", "text-generation-webui", (5000,))
LOCALAI = Kind("localai", "LocalAI", (8080,))
JAN = Kind("jan", "Jan", (1337,))
LITELLM = Kind("litellm", "LiteLLM", (4000,))
OPENAI = Kind("openai", "OpenAI-compatible", (8001,))
"""Any server with the OpenAI chat interface that is not recognised as something better."""
CLOUD = Kind("cloud", "cloud service")
"""A service on the internet with the OpenAI chat interface."""

KINDS = (LLAMACPP, LLAMA_SWAP, LLAMAFILE, OLLAMA, LMSTUDIO, VLLM, LLAMACPP_PYTHON, SGLANG, MLX_LM, KOBOLDCPP, TABBYAPI,
         TEXTGEN, LOCALAI, JAN, LITELLM, OPENAI, CLOUD)
BY_NAME = {kind.name: kind for kind in KINDS}
PORTS = tuple(dict.fromkeys(port for kind in KINDS for port in kind.ports))
"""Every usual port, each once."""


def usual_places() -> str:
    """Where servers are looked for, in words: each port with the kind it is best known for."""
    known: dict[int, Kind] = {}
    for kind in KINDS:
        for port in kind.ports if kind is not OPENAI else ():
            known.setdefault(port, kind)
    return ", ".join(f"{kind.title} {port}" for port, kind in known.items())


def title_of(name: str) -> str:
    """A kind as the screen names it."""
    return BY_NAME[name].title if name in BY_NAME else name

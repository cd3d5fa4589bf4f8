"""Every dialect, in the order in which a server is recognised.

The rule: whoever has a sign of its own comes before those whose sign others imitate; the most common come early,
because each dialect that is not meant costs its questions.
"""

from __future__ import annotations

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialects.cloud import CloudBackend
from kvchat.backends.dialects.jan import JanBackend
from kvchat.backends.dialects.koboldcpp import KoboldCppBackend
from kvchat.backends.dialects.litellm import LiteLLMBackend
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.dialects.llamacpp_python import LlamaCppPythonBackend
from kvchat.backends.dialects.llamafile import LlamafileBackend
from kvchat.backends.dialects.llamaswap import LlamaSwapBackend
from kvchat.backends.dialects.lmstudio import LMStudioBackend
from kvchat.backends.dialects.localai import LocalAIBackend
from kvchat.backends.dialects.mlxlm import MlxLmBackend
from kvchat.backends.dialects.ollama import OllamaBackend
from kvchat.backends.dialects.openai import OpenAIBackend
from kvchat.backends.dialects.sglang import SglangBackend
from kvchat.backends.dialects.tabbyapi import TabbyAPIBackend
from kvchat.backends.dialects.textgen import TextGenBackend
from kvchat.backends.dialects.vllm import VllmBackend
from kvchat.backends.recognise import Responses

Dialect = type[HttpBackend]

DIALECTS: tuple[Dialect, ...] = (
    LlamaSwapBackend, LlamafileBackend, LlamaCppBackend,  # the first two answer much as the third does
    LlamaCppPythonBackend,  # known by one path, which is asked before anything that disturbs it
    VllmBackend, SglangBackend,
    KoboldCppBackend, TabbyAPIBackend, LocalAIBackend,  # they imitate Ollama, and answer /props
    LMStudioBackend, OllamaBackend, TextGenBackend, LiteLLMBackend, JanBackend,
    MlxLmBackend,  # known by what it does not answer
    CloudBackend, OpenAIBackend,
)
PROBES = tuple(dict.fromkeys(path for dialect in DIALECTS for path in dialect.probes))
"""Every path that some dialect looks at, in the order of the dialects."""


def recognised(responses: Responses) -> Dialect | None:
    """The dialect of the server that gave these answers; None where nothing is known by them."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(responses)), None)


def named(kind: str) -> Dialect | None:
    """The dialect for a kind that the person named."""
    return next((dialect for dialect in DIALECTS if dialect.kind == kind), None)

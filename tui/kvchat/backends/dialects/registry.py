"""Every dialect, in the order in which a server is recognised: those that others imitate come last."""

from __future__ import annotations

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.dialects.openai import OpenAIBackend
from kvchat.backends.recognise import Responses

Dialect = type[HttpBackend]

DIALECTS: tuple[Dialect, ...] = (LlamaCppBackend, OpenAIBackend)
PROBES = tuple(dict.fromkeys(path for dialect in DIALECTS for path in dialect.probes))
"""Every path that some dialect looks at, in the order of the dialects."""


def recognised(responses: Responses) -> Dialect | None:
    """The dialect of the server that gave these answers; None where nothing is known by them."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(responses)), None)


def named(kind: str) -> Dialect | None:
    """The dialect for a kind that the person named."""
    return next((dialect for dialect in DIALECTS if dialect.kind == kind), None)

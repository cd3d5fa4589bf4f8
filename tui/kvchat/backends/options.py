"""What the person set for one server, beyond its address and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SESSION_HEADERS = ("X-Session-ID", "X-SMG-Routing-Key", "X-LiteLLM-Session-Id", "X-Session-Affinity")
"""The headers by which routers keep a conversation on the server that holds its cache."""

Locality = Literal["auto", "local", "cloud"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is spoken to. The defaults leave everything to what is found out."""

    kind: str = ""
    """The name of a kind; empty: by its answers."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request to this server, to no other one."""
    connect_seconds: float | None = None
    """How long a connection may take; None: 2 s on this machine, else 5 s."""
    locality: Locality = "auto"
    """`local`: a server on the internet that is the person's own; `cloud`: never take it for local."""
    session_headers: tuple[str, ...] | None = None
    """The headers that carry the session id; None: SESSION_HEADERS, to local servers only."""
    session_fields: tuple[str, ...] | None = None
    """The body fields that carry the session id; None: what the dialect knows."""
    context_size: int | None = None
    """Tokens of the window to ask for, where the server takes that with a request (Ollama's num_ctx)."""
    keep_alive: str = ""
    """How long the model stays loaded, where the server takes that with a request (Ollama, LM Studio)."""


PLAIN = ServerOptions()

"""What most parts of the service work with: the ground, the conversations, the servers, and what is known of their
caches.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from kvchat.chat.cache.branch_requests import BranchRequests
from kvchat.chat.cache.speeds import PrefillSpeeds
from kvchat.chat.cache.tracker import CacheTracker
from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.conversations.shared import Head
from kvchat.chat.ground import Clock, Ground
from kvchat.chat.server.servers import Servers
from kvchat.config import Settings
from kvchat.store import HeadMoved, Store

if TYPE_CHECKING:
    from kvchat.chat.tools.mcp_servers import McpServers


class Core(Ground):
    """Handed to each part whole. A part is never reached through it: what it needs of another one, it is given."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        incognito: bool,
        strict: bool,
        clock: Clock,
        snapshots: Path | None,
        lanes: Path | None,
        one_server: bool,
        model: str,
        mcp_file: Path | None,
    ) -> None:
        """As `ChatService`."""
        super().__init__(store, settings, incognito=incognito, strict=strict, clock=clock)
        self.conversations = Conversations(self)
        self.servers = Servers(
            self, self.conversations, snapshots=snapshots, lanes=lanes, one_server=one_server, model=model
        )
        self.branch_requests = BranchRequests(self, self.conversations, self.servers)
        self.speeds = PrefillSpeeds(self, self.conversations, self.servers)
        self.tracker = CacheTracker(self, self.conversations, self.servers, self.branch_requests, self.speeds)
        self._mcp_file = mcp_file

    @cached_property
    def mcp(self) -> McpServers:
        """The user's MCP servers, looked at when a name is none of kvchat's own tools."""
        from kvchat.chat.tools.mcp_servers import McpServers

        return McpServers(self, self._mcp_file)

    async def end_tools(self) -> None:
        """End the programs of MCP servers."""
        if "mcp" in vars(self):
            await self.mcp.aclose()


class Acting(Protocol):
    """A part that acts on conversations."""

    _core: Core


A = TypeVar("A", bound=Acting)
P = ParamSpec("P")
T = TypeVar("T")
Act = Callable[Concatenate[A, str, P], Coroutine[Any, Any, T]]


def on_newest(head: Head) -> Callable[[Act[A, P, T]], Act[A, P, T]]:
    """An act on a conversation as all kvchats have left it; it begins again when one of them was faster."""

    def decorated(act: Act[A, P, T]) -> Act[A, P, T]:
        @wraps(act)
        async def tried(self: A, id: str, /, *args: P.args, **options: P.kwargs) -> T:
            with self._core.conversations.shared.register_act(id) as running:
                while True:
                    conversation = await self._core.conversations.for_act(id, head, running)
                    with self._core.conversations.shared.held(conversation):
                        try:
                            return await act(self, id, *args, **options)
                        except HeadMoved:
                            continue

        return tried

    return decorated

"""Memory: open it, add to it and take from it, and show quietly when something was noted.

What was noted is shown at the edge of the screen until the user looks at it; it never interrupts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.chat.errors import ChatError
from kvchat.ui.controllers.workspace import Workspace

if TYPE_CHECKING:
    from kvchat.chat.events import MemoriesNoted
    from kvchat.ui.controllers.conversations import ConversationController


class MemoryController:
    """Opens the memory, and tells at the edge of the screen what was noted."""

    def __init__(self, workspace: Workspace, conversations: ConversationController) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._memory = service.memory
        self._conversations = conversations
        self._status = screen.status
        self._noted: tuple[str, ...] = ()
        """The ids of what was noted since the user looked last."""
        self._pending: tuple[str, ...] = ()
        """The ids of those pending approval."""

    async def open(self, *, query: str = "", add: bool = False) -> None:
        """The memory screen; then the message that the user wants to see, if any."""
        from kvchat.ui.screens.kit import ManagerScreen
        from kvchat.ui.screens.memory.source import MemorySource

        fresh, self._noted, self._pending = (*self._noted, *self._pending), (), ()
        self._status.set_memory("")
        service = self._service
        chosen = await self.workspace.ask(
            ManagerScreen(
                MemorySource(service, self.workspace.conversation.id, query=query, fresh=fresh, add=add),
                service.events,
            )
        )
        await self._count_proposals()
        if chosen is not None:
            await self._conversations.open(chosen.conversation, chosen.node)

    async def _count_proposals(self) -> None:
        """Keep what is pending approval at the edge of the screen."""
        try:
            waiting = await self._memory.proposals()
        except ChatError:
            return
        self._pending = tuple(waiting)
        self._status.set_memory(noted_words(len(self._noted), len(waiting)), self.workspace.key_of("memory"))

    # -- what the service tells

    def begins(self) -> None:
        """Memory runs for the first time."""
        key, switch = self.workspace.key_of("memory") or "/memory", self.workspace.key_of("memory.switch")
        self.workspace.say(f"Memory notes facts after answers · {key}, then {switch} turns it off")

    def noted(self, event: MemoriesNoted) -> None:
        """Something was noted: a quiet word, until it is looked at."""
        self._noted = tuple(dict.fromkeys((*self._noted, *event.noted)))
        self._pending = tuple(dict.fromkeys((*self._pending, *event.pending)))
        self._status.set_memory(noted_words(len(self._noted), len(self._pending)), self.workspace.key_of("memory"))


def noted_words(noted: int, pending: int) -> str:
    """`2 noted`, `1 to confirm`, `2 noted, 1 to confirm`; empty when there is neither."""
    parts = [f"{noted:,} noted" if noted else "", f"{pending:,} to confirm" if pending else ""]
    return ", ".join(filter(None, parts))

"""Memory: open it, add to it and take from it, and show quietly when something was noted.

What was noted is shown at the edge of the screen until the user looks at it; it never interrupts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.chat.errors import ChatError
from kvchat.sanitize import one_line
from kvchat.ui.controllers.workspace import Workspace, in_worker

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

    async def run(self, argument: str = "") -> None:
        """The memory; or on, off: for this conversation; or now: go through it."""
        match argument.strip().lower():
            case "":
                self._open()
            case "on" | "off" as state:
                await self._switch(state == "on")
            case "now":
                if await self.workspace.attempt(self._service.extraction.request(self.workspace.conversation.id)):
                    self.workspace.say("Takes notes as soon as no answer is running")
            case _:
                self._open(query=argument)

    async def _switch(self, on: bool) -> None:
        from kvchat.text.memory import WHY_OFF

        id = self.workspace.conversation.id
        if await self.workspace.attempt(self._service.extraction.set_memory(id, on)):
            self.workspace.say(WHY_OFF[self._memory.why_off(id)])

    @in_worker("dialog")
    async def _open(self, *, query: str = "", add: bool = False) -> None:
        """The memory screen; then the message that the user wants to see, if any."""
        from kvchat.ui.screens.manager import ManagerScreen
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

    async def remember(self, text: str = "") -> None:
        """Add what is given; without words, ask for them."""
        if not text.strip():
            self._open(add=True)
        elif await self.workspace.attempt(self._memory.remember(text, self.workspace.conversation.id)):
            self.workspace.say(f"Remembered: “{one_line(text, 36)}” · {self.workspace.key_of('memory')} shows it")
        else:
            from kvchat.ui.screens.memory.editor import TYPED

            self._service.drafts.leave(TYPED, text)

    async def forget(self, words: str = "") -> None:
        """Delete the one memory that has these words; where there are several, show them."""
        if not words.strip():
            self._open()
            return
        try:
            many, gone = await self._memory.forget(words)
        except ChatError as error:
            self.workspace.say(str(error), "warning")
            return
        if gone is not None:
            keys = f"{self.workspace.key_of('memory')}, {self.workspace.key_of('memory.undo')}"
            self.workspace.say(f"Forgotten: “{one_line(gone.text, 30)}” · {keys} brings it back")
        elif many:
            self._open(query=words)
        else:
            self.workspace.say("No memory has these words")

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

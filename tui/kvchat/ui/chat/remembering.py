"""Memory on the main screen: looking at it, adding to it and taking from it, and a quiet word when something was noted.

The rule: what was noted is told at the edge of the screen and waits there until it is looked at; it never interrupts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work

from kvchat.chat.errors import ChatError
from kvchat.display import one_line
from kvchat.ui.chat.base import ChatBase

if TYPE_CHECKING:
    from kvchat.chat.events import MemoriesNoted


class RememberingActs(ChatBase):
    """What the main screen does about memory."""

    _noted: tuple[str, ...] = ()
    """The ids of what was noted since the person looked last."""
    _proposed: tuple[str, ...] = ()
    """Those that wait for the person's yes."""

    async def action_memory(self, argument: str = "") -> None:
        """The memory; or on, off: for this conversation; or now: go through it."""
        match argument.strip().lower():
            case "":
                self.open_memory()
            case "on" | "off" as state:
                await self._switch(state == "on")
            case "now":
                if await self.attempt(self.service.extraction.request(self.conversation.id)):
                    self.say("This conversation is gone through as soon as no answer runs.")
            case _:
                self.open_memory(query=argument)

    async def _switch(self, on: bool) -> None:
        from kvchat.ui.screens.memory.source import WHY_OFF

        id = self.conversation.id
        if await self.attempt(self.service.extraction.set_memory(id, on)):
            self.say(WHY_OFF[self.service.memory.why_off(id)])

    @work(group="dialog")
    async def open_memory(self, *, query: str = "", add: bool = False) -> None:
        """The memory screen; then the message that the person wants to see, if any."""
        from kvchat.ui.screens.manager import ManagerScreen
        from kvchat.ui.screens.memory.source import MemorySource

        fresh, self._noted, self._proposed = (*self._noted, *self._proposed), (), ()
        self.status.set_memory("")
        service = self.service
        chosen = await self.ask(ManagerScreen(MemorySource(
            service.memory, service.extraction, service.jobs, service.conversations, service.clock,
            self.conversation.id, query=query, fresh=fresh, add=add, editor=service.settings.editor), service.events))
        await self._count_proposals()
        if chosen is not None:
            await self.open_conversation(chosen.conversation, chosen.node)

    async def _count_proposals(self) -> None:
        """What still waits for the person's yes stays at the edge of the screen."""
        try:
            waiting = await self.service.memory.proposals()
        except ChatError:
            return
        self._proposed = tuple(waiting)
        self.status.set_memory(noted_words(len(self._noted), len(waiting)), self.app.key_of("memory"))

    async def action_remember(self, text: str = "") -> None:
        """Add what is given; without words, ask for them."""
        if not text.strip():
            self.open_memory(add=True)
        elif await self.attempt(self.service.memory.remember(text, self.conversation.id)):
            self.say(f"Remembered: “{one_line(text, 80)}” {self.app.key_of('memory')} shows it.")

    async def action_forget(self, words: str = "") -> None:
        """Delete the one memory that has these words; where there are several, show them."""
        if not words.strip():
            self.open_memory()
            return
        try:
            many, gone = await self.service.memory.forget(words)
        except ChatError as error:
            self.say(str(error), "warning")
            return
        if gone is not None:
            keys = f"{self.app.key_of('memory')}, {self.app.key_of('memory.undo')}"
            self.say(f"Forgotten: “{one_line(gone.text, 80)}” {keys} brings it back.")
        elif many:
            self.open_memory(query=words)
        else:
            self.say("Nothing that is remembered has these words.")

    # -- what the service tells

    def memory_begins(self) -> None:
        """Memory runs for the first time."""
        key = self.app.key_of("memory") or "/memory"
        self.say(f"Memory notes facts after answers · {key}, then {self.app.key_of('memory.switch')} turns it off")

    def memories_noted(self, event: MemoriesNoted) -> None:
        """Something was noted: a quiet word, until it is looked at."""
        self._noted = tuple(dict.fromkeys((*self._noted, *event.noted)))
        self._proposed = tuple(dict.fromkeys((*self._proposed, *event.proposed)))
        self.status.set_memory(noted_words(len(self._noted), len(self._proposed)), self.app.key_of("memory"))


def noted_words(noted: int, proposed: int) -> str:
    """`2 noted`, `1 to confirm`, `2 noted, 1 to confirm`; empty when there is neither."""
    parts = [f"{noted:,} noted" if noted else "", f"{proposed:,} to confirm" if proposed else ""]
    return ", ".join(filter(None, parts))

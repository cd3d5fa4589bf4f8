"""Acts on memory: on and off in a conversation, add, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.chat.conversations.drafts import MEMORY_TYPED
from kvchat.chat.errors import ChatError
from kvchat.text.memory import WHY_OFF

if TYPE_CHECKING:
    from kvchat.commands.acts.surface import Surface


class MemoryActs:
    """Switches memory, and changes what is remembered."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._service = surface.service

    async def run(self, argument: str = "") -> None:
        """The memory; or on, off: for this conversation; or now: go through it. Raises ChatError."""
        id, extraction = self._surface.conversation.id, self._service.extraction
        match argument.strip().lower():
            case "on" | "off" as state:
                await extraction.set_memory(id, state == "on")
                self._surface.say(WHY_OFF[self._service.memory.why_off(id)])
            case "now":
                await extraction.request(id)
                self._surface.say("Takes notes as soon as no answer is running")
            case _:
                await self._surface.pick("memory", argument)

    async def remember(self, text: str = "") -> None:
        """Remember a sentence; one that cannot be is kept where memories are written. Raises ChatError."""
        if not text.strip():
            await self._surface.pick("remember")
            return
        try:
            await self._service.memory.remember(text, self._surface.conversation.id)
        except ChatError:
            self._service.drafts.leave(MEMORY_TYPED, text)
            raise
        self._surface.say(f"Remembered: “{self._surface.cut(text, 36)}” · {self._surface.way_to('memory')} shows it")

    async def forget(self, words: str = "") -> None:
        """Delete the one memory that has these words; where there are several, show them. Raises ChatError."""
        many, gone = await self._service.memory.forget(words) if words.strip() else (1, None)
        if gone is not None:
            text, undo = self._surface.cut(gone.text, 30), self._surface.way_to("memory.undo")
            self._surface.say(f"Forgotten: “{text}” · {undo} brings it back")
        elif many:
            await self._surface.pick("forget", words)
        else:
            self._surface.say("No memory has these words")

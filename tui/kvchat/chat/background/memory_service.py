"""Memory as the person meets it: what is remembered, put in front of a question, and changed by them.

The rule: memories go into the question's context, never into the system message; none leaves this machine unless the
person allowed that; without a memory a question goes out all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kvchat.backends.dialect import HostClass
from kvchat.chat.background.worker import Worker
from kvchat.chat.conversations import Conversations
from kvchat.chat.errors import ChatError
from kvchat.chat.events import MemoriesChanged
from kvchat.chat.ground import Ground
from kvchat.chat.live import OpenConversation
from kvchat.chat.server.servers import Servers
from kvchat.prompt.message import Node, new_id
from kvchat.store import StoreError

if TYPE_CHECKING:
    from kvchat.memory.memories import Memories
    from kvchat.memory.recall import Recalled

RECALL_S, FIRST_RECALL_S = 0.5, 3.0
"""A question waits no longer than this for its memories; the first of a run, for which they are read, no longer than
that."""
QUIT_S = 1.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class MemoryService:
    """What is remembered, for the other parts of the service and for the screen."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers,
                 open_memories: Callable[[], Memories | None] | None,
                 vector_of: Callable[[str], Awaitable[list[float] | None]]) -> None:
        """`open_memories` opens them when they are first needed; None: there is no memory. `vector_of`: the vector of a
        question, None where there is no source of vectors."""
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._vector_of = vector_of
        self.session = new_id()[:12]
        """This run, as the history of the memory names it."""
        self._open_memories = open_memories
        self._memories: Memories | None = None
        self._looking = False
        self._remembering = Worker("kvchat-memory")

    @property
    def has_memory(self) -> bool:
        """Whether there is a memory at all: an incognito run has none."""
        return self._open_memories is not None

    async def with_memories(self, work: Callable[[Memories], T]) -> T:
        """What `work` gives back, done beside the loop, in the order of the calls. Raises ChatError."""
        if self._open_memories is None:
            raise ChatError("There is no memory in an incognito run.")

        def do() -> T:
            from kvchat.memory.entry import MemoryTrouble

            try:
                return work(self._opened_memories())
            except (MemoryTrouble, StoreError) as error:
                raise ChatError(str(error)) from None

        return await self._remembering.do(do)

    def _opened_memories(self) -> Memories:
        if self._memories is None:
            assert self._open_memories is not None
            self._memories = self._open_memories()
        if self._memories is None:
            raise ChatError("There is no memory in an incognito run.")
        return self._memories

    def look_soon(self) -> None:
        """Look at the files beside everything else, where they were read before."""
        if self._memories is not None and not self._looking:
            self._looking = True
            self._ground.in_background(self.look())

    async def look(self) -> None:
        """Take over what was changed in the files by hand; tell if anything was."""
        try:
            if await self.with_memories(_synced):
                self._ground.events.tell(MemoriesChanged())
        except ChatError as error:
            log.info("the memory could not be read: %s", error)
        finally:
            self._looking = False

    # -- for which conversations

    def is_on(self, id: str) -> bool:
        """Whether a conversation is gone through for memories and gets them."""
        record = self._conversations.record(id)
        return (self.has_memory and self._ground.settings.memory.enabled and record is not None and record.memory
                and (self._ground.settings.memory.on_cloud or not self._may_go_to_cloud(id)))

    def _may_go_to_cloud(self, id: str) -> bool:
        """Whether what this conversation holds goes to the internet, or may: a named server that was not met yet."""
        link = self._servers.link(id)
        if link.info is not None:
            return self._servers.consent.destination(link.info, id).host_class is HostClass.CLOUD
        return self._servers.is_on_the_internet(link)

    # -- in front of a question

    async def recall(self, id: str, text: str, after: Sequence[Node] | None = None) -> tuple[Recalled, ...]:
        """What is remembered that belongs to this question, and at a branch's first turn the profile. Empty when there
        is nothing, or it cannot be had. `after`: the branch it goes on from; None: the one in use."""
        settings, conversation = self._ground.settings.memory, self._conversations.loaded.get(id)
        if conversation is None or not settings.recall or not self.is_on(id):
            return ()
        path = conversation.path() if after is None else after
        vector: list[float] | None = None

        def find(memories: Memories) -> tuple[Recalled, ...]:
            from kvchat.memory.recall import recalled

            memories.sync()
            return recalled(memories, text, path, tokens=settings.recall_tokens,
                            profile_tokens=settings.profile_tokens, vector=vector)

        try:
            async with asyncio.timeout(FIRST_RECALL_S if self._memories is None else RECALL_S):
                vector = await self._vector_of(text)
                return await self.with_memories(find)
        except (ChatError, TimeoutError) as error:
            log.info("nothing was recalled: %s", error or "it took too long")
            return ()

    async def profile(self, conversation: OpenConversation) -> Recalled | None:
        """What stands first in a conversation's next question, whatever that will be; None: nothing does."""
        path, tokens = conversation.path(), self._ground.settings.memory.profile_tokens
        if len(path) > 1 or not self._ground.settings.memory.recall or not self.is_on(conversation.id):
            return None

        def find(memories: Memories) -> Recalled | None:
            from kvchat.memory.recall import profile_of

            return profile_of(memories, path, tokens)

        try:
            return await self.with_memories(find)
        except ChatError:
            return None

    # -- by the person

    async def remember(self, text: str, id: str = "") -> None:
        """Note what the person asks for. Raises ChatError."""
        await self.with_memories(lambda m: m.add(text, conversation=id))
        self._ground.events.tell(MemoriesChanged())

    async def aclose(self) -> None:
        if self._memories is not None:
            with suppress(TimeoutError):  # another kvchat may hang with the lock
                async with asyncio.timeout(QUIT_S):
                    await self._remembering.do(self._memories.close)
        self._remembering.end()


def _synced(memories: Memories) -> bool:
    """Whether the memories, or what is wrong with their files, have changed."""
    before = memories.problems
    return memories.sync() or memories.problems != before

"""Memory as the user meets it: what is remembered, put in front of a question, and changed by them.

Memories go into the question's context, never into the system message; none leaves this machine unless the
user allowed that; without a memory a question goes out all the same.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from kvchat.backends.dialect import HostClass
from kvchat.chat.background.worker import Worker
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import MemoriesChanged
from kvchat.prompt.message import Node, new_id
from kvchat.store import StoreError
from kvchat.store.covering import is_passed_over, pass_over
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from pathlib import Path

    from kvchat.chat.server.link import Link
    from kvchat.figures.accounting import SideTotals
    from kvchat.memory.entry import Change, Entry, Kind
    from kvchat.memory.memories import Memories
    from kvchat.memory.recall import Recalled

RECALL_S, FIRST_RECALL_S = 0.5, 3.0
"""Seconds that a question waits for its memories, at most; the first of a run, for which they are read, waits
longer."""
QUIT_S = 1.0
HISTORY = 500
"""Changes of an overview."""
HITS = 50
"""Memories that a search asks the index for."""

WhyOff = Literal["", "incognito", "settings", "conversation", "internet", "demo"]
"""Why a conversation has no memory: the run is incognito, it is off in the settings or in the conversation, or its
server is on the internet; or why memories are only recalled: the demo model extracts none. Empty: it has one."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class MemoryOverview(Struct, frozen=True):
    """All that is remembered, as it was at one moment. Newest first."""

    folder: Path
    side_work: SideTotals
    """What side work cost in the last 7 days."""
    proposals: Sequence[Entry] = ()
    entries: Sequence[Entry] = ()
    changes: Sequence[Change] = ()
    problems: Sequence[str] = ()
    """What is wrong with the files, in sentences."""
    found: Sequence[str] = ()
    """The ids that the index found for what is searched, best first."""


class MemoryService:
    """What is remembered, for the other parts of the service and for the screen."""

    def __init__(
        self,
        core: Core,
        open_memories: Callable[[], Memories | None] | None,
        vector_of: Callable[[str], Awaitable[list[float] | None]],
        is_untouched: Callable[[], bool] = lambda: False,
    ) -> None:
        """`open_memories` opens them when they are first needed; None: there is no memory. `vector_of`: the vector of a
        question, None where there is no source of vectors. `is_untouched`: whether nothing was ever remembered."""
        self._core = core
        self._vector_of = vector_of
        self.session = new_id()[:12]
        """This run, as the history of the memory names it."""
        self._open_memories = open_memories
        self._is_untouched = is_untouched
        self._memories: Memories | None = None
        self._looking = False
        self._remembering = Worker("kvchat-memory")

    @property
    def has_memory(self) -> bool:
        """Whether there is a memory at all: an incognito run has none."""
        return self._open_memories is not None

    async def with_memories(self, work: Callable[[Memories], T]) -> T:
        """The result of `work`, which runs on a thread, in the order of the calls. Raises ChatError."""
        if self._open_memories is None:
            raise ChatError(ChatProblem.NO_MEMORY)

        def do() -> T:
            from kvchat.memory.entry import MemoryTrouble

            try:
                return work(self._opened_memories())
            except (MemoryTrouble, StoreError) as error:
                raise ChatError.of(error) from None

        return await self._remembering.do(do)

    def _opened_memories(self) -> Memories:
        if self._memories is None:
            assert self._open_memories is not None
            self._memories = self._open_memories()
        if self._memories is None:
            raise ChatError(ChatProblem.NO_MEMORY)
        return self._memories

    def look_soon(self) -> None:
        """Look at the files in the background, where they were read before."""
        if self._memories is not None and not self._looking:
            self._looking = True
            self._core.in_background(self.look())

    async def look(self) -> None:
        """Take over what was changed in the files by hand; tell if anything was."""
        try:
            if await self.with_memories(_synced):
                self._core.events.tell(MemoriesChanged())
        except ChatError as error:
            log.info("the memory could not be read: %s", error)
        finally:
            self._looking = False

    # -- for which conversations

    def is_on(self, id: str) -> bool:
        """Whether memories are extracted from a conversation."""
        return not self.why_off(id)

    def recalls(self, id: str) -> bool:
        """Whether memories are recalled in a conversation."""
        return self.why_off(id) in ("", "demo")

    def why_off(self, id: str) -> WhyOff:
        """Why no memories are extracted from a conversation; empty: they are."""
        settings, record = self._core.settings.memory, self._core.conversations.record(id)
        if not self.has_memory:
            return "incognito"
        if not settings.enabled:
            return "settings"
        if record is None or not record.memory:
            return "conversation"
        if not settings.on_cloud and self._may_go_to_cloud(id):
            return "internet"
        info = self.worker(id).info
        return "demo" if info is not None and info.is_demo else ""

    def worker(self, id: str) -> Link:
        """The server that extracts the memories of a conversation, reached or not."""
        chosen, servers = self._core.settings.memory.profile, self._core.servers
        return servers.links.at(chosen) if chosen in self._core.settings.profiles else servers.link(id)

    async def pass_over(self, id: str, nodes: Sequence[str]) -> None:
        """Extract nothing from these messages of a conversation, ever."""
        if nodes and self.has_memory:
            await self._core.writer.write(lambda: pass_over(self._core.store.database, id, nodes))

    async def is_passed_over(self, path: Sequence[Node]) -> bool:
        """Whether nothing is ever extracted from the questions of a branch: all were asked with `kvchat ask`, or while
        memory was off."""
        nodes = [node.id for node in path]
        return await self._core.writer.call(lambda: is_passed_over(self._core.store.database, nodes))

    def _may_go_to_cloud(self, id: str) -> bool:
        """Whether what this conversation holds goes to the internet, or may: a named server that was not met yet."""
        link = self._core.servers.link(id)
        if link.info is not None:
            return self._core.servers.consent.destination(link.info, id).host_class is HostClass.CLOUD
        return self._core.servers.is_on_the_internet(link)

    # -- in front of a question

    async def recall(self, id: str, text: str, after: Sequence[Node] | None = None) -> tuple[Recalled, ...]:
        """What is remembered that belongs to this question, and at a branch's first turn the profile. Empty when there
        is nothing, or it cannot be had. `after`: the branch it goes on from; None: the one in use."""
        settings, conversation = self._core.settings.memory, self._core.conversations.loaded.get(id)
        if conversation is None or not settings.recall or not self.recalls(id):
            return ()
        path = conversation.path() if after is None else after
        vector: list[float] | None = None

        def find(memories: Memories) -> tuple[Recalled, ...]:
            from kvchat.memory.recall import recalled

            return recalled(
                memories,
                text,
                path,
                tokens=settings.recall_tokens,
                profile_tokens=settings.profile_tokens,
                skill_tokens=settings.skill_tokens,
                vector=vector,
            )

        try:
            async with asyncio.timeout(FIRST_RECALL_S if self._memories is None else RECALL_S):
                vector = await self._vector_of(text)
                return await self._found_in(find) or ()
        except (ChatError, TimeoutError) as error:
            log.info("nothing was recalled: %s", error or "it took too long")
            return ()

    async def profile(self, conversation: OpenConversation) -> Recalled | None:
        """The profile that precedes a conversation's first question, whatever that will be; None: there is none."""
        path, tokens = conversation.path(), self._core.settings.memory.profile_tokens
        if len(path) > 1 or not self._core.settings.memory.recall or not self.recalls(conversation.id):
            return None

        def find(memories: Memories) -> Recalled | None:
            from kvchat.memory.recall import profile_of

            return profile_of(memories, path, tokens)

        try:
            return await self._found_in(find)
        except ChatError:
            return None

    async def _found_in(self, find: Callable[[Memories], T]) -> T | None:
        """What `find` finds in the memory as its files are; None where nothing is remembered. Loading the memory takes
        a while, and so does `find`, which stems the most common words. Raises ChatError."""
        if self._memories is None and await self._remembering.do(self._is_untouched):
            return None

        def look(memories: Memories) -> T | None:
            memories.sync()
            return None if memories.is_empty else find(memories)

        return await self.with_memories(look)

    # -- by the user

    async def remember(self, text: str, id: str = "") -> None:
        """Note what the user asks for. Raises ChatError."""
        await self.with_memories(lambda m: m.add(text, conversation=id))
        self._core.events.tell(MemoriesChanged())

    async def overview(self, query: str = "") -> MemoryOverview:
        """All that is remembered, after the files were looked at. Raises ChatError."""
        from kvchat.memory.entry import Status
        from kvchat.store.stats import side_work

        def look(memories: Memories) -> MemoryOverview:
            memories.sync()
            return MemoryOverview(
                memories.folder,
                side_work(self._core.store, self._core.timestamp()),
                memories.entries(Status.PENDING),
                memories.entries(),
                memories.log(HISTORY),
                tuple(memories.problems),
                _found(memories, query),
            )

        return await self.with_memories(look)

    async def search(self, query: str) -> list[str]:
        """The ids of what the index finds, best first. Raises ChatError."""
        return await self.with_memories(lambda memories: _found(memories, query))

    async def add(self, text: str, kind: Kind) -> tuple[Entry, bool]:
        """Remember a text; with it, whether it is new. Raises ChatError."""

        def add(memories: Memories) -> tuple[Entry, bool]:
            known = {old.id for old in memories.entries()}
            entry = memories.add(text, kind)
            return entry, entry.id not in known

        return await self.with_memories(add)

    async def edit(self, entry: Entry, text: str) -> Entry:
        """Give a memory another text; a proposal is taken by it. Raises ChatError."""
        from kvchat.memory.entry import Status

        def edit(memories: Memories) -> Entry:
            changed = memories.edit(entry.id, text)
            return memories.accept(entry.id) if entry.status is Status.PENDING else changed

        return await self.with_memories(edit)

    async def delete(self, id: str) -> None:
        """Delete a memory, or discard a proposal. Raises ChatError."""
        await self.with_memories(lambda memories: memories.delete(id))

    async def accept(self, id: str) -> Entry:
        """Take a proposal. Raises ChatError."""
        return await self.with_memories(lambda memories: memories.accept(id))

    async def put_into_profile(self, entry: Entry) -> Entry:
        """Have every new conversation begin with a memory; a proposal is taken by it. Raises ChatError."""
        from kvchat.memory.entry import PROFILE, Status

        def move(memories: Memories) -> Entry:
            taken = memories.accept(entry.id) if entry.status is Status.PENDING else entry
            return taken if taken.page == PROFILE else memories.move(taken.id, PROFILE)

        return await self.with_memories(move)

    async def undo(self, seq: int) -> None:
        """Take the change with this number back. Raises ChatError."""
        await self.with_memories(lambda memories: memories.undo(seq))

    async def own_changes(self, conversation: str = "") -> tuple[list[Change], list[Change]]:
        """What kvchat did by itself in the session in which it did something last, and what it did about a
        conversation; as far as it is in force and the user has not made it their own since. Newest first. Raises
        ChatError."""
        return await self.with_memories(lambda memories: _own_changes(memories, conversation))

    async def take_back(self, *, session: str = "", conversation: str = "") -> tuple[int, int]:
        """Take back what kvchat did by itself in a session, or about a conversation: how many changes, and how many
        stay as the user has changed them since. Raises ChatError."""
        return await self.with_memories(
            lambda memories: (memories.undo_all(session=session, conversation=conversation), len(memories.left))
        )

    async def proposals(self) -> list[str]:
        """The ids of the memories that are pending approval. Raises ChatError."""
        from kvchat.memory.entry import Status

        return await self.with_memories(lambda memories: [one.id for one in memories.entries(Status.PENDING)])

    async def forget(self, words: str) -> tuple[int, Entry | None]:
        """Delete the one memory whose text has every word of `words` as a whole word, in any case: how many have them,
        and what was deleted. Raises ChatError."""

        def forget(memories: Memories) -> tuple[int, Entry | None]:
            memories.sync()
            meant = _having(memories, words)
            if len(meant) == 1:
                return 1, memories.delete(meant[0].id).before
            return len(meant) or len(memories.search(words)), None

        return await self.with_memories(forget)

    async def having(self, words: str) -> list[Entry]:
        """The memories that `forget` would choose among, newest first; where none has all words, what a search finds,
        best first. Raises ChatError."""
        return await self.with_memories(
            lambda memories: _having(memories, words) or [entry for entry, _ in memories.search(words)]
        )

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


def _having(memories: Memories, words: str) -> list[Entry]:
    wanted = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in words.split()]
    return [entry for entry in memories.entries() if all(word.search(entry.text) for word in wanted)]


def _found(memories: Memories, query: str) -> list[str]:
    return [entry.id for entry, _ in memories.search(query, k=HITS)] if query.strip() else []


def _own_changes(memories: Memories, conversation: str) -> tuple[list[Change], list[Change]]:
    from kvchat.memory.entry import Status
    from kvchat.memory.history import ALL, BY_ITSELF, TOUCHED

    there = (Status.LIVE, Status.PENDING)
    everything = memories.log(ALL)
    session = next((change.session for change in everything if change.act in BY_ITSELF), "")
    known = {entry.id for status in there for entry in memories.entries(status)}
    touched = {change.after.id for change in everything if change.act in TOUCHED and not change.undone}
    own = [
        change
        for change in everything
        if change.act in BY_ITSELF
        and not change.undone
        and change.after.id not in touched
        and (change.after.status in there) is (change.after.id in known)
    ]
    return (
        [change for change in own if change.session == session],
        [change for change in own if conversation and change.after.conversation == conversation],
    )

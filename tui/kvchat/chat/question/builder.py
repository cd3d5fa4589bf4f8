"""Building a question: what the user asks becomes the frozen user message.

The same question after the same branch becomes the same bytes, whether it is sent, asked again, prefilled ahead or only
priced. A server that does not list its special tokens holds up nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.backends.dialect import BackendError
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import with_files
from kvchat.chat.question.retrieval import Retrieval
from kvchat.chat.server.link import Link
from kvchat.chat.server.servers import Servers
from kvchat.prompt.branching import Branch, asked
from kvchat.prompt.citations import numbered
from kvchat.prompt.context import NOTE, TIME, ContextBlock, defused, foreign, rendered
from kvchat.prompt.drafts import PASTE, pasted_of
from kvchat.prompt.images import images_in
from kvchat.prompt.message import Node, NoteKind
from kvchat.prompt.stamp import last_stamp, stamp_due
from kvchat.prompt.tools import broken_call

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.memory.recall import Recalled


class QuestionBuilder:
    """Builds the questions of all conversations."""

    def __init__(self, core: Core, retrieval: Retrieval, memory: MemoryService, special_tokens: SpecialTokens) -> None:
        self._core = core
        self._retrieval = retrieval
        self._memory = memory
        self._special_tokens = special_tokens
        self._warm_up: tuple[str, tuple[ContextBlock, ...]] = ("", ())
        """A conversation, and what is attached to the question that is written in it."""

    async def built(self, conversation: OpenConversation, head: str, question: Question) -> Branch:
        """The question after the message `head`, and the empty answer that will stream into it. Nothing is stored, and
        the conversation stays as it is. Raises ChatError."""
        path = conversation.tree.path(head)
        question = await self._retrieval.resolved(conversation, path, question)
        blocks = await self._in_front(conversation, path, question)
        now, stamped, every = self._core.clock(), conversation.stamped, self._every(conversation.id)
        if blocks and every is not None and stamped is not None and now - stamped < every:
            now = stamped  # these very bytes were prefilled
        pasted = pasted_of(question.meant.spans, (PASTE,))
        return asked(conversation.tree, head, question.text, blocks, now, every, pasted)

    async def next_beginning(self, conversation: OpenConversation) -> str:
        """How the next question's content begins, as far as that is settled: its blocks, without the line ends after
        the last, since how many there are depends on what follows. Empty where an image is the first."""
        path, attached = conversation.path(), self._warm_up[1] if self._warm_up[0] == conversation.id else ()
        question = Question("", attached, passages=(), files=(), is_warm_up=True)
        if images_in(attached):
            return ""
        if not attached:
            return rendered(await self._in_front(conversation, path, question), "").rstrip("\n")
        try:
            question = await self._retrieval.resolved(conversation, path, question)
        except ChatError:  # it is said when it is sent
            question = replace(question, blocks=())
        blocks = await self._in_front(conversation, path, question)
        now, every = self._core.clock(), self._every(conversation.id)
        if every is not None:
            stamped = conversation.stamped
            if stamped is not None and timedelta(0) <= now - stamped < every:
                now = stamped  # it may have been prefilled already
            if stamp_due(now, last_stamp(path), every):
                conversation.stamped = now
        begun = asked(conversation.tree, path[-1].id, "", blocks, now, every).nodes[-2]
        return rendered(begun.message.blocks, "").rstrip("\n")

    def prepare(self, id: str, blocks: Sequence[ContextBlock]) -> bool:
        """These blocks are attached to the question that is written in a conversation; whether that is new."""
        before, self._warm_up = self._warm_up, (id, tuple(blocks)) if blocks else ("", ())
        return self._warm_up != before

    def forget(self, id: str) -> None:
        """Nothing is attached any more to a question in this conversation: it was sent."""
        if self._warm_up[0] == id:
            self._warm_up = "", ()

    def _every(self, id: str) -> timedelta | None:
        """How often a question is stamped with the time; None: never, as for the demo model, which says it back."""
        settings, info = self._core.settings, self._core.servers.link(id).info
        is_told = settings.time_stamp and not (info is not None and info.is_demo)
        return timedelta(minutes=settings.time_stamp_minutes) if is_told else None

    async def _in_front(
        self, conversation: OpenConversation, path: Sequence[Node], question: Question
    ) -> list[ContextBlock]:
        """The blocks of a question as they are sent, but for the time stamp: the profile first, which is the same in
        every conversation; then what is attached or mentioned, and passages of documents; last the memories that only
        the whole question recalls, behind all that is prefilled ahead."""
        blocks = [*await with_files(question.blocks, question.files or ()), *(question.passages or ())]
        if (note := path[-1].note) is not None and note.is_a(NoteKind.BROKEN_CALL):
            blocks.insert(0, ContextBlock(NOTE, "kvchat", broken_call(str(note["call"]), str(note["why"]))))
        if recalled := await self._recalled(conversation, path, question):
            from kvchat.memory.recall import PROFILE_SOURCE

            profile = [block for block in recalled if block.source == PROFILE_SOURCE]
            blocks = [*profile, *blocks, *(block for block in recalled if block.source != PROFILE_SOURCE)]
        return numbered(await self._special_tokens.plain(conversation, blocks), path)

    async def _recalled(
        self, conversation: OpenConversation, path: Sequence[Node], question: Question
    ) -> list[ContextBlock]:
        """The memories of a question, without those that the user took out."""
        found: Sequence[Recalled] = ()
        if question.recalls and question.is_warm_up:
            profile = await self._memory.profile(conversation)
            found = (profile,) if profile is not None else ()
        elif question.recalls:
            found = await self._memory.recall(conversation.id, question.text, path)
        return [block for recalled in found if (block := _without(recalled, question.without)).text]


def _without(recalled: Recalled, ids: frozenset[str]) -> ContextBlock:
    """The block without the lines of some entries."""
    if not any(entry.id in ids for entry in recalled.entries):
        return recalled.block
    lines = recalled.block.text.splitlines()
    kept = [line for line, entry in zip(lines, recalled.entries, strict=True) if entry.id not in ids]
    return replace(recalled.block, text="\n".join(kept))


class SpecialTokens:
    """What the servers of conversations would read as special tokens."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def plain(self, conversation: OpenConversation, blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        """The blocks without what the conversation's server, where it is connected and may have them, would read as
        special tokens."""
        return await self.plain_at(self._servers.link(conversation.id), conversation.id, blocks)

    async def plain_at(self, link: Link, id: str, blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        """As `plain`, for a server; `id`: the conversation that the blocks are for; empty: a new one."""
        connector = link.connector
        info = connector.info if connector.connection.phase == "ready" else None
        if info is None or all(block.kind == TIME for block in blocks) or not self._servers.consent.agreed_to(info, id):
            return blocks
        from kvchat.backends.tokens import special_texts

        try:
            backend = await connector.ready()
        except BackendError:
            return blocks
        return defused(blocks, await special_texts(backend, foreign(blocks)))

"""Where the context of a question comes from: what is attached or mentioned, passages of documents, memories; without
the special tokens of the server's own.

The rule: the same blocks become the same bytes, whether they are prefilled ahead or sent; and a server that does not
tell its special tokens holds up nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.backends.dialect import BackendError, ServerInfo
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.question.builder import Context
from kvchat.chat.question.mentions import with_files
from kvchat.chat.server.link import Link
from kvchat.prompt.context import TIME, ContextBlock, defused, foreign
from kvchat.prompt.message import Node

if TYPE_CHECKING:
    from kvchat.memory.recall import Recalled


class AttachmentSource:
    """What the person attached, and the files that the question mentions and that are not among that."""

    async def context(self, conversation: OpenConversation, path: Sequence[Node], question: Question) -> Context:
        return Context(await with_files(question.blocks, question.files or ()))


class PassageSource:
    """Passages of documents."""

    async def context(self, conversation: OpenConversation, path: Sequence[Node], question: Question) -> Context:
        return Context(question.passages or ())


class MemorySource:
    """What is remembered: the profile stands first, because it is the same in every conversation; what only the whole
    question brings up stands behind all that is read ahead."""

    def __init__(
        self,
        recall: Callable[[str, str, Sequence[Node]], Awaitable[Sequence[Recalled]]],
        profile: Callable[[OpenConversation], Awaitable[Recalled | None]],
    ) -> None:
        """`recall`: what belongs to a conversation's question with this text after a branch. `profile`: what stands
        first in its next question, whatever that will be."""
        self._recall = recall
        self._profile = profile

    async def context(self, conversation: OpenConversation, path: Sequence[Node], question: Question) -> Context:
        found = await self._found(conversation, path, question) if question.recalls else ()
        if not found:
            return Context(())
        from kvchat.memory.recall import PROFILE_SOURCE

        blocks = [block for recalled in found if (block := _without(recalled, question.without)).text]
        return Context(
            [block for block in blocks if block.source != PROFILE_SOURCE],
            first=[block for block in blocks if block.source == PROFILE_SOURCE],
        )

    async def _found(
        self, conversation: OpenConversation, path: Sequence[Node], question: Question
    ) -> Sequence[Recalled]:
        if not question.is_warm_up:
            return await self._recall(conversation.id, question.text, path)
        profile = await self._profile(conversation)
        return (profile,) if profile is not None else ()


def _without(recalled: Recalled, ids: frozenset[str]) -> ContextBlock:
    """The block without the lines of some entries."""
    if not any(entry.id in ids for entry in recalled.entries):
        return recalled.block
    lines = recalled.block.text.splitlines()
    kept = [line for line, entry in zip(lines, recalled.entries, strict=True) if entry.id not in ids]
    return replace(recalled.block, text="\n".join(kept))


class SpecialTokens:
    """What the servers of conversations would read as special tokens. `link`: the server of a conversation. `agreed`:
    whether a conversation may go to a server."""

    def __init__(self, link: Callable[[str], Link], agreed: Callable[[ServerInfo, str], bool]) -> None:
        self._link = link
        self._agreed = agreed

    async def plain(self, conversation: OpenConversation, blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        """The blocks without what the conversation's server, where it is connected and may have them, would read as
        special tokens."""
        return await self.plain_at(self._link(conversation.id), conversation.id, blocks)

    async def plain_at(self, link: Link, id: str, blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        """As `plain`, for a server; `id`: the conversation that the blocks are for; empty: a new one."""
        connector = link.connector
        info = connector.info if connector.connection.phase == "ready" else None
        if info is None or all(block.kind == TIME for block in blocks) or not self._agreed(info, id):
            return blocks
        from kvchat.backends.tokens import special_texts

        try:
            backend = await connector.ready()
        except BackendError:
            return blocks
        return defused(blocks, await special_texts(backend, foreign(blocks)))

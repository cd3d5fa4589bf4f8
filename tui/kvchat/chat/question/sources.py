"""Where the context of a question comes from: what is attached or mentioned, passages of documents, memories.

The same blocks become the same bytes, whether they are prefilled ahead or sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.question.builder import Context
from kvchat.chat.question.mentions import with_files
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Node

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
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

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory

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
            return await self._memory.recall(conversation.id, question.text, path)
        profile = await self._memory.profile(conversation)
        return (profile,) if profile is not None else ()


def _without(recalled: Recalled, ids: frozenset[str]) -> ContextBlock:
    """The block without the lines of some entries."""
    if not any(entry.id in ids for entry in recalled.entries):
        return recalled.block
    lines = recalled.block.text.splitlines()
    kept = [line for line, entry in zip(lines, recalled.entries, strict=True) if entry.id not in ids]
    return replace(recalled.block, text="\n".join(kept))

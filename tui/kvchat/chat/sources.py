"""Where the context of a question comes from: the profile of what is remembered, what is attached or mentioned,
passages of documents, and memories that the question brings up.

Each source has its place in front of the question's words, in the order of `QuestionBuilder`; the time stamp stands
behind the memories that come first, because those are the same in every conversation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvchat.chat.branch_files import with_files
from kvchat.chat.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Node

if TYPE_CHECKING:
    from kvchat.memory.recalling.recall import Recalled


class AttachmentSource:
    """What the person attached, and the files that the question mentions and that are not among that."""

    async def blocks(self, conversation: OpenConversation, path: Sequence[Node],
                     question: Question) -> Sequence[ContextBlock]:
        return await with_files(question.blocks, question.files or ())


class PassageSource:
    """Passages of documents."""

    async def blocks(self, conversation: OpenConversation, path: Sequence[Node],
                     question: Question) -> Sequence[ContextBlock]:
        return question.passages or ()


Recall = Callable[[str, str, Sequence[Node]], Awaitable[Sequence["Recalled"]]]
Profile = Callable[[OpenConversation], Awaitable["Recalled | None"]]


class Memories:
    """What is remembered for a question, looked up once. `recall`: what belongs to a text after a branch. `profile`:
    what stands first in the next question of a conversation, whatever it will be."""

    def __init__(self, recall: Recall, profile: Profile) -> None:
        self._recall = recall
        self._profile = profile
        self._last: tuple[Question, Sequence[ContextBlock]] | None = None

    async def of(self, conversation: OpenConversation, path: Sequence[Node],
                 question: Question) -> Sequence[ContextBlock]:
        """The profile's block, then those that only the whole question brings up."""
        if self._last is None or self._last[0] is not question:
            self._last = question, [block for block in await self._found(conversation, path, question) if block.text]
        return self._last[1]

    async def _found(self, conversation: OpenConversation, path: Sequence[Node],
                     question: Question) -> list[ContextBlock]:
        if not question.recalls:
            return []
        if question.is_ahead:
            profile = await self._profile(conversation)
            return [profile.block] if profile is not None else []
        found = await self._recall(conversation.id, question.text, path)
        return [_without(recalled, question.without) for recalled in found]


class ProfileSource:
    """The profile: it stands first, and is the same in every conversation."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    async def blocks(self, conversation: OpenConversation, path: Sequence[Node],
                     question: Question) -> Sequence[ContextBlock]:
        return [block for block in await self._memories.of(conversation, path, question) if _is_profile(block)]


class RecallSource:
    """Memories that only the whole question brings up: they stand behind all that is read ahead."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    async def blocks(self, conversation: OpenConversation, path: Sequence[Node],
                     question: Question) -> Sequence[ContextBlock]:
        return [block for block in await self._memories.of(conversation, path, question) if not _is_profile(block)]


def _is_profile(block: ContextBlock) -> bool:
    from kvchat.memory.recalling.recall import PROFILE_SOURCE

    return block.source == PROFILE_SOURCE


def _without(recalled: Recalled, ids: frozenset[str]) -> ContextBlock:
    """The block without the lines of some entries."""
    if not any(entry.id in ids for entry in recalled.entries):
        return recalled.block
    lines = recalled.block.text.splitlines()
    kept = [line for line, entry in zip(lines, recalled.entries, strict=True) if entry.id not in ids]
    return replace(recalled.block, text="\n".join(kept))

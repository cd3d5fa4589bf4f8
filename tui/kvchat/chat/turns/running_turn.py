"""A turn under way: what was asked for, the request that is on its way, and what may follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.chat.turns.answer_request import AnswerRequest
from kvchat.prompt.branching import Branch
from kvchat.prompt.message import Node
from kvchat.prompt.request import Parameters

if TYPE_CHECKING:
    from kvchat.chat.tools.tool import CallOutcome


class AnswerTask(Struct, frozen=True):
    """What is asked for in a conversation."""

    conversation: OpenConversation
    branch: Branch
    """It ends in an empty answer, or one that begins with what came of `cut`."""
    parameters: Parameters | None = None
    """None: the conversation's."""
    cut: Node | None = None
    """The answer that is continued."""
    wanted: AlternativesRequest | None = None
    """None: one answer, of the conversation's model."""
    calls: bool = True
    """Whether the conversation's tools may be called."""
    queued: str = ""
    """The message that leaves the queue by it."""


class RunningTurn(Struct, eq=False):
    """A turn, from its first request until its last answer is settled.

        answering ──► calling ──► answering   the tools that an answer calls, then the next step
            ├───────────────────► answering   the next of several answers
            └──► over                         nothing was called, nothing is to follow, or it was stopped

    A stopped turn comes to its end by the same ways: its request and its call end at once.
    """

    task: AnswerTask
    request: AnswerRequest
    """The one that is on its way; while tools are called, the one whose answer calls them."""
    further: list[tuple[int, str]]
    """The requests that follow for further answers: how many, and of which model (empty: the conversation's)."""
    steps: int
    """How many more answers may call tools, this one included."""
    result_tokens: int = 0
    """What the results of its calls have, about."""
    is_stopped: bool = False
    calling: asyncio.Task[CallOutcome] | None = None
    """The call that is being carried out."""

    @property
    def conversation(self) -> OpenConversation:
        return self.task.conversation

    def go_on(self, request: AnswerRequest) -> None:
        """Answer by this request from now on."""
        self.request = request
        if self.is_stopped:
            request.stop()

    async def call(self, work: Coroutine[object, object, CallOutcome]) -> CallOutcome | None:
        """What comes of a call; None where the turn was stopped before it began."""
        self.calling = asyncio.create_task(work)
        if self.is_stopped:
            self.calling.cancel()
        await asyncio.wait({self.calling})
        done, self.calling = self.calling, None
        return None if done.cancelled() else done.result()

    def stop(self) -> None:
        self.is_stopped = True
        if self.calling is not None:
            self.calling.cancel()
        self.request.stop()

"""How long a prompt is, before it is sent: estimated, and counted where that is close to the window.

A question that does not fit is not sent before the user agreed. The server's own count decides; where it
does not count, or not in time, the estimate does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kvchat.backends.dialect import BackendError, ChatTurn, ServerInfo
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import TooLongError
from kvchat.prompt.message import Node, tools_of
from kvchat.prompt.token_estimate import TokenEstimate, learnt

COUNTED_FROM = 0.6
"""The share of the window from which an estimate is not enough."""
COUNT_S = 1.0
"""How long the server's own count is waited for."""


class PromptSizes:
    """The sizes of prompts, for every conversation."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._learnt: dict[str, tuple[str, TokenEstimate]] = {}
        """By conversation: the last answer with figures on the branch in use, and what it tells."""

    def estimate(self, conversation: OpenConversation) -> TokenEstimate:
        """The estimate for texts in this conversation, with what its figures tell of the tokenizer."""
        path = conversation.path()
        for at in range(len(path) - 1, -1, -1):
            last = path[at]
            if last.figures is not None and (used := last.figures.context_used):
                known = self._learnt.get(conversation.id)
                if known is None or known[0] != last.id:
                    known = self._learnt[conversation.id] = last.id, learnt((n.wire for n in path[: at + 1]), used)
                return known[1]
        known = self._learnt.get(conversation.id)  # of a branch that this one was made from
        return known[1] if known is not None else TokenEstimate()

    def estimated(self, conversation: OpenConversation, path: Sequence[Node]) -> int:
        """About how many tokens the prompt of `path` has: what the server reported of its beginning, and the rest by
        its characters."""
        rest, estimate = list[bytes](), self.estimate(conversation)
        for node in reversed(path):
            if node.figures is not None and node.figures.context_used is not None:
                return node.figures.context_used + estimate.of(rest)
            rest.append(node.wire)
        return estimate.of([*rest, tools_of(path)])

    def of_branch(self, conversation: OpenConversation, path: Sequence[Node]) -> int | None:
        """The tokens of a branch that the conversation goes to, as its `context_used`: as a server reported them, else
        about; None where none has reported any, and where nothing is said on it."""
        if len(path) < 2 or conversation.context_used is None:
            return None
        return self.estimated(conversation, path)

    async def must_fit(self, conversation: OpenConversation, path: Sequence[Node]) -> None:
        """Raises TooLongError where the prompt of `path` does not fit. One whose size is unknown passes."""
        info = self._core.servers.link(conversation.id).info
        turn = self._core.branch_requests.after(conversation.record, path)
        window = info.window(turn.model) if info is not None else None
        if info is None or not window:
            return
        tokens = self.estimated(conversation, path)
        if tokens < COUNTED_FROM * window:
            return
        counted = await self._counted(conversation, info, turn)
        if (tokens if counted is None else counted) >= window:  # the answer's first token needs room too
            raise TooLongError(tokens if counted is None else counted, window, counted=counted is not None)

    async def _counted(self, conversation: OpenConversation, info: ServerInfo, turn: ChatTurn) -> int | None:
        """The tokens of a prompt as the server's own template and tokenizer make them; None where it does not tell."""
        connector = self._core.servers.link(conversation.id).connector
        if connector.connection.phase != "ready" or not self._core.servers.consent.agreed_to(info, conversation.id):
            return None
        try:
            async with asyncio.timeout(COUNT_S):
                cache = await self._core.tracker.cache_of(await connector.ready())
                if cache is None or cache.server is not info:
                    return None
                tokens = await cache.prompts.prompt(turn)
        except (BackendError, TimeoutError):
            return None
        return len(tokens) if tokens else None

"""Special tokens of the server's own: taken out of what a question quotes, before that is frozen.

The rule: the same blocks become the same bytes, whether they are read ahead or sent; and a server that does not tell
holds up nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvchat.backends.dialect import BackendError, ServerInfo
from kvchat.chat.link import Link
from kvchat.chat.live import OpenConversation
from kvchat.prompt.context import TIME, ContextBlock, defused, foreign


class SpecialTokens:
    """What the servers of conversations would read as special tokens. `link`: the server of a conversation. `agreed`:
    whether a conversation may go to a server."""

    def __init__(self, link: Callable[[str], Link], agreed: Callable[[ServerInfo, str], bool]) -> None:
        self._link = link
        self._agreed = agreed

    async def plain(self, conversation: OpenConversation, blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        """The blocks without what the conversation's server, where it is connected and may have them, would read as
        special tokens."""
        connector = self._link(conversation.id).connector
        info = connector.info if connector.connection.phase == "ready" else None
        if info is None or all(block.kind == TIME for block in blocks) or not self._agreed(info, conversation.id):
            return blocks
        from kvchat.backends.tokens import special_texts

        try:
            backend = await connector.ready()
        except BackendError:
            return blocks
        return defused(blocks, await special_texts(backend, foreign(blocks)))

"""Special tokens of the server's own: taken out of what a question quotes, before that is frozen.

The rule: the same blocks become the same bytes, whether they are read ahead or sent; and a server that does not tell
holds up nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.backends.dialect import BackendError
from kvchat.chat.live import OpenConversation
from kvchat.chat.restoring import Restoring
from kvchat.prompt.context import TIME, ContextBlock, defused, foreign


class Defusing(Restoring):
    """Quoted text as the server will read it: as text."""

    async def _defused(self, conversation: OpenConversation, blocks: Sequence[ContextBlock]) -> list[ContextBlock]:
        """The blocks without what the conversation's server, where it is connected and may have them, would read as
        special tokens."""
        connector = self._link(conversation.id).connector
        info = connector.info if connector.connection.phase == "ready" else None
        if info is None or all(block.kind == TIME for block in blocks) or not self._agreed_to(info, conversation.id):
            return list(blocks)
        from kvchat.backends.special_tokens import special_texts

        try:
            backend = await connector.ready()
        except BackendError:
            return list(blocks)
        return defused(blocks, await special_texts(backend, foreign(blocks)))

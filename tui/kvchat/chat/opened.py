"""The conversations that are loaded.

The rule: one is loaded once and shared by all who hold it. Those used last stay loaded; of the others go those that
nobody holds, and memory does not grow with all that was ever looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

from kvchat.chat.live import OpenConversation

KEPT = 16
"""So many stay loaded that nobody looks at."""


class OpenConversations(WeakValueDictionary[str, OpenConversation]):
    """Loaded conversations by id. `may_go` tells whether the store has all that one of them holds."""

    def __init__(self, may_go: Callable[[OpenConversation], bool]) -> None:
        super().__init__()
        self._may_go = may_go
        self._kept: dict[str, OpenConversation] = {}
        """Used last at the end."""

    def keep(self, conversation: OpenConversation) -> None:
        """It is used now: keep it loaded, and let go of what was not used for long."""
        self._kept.pop(conversation.id, None)
        self[conversation.id] = self._kept[conversation.id] = conversation
        for old in list(self._kept.values())[:-KEPT]:
            if self._may_go(old):
                del self._kept[old.id]

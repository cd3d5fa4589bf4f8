"""What other windows do in the open conversation, told in one line each.

The rule: the screen stays where it is; a line says what happened, and how to get there or back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvchat.chat.events import DeletedElsewhere, HeadAwaited, WrittenElsewhere
    from kvchat.chat.service import ChatService
    from kvchat.ui.chat.base import Severity

    ElsewhereEvent = WrittenElsewhere | DeletedElsewhere | HeadAwaited

FOLLOWED = "Another window wrote here."
STAYED = "Another window wrote on another branch · /tree shows it"
DELETED = "Another window deleted this conversation · {key} brings it back"
WAITS = "Another window is answering · sends after it · Esc cancels"


class Elsewhere:
    """Tells of other windows. `say` shows a sentence for a few seconds, `show_waiting` one until it is empty;
    `deleted` has undo bring a conversation back."""

    def __init__(self, service: ChatService, *, say: Callable[[str, Severity], None],
                 show_waiting: Callable[[str], None], deleted: Callable[[str], None],
                 undo_key: Callable[[], str]) -> None:
        self._service = service
        self._say = say
        self._show_waiting = show_waiting
        self._deleted = deleted
        self._undo_key = undo_key

    def tell(self, event: ElsewhereEvent) -> None:
        """Tell what happened in the open conversation."""
        from kvchat.chat.events import DeletedElsewhere, HeadAwaited, WrittenElsewhere

        match event:
            case WrittenElsewhere(followed=followed):
                self._say(FOLLOWED if followed else STAYED, "information")
            case DeletedElsewhere(id):
                self._deleted(id)
                self._say(DELETED.format(key=self._undo_key()), "warning")
            case HeadAwaited(id):
                self.show(id)

    def show(self, id: str) -> None:
        """Whether a message of this conversation waits for another window."""
        self._show_waiting(WAITS if self._service.conversations.awaits_reply(id) else "")

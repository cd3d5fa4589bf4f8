"""Messages that are too long for the window: what is said of them, and what the user decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kvchat.chat.errors import ChatError, TooLongError
from kvchat.prompt.message import Role
from kvchat.text.format import count
from kvchat.text.messages import too_long_lines, too_long_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvchat.chat.compactor import CompactionPrice
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.events import QuestionRefused
    from kvchat.ui.controllers.workspace import Workspace
    from kvchat.ui.screens.kit import Choice

Way = Literal["compact", "edit", "send"]
"""What to do with a message that is too long: make room for it, shorten it, send it all the same."""
TITLE = "Too long for the window"


class TooLongMessages:
    """Asks about a message before it is sent, and says that the server refused one."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._refusals: dict[str, str] = {}
        """By conversation: what is said of a question that the server refused, until something is done about it."""

    async def way(self, error: TooLongError, *, is_edit: bool) -> Way | None:
        """What the user decides about a message of the open conversation; None: nothing."""
        conversation = self._workspace.conversation
        used = conversation.context_used if not is_edit else None
        try:
            price = self._workspace.service.compactor.price(conversation.id)
        except ChatError:
            price = None
        lines = too_long_lines(error.tokens, error.window, used, is_counted=error.counted)
        return await self._workspace.choose(TITLE, lines, choices(error, used, price), unasked=True)

    def refused(self, event: QuestionRefused, conversation: OpenConversation) -> None:
        """The server refused a question of this conversation."""
        turns = sum(node.role is Role.USER for node in conversation.path())
        self._refusals[conversation.id] = too_long_words(event.tokens, event.window, turns)

    def forget(self, id: str) -> None:
        """Something was done about it."""
        self._refusals.pop(id, None)
        self.show()

    def show(self) -> None:
        """In the status line, as long as nothing was done about it."""
        self._workspace.screen.status.set_problem(self._refusals.get(self._workspace.open_id, ""))


def choices(error: TooLongError, used: int | None, price: CompactionPrice | None) -> Sequence[Choice[Way]]:
    """What can be done. `used`: tokens of the conversation without the message; `price`: of compacting it, where that
    can be done; it is offered where it makes room enough. What the server itself counted too long it would refuse: that
    is not sent."""
    found: list[Choice[Way]] = [("e", "Edit the message", "edit")]
    if price is not None and used and price.plan.after + error.tokens - used < error.window:
        found.append(
            ("c", f"Compact the conversation: {count(used)} → at most {count(price.plan.after)} tokens", "compact")
        )
    return found if error.counted else [*found, ("s", "Send anyway", "send")]

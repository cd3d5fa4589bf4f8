"""Servers that silently drop old text of a conversation to make room, and answer without it.

It is shown when figures speak for it, and never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.cache import dropped_text
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import Noticed
from kvchat.chat.turns.answer_run import previous_figures
from kvchat.prompt.message import Node, Role
from kvchat.text.findings import dropped_text_notice

if TYPE_CHECKING:
    from kvchat.values import Statement


class DroppedText:
    """Looks at each turn that ends."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        info = self._core.servers.link(conversation.id).info
        path = conversation.tree.path(answer.id)
        if found := dropped_on(path, hidden_reasoning=info is None or info.host_class == "cloud"):
            self._core.events.tell(Noticed(dropped_text_notice(found), "error"))


def dropped_on(path: Sequence[Node], *, hidden_reasoning: bool) -> Statement | None:
    """What was seen of a branch from whose last request the server dropped old text; None when nothing speaks for
    that. `hidden_reasoning`: the server may keep a model's reasoning to itself."""
    *before, now = path
    if now.figures is None:
        return None
    answers = [node for node in before if node.role is Role.ASSISTANT]
    same_model = not answers or not now.model or answers[-1].model == now.model
    # Hardly any text has tokens of less than two bytes on average.
    reasoning = None if hidden_reasoning else sum(len(node.message.reasoning.encode()) for node in answers) // 2
    return dropped_text(previous_figures(before) if same_model else None, now.figures, reasoning)

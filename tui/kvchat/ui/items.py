"""From nodes to what the transcript and the sidebar show. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from kvchat.cache.accounting import TurnFigures
from kvchat.numbers import clock, count, speed
from kvchat.prompt.citing import sources
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, Role, State, instructions_of
from kvchat.prompt.tree import Tree
from kvchat.ui.render.message import TranscriptItem
from kvchat.ui.render.sources import sources_of
from kvchat.ui.widgets.header_text import model_name
from kvchat.ui.widgets.sidebar_rows import SidebarRow

if TYPE_CHECKING:
    from kvchat.chat.live import LiveAnswer, OpenConversation

YOU = "You"
SYSTEM = "System"


def items_of(conversation: OpenConversation, model: str, now: datetime) -> list[TranscriptItem]:
    """The branch in use; the system message only where it is not the standing one of an empty conversation."""
    items, known = [], dict[int, ContextBlock]()
    for node in conversation.path()[1:]:
        if node.message.blocks:
            known |= sources((node,))
        items.append(item_of(conversation.tree, node, conversation.live, model, now, known))
    return items


def item_of(tree: Tree, node: Node, live: LiveAnswer | None, model: str, now: datetime,
            known: Mapping[int, ContextBlock] | None = None) -> TranscriptItem:
    """One message; `live` gives a streaming answer its text so far. `known`: the sources on its branch, where they are
    at hand."""
    if known is None:
        known = sources(tree.path(node.id))
    streaming = node.state is State.STREAMING and live is not None and live.node == node.id
    shown = live if streaming else None
    return TranscriptItem(
        node_id=node.id, role=node.role,
        title=YOU if node.role is Role.USER else model_name(node.model or model) or "Answer",
        time=clock(node.created, now), text=shown.text if shown else node.text,
        reasoning=shown.reasoning if shown else node.message.reasoning, blocks=node.message.blocks, state=node.state,
        note=node.note, siblings=tree.version(node.id),
        figures=cost(node.figures), streaming=streaming,
        sources=sources_of(node.text, known) if node.role is Role.ASSISTANT and not streaming else (),
    )


def cost(figures: TurnFigures | None) -> str:
    """`31 tok · 58.2 tok/s`; empty when nothing is known."""
    if figures is None or figures.predicted_tokens is None:
        return ""
    rate = figures.decode_speed
    return f"{count(figures.predicted_tokens)} tok" + (f" · {speed(rate)}" if rate else "")


def instructions(conversation: OpenConversation) -> str:
    path = conversation.path()
    return instructions_of(path[0].text) if path else ""


def sidebar_rows(conversations: Iterable[Conversation], streaming: frozenset[str]) -> list[SidebarRow]:
    """The rows of the sidebar."""
    return [SidebarRow(c.id, c.title, c.updated, c.id in streaming, c.unread) for c in conversations]

"""What the user asks, as the composer or the command line hands it over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.question.mentions import ALL, MentionScope
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import Draft, cut_out

if TYPE_CHECKING:
    from kvchat.prompt.message import Node


class Question(Struct, frozen=True):
    """What the user asks: their words, what they attached, and what they chose of what was found for them."""

    text: str
    blocks: tuple[ContextBlock, ...] = ()
    """Pastes, attached files, what was piped in."""
    meant: MentionScope = ALL
    """What its mentions mean."""
    passages: tuple[ContextBlock, ...] | None = None
    """Exactly these, as they were shown; None: what is found for the text."""
    files: tuple[ContextBlock, ...] | None = None
    """Exactly these of those that it mentions, as they were shown; None: they are read now."""
    without: frozenset[str] = frozenset()
    """The ids of memories, and the references of passages, that are not to go with it."""
    taken: frozenset[str] = frozenset()
    """The references of passages that the user took, of what is found where that is only offered."""
    calls: bool = True
    """False: the model may call no tool for it. The prompt stays the same."""
    recalls: bool = True
    """False: no memory goes with it."""
    again: Node | None = None
    """The question that it asks differently: what went with that goes with it, as far as the text keeps it."""
    is_warm_up: bool = False
    """It is still being written: only the blocks that precede it, whatever it will be."""

    @property
    def draft(self) -> Draft:
        """What was written."""
        return Draft(self.text, self.meant.spans)

    def ending(self, text: str) -> Question:
        """The question that is only `text`, the end of this one."""
        spans = cut_out(self.meant.spans, len(self.text) - len(text), len(self.text))
        return replace(self, text=text, meant=replace(self.meant, spans=spans))

"""What a tool is to the turn that calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from kvchat.backends.dialect import BackendError
from kvchat.backends.http.endpoint import parse_base_url
from kvchat.chat.conversations.live import OpenConversation
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import State
from kvchat.prompt.tools import Permission
from kvchat.sanitize import undrawn
from kvchat.text.tools import SHOWN


class ToolError(Exception):
    """Why a call gave nothing, as a sentence for the model and the user."""


class CallOutcome(Struct, frozen=True):
    """What became of a call."""

    text: str = ""
    """kvchat's own words."""
    blocks: tuple[ContextBlock, ...] = ()
    state: State = State.DONE


class Tool(Protocol):
    """Carries out the calls of one tool. What it is given fits its definition."""

    def permission(self, given: Mapping[str, Any]) -> Permission:
        """What a yes to this call would be for. Raises ToolError where it can never be carried out."""

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        """What it gives. Raises ToolError."""


MOST_UNDRAWN = 20
"""Characters that draw nothing which a text may have in any case; a tenth of a longer one may be such: Persian and
Hindi have joiners between letters."""


def must_be_shown(text: str, most: int = SHOWN) -> None:
    """Raises ToolError for what cannot be shown as it is to the user who is asked: more than `most` characters, for its
    end would go out unseen, or many that draw nothing."""
    if len(text) > most:
        raise ToolError(f"This has more than {most:,} characters, and nothing longer goes out.")
    if undrawn(text) > max(MOST_UNDRAWN, len(text) // 10):
        raise ToolError("This is full of characters that cannot be seen, and no such text goes out.")


def shown_address(url: str) -> str:
    """An address as it is connected to, its host in ASCII (`xn--…`): names that look alike differ there."""
    try:
        parts = urlsplit(url)
        return f"{parse_base_url(f'{parts.scheme}://{parts.netloc}')}{parts.path}"
    except (BackendError, ValueError):
        return url

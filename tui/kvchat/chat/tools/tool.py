"""What a tool is to the turn that calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from kvchat.chat.conversations.live import OpenConversation
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import State
from kvchat.prompt.tools import Permission, ToolDefinition
from kvchat.text.tools import SHOWN

_TYPES = {"string": str, "integer": int}


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


def must_be_shown(text: str) -> None:
    """Raises ToolError for what is too long to be shown whole to the user who is asked: its end would go out unseen."""
    if len(text) > SHOWN:
        raise ToolError(f"This has more than {SHOWN:,} characters, and nothing longer goes out.")


def unfit(definition: ToolDefinition, given: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call, as a sentence; empty: nothing. What is not known is passed over, for
    models invent arguments."""
    for name in definition.parameters["required"]:
        if name not in given:
            return f"{definition.name} needs the argument {name}."
    for name, value in given.items():
        kind = str(definition.parameters["properties"].get(name, {}).get("type", ""))
        if kind and (not isinstance(value, _TYPES[kind]) or isinstance(value, bool)):
            return f"The argument {name} of {definition.name} must be of the type {kind}."
    return ""

"""The tools that names stand for: kvchat's own, and those of the user's MCP servers."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.prompt.tools import ToolDefinition, frozen_tools
from kvchat.sanitize import one_line
from kvchat.text.problems import ChatProblem


async def listed_tools(core: Core, names: Sequence[str], *, recent: bool = False) -> bytes:
    """The tools of these names and groups, those of MCP servers as they list them now; with `recent` as they did within
    a day, so that no program must start for it. Raises ChatError."""
    from kvchat.prompt.offered_tools import own_tools

    if others := [name for name in names if not own_tools(name)]:
        await core.mcp.list_tools(others, recent=recent)
    return named_tools(core, names)


def named_tools(core: Core, names: Sequence[str]) -> bytes:
    """The tools of these names and groups, those of MCP servers as they were listed last. Raises ChatError."""
    if not names:
        return b""
    from kvchat.prompt.offered_tools import DEFINITIONS, GROUPS, own_tools

    found: list[ToolDefinition] = []
    for name in names:
        if not (named := own_tools(name) or core.mcp.named(name)):
            known = ", ".join([*GROUPS, *DEFINITIONS, *core.mcp.known()])
            raise ChatError(ChatProblem.NO_TOOL, name=one_line(name, 40), known=known)
        found += named
    return frozen_tools({one.name: one for one in found}.values())

"""`run_python`: a few lines of Python, by an interpreter that has neither files nor a network.

`pydantic_monty` runs them in a process of its own, which ends with the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.tools.tool import ToolError, must_be_shown
from kvchat.prompt.context import RESULT, ContextBlock
from kvchat.prompt.offered_tools import RUN_PYTHON
from kvchat.prompt.tools import Permission

LONGEST = 20_000
"""Characters of what is run."""
SECONDS, MEMORY, DEPTH = 5.0, 64 << 20, 500
"""What the lines may take: of time, of memory in bytes, of calls inside each other."""


class RunPython:
    def permission(self, given: Mapping[str, Any]) -> Permission:
        must_be_shown(given["code"], LONGEST)
        return Permission(RUN_PYTHON.name)

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        return [ContextBlock(RESULT, RUN_PYTHON.name, await asyncio.to_thread(_ran, given["code"]))]


def _ran(code: str) -> str:
    """What the lines printed, then the value of the last one, or how they failed. Raises ToolError."""
    try:
        from pydantic_monty import CollectString, Monty, MontyError, ResourceLimits
    except ImportError:
        raise ToolError("Python cannot be run here: the extra python is not installed.") from None
    limits = ResourceLimits(
        max_feed_duration_secs=SECONDS, max_total_sleep_secs=SECONDS, max_memory=MEMORY, max_recursion_depth=DEPTH
    )
    printed, said = CollectString(), ""
    with Monty(request_timeout=2 * SECONDS) as pool:
        try:
            with pool.checkout(limits=limits) as session:
                value = session.feed_run(code, print_callback=printed)
            said = "" if value is None else repr(value)
        except MontyError as error:
            said = str(error)
    return "\n".join(filter(None, (printed.output.rstrip("\n"), said))) or "It printed nothing."

"""What `/trunk add NAME PATH` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.chat.errors import ChatError
from kvchat.text.format import count, counted
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.chat.trunks import Trunks


async def made(trunks: Trunks, words: Sequence[str]) -> tuple[str, str]:
    """Make a trunk of `NAME PATH ...`, prefilled in spare time; its name, and what was made. Raises ChatError."""
    if len(words) < 2:
        raise ChatError(ChatProblem.TRUNK_SYNTAX)
    name, *paths = words
    trunk, found = await trunks.add(name, paths)
    await trunks.prefill_soon(name)
    left_out = f", {count(len(found.skipped))} left out" if found.skipped else ""
    files = counted(len(trunk.files), "file")
    return name, f"{name}: {files}{left_out}. It is prefilled while nothing else uses the server."

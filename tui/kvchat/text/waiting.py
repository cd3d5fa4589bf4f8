"""What is waited for while an answer does not come, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.text.format import count, duration

if TYPE_CHECKING:
    from kvchat.cache.accounting import PromptProgress

WAITING = {
    "queued": "waiting for the server",
    "loading": "the model is loading",
    "prefill": "prefilling, no word of how far",
    "silent": "the answer pauses",
    "closing": "the request before is being closed",
    "lane": "waiting for another answer on this server",
    "connecting": "connecting",
    "cancelled": "the server is finishing the cancelled batch",
    "gone": "server offline, sends when it returns",
}
"""By the phase of `Waiting`."""


def waiting_sentence(phase: str, seconds: float) -> str:
    """`Waiting for the server, 12 s.`"""
    words = WAITING.get(phase, WAITING["queued"])
    return f"{words[0].upper()}{words[1:]}, {duration(seconds)}."


def prefill_sentence(progress: PromptProgress) -> str:
    """`Prefilling: 40 percent of 1,240 tokens.`"""
    total = max(1, progress.total)
    return f"Prefilling: {min(100, progress.processed * 100 // total)} percent of {count(total)} tokens."

"""Work that waits, in words."""

from __future__ import annotations

_REASONS: dict[str, str] = {
    "most": "the most messages that may wait",
    "enough": "enough new messages",
    "left": "the conversation was left",
    "rests": "the conversation rests",
    "asked": "you asked for it",
    "new_memories": "new memories",
    "new_texts": "new texts",
}


def job_reason(why: str) -> str:
    """Why a job waits (`store.jobs.JobReason`); what was said of a failure is told as it is."""
    return _REASONS.get(why, why)

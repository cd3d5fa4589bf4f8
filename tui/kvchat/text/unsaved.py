"""What could not be saved, in words."""

from __future__ import annotations

from pathlib import Path

from kvchat.text.format import counted


def rescued_sentence(conversations: int, path: Path | None, reason: str) -> str:
    """Where the conversations are that could not be saved. `path` None: nowhere, for this `reason`."""
    many = counted(conversations, "conversation")
    if path is None:
        return f"{many} could not be saved anywhere: {reason}"
    return f"{many} could not be saved; {'it is' if conversations == 1 else 'they are'} in {path}."

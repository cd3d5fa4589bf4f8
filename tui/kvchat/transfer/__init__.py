"""Conversations leaving kvchat as files, and coming back: one module per format."""

from pathlib import PurePath

FORMATS = {"md": "markdown", "html": "html", "json": "lossless", "jsonl": "jsonl"}
"""The formats by what the command line and a file's suffix call them, each with its module."""


def format_by_suffix(path: PurePath) -> str:
    """The format that a file's suffix names; Markdown where it names none."""
    suffix = path.suffix.removeprefix(".").lower()
    return suffix if suffix in FORMATS else "md"

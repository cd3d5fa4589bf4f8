"""Conversations leaving kvchat as files, and coming back: one module per format."""

FORMATS = {"md": "markdown", "html": "html", "json": "lossless", "jsonl": "jsonl"}
"""The formats by what the command line and a file's suffix call them, each with its module."""

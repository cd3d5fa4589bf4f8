"""Markdown drawn at once."""

from __future__ import annotations

from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument
from kvchat.ui.widgets.transcript.render.rows import Row


def render_markdown(text: str, width: int) -> list[Row]:
    """The rows of a whole Markdown text at `width` cells."""
    document = MarkdownDocument(width)
    document.update(text, final=True)
    return document.rows

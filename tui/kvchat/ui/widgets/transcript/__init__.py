"""The messages of the branch in use, in one widget that draws its rows itself; and how text becomes rows.

It knows the items that it is given and their look, and posts what the user wants: it asks no service. `widget` has the
parts, `render` makes rows of Markdown, code, tables and pictures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.door import door

if TYPE_CHECKING:
    from kvchat.ui.widgets.transcript.render.message import TranscriptItem as TranscriptItem
    from kvchat.ui.widgets.transcript.render.message import as_text as as_text
    from kvchat.ui.widgets.transcript.render.progress import offline_row as offline_row
    from kvchat.ui.widgets.transcript.render.progress import reading_row as reading_row
    from kvchat.ui.widgets.transcript.render.progress import unknown_reading_row as unknown_reading_row
    from kvchat.ui.widgets.transcript.render.progress import waiting_row as waiting_row
    from kvchat.ui.widgets.transcript.render.sources import given as given
    from kvchat.ui.widgets.transcript.render.sources import headings_of as headings_of
    from kvchat.ui.widgets.transcript.render.sources import sources_of as sources_of
    from kvchat.ui.widgets.transcript.render.sources import title_of as title_of
    from kvchat.ui.widgets.transcript.render.wrap import breaks as breaks
    from kvchat.ui.widgets.transcript.widget import Transcript as Transcript

__getattr__, __dir__ = door(
    __name__,
    {
        "render.message": ("TranscriptItem", "as_text"),
        "render.progress": ("offline_row", "reading_row", "unknown_reading_row", "waiting_row"),
        "render.sources": ("given", "headings_of", "sources_of", "title_of"),
        "render.wrap": ("breaks",),
        "widget": ("Transcript",),
    },
)

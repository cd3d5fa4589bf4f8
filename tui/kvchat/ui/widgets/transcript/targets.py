"""What jump letters lead to in the rows of a message: other versions, code blocks and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rich.cells import cell_len
from textual.message import Message

from kvchat.prompt.citations import cited
from kvchat.ui.widgets.jump import Target
from kvchat.ui.widgets.transcript.entry import TranscriptEntry
from kvchat.ui.widgets.transcript.messages import BranchesRequested, CodeCopyRequested, SourcesRequested
from kvchat.ui.widgets.transcript.render.message import VERSIONS
from kvchat.ui.widgets.transcript.render.sources import CITE, given
from kvchat.ui.widgets.transcript.styles import GUTTER


def targets_in(entry: TranscriptEntry, number: int, post: Callable[[Message], object]) -> Iterator[Target]:
    """The targets in a row of a message; `post` posts what the user wants."""
    item, row = entry.item, entry.row(number)
    place = item.node_id, number

    def target(cell: int, message: Message) -> Target:
        return Target(place, GUTTER + cell, partial(post, message))

    action, _, value = row.action.partition(":")
    if action == "code" and len(codes := entry.codes()) >= int(value):
        yield target(-1, CodeCopyRequested(int(value), codes[int(value) - 1]))
    elif row.action == "fold:context" and given(item.blocks):
        yield target(-1, SourcesRequested(item.node_id))
    cell = 0
    for run in row.runs:
        styles = run.tone.split()
        if CITE in styles:
            yield target(cell, SourcesRequested(item.node_id, tuple(cited(run.text))))
        elif VERSIONS in styles and run.text:
            yield target(cell, BranchesRequested(item.node_id))
        cell += cell_len(run.text)

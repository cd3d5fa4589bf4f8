"""The export formats by name, and the functions that render any of them.

The rule: every format is a pure function of `Source` values to pieces of text, and no piece is longer than one of them;
what is heavy to import waits for its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvchat.transfer import html, jsonl, lossless, markdown
from kvchat.transfer.source import Sources, TransferError

Render = Callable[[Sources, bool], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Format:
    """One export format."""

    name: str
    """What the command line and a file's suffix call it."""
    title: str
    """What it is, in a few words for a list to choose from."""
    every_branch: bool
    """Whether it always holds every branch."""
    write: Render
    """The text of the sources in pieces; the second argument is whether branches not in use are in it."""

    @property
    def suffix(self) -> str:
        return f".{self.name}"


FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        Format("md", "Markdown, to read and to edit", False,
               lambda sources, every: markdown.pieces(sources, all_branches=every)),
        Format("html", "A web page, to read, share and print", False,
               lambda sources, every: html.pieces(sources, all_branches=every)),
        Format("json", "Lossless JSON: every branch, byte for byte", True,
               lambda sources, every: lossless.pieces(sources)),
        Format("jsonl", "OpenAI JSONL, for other programs", False,
               lambda sources, every: jsonl.pieces(sources, all_branches=every)),
    )
}


def render(format: str, sources: Sources, *, all_branches: bool = False) -> str:
    """`sources` as the text of `format`. Raises TransferError as `pieces` does."""
    return "".join(pieces(format, sources, all_branches=all_branches))


def pieces(format: str, sources: Sources, *, all_branches: bool = False) -> Iterator[str]:
    """`sources` as the text of `format`, a key of `FORMATS`, bit by bit. Raises TransferError for another name, and
    later for a source that cannot be written."""
    if format not in FORMATS:
        raise TransferError(f"There is no export format {format!r}. Choose one of: {', '.join(FORMATS)}.")
    return FORMATS[format].write(sources, all_branches)

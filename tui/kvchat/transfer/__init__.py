"""Conversations leaving kvchat as files: one module per format behind `render`."""

from kvchat.transfer.formats import FORMATS, Format, pieces, render
from kvchat.transfer.lossless_read import read_lossless
from kvchat.transfer.source import FileExists, Source, Sources, TransferError
from kvchat.transfer.write import export, suggested_name, write_text

__all__ = [
    "FORMATS", "FileExists", "Format", "Source", "Sources", "TransferError", "export", "pieces", "read_lossless",
    "render", "suggested_name", "write_text",
]

"""Conversations leaving kvchat as files: one module per format behind `render`."""

from kvchat.transfer.formats import FORMATS, Format, render
from kvchat.transfer.lossless_read import read_lossless
from kvchat.transfer.source import FileExists, Source, TransferError
from kvchat.transfer.write import export, suggested_name, write_text

__all__ = [
    "FORMATS", "FileExists", "Format", "Source", "TransferError", "export", "read_lossless", "render",
    "suggested_name", "write_text",
]

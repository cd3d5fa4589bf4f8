"""`read_file`: files of the folder that kvchat was started in, and of no other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.tools.tool import ToolError, must_be_shown
from kvchat.documents.attachments import attached, opened_in_place
from kvchat.documents.errors import DocumentError
from kvchat.documents.kept_out import SECRET, is_secret, is_secret_path
from kvchat.prompt.context import FILE, RESULT, ContextBlock
from kvchat.prompt.offered_tools import READ_FILE
from kvchat.prompt.tools import Permission
from kvchat.sanitize import one_line

LARGEST = 4 << 20
"""Bytes of text of a file; what goes into a conversation is cut behind this."""
LISTED = 200
"""Names of a folder."""


class ReadFile:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def permission(self, given: Mapping[str, Any]) -> Permission:
        must_be_shown(given["path"])
        self._place(given)
        return Permission(READ_FILE.name, str(self._folder))

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        return [await asyncio.to_thread(self._read, given)]

    def _place(self, given: Mapping[str, Any]) -> Path:
        """The file itself, wherever links lead. Raises ToolError where that is outside of the folder."""
        typed = str(given["path"])
        shown = one_line(typed, 80)
        try:
            path = Path(self._folder, typed).resolve()
        except (OSError, ValueError, RuntimeError):
            raise ToolError(f"{shown} is no path.") from None
        if path != self._folder and self._folder not in path.parents:
            raise ToolError(f"{shown} is outside the working folder, and only files in it are read.")
        if is_secret_path(str(path)) or is_secret_path(os.path.normpath(self._folder / typed)):
            raise ToolError(f"{shown} {SECRET} and is not read.")
        return path

    def _read(self, given: Mapping[str, Any]) -> ContextBlock:
        path = self._place(given)
        name = str(path.relative_to(self._folder))
        if path.is_dir():
            return ContextBlock(RESULT, f"the folder {one_line(name, 200)}", _listed(path))
        try:
            block = attached(path, name, LARGEST, resolved=True)
        except DocumentError as error:
            sentence = str(error).replace("cannot be attached", "cannot be read")
            raise ToolError(sentence.replace(str(self._folder), "the working folder")) from None
        if is_secret(block.text.encode(errors="replace")):
            raise ToolError(f"{one_line(name, 80)} {SECRET} and is not read.")
        first, lines = given.get("first_line", 1), block.text.split("\n")
        if first <= 1:
            return block
        if first > len(lines):
            raise ToolError(f"{one_line(name, 80)} has {len(lines):,} lines.")
        text = "\n".join(lines[first - 1 :])
        return ContextBlock(FILE, f"{block.source}, from line {first}", text, f"{path}#{first}")


def _listed(folder: Path) -> str:
    """The names in a folder, a line each; folders end with a slash."""
    try:
        opened = opened_in_place(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(opened) as entries:
                seen = (one for one in entries if not one.name.startswith("."))
                names = [f"{one.name}/" if one.is_dir() else one.name for one in sorted(seen, key=lambda one: one.name)]
        finally:
            os.close(opened)
    except OSError as error:
        raise ToolError(f"The folder cannot be read: {error.strerror}.") from None
    more = f"\n[{len(names) - LISTED:,} more]" if len(names) > LISTED else ""
    return "\n".join(names[:LISTED]) + more or "The folder is empty."

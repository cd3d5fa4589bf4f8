"""A folder with a Markdown file of every conversation, written again where that has changed.

A file's header says which conversation it belongs to. Only a file of that same conversation is replaced or removed,
whatever its name begins with; any other is the user's and stays. Only the header is read.
"""

from __future__ import annotations

import errno
import os
import re
from collections import defaultdict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from kvchat.paths import reason
from kvchat.prompt.conversation import Conversation
from kvchat.transfer.formats import FileExists, Source, TransferError
from kvchat.transfer.markdown import with_comment
from kvchat.transfer.write import expanded, failed, slug, write_text

_NAME = re.compile(r"-([0-9a-f]{8,32})\.md")
_HEADER = re.compile(rb"---\r?\n# kvchat ([0-9a-f]{32}) ([0-9a-f]{16}) ")
_HEADER_OCTETS = 128
_COMMENT = "kvchat {id} {state} writes this file; what you change in it is overwritten"
_SHORT, _LONGER, _WHOLE = 8, 12, 32
"""Digits of the id in a name: more where a foreign file has the shorter one."""


def facts(conversation: Conversation) -> tuple[object, ...]:
    """What the file of a conversation is made from: equal facts, equal text. Its messages are in it by the head, for
    they never change, and by the time of the last."""
    given = tuple(sorted((name, repr(value)) for name, value in conversation.parameters.given().items()))
    return (
        conversation.head,
        conversation.updated,
        conversation.title,
        conversation.created,
        conversation.model,
        conversation.tags,
        given,
    )


def state_of(conversation: Conversation) -> str:
    """16 digits for the facts, as they stand in the header."""
    return blake2b(repr(facts(conversation)).encode("utf-8", "replace"), digest_size=8).hexdigest()


class MirrorFolder:
    """The folder, as it was when this was made. For one thread at a time."""

    def __init__(self, base: Path, name: str) -> None:
        """The folder that a user names; a relative one is seen from `base`. It is made, 0700, where the one around
        it is there. Raises TransferError."""
        self.folder = folder = base / expanded(Path(name))
        self._names: dict[str, list[str]] = defaultdict(list)
        try:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if found := _NAME.search(entry.name):
                        self._names[found[1][:_SHORT]].append(entry.name)
        except OSError as error:
            raise failed(folder, error) from error

    def state(self, id: str) -> str:
        """The state that the file of a conversation has; empty: it has no file."""
        found = self._own(id)
        return found[1] if found else ""

    def put(self, source: Source) -> None:
        """Write the file of a conversation. Its name is made from the title when it is first written, and then stays.
        Raises TransferError."""
        record = source.conversation
        comment = _COMMENT.format(id=record.id, state=state_of(record))
        text = "".join(with_comment(source, comment))
        if (found := self._own(record.id)) is not None:
            write_text(found[0], text, overwrite=True)
            return
        for digits in (_SHORT, _LONGER, _WHOLE):
            end = f"-{record.id[:digits]}.md"
            path = self.folder / (slug(record.title, end) + end)
            try:
                # Another kvchat may have written it since the folder was looked at.
                write_text(path, text, overwrite=_header(path)[0] == record.id)
            except FileExists:
                continue
            self._names[record.id[:_SHORT]].append(path.name)
            return
        raise failed(self.folder, FileExistsError(errno.EEXIST, "files of yours have the names of its files"))

    def remove(self, id: str) -> None:
        """Remove the file of a conversation, if there is one. Raises TransferError."""
        if (found := self._own(id)) is None:
            return
        try:
            found[0].unlink(missing_ok=True)
        except OSError as error:
            raise TransferError(f"{found[0]} could not be removed: {reason(error)}.") from error

    def _own(self, id: str) -> tuple[Path, str] | None:
        """The file of a conversation, and its state."""
        for name in self._names.get(id[:_SHORT], ()):
            whose, state = _header(self.folder / name)
            if whose == id:
                return self.folder / name, state
        return None


def _header(path: Path) -> tuple[str, str]:
    """Whose file it is, and its state; empty for a file that is not ours, and where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return "", ""
    try:
        found = _HEADER.match(os.read(handle, _HEADER_OCTETS))
    except OSError:  # a folder of this name
        found = None
    finally:
        os.close(handle)
    return (found[1].decode(), found[2].decode()) if found else ("", "")

"""Compare the file of a source, as it is now, with the text that was sent.

A file is only read in its collection's own folder, links followed to their end; what leads out of it is neither read
nor opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.documents.collection import ChunkPlace, place_of
from kvchat.prompt.context import FILE, ContextBlock
from kvchat.sanitize import clean, one_line

if TYPE_CHECKING:
    from kvchat.documents.library import Library

LARGEST = 64_000_000
"""Bytes of a file that is compared with what was sent."""
NOT_TEXT = frozenset({".pdf", ".docx", ".odt", ".epub"})
"""Files that an editor cannot show."""
AS_READ = "this is the text as it was read."
CHANGED = f"The file has changed since; {AS_READ}"


class SourceState(Struct, frozen=True):
    """Where a text is now."""

    path: Path | None = None
    """The file, where it is there and may be opened."""
    line: int = 1
    words: str = ""
    """What is to be said of it, in a sentence; empty: it says the same."""
    exact: bool = False
    """Whether the file has the text word for word, from `line` on."""


def source_state(library: Library, block: ContextBlock) -> SourceState:
    """What there is to know of the file of a passage or an attached file. Reads the file."""
    place = place_in(block)
    if not block.ref or not place.path:
        return SourceState(words=f"Which file it is from is not known; {AS_READ}")
    path = library.file_of(block.ref)
    if path is None:
        return SourceState(words=_why_not(library, place))
    return _compared(library, path, place, block)


def place_in(block: ContextBlock) -> ChunkPlace:
    """The place of a block. A whole file has none: what follows its path says which state it was in."""
    place = place_of(block.ref)
    return ChunkPlace(place.collection, place.path) if block.kind == FILE else place


def _why_not(library: Library, place: ChunkPlace) -> str:
    """Why a file cannot be opened."""
    if not place.collection:
        return f"The file is gone; {AS_READ}"
    known = next((one for one in library.collections() if one.name.casefold() == place.collection.casefold()), None)
    name = one_line(place.collection, 60)
    if known is None:
        return f"There is no collection {name} any more; {AS_READ}"
    root = Path(known.root)
    try:
        if not root.exists():
            return f"The folder of {name} is missing, {one_line(known.root, 200)}; {AS_READ}"
        if (root / place.path).exists():
            return f"The file leads out of the folder of {name}, so it is not opened; {AS_READ}"
    except (OSError, ValueError):
        pass
    return f"The file is gone; {AS_READ}"


def _compared(library: Library, path: Path, place: ChunkPlace, block: ContextBlock) -> SourceState:
    text = "" if path.suffix.lower() in NOT_TEXT else _text_of(path)
    if text is None:
        return SourceState(path, place.line, f"The file cannot be read now; {AS_READ}")
    sought, whole = _plain(block.text), _plain(text)
    if sought and whole:
        near = _offset(whole, place.line)
        found = whole.find(sought, near)
        last = place.where.partition("~")[0].partition("-")[2]
        if found < 0 or (last.isdecimal() and whole.count("\n", 0, found) >= int(last)):
            found = whole.find(sought)
        if found >= 0:
            line = whole.count("\n", 0, found) + 1
            moved = bool(place.where) and not (place.line <= line <= _last_line(place))
            words = f"It stands at line {line:,} by now." if moved else ""
            return SourceState(path, line, words if place.where or sought == whole else CHANGED, exact=True)
    same = _is_as_attached(block) if block.kind == FILE else _is_as_indexed(library, path, place, block)
    return SourceState(path, place.line, "" if same else CHANGED)


def _is_as_attached(block: ContextBlock) -> bool:
    """Whether an attached file is in the state in which it was attached."""
    from kvchat.documents.attachments import has_changed

    return has_changed(block) is False


def _last_line(place: ChunkPlace) -> int:
    last = place.where.partition("~")[0].rpartition("-")[2]
    return int(last) if last.isdecimal() else place.line


def _offset(text: str, line: int) -> int:
    """Where a line begins; the end, where there are fewer."""
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
        if not at:
            return len(text)
    return at


def _plain(text: str) -> str:
    """As texts are compared: without blanks at the ends of lines, and without empty lines at the end."""
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").split("\n")).rstrip("\n")


def _text_of(path: Path) -> str | None:
    """None: it cannot be read."""
    from kvchat.documents.errors import FileUnreadableError
    from kvchat.documents.loading import loaded
    from kvchat.documents.reading.decoding import decoded

    try:
        return decoded(loaded(path.resolve(), LARGEST).data)
    except (FileUnreadableError, OSError, RuntimeError):
        return None


def _is_as_indexed(library: Library, path: Path, place: ChunkPlace, block: ContextBlock) -> bool:
    """Whether the index has this very text of the file as it is: for formats whose text is not the file's own lines."""
    from kvchat.documents.indexing.file_versions import stamp_of

    doc = block.ref.rpartition("#")[0]
    stamp = stamp_of(library.index.docs(doc).get(doc)) if place.collection else None
    if stamp is None:
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    if (stamp.size, stamp.mtime_ns) != (status.st_size, status.st_mtime_ns):
        return False
    chunks = library.index.get(doc, [place.where])
    return any(_plain(chunk.text) == _plain(block.text) for chunk in chunks)


def file_lines(source_state: SourceState, place: ChunkPlace) -> str:
    """`/home/mara/notes/setup.md:12-40`, as it is copied; without a file the title."""
    if source_state.path is None:
        return clean(place.title)
    first = source_state.line if source_state.exact else place.line
    where = place.where.partition("~")[0]
    if where.startswith("p"):
        return clean(f"{source_state.path} p. {where[1:]}")
    if not where or where.startswith("¶"):
        return clean(str(source_state.path))
    last = first + max(0, _last_line(place) - place.line)
    return clean(f"{source_state.path}:{first}-{last}" if last > first else f"{source_state.path}:{first}")

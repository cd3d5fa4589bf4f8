"""Attachments: a file as a block of a question, captured at that moment, and what has changed in it since.

What was attached stays as it is. A change is a further block: the difference, or the whole text where that is not
longer.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from kvchat.documents.errors import DocumentError, FileUnreadableError, TooLargeError
from kvchat.documents.images import Keep, image_block
from kvchat.prompt.citations import guess_in, name_of, with_guess
from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line

LARGEST = 32 << 20
"""Bytes of a file in a format whose text is smaller than the file."""
FEW_LINES = 2
"""Unchanged lines that are shown around a change."""
MOST_PAIRS = 9_000_000
"""Old lines times new lines, between the first and the last change, that are compared: the time grows with these."""

_DIGITS = 16
_HEAD = 1 << 16
"""Bytes that tell what a file is."""
_STATE = re.compile(rf"(?:([0-9a-f]{{{_DIGITS}}})\.\.)?([0-9a-f]{{{_DIGITS}}})")
_CHANGE = re.compile(r"change of (?P<name>.*) since it was attached", re.DOTALL)
_WHOLE = re.compile(r"(?P<name>.*), as it is now: changed since it was attached", re.DOTALL)
_CONDENSED = (".pdf", ".docx", ".odt", ".epub", ".html", ".htm", ".xhtml", ".ipynb")
_NUMBERED = re.compile(r"\[[0-9]+\]")


def attached(
    path: Path, name: str, most_bytes: int, keep: Keep | None = None, *, resolved: bool = False
) -> ContextBlock:
    """A file as a block, as it is now; `name`: as the user calls it. Raises DocumentError: TooLargeError where its text
    has more than `most_bytes`. PDF, office texts, e-books and images are read in a process of their own. `keep`: keeps
    an image; None: images are refused. `resolved`: no part of `path` may be a link when it is opened."""
    path = Path(os.path.normpath(path.absolute()))
    shown = one_line(name, 200) or one_line(str(path), 200)
    if keep is not None and (image := image_block(path, name, shown, keep)) is not None:
        return image
    condensed = path.suffix.lower() in _CONDENSED
    data = _data_of(path, shown, LARGEST if condensed else min(LARGEST, 4 * most_bytes), most_bytes, resolved=resolved)
    try:
        text, encoding = _text_of(path.name, data)
    except FileUnreadableError as error:
        raise DocumentError(f"{shown} cannot be attached: it {error}.") from None
    if not text.strip():
        raise DocumentError(f"{shown} cannot be attached: there is no text in it.")
    if (size := len(text.encode(errors="replace"))) > most_bytes:
        raise _too_large(shown, size, most_bytes)
    source = whole_characters(" ".join(name.split())) or shown
    if _NUMBERED.match(source):
        source = f"./{source}"  # or its name would be taken for its number
    return ContextBlock(FILE, with_guess(source, encoding), whole_characters(text), _ref(path, _digest(data)))


def whole_of(blocks: Sequence[ContextBlock]) -> ContextBlock | None:
    """Of the blocks about one file, oldest first, the last that has its whole text."""
    return next((block for block in reversed(blocks) if not _is_change(block)), None)


def change(block: ContextBlock, newer: ContextBlock, whole: ContextBlock | None = None) -> ContextBlock | None:
    """What has changed since `block`, the last one about the file of `newer`; None: nothing. `whole`: the last with its
    whole text (see `whole_of`), where `block` is itself a change. Every change of a file is relative to its whole text,
    so that the last one is enough."""
    state = _state(newer)
    if _state(block) == state and state:
        return None
    base = block if not _is_change(block) else whole
    name = plain_name(newer)
    if base is None:
        return _as_it_is_now(newer, name)
    if base.text == newer.text:
        if base is block:
            return None
        text = f"{name} is again as it was attached."
    else:
        difference = _difference(base.text, newer.text, name)
        if difference is None or len(difference) >= len(newer.text):
            return _as_it_is_now(newer, name)
        text = difference
    path, _, _ = newer.ref.rpartition("#")
    return ContextBlock(FILE, f"change of {name} since it was attached", text, f"{path}#{_state(base)}..{state}")


def has_base(block: ContextBlock, there: Iterable[ContextBlock]) -> bool:
    """Whether `there` has the whole text that a change is relative to. A whole text needs none."""
    base = _states(block)[0]
    return not base or any(_states(known) == ("", base) for known in there if _is_of_one_file(known, block))


def is_same_state(block: ContextBlock, other: ContextBlock) -> bool:
    """Whether two blocks are about one state of one file."""
    return _is_of_one_file(block, other) and _state(block) == _state(other)


def _is_of_one_file(block: ContextBlock, other: ContextBlock) -> bool:
    return block.ref.rpartition("#")[0] == other.ref.rpartition("#")[0]


def has_changed(block: ContextBlock) -> bool | None:
    """Whether the file of a block says something else now; None: it is gone or cannot be read."""
    path, _, _ = block.ref.rpartition("#")
    state = _state(block)
    if not state or not Path(path).is_absolute():
        return None
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > LARGEST:
            return True
        return _digest_of(path, found.st_size, found.st_mtime_ns, found.st_ino) != state
    except (OSError, ValueError):
        return None


def _as_it_is_now(newer: ContextBlock, name: str) -> ContextBlock:
    return ContextBlock(FILE, f"{name}, as it is now: changed since it was attached", newer.text, newer.ref)


def plain_name(block: ContextBlock) -> str:
    """What the user calls the file of a block, also of a change."""
    name = name_of(block)
    if guess := guess_in(name):
        name = name.removesuffix(with_guess("", guess))
    found = _CHANGE.fullmatch(name) or _WHOLE.fullmatch(name)
    return found["name"] if found else name


def _is_change(block: ContextBlock) -> bool:
    return bool(_states(block)[0])


def _state(block: ContextBlock) -> str:
    """Which state of its file a block is about."""
    return _states(block)[1]


def _states(block: ContextBlock) -> tuple[str, str]:
    """The states that a change goes from and to; empty where there is none."""
    found = _STATE.fullmatch(block.ref.rpartition("#")[2])
    return (found[1] or "", found[2]) if found else ("", "")


def _ref(path: Path, digest: str) -> str:
    return whole_characters(f"{path}#{digest}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


@lru_cache(maxsize=512)
def _digest_of(path: str, size: int, mtime_ns: int, inode: int) -> str:
    """The digest of a file in this state; one that did not change is not read again."""
    return _digest(Path(path).read_bytes())


def _data_of(path: Path, shown: str, largest: int, most_bytes: int, *, resolved: bool = False) -> bytes:
    """The bytes of a regular file of at most `largest` bytes. Raises DocumentError."""
    with _opened(path, shown, resolved=resolved) as (file, size):
        if size > largest:
            _check_kind(path.name, file.read(_HEAD), shown)
            raise _too_large(shown, size, most_bytes)
        data = file.read(largest + 1)
    if len(data) > largest:  # it grows, or does not tell its size
        raise _too_large(shown, len(data), most_bytes)
    return data


def must_be_there(path: Path) -> None:
    """Raises DocumentError where there is no file that can be read; how large it may be is not asked here."""
    with _opened(path, one_line(path.name, 200)):
        pass


_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
"""A folder on the way to a file; where there is O_PATH, it need not be readable."""


def opened_in_place(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a file or folder, opened from folder to folder: no link that was put into its resolved path
    meanwhile is followed. Raises OSError."""
    folder = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:-1]:
            above, folder = folder, os.open(part, _FOLDER, dir_fd=folder)
            os.close(above)
        return os.open(path.name or ".", flags | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def _opened(path: Path, shown: str, *, resolved: bool = False) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file and its size in bytes. Raises DocumentError, also where reading it fails."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK  # a pipe would wait
        with os.fdopen(opened_in_place(path, flags) if resolved else os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise DocumentError(_no_file(found.st_mode, shown))
            yield file, found.st_size
    except FileNotFoundError:
        folder = one_line(str(path.parent), 1000)
        raise DocumentError(
            f"There is no file {shown} in {folder}." if path.parent.is_dir() else f"There is no folder {folder}."
        ) from None
    except PermissionError:
        raise DocumentError(f"{shown} may not be read; look at its permissions.") from None
    except (OSError, ValueError) as error:
        if path.is_dir():
            raise DocumentError(_no_file(stat.S_IFDIR, shown)) from None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DocumentError(f"{shown} cannot be read: {reason}.") from None


def _check_kind(name: str, head: bytes, shown: str) -> None:
    """Raises DocumentError where the beginning of a too large file shows that a smaller one could not be attached
    either: the user needs to know that first."""
    from kvchat.documents.reading import formats, magic_bytes
    from kvchat.documents.reading.decoding import decoded

    try:
        if magic_bytes.is_zip(head):
            if Path(name).suffix.lower() not in _CONDENSED:
                raise FileUnreadableError("is an archive")
        elif formats.kind(name, head) == "text":
            decoded(head)
    except FileUnreadableError as error:
        raise DocumentError(f"{shown} cannot be attached: it {error}.") from None


def _no_file(mode: int, shown: str) -> str:
    if stat.S_ISDIR(mode):
        return f"{shown} is a folder; index it with /documents add, then mention it."
    return f"{shown} is no regular file."


def _too_large(shown: str, size: int, most_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"{shown} is about {size // 4:,} tokens, more than the {most_bytes // 4:,} that a file attached as a whole may "
        "take (documents.attach_percent); add its folder with /documents add and mention it."
    )


def _text_of(name: str, data: bytes) -> tuple[str, str]:
    """All that a file says: its own lines, or its parts with a blank line between them. And its encoding where that is
    a guess. Raises UnreadableError."""
    from kvchat.documents.reading import formats
    from kvchat.documents.reading.decoding import read_as
    from kvchat.documents.reading.sandbox import Readers

    if formats.kind(name, data) == "text" and Path(name).suffix.lower() not in _CONDENSED:
        return read_as(data)
    with Readers() as readers:
        content = readers.read(name, data)
    return "\n\n".join(section.text.strip("\n") for section in content.sections), ""


def _difference(old: str, new: str, name: str) -> str | None:
    """A unified diff; None where making it would take long."""
    from difflib import unified_diff

    before, after = old.split("\n"), new.split("\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    if (len(before) - start - end) * (len(after) - start - end) > MOST_PAIRS:
        return None
    first = max(0, start - FEW_LINES)  # the same lines in front are not compared
    kept = max(0, end - FEW_LINES)
    lines = unified_diff(
        before[first : len(before) - kept],
        after[first : len(after) - kept],
        f"{name} as attached",
        f"{name} now",
        n=FEW_LINES,
        lineterm="",
    )
    return "\n".join(_moved(line, first) for line in lines)


_HUNK = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def _moved(line: str, by: int) -> str:
    """A line of a diff of texts that begin `by` lines later: the numbers of a hunk's first line count from the top."""
    found = _HUNK.fullmatch(line) if by else None
    return f"@@ -{int(found[1]) + by}{found[2]} +{int(found[3]) + by}{found[4]} @@" if found else line

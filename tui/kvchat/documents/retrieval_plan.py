"""The retrieval plan of a question: the files and places it mentions, and what to search there.

Where the user names a place, only that is searched; what cannot be followed is reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection as Names
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.documents.attachments import attached
from kvchat.documents.collection import Collection, doc_of
from kvchat.documents.errors import DocumentError, TooLargeError
from kvchat.documents.images import Keep
from kvchat.documents.loading import path_meant
from kvchat.documents.mentions import WrittenMention, is_of_disk, without
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import LABEL
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from kvchat.documents.library import Library

_SUFFIX = re.compile(r"\.[^\W_]{1,8}")
_FILE_NAME = re.compile(
    r"[^@]*\w\.(?:txt|md|pdf|docx|odt|epub|html?|csv|json|ya?ml|toml|xml|log|ipynb|py|[jt]sx?|rs|go|c|h|cpp|java|sql|sh"
    r"|png|jpe?g|webp|gif|bmp)",
    re.IGNORECASE,
)
"""Ends as files do, and no other names: a mention of it that leads to nothing is mistyped."""
ONLY_TEXT = r"Where it is only text, write \@."


class RetrievalPlan(Struct, frozen=True):
    """What is to be searched for a question, and what was read for it already."""

    query: str = ""
    """The text without what it mentions; empty: there is nothing to search for."""
    scopes: tuple[str, ...] = ()
    """Where to search."""
    named: bool = False
    """Whether the user named these places in the text."""
    files: tuple[ContextBlock, ...] = ()
    """The small files that it mentions, as they are now."""
    problems: tuple[str, ...] = ()
    mentions: tuple[tuple[int, int], ...] = ()
    """Where the mentions stand that could be followed."""


def may_mean(name: str, collections: Names[str]) -> bool:
    """Whether a mention of this name may mean something by its form: a file of the disk, or a place in one of the
    collections, whose names are given in small letters."""
    if is_of_disk(name):
        return not _is_bare(name)
    return _first(name) in collections or bool(_nearest(name, collections)) or _FILE_NAME.fullmatch(name) is not None


def is_here(name: str) -> bool:
    """Whether a name is that of a file of the working folder; of a folder, if it ends as only that does."""
    try:
        path = path_meant(name)
        return not is_of_disk(name) and not _is_bare(name) and (path.is_dir() if name[-1:] == "/" else path.is_file())
    except (OSError, RuntimeError, ValueError):
        return False


def plan_retrieval(
    library: Library | None,
    text: str,
    mentions: Sequence[WrittenMention],
    collections: Sequence[str],
    most_bytes: int,
    indexing: Container[str] = (),
    keep: Keep | None = None,
) -> RetrievalPlan:
    """What `text` with these `mentions` asks for; `collections` are searched where it mentions nothing. A file of at
    most `most_bytes` goes as a whole, a larger one of a collection is searched. `indexing`: the collections that are
    being indexed. `keep`: keeps the images among the files."""
    known = library.collections() if library is not None else []
    reader = _MentionReader(library, {one.name.casefold(): one for one in known}, most_bytes, indexing, keep)
    scopes: dict[str, None] = {}
    files: dict[str, ContextBlock] = {}
    spans: list[tuple[int, int]] = []
    problems: dict[str, None] = {}
    for mention in mentions:
        try:
            name, read = reader.of(mention)
        except DocumentError as error:
            problems[str(error)] = None
            continue
        if isinstance(read, ContextBlock):
            files[read.ref] = read
        elif read is not None:
            scopes[read] = None
        if read is not None:
            spans.append((mention.start, mention.end_of(name)))
    query = without(text, [*spans, *(found.span() for found in LABEL.finditer(text))])
    if scopes or library is None:
        return RetrievalPlan(query, tuple(scopes), True, tuple(files.values()), tuple(problems), tuple(spans))
    by_name = {one.name: one.scope for one in known}
    chosen = tuple(by_name[name] for name in collections if name in by_name)
    return RetrievalPlan(query, chosen, False, tuple(files.values()), tuple(problems), tuple(spans))


class _MentionReader:
    """What the mentions of one text mean: the collections are read once, and each mention is followed once."""

    def __init__(
        self,
        library: Library | None,
        known: dict[str, Collection],
        most_bytes: int,
        indexing: Container[str],
        keep: Keep | None,
    ) -> None:
        self._library, self._known, self._most, self._indexing = library, known, most_bytes, indexing
        self._keep = keep
        self._followed: dict[tuple[str, ...], tuple[str, ContextBlock | str | None]] = {}

    def of(self, mention: WrittenMention) -> tuple[str, ContextBlock | str | None]:
        """The name it has, and the file to send as a whole or the scope to search in; None: it is only text. Raises
        DocumentError."""
        if mention.names not in self._followed:
            self._followed[mention.names] = self._first_of(mention.names)
        name, read = self._followed[mention.names]
        if read is None and mention.is_picked:
            raise DocumentError(f"There is no {one_line(name, 200)} here any more. {ONLY_TEXT}")
        if read is None and (meant := [one for one in mention.names if _FILE_NAME.fullmatch(one)]):
            raise DocumentError(f"There is no file {one_line(meant[0], 200)} here. {ONLY_TEXT}")
        return name, read

    def _first_of(self, names: Sequence[str]) -> tuple[str, ContextBlock | str | None]:
        for name in names:
            read = None if is_of_disk(name) else self._of_collection(name)
            if read is None and (is_of_disk(name) or is_here(name)):
                read = self._of_disk(name)
            if read is not None:
                return name, read
        if is_of_disk(names[0]):
            if meant := [name for name in names if _looks_meant(name)]:
                raise DocumentError(f"There is no file {one_line(meant[-1], 200)}. {ONLY_TEXT}")
        elif meant := [name for name in names if _first(name) in self._known]:
            raise DocumentError(f"There is no {one_line(meant[min(1, len(meant) - 1)], 200)}. {ONLY_TEXT}")
        elif near := _nearest(names[-1], self._known):
            raise DocumentError(
                f"There is no collection {one_line(names[-1].partition('/')[0], 60)}; there is "
                f"@{self._known[near].name}. {ONLY_TEXT}"
            )
        return names[0], None

    def _of_disk(self, name: str) -> ContextBlock | None:
        try:
            path = path_meant(name)
            if _is_bare(name) or not path.exists():
                return None
            if path.is_dir():
                if path.parent == path.parent.parent:
                    return None  # `@/lib` is the folder of a project as a rule
                raise DocumentError(
                    f"@{one_line(name, 200)} is a folder; index it with /documents add "
                    f"{one_line(name, 200)} to search in it. {ONLY_TEXT}"
                )
        except (OSError, RuntimeError, ValueError):
            return None
        return attached(path, path.name, self._most, self._keep)

    def _of_collection(self, name: str) -> ContextBlock | str | None:
        collection, library = self._known.get(_first(name)), self._library
        if collection is None or library is None:
            return None
        rest = library.path_in(collection, name.partition("/")[2].strip("/"))
        if not rest:
            if not library.index.names(collection.scope, "", 1):
                raise self._not_indexed(collection, name)
            return collection.scope
        scope = library.scope_within(collection, rest)  # where the file is gone, what was indexed of it is found
        is_indexed = scope is not None and not scope.endswith("/")
        whole = Path(collection.root, rest) if not Path(collection.root).is_file() else Path(collection.root)
        file = library.file_of(doc_of(collection.name, rest)) if is_indexed or whole.name == Path(rest).name else None
        try:
            if file is not None:
                return attached(file, name, self._most, self._keep)
        except TooLargeError:
            if not is_indexed:
                raise self._not_indexed(collection, name) from None
        if scope is not None:
            return scope
        if _is_folder(whole):
            raise self._not_indexed(collection, name)
        return None

    def _not_indexed(self, collection: Collection, name: str) -> DocumentError:
        shown = one_line(name, 200)
        if collection.name in self._indexing:
            return DocumentError(still_indexed(shown))
        if self._library is not None and self._library.index.path is None:
            return DocumentError(
                f"{shown} cannot be searched: the search index cannot be read now. Send it again in a "
                "minute, or without the mention."
            )
        return DocumentError(
            f"There is nothing of {shown} in the search index; index it in /documents, or send it without the mention."
        )


def still_indexed(name: str) -> str:
    """That a place is named of which nothing is found yet."""
    return f"{name} is still being indexed; send it again in a while, or without the mention."


def _first(name: str) -> str:
    return name.partition("/")[0].casefold()


def _nearest(name: str, known: Iterable[str]) -> str:
    """The collection that was meant by a mistyped name; empty: none."""
    first = _first(name)
    known = [*known]
    if first in known or len(first) < 4:
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(first, known, 1, 0.85)), "")


def _is_bare(name: str) -> bool:
    """Whether a path names nothing: `/`, `~`, `../`."""
    return not name.strip("/.~")


def _looks_meant(name: str) -> bool:
    """Whether a path that leads to nothing is one that somebody mistyped: its folder is there, and it has an ending, or
    begins as only a path does."""
    try:
        path = Path(name).expanduser()
        begins, _, rest = name.partition("/")
        has_ending = bool(_SUFFIX.fullmatch(path.suffix))
        if _is_bare(name) or not (has_ending or (begins and "/" in rest.strip("/"))):
            return False
        folder = path.absolute().parent
        return folder != folder.parent and folder.is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False

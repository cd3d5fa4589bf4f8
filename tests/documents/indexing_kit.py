"""What the tests of indexing share: collections in a folder, and what a report says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kvchat.documents.collection import Collection, IndexingOptions, IndexingReport, Skipped
from kvchat.documents.indexing.index_run import index_collection
from kvchat.documents.scanning import FoundFile, scan
from kvchat.index.index import Index

OPTIONS = IndexingOptions(1_000_000)


def made(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A folder with these files; a name with `/` at the end is an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def collection(root: Path, name: str = "notes") -> Collection:
    return Collection(name, str(root), 0.0)


def indexed(index: Index, root: Path, options: IndexingOptions = OPTIONS, **more: Any) -> IndexingReport:
    return index_collection(index, collection(root), options, **more)


def reasons(skipped: Iterable[Skipped]) -> dict[str, str]:
    """Why each file is skipped; fails where one is mentioned twice."""
    found: dict[str, str] = {}
    for one in skipped:
        assert one.path not in found, f"{one.path} is mentioned twice"
        found[one.path] = one.reason
    return found


def paths(root: Path, options: IndexingOptions = OPTIONS) -> list[str]:
    """The files that are to be indexed, in the order in which they are found."""
    return [item.path for item in scan(root, options) if isinstance(item, FoundFile)]


def skipped(root: Path, options: IndexingOptions = OPTIONS) -> dict[str, str]:
    return reasons(item for item in scan(root, options) if isinstance(item, Skipped))


def texts(index: Index, root: Path) -> dict[str, str]:
    """What is in the index of each file, but for its blank edges."""
    scope = collection(root).scope
    found = {doc.removeprefix(scope): "\n".join(chunk.text for chunk in index.get(doc)) for doc in index.docs(scope)}
    return {path: text.strip() for path, text in found.items() if text}


def stopping_after(count: int) -> Callable[[], bool]:
    """Says to stop when asked for the `count`-th time."""
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked >= count

    return stopped

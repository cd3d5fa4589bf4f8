"""What a mention can become while it is written: collections, folders and files in them, files of the disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kvchat.documents.collection import Collection
from kvchat.documents.mentions import Kind, Mention


def collections(known: Sequence[Collection], beginning: str, most: int) -> list[Mention]:
    """The collections in whose names this stands, those that begin with it first."""
    folded = beginning.casefold()
    found = [one.name for one in known if folded in one.name.casefold()]
    found.sort(key=lambda name: not name.casefold().startswith(folded))
    return [Mention(name, name, Kind.COLLECTION) for name in found[:most]]


def within(collection: Collection, docs: Sequence[str], beginning: str, most: int) -> list[Mention]:
    """Of the documents of a collection that match: the folders and files one level below what is written, then files
    that match anywhere."""
    folder = beginning.rpartition("/")[0]
    above = f"{folder}/" if folder else ""
    begun: dict[str, Mention] = {}
    others: dict[str, Mention] = {}
    for doc in docs:
        path = doc.removeprefix(collection.scope)
        if path.casefold().startswith(beginning.casefold()):
            first, slash, _ = path[len(above):].partition("/")
            text = f"{collection.name}/{path[:len(above)]}{first}{slash}"
            begun.setdefault(text, Mention(text, first + slash, Kind.FOLDER if slash else Kind.FILE))
        else:
            text = f"{collection.name}/{path}"
            others.setdefault(text, Mention(text, path, Kind.FILE))
    ordered = sorted(begun.values(), key=lambda one: (one.kind is not Kind.FOLDER, one.label.casefold()))
    return [*ordered, *sorted(others.values(), key=lambda one: one.label.casefold())][:most]


def on_disk(beginning: str, most: int) -> list[Mention]:
    """The folders and files of the disk that a path begins like. Hidden ones only where a dot was written."""
    if beginning in ("~", ".", ".."):
        beginning += "/"
    folder, _, last = beginning.rpartition("/")
    try:
        with os.scandir(Path(f"{folder}/").expanduser()) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries if _fits(entry.name, last)]
    except (OSError, RuntimeError, ValueError):
        return []
    found.sort(key=lambda one: (not one[1], one[0].casefold()))
    named = ((name + "/" if is_folder else name, is_folder) for name, is_folder in found)
    return [Mention(f"{folder}/{name}", name, Kind.FOLDER if is_folder else Kind.FILE)
            for name, is_folder in named][:most]


def _fits(name: str, beginning: str) -> bool:
    hidden = name.startswith(".") and not beginning.startswith(".")
    return name.isprintable() and not hidden and name.casefold().startswith(beginning.casefold())

"""`kvchat documents`: folders that are indexed, to add, look at, search, read again and forget, as text or as JSON.

The rule: it works on the store, the files and the index alone, without a server and beside a kvchat that runs. It
changes no file of the person. What is stopped keeps what is done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kvchat.config import Settings
from kvchat.display import one_line
from kvchat.documents.collection import Collection, Passage, Report
from kvchat.documents.errors import DocumentError
from kvchat.documents.library import FORGOTTEN, Library, open_library
from kvchat.documents_progress import ProgressLine, stopping
from kvchat.documents_words import (
    COLLECTIONS,
    collection_cells,
    passage_lines,
    report_lines,
    shell_word,
    snippet,
    status_lines,
    until,
)
from kvchat.memory_words import UsageError, instant
from kvchat.paths import Paths, reason
from kvchat.prompt.wire import whole_characters
from kvchat.store import Store
from kvchat.terminal import Printer, fitted, print_table, width_of

INTERRUPTED = 130
NONE = "There are no documents yet; to add a folder: kvchat documents add FOLDER"


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with."""

    library: Library
    args: argparse.Namespace
    printer: Printer = field(default_factory=lambda: Printer(sys.stdout))

    def told(self, found: object, words: Callable[[], None]) -> None:
        """Print `found` as JSON where that is asked for, else say it in words. Raises DocumentError where standard
        output cannot be written, as on a full disk."""
        try:
            if self.args.json:
                print(json.dumps(found, indent=1))
            else:
                words()
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            # What is left is written once more at the exit: nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise DocumentError(f"The output cannot be written: {reason(error)}.") from None

    def lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.printer.line(_indented(line))


def _indented(text: str) -> str:
    """`text` on one safe line that keeps its indentation."""
    return " " * (len(text) - len(text.lstrip(" "))) + one_line(text)


def _note(sentence: str) -> None:
    print(f"kvchat: {one_line(sentence)}", file=sys.stderr)


def documents(places: Paths, settings: Settings, args: argparse.Namespace) -> int:
    """Carry out a documents command and return the exit status. Raises DocumentError, StoreError and UsageError."""
    if args.incognito:
        raise UsageError("An incognito run has no documents; leave out --incognito.")
    with closing(Store.open(places.data)) as store:
        for sentence in store.notices:
            _note(sentence)
        library = open_library(places, settings, store)
        assert library is not None
        with closing(library):
            return _COMMANDS[args.what](Desk(library, args))


# -- indexing ---------------------------------------------------------------------------------------------------------


def _add(desk: Desk) -> int:
    args, library = desk.args, desk.library
    before = {one.name: one for one in library.collections()}
    collection = library.add(args.path, whole_characters(args.name or ""))
    if collection.name in before:
        _note(f"{collection.root} is the collection {collection.name} already: it is gone through again.")
    else:
        for other in before.values():
            if sentence := _overlap(collection, other):
                _note(sentence)
    done = _gone_through(desk, collection, anew=False)
    desk.told(done.json, lambda: desk.lines(done.lines))
    return _status_of([done], f"; to go on: kvchat documents add {shell_word(collection.root)}")


def _overlap(new: Collection, other: Collection) -> str:
    """A sentence where two collections have files in common. That is allowed: a part of a folder may have a name of its
    own, and each collection is complete whatever becomes of the other."""
    try:
        inner, outer = Path(new.root).resolve(), Path(other.root).resolve()
    except (OSError, RuntimeError):
        return ""
    twice = "Their common files are indexed for both"
    if inner == outer:
        return f"{new.name} is the same place as the collection {other.name}. {twice}."
    if inner.is_relative_to(outer):
        part = f"@{other.name}/{inner.relative_to(outer).as_posix()}"
        return f"{new.name} is inside of the collection {other.name}. {twice}; {part} searches this part too."
    if outer.is_relative_to(inner):
        return f"The collection {other.name} is inside of {new.name}. {twice}."
    return ""


def _rebuild(desk: Desk) -> int:
    library = desk.library
    name = desk.args.name
    chosen = library.collections() if name is None else [library.get(whole_characters(name))]
    done: list[_GoneThrough] = []
    for collection in chosen:
        done.append(_gone_through(desk, collection, anew=True))
        if done[-1].stopped:
            break

    def words() -> None:
        for one in done:
            desk.lines(one.lines)
        if not done:
            desk.printer.line(NONE)

    desk.told([one.json for one in done], words)
    return _status_of(done)


@dataclass(frozen=True, slots=True)
class _GoneThrough:
    """A collection, and what going through it gave."""

    collection: Collection
    report: Report
    files: int
    """That are indexed now."""
    stopped: bool
    """Whether the person stopped it."""
    anew: bool
    """Whether all was read again."""

    @property
    def lines(self) -> list[str]:
        """The summary; none where nothing could be done."""
        failed = self.report.trouble and not self.stopped
        return [] if failed else report_lines(
            self.report, self.collection, self.files, self.anew)

    @property
    def json(self) -> dict[str, object]:
        found = asdict(self.report)
        del found["collection"]
        return {**asdict(self.collection), "files": self.files, **found, "stopped": self.stopped}


def _gone_through(desk: Desk, collection: Collection, *, anew: bool) -> _GoneThrough:
    """Index what is new in a collection, or all of it `anew`. Raises DocumentError."""
    from kvchat.documents.index_run import index_collection

    library = desk.library
    if library.index.path is None:
        raise DocumentError("The search index cannot be written. Check the free space and the permissions of its "
                            "folder, then try again.")
    line = ProgressLine(sys.stderr)
    with stopping() as stop:
        try:
            report = index_collection(library.index, collection, library.options, told=line.show, stopped=stop.is_set,
                                      anew=anew)
        finally:
            line.end()
    if not report.trouble:
        library.indexed(collection.name)
    status = library.status(collection.name)
    return _GoneThrough(status.collection, report, status.files, stop.is_set() and bool(report.trouble),
                        anew)


def _status_of(done: Sequence[_GoneThrough], go_on: str = "") -> int:
    """The exit status after going through collections; what went wrong is said, and how to `go_on`."""
    for one in done:
        if one.stopped:
            _note(f"Stopped. What is done of {one.collection.name} is kept{go_on}")
            return INTERRUPTED
        if one.report.trouble:
            _note(f"{one.collection.name}: {one.report.trouble}")
    return 1 if any(one.report.trouble for one in done) else 0


# -- looking ----------------------------------------------------------------------------------------------------------


def _list(desk: Desk) -> int:
    found = [desk.library.status(one.name) for one in desk.library.collections()]
    rows = [{**asdict(status.collection), "files": status.files, "chunks": status.chunks, "bytes": status.bytes,
             "skipped": len(status.skipped), "trouble": status.trouble} for status in found]

    def words() -> None:
        if found:
            print_table([collection_cells(status) for status in found], COLLECTIONS)
        else:
            desk.printer.line(NONE)

    desk.told(rows, words)
    return 0


def _status(desk: Desk) -> int:
    args, library = desk.args, desk.library
    names = [one.name for one in library.collections()] if args.name is None else [whole_characters(args.name)]
    found = [library.status(name) for name in names]
    stale = [None if status.trouble else library.is_stale(status.collection.name) for status in found]
    now = [library.is_indexed_now(status.collection.name) for status in found]
    rows = []
    for status, changed, indexing in zip(found, stale, now, strict=True):
        values = asdict(status)
        rows.append({**values.pop("collection"), **values, "stale": changed, "indexing": indexing})

    def words() -> None:
        for status, changed, indexing in zip(found, stale, now, strict=True):
            desk.lines(status_lines(status, changed, args.skipped, indexing=indexing))
        if not found:
            desk.printer.line(NONE)

    desk.told(rows, words)
    return 0


def _search(desk: Desk) -> int:
    args, library = desk.args, desk.library
    query = whole_characters(" ".join(args.words))
    since = instant(args.since) if args.since is not None else None
    before = until(args.until) if args.until is not None else None
    if since is not None and before is not None and since > before:
        raise UsageError("--since is after --until: nothing can be between them.")
    scopes = [_scope(library, whole_characters(name)) for name in args.within]
    found = library.search(query, args.number, scopes, since=since, until=before)
    width = width_of(sys.stdout)

    def words() -> None:
        for passage in found:
            where, what = passage_lines(passage, query)
            for line in (one_line(where), f"    {one_line(what)}"):
                desk.printer.line(line if width is None else fitted(line, width))

    desk.told([_passage(passage, query) for passage in found], words)
    if not found:
        print(_why_nothing(library), file=sys.stderr)
    return 0 if found else 1


def _why_nothing(library: Library) -> str:
    known = library.collections()
    if not known:
        return NONE
    troubles = (library.status(one.name).trouble for one in known)
    return library.index.trouble or next(filter(None, troubles), "Nothing found.")


def _scope(library: Library, name: str) -> str:
    """Where `handbook` or `handbook/guide` is searched. Raises DocumentError and UsageError."""
    if not name.partition("/")[0].strip():
        raise UsageError("--in needs the name of a collection, or of a folder or file in one: --in handbook/guide.")
    found = library.scope_of(name)
    if found is not None:
        return found
    collection, _, path = name.partition("/")
    raise DocumentError(f"Nothing is indexed at {one_line(path, 200)} in the collection "
                        f"{library.get(collection).name}.")


def _passage(passage: Passage, query: str) -> dict[str, object]:
    place = passage.place
    return {"title": passage.title, "collection": place.collection, "path": place.path, "where": place.where,
            "head": passage.head, "snippet": snippet(passage.text, query), "text": passage.text,
            "score": passage.score, "matched": passage.matched, "ref": passage.ref}


# -- forgetting -------------------------------------------------------------------------------------------------------


def _remove(desk: Desk) -> int:
    gone = desk.library.remove(whole_characters(desk.args.name))
    orphans = desk.library.orphans()
    for start in range(0, len(orphans), FORGOTTEN):
        desk.library.forget(orphans[start:start + FORGOTTEN])
    desk.told(asdict(gone), lambda: desk.printer.line(one_line(
        f"{gone.name} is no longer indexed. Its files in {gone.root} are as they were.")))
    return 0


_COMMANDS: dict[str, Callable[[Desk], int]] = {
    "add": _add, "list": _list, "status": _status, "search": _search, "rebuild": _rebuild, "remove": _remove,
}

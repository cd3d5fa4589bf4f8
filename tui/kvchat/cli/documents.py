"""`kvchat documents`: folders that are indexed, to add, look at, search, read again and forget, as text or as JSON.

It works on the store, the files and the index alone, without a server, and also while another kvchat runs. It changes
no file of the user. Stopping keeps what is done: the first Ctrl+C finishes what has begun, the second one ends all. A
line holds raw texts; whoever prints it makes them safe to show.

In the order in which they are called:

1. `add_arguments`, `run`: the command; each subcommand is a function that is given a `Desk`.
2. `_add`, `_rebuild`: index by `_index_one`, and say how it went (`report_lines`). `_remove` forgets, and
   `_list`, `_status` and `_search` only look.
3. `status_lines`, `skipped_lines`, `passage_lines`: the words that they give to the desk.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from datetime import date, datetime, timedelta
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from kvchat.cli import common_options
from kvchat.cli.plain_output import fitted, width_of
from kvchat.cli.progress import INTERRUPTED, ProgressLine, stopping
from kvchat.cli.session import CommandError, Session, UsageError, instant, print_notices
from kvchat.commands.command import CommandResult, TableColumn, TextTable
from kvchat.documents.collection import Collection, CollectionStatus, IndexingProgress, IndexingReport, Passage, Skipped
from kvchat.documents.errors import DocumentError
from kvchat.documents.library import FORGOTTEN, Library, open_library
from kvchat.index.tokenizer import content_words
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line
from kvchat.store import Store, StoreError
from kvchat.store.fulltext.index import visible
from kvchat.store.fulltext.query import folded
from kvchat.text.format import UNKNOWN, count, counted, day_time, duration, size

COLLECTIONS = (
    TableColumn("name"),
    TableColumn("files", right=True),
    TableColumn("chunks", right=True),
    TableColumn("indexed"),
    TableColumn("folder", shrinks=True),
)
FIRST = 20
"""Skipped files that are named by default."""
SNIPPET, BEFORE = 240, 60
"""Most characters of a snippet, and of the text before its first match."""


def collection_cells(status: CollectionStatus) -> tuple[str, ...]:
    one = status.collection
    return one.name, count(status.files), count(status.chunks), indexed_when(one), one.root


def indexed_when(collection: Collection) -> str:
    return "not to the end yet" if collection.indexed is None else day_time(collection.indexed)


def status_lines(status: CollectionStatus, stale: bool | None, every: bool, *, indexing: bool = False) -> list[str]:
    """What there is to say of a collection. `stale`: whether its files have changed since; None: that is not known.
    `indexing`: whether another kvchat is at it."""
    one = status.collection
    lines = [
        f"{one.name}: {one.root}",
        f"  {_amount(status.files, status.chunks, status.bytes)}, indexed {indexed_when(one)}",
    ]
    if indexing:
        lines.append("  Another kvchat indexes it now.")
    elif status.trouble:
        lines.append(f"  {status.trouble}")
    elif stale is not None:
        lines.append(
            f"  Its files have changed since; to index them: kvchat documents add {shell_word(one.root)}"
            if stale
            else "  It is up to date."
        )
    return lines + skipped_lines(one.name, status.skipped, every)


def report_lines(report: IndexingReport, collection: Collection, files: int, rebuild: bool = False) -> list[str]:
    """The summary of indexing a collection. `files`: how many are indexed now. `rebuild`: every file was read again."""
    found = (
        f"{count(report.added)} added, {count(report.changed)} changed, {count(report.unchanged)} "
        f"{'indexed again, as they were' if rebuild else 'unchanged'}, {count(report.removed)} removed"
    )
    return [
        f"{report.collection}: {collection.root}",
        f"  {found}",
        f"  {_amount(files, report.chunks, report.bytes)}, in {duration(report.seconds)}",
        *skipped_lines(report.collection, report.skipped, every=False),
    ]


def _amount(files: int, chunks: int, octets: int) -> str:
    return f"{counted(files, 'file')}, {counted(chunks, 'chunk')}, {size(octets)}"


def skipped_lines(name: str, skipped: Sequence[Skipped], every: bool) -> list[str]:
    """The files that are not indexed, each with its reason; the first of them unless `every` one is asked for."""
    named = [one for one in skipped if one.path]
    shown = named if every else named[:FIRST]
    lines = [f"  It {one.reason}" for one in skipped if not one.path]
    if named:
        lines += [f"  {count(len(named))} skipped:", *(f"    {one.path} {one.reason}" for one in shown)]
    if len(shown) < len(named):
        lines.append(f"    and {count(len(named) - len(shown))} more; kvchat documents status {name} --skipped")
    return lines


def shell_word(text: str) -> str:
    """`text` as it is typed in a shell."""
    import shlex

    return shlex.quote(text)


def passage_lines(passage: Passage, query: str) -> tuple[str, str]:
    """Where a passage is, and what it says around the words of the query."""
    return f"{passage.title}  {passage.head}".rstrip(), snippet(passage.text, query)


def snippet(text: str, query: str) -> str:
    """One line of `text` where most of the query's words are close together; its beginning where there are none."""
    text = visible(text)
    plain = folded(text)
    stems = dict.fromkeys(folded(word.stem) for word in content_words(query))
    found = sorted((match.start(), stem) for stem in stems if stem for match in _beginnings(stem).finditer(plain))
    start = 0
    if found:
        first = max(
            found,
            key=lambda one: (len({stem for at, stem in found if one[0] <= at < one[0] + SNIPPET - BEFORE}), -one[0]),
        )[0]
        start = max(0, first - BEFORE)
        if start and (blank := re.compile(r"\s").search(text, start, first)):
            start = blank.end()
    end = start + SNIPPET
    return f"{'…' if start else ''}{one_line(text[start:end])}{'…' if end < len(text) else ''}"


def _beginnings(stem: str) -> re.Pattern[str]:
    """Finds words that begin so; in scripts without spaces, the characters anywhere."""
    return re.compile(rf"(?<![^\W_]){re.escape(stem)}" if stem.isascii() else re.escape(stem))


def until(text: str) -> float:
    """The end of a day, or an instant, in seconds since the epoch. Raises UsageError."""
    seconds = instant(text)
    with suppress(ValueError, OverflowError, OSError):
        if text not in ("today", "yesterday"):
            date.fromisoformat(text)
        return (datetime.fromtimestamp(seconds) + timedelta(days=1)).timestamp() - 0.001
    return seconds


def progress_words(progress: IndexingProgress) -> str:
    """`handbook: 1,204 of 3,000 files, 12 MB of 48 MB, 9,120 chunks, 12 s left, guide/setup.md`."""
    if progress.counting:
        return f"{progress.collection}: looking for files, {count(progress.all_files)} so far"
    left = progress.seconds_left
    words = [
        f"{count(progress.files)} of {counted(progress.all_files, 'file')}",
        f"{size(progress.bytes)} of {size(progress.all_bytes)}",
        counted(progress.chunks, "chunk"),
        f"{UNKNOWN if left is None else duration(round(left))} left",
    ]
    return ", ".join([f"{progress.collection}: {words[0]}", *words[1:], *filter(None, [progress.path])])


NONE = "There are no documents yet; to add a folder: kvchat documents add FOLDER"


class Desk(Struct, frozen=True):
    """What a command works with."""

    session: Session
    library: Library

    @property
    def args(self) -> argparse.Namespace:
        return self.session.args

    def give(self, found: object, words: Iterable[str | TextTable], failed: str = "") -> int:
        """Print it, and return the exit status."""
        return self.session.give(CommandResult(found, words, failed))


def _indent(text: str) -> str:
    """`text` on one safe line that keeps its indentation."""
    return " " * (len(text) - len(text.lstrip(" "))) + one_line(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kvchat documents`."""
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, parents=[common_options(of_command=True)], help=help)
        parser.add_argument("--json", action="store_true", help="print JSON")
        return parser

    add = command("add", "index folders or files; one that is indexed already: what has changed in it")
    add.add_argument("paths", metavar="PATH", nargs="+")
    add.add_argument("--name", metavar="NAME", help="what one is called after an @; without it the folder's own name")
    command("list", "list the collections")
    status = command("status", "show what is indexed, what was skipped and whether files have changed")
    status.add_argument("name", metavar="NAME", nargs="?", help="one collection; without it all")
    status.add_argument("--skipped", action="store_true", help="name every file that was skipped")
    search = command("search", "find passages by their words")
    search.add_argument("words", metavar="WORDS", nargs="+")
    search.add_argument(
        "--in",
        dest="within",
        metavar="NAME[/PATH]",
        action="append",
        default=[],
        help="a collection, or a folder or file in one; may be given more than once",
    )
    search.add_argument("-n", dest="number", type=_passages, metavar="N", default=8, help="so many passages (8)")
    search.add_argument("--since", metavar="DATE", help="of files changed since: 2026-11-21, today, yesterday")
    search.add_argument("--until", metavar="DATE", help="of files changed until the end of that day")
    rebuild = command("rebuild", "read every file again")
    rebuild.add_argument("name", metavar="NAME", nargs="?", help="one collection; without it all")
    command("remove", "forget a collection; its files stay").add_argument("name", metavar="NAME")


def _passages(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 200 and len(text) < 9):
        raise argparse.ArgumentTypeError(f"{text} is not a number of passages; give 1 to 200")
    return int(text)


def run(session: Session) -> int:
    """Carry out a documents command and return the exit status. Raises CommandError."""
    session.print_problems()
    if session.args.incognito:
        raise UsageError("An incognito run has no documents; leave out --incognito.")
    try:
        with closing(Store.open(session.places.data)) as store:
            print_notices(store.notices)
            library = open_library(session.places, session.settings, store)
            assert library is not None
            with closing(library):
                return _COMMANDS[session.args.what](Desk(session, library))
    except (DocumentError, StoreError) as error:
        raise CommandError(str(error)) from None


# -- indexing ---------------------------------------------------------------------------------------------------------


def _add(desk: Desk) -> int:
    paths, name = desk.args.paths, whole_characters(desk.args.name or "")
    if name and len(paths) > 1:
        raise UsageError("--name is for one PATH; leave it out to have each called as its folder.")
    chosen, refused = dict[str, Collection](), list[str]()
    for path in paths:
        try:
            collection = _note_collection(desk.library, path, name)
            chosen[collection.name] = collection
        except DocumentError as error:
            refused.append(str(error))
    if not chosen:
        raise DocumentError(" ".join(refused))
    done = _index_all(desk, chosen.values(), rebuild=False)
    # One path gives an object, as when no more could be given.
    found = [one.json for one in done]
    desk.give(found if len(paths) > 1 else found[0], [_indent(line) for one in done for line in one.lines])
    print_notices(refused)
    left = " ".join(shell_word(one.root) for one in list(chosen.values())[len(done) - 1 :])
    return _status_of(done, f"; to go on: kvchat documents add {left}") or int(bool(refused))


def _note_collection(library: Library, path: str, name: str) -> Collection:
    """The collection of a path, made if there is none. Raises DocumentError."""
    before = {one.name: one for one in library.collections()}
    collection = library.add(path, name)
    if collection.name in before:
        print_notices([f"{collection.root} is the collection {collection.name} already: it is gone through again."])
    else:
        for other in before.values():
            if sentence := _overlap(collection, other):
                print_notices([sentence])
    return collection


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
    done = _index_all(desk, chosen, rebuild=True)
    desk.give([one.json for one in done], [_indent(line) for one in done for line in one.lines] if done else [NONE])
    return _status_of(done)


class _Indexed(Struct, frozen=True):
    """A collection, and what going through it gave."""

    collection: Collection
    report: IndexingReport
    files: int
    """That are indexed now."""
    stopped: bool
    """Whether the user stopped it."""
    rebuild: bool
    """Whether every file was read, changed or not."""

    @property
    def lines(self) -> list[str]:
        """The summary; none where nothing could be done."""
        failed = self.report.trouble and not self.stopped
        return [] if failed else report_lines(self.report, self.collection, self.files, self.rebuild)

    @property
    def json(self) -> dict[str, object]:
        found = to_builtins(self.report)
        del found["collection"], found["is_elsewhere"]
        return {**asdict(self.collection), "files": self.files, **found, "stopped": self.stopped}


def _index_all(desk: Desk, collections: Iterable[Collection], *, rebuild: bool) -> list[_Indexed]:
    """Index what is new in each, or with `rebuild` everything, until the user stops it. Raises DocumentError."""
    done = list[_Indexed]()
    for collection in collections:
        done.append(_index_one(desk, collection, rebuild=rebuild))
        if done[-1].stopped:
            break
    return done


def _index_one(desk: Desk, collection: Collection, *, rebuild: bool) -> _Indexed:
    """Index what is new in a collection; with `rebuild`, read all of it again. Raises DocumentError."""
    from kvchat.documents.indexing.index_run import index_collection

    library = desk.library
    if library.index.path is None:
        raise DocumentError(
            "The search index cannot be written. Check the free space and the permissions of its "
            "folder, then try again."
        )
    line = ProgressLine(sys.stderr)
    with stopping() as stop:
        try:
            report = index_collection(
                library.index,
                collection,
                library.options,
                rebuild=rebuild,
                stopped=stop.is_set,
                on_progress=lambda progress: line.show(progress_words(progress)),
            )
        finally:
            line.end()
    if not report.trouble:
        library.indexed(collection.name)
    status = library.status(collection.name)
    return _Indexed(status.collection, report, status.files, stop.is_set() and bool(report.trouble), rebuild)


def _status_of(done: Sequence[_Indexed], go_on: str = "") -> int:
    """The exit status after indexing collections; prints what went wrong, and how to `go_on`."""
    for one in done:
        if one.stopped:
            print_notices([f"Stopped. What is done of {one.collection.name} is kept{go_on}"])
            return INTERRUPTED
        if one.report.trouble:
            print_notices([f"{one.collection.name}: {one.report.trouble}"])
    return 1 if any(one.report.trouble for one in done) else 0


# -- looking ----------------------------------------------------------------------------------------------------------


def _list(desk: Desk) -> int:
    found = [desk.library.status(one.name) for one in desk.library.collections()]
    rows = [
        {
            **asdict(status.collection),
            "files": status.files,
            "chunks": status.chunks,
            "bytes": status.bytes,
            "skipped": len(status.skipped),
            "trouble": status.trouble,
        }
        for status in found
    ]

    table = TextTable([collection_cells(status) for status in found], COLLECTIONS)
    return desk.give(rows, [table if found else NONE])


def _status(desk: Desk) -> int:
    args, library = desk.args, desk.library
    names = [one.name for one in library.collections()] if args.name is None else [whole_characters(args.name)]
    found = [library.status(name) for name in names]
    stale = [None if status.trouble else library.is_stale(status.collection.name) for status in found]
    now = [library.is_indexed_now(status.collection.name) for status in found]
    rows = []
    for status, changed, indexing in zip(found, stale, now, strict=True):
        values = to_builtins(status)
        rows.append({**values.pop("collection"), **values, "stale": changed, "indexing": indexing})

    lines = [
        _indent(line)
        for status, changed, indexing in zip(found, stale, now, strict=True)
        for line in status_lines(status, changed, args.skipped, indexing=indexing)
    ]
    return desk.give(rows, lines if found else [NONE])


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

    lines = [
        line if width is None else fitted(line, width)
        for where, what in (passage_lines(passage, query) for passage in found)
        for line in (one_line(where), f"    {one_line(what)}")
    ]
    return desk.give([_passage(one, query) for one in found], lines, "" if found else _why_nothing(library))


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
    raise DocumentError(
        f"Nothing is indexed at {one_line(path, 200)} in the collection {library.get(collection).name}."
    )


def _passage(passage: Passage, query: str) -> dict[str, object]:
    place = passage.place
    return {
        "title": passage.title,
        "collection": place.collection,
        "path": place.path,
        "where": place.where,
        "head": passage.head,
        "snippet": snippet(passage.text, query),
        "text": passage.text,
        "score": passage.score,
        "matched": passage.matched,
        "ref": passage.ref,
    }


# -- forgetting -------------------------------------------------------------------------------------------------------


def _remove(desk: Desk) -> int:
    gone = desk.library.remove(whole_characters(desk.args.name))
    orphans = desk.library.orphans()
    for start in range(0, len(orphans), FORGOTTEN):
        desk.library.forget(orphans[start : start + FORGOTTEN])
    return desk.give(
        asdict(gone), [one_line(f"{gone.name} is no longer indexed. Its files in {gone.root} are as they were.")]
    )


_COMMANDS: dict[str, Callable[[Desk], int]] = {
    "add": _add,
    "list": _list,
    "status": _status,
    "search": _search,
    "rebuild": _rebuild,
    "remove": _remove,
}

"""Indexing: making the index hold what the files of a collection say.

The rule: the stamps in the index are all that is known of what was done. So a run that ended anywhere is gone on with
by the next one, and deleting the index only costs time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvchat.documents.collection import Collection, Progress, Report, Skipped, Status, doc_of
from kvchat.documents.errors import DocumentError
from kvchat.documents.exclusion import alone
from kvchat.documents.options import Options
from kvchat.documents.roots import trouble_of
from kvchat.documents.scanning import scan
from kvchat.documents.stamps import Stamp, reason_of, stamp_of
from kvchat.index.index import Index, IndexBusyError

ELSEWHERE = "It is being indexed by another kvchat."
READ_S = 120.0
"""Seconds for each file: a PDF of some thousand pages takes that long."""
UNWRITABLE = "The search index cannot be written; its folder is read-only or full."
FORGOTTEN = "The collection was forgotten meanwhile."
GONE = "Nothing of it is in the search index any more; make it anew with kvchat documents rebuild {}."
_REPLACED = "The search index was replaced meanwhile; index it once more."


def index_collection(index: Index, collection: Collection, options: Options, *,
                     told: Callable[[Progress], None] = lambda progress: None,
                     stopped: Callable[[], bool] = lambda: False, anew: bool = False) -> Report:
    """Bring what the index holds of a collection up to date. `anew`: read every file, also those that have not
    changed; searches find what was there until then. `stopped` is asked between files. Raises nothing: what goes wrong
    is in the report."""
    from kvchat.documents.reading.sandbox import Readers
    from kvchat.documents.visiting import Visit

    path = index.path
    with alone(path, collection.name) as hold:
        if not hold:
            return Report(collection.name, trouble=ELSEWHERE)
        for _ in range(2):
            with Readers(READ_S) as readers:
                visit = Visit(index, collection, options, readers, told, lambda: stopped() or not hold.lasts, anew,
                              lambda: hold.lasts)
                report = visit.report()
            if not hold.lasts:
                return visit.reported(FORGOTTEN)
            if index.path != path:
                return visit.reported(UNWRITABLE)
            try:
                if report.trouble or visit.is_kept():
                    return report
            except IndexBusyError as error:
                return visit.reported(str(error))
        return visit.reported(_REPLACED)


def status_of(index: Index, collection: Collection) -> Status:
    """What is in the index of a collection, by the stamps alone."""
    files = chunks = size = 0
    skipped: list[Skipped] = []
    for doc, text in index.docs(collection.scope).items():
        stamp = stamp_of(text)
        if stamp is None:
            continue
        if stamp.reason:
            skipped.append(Skipped(doc.removeprefix(collection.scope), stamp.reason))
        else:
            files, chunks, size = files + 1, chunks + stamp.chunks, size + stamp.size
    trouble = index.trouble or trouble_of(Path(collection.root), bool(skipped or files))
    if not trouble and not (skipped or files) and collection.indexed and _has_files(Path(collection.root)):
        trouble = GONE.format(collection.name)
    return Status(collection, files, chunks, size, tuple(skipped), trouble)


def _has_files(root: Path) -> bool:
    try:
        return root.is_file() or any(root.iterdir())
    except OSError:
        return False


def is_stale(index: Index, collection: Collection, options: Options) -> bool:
    """Whether files were added, changed or removed since they were indexed, as far as looking at the folders can tell.
    A root that is not there is not: there is nothing to be done then."""
    known = index.docs(collection.scope)
    if index.trouble or trouble_of(Path(collection.root), bool(known)):
        return False
    root = Path(collection.root)
    try:
        for item in scan(root, options):
            text = known.pop(doc_of(collection.name, item.path), None)
            if isinstance(item, Skipped):
                fresh = text == str(Stamp(reason=reason_of(item.reason)))
            else:
                stamp = stamp_of(text)
                fresh = stamp is not None and stamp.is_of(item) and not stamp.is_readable_now(root / item.path)
            if not fresh:
                return True
    except DocumentError:
        return False
    return bool(known)

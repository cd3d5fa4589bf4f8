"""Index runs: bring the index up to date with the files of a collection.

The stamps in the index are the only record of what was done, and what they cover is not done again. So the next run
continues one that ended anywhere, and deleting the index only costs time. What is gone from the disk is removed only
while its root is certainly there. A file that fails is one line of the report; the others are indexed.

A document has its stamp only once all its chunks are in, so that what a run that is killed at any moment leaves half
done is read again; and no transaction is so long that another kvchat waits for it noticeably. What cannot be put in
because another kvchat holds the index raises IndexBusyError.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.documents import kept_out
from kvchat.documents.collection import (
    Collection,
    CollectionStatus,
    IndexingOptions,
    IndexingProgress,
    IndexingReport,
    Skipped,
    doc_of,
)
from kvchat.documents.errors import DocumentError, FileUnreadableError
from kvchat.documents.indexing.file_versions import Stamp, reason_of, stamp_of
from kvchat.documents.indexing.index_lock import alone
from kvchat.documents.loading import LoadedFile, VanishedError, loaded
from kvchat.documents.scanning import FoundFile, Root, scan, trouble_of
from kvchat.index.index import Chunk, Document, Index, IndexBusyError, exactly

if TYPE_CHECKING:
    from kvchat.documents.reading.sandbox import Readers

MOST_SECONDS = 0.25
MOST_CHUNKS = 2000
MOST_CHARACTERS = 4_000_000
MOST_GONE = 200
_REST = 0.05
"""Seconds between removals in which another process can take the lock: whoever waits tries every 0.03."""


class DocumentBatch:
    """Documents that wait for their transaction."""

    def __init__(self, index: Index, lasts: Callable[[], bool] = lambda: True) -> None:
        self._index = index
        self._lasts = lasts
        """Whether there is still something to write for."""
        self._documents: list[Document] = []
        self._started = 0.0
        self._chunks = 0
        self._characters = 0

    def put(self, doc: str, chunks: Sequence[Chunk], stamp: str, date: float | None) -> None:
        """Make `chunks` what there is of a document, now or a moment later. A large one goes in by and by."""
        if max(len(chunks), self._there(doc)) > MOST_CHUNKS:
            self.flush()
            self._index.replace_slowly((doc, chunks, stamp, date), MOST_CHUNKS, _REST)
            return
        if not self._documents:
            self._started = time.monotonic()
        self._documents.append((doc, chunks, stamp, date))
        self._chunks += len(chunks)
        self._characters += sum(len(chunk.text) for chunk in chunks)
        if (
            self._chunks >= MOST_CHUNKS
            or self._characters >= MOST_CHARACTERS
            or time.monotonic() - self._started >= MOST_SECONDS
        ):
            self.flush()

    def flush(self) -> None:
        """Put in what waits."""
        if self._documents and self._lasts():
            self._index.replace_all(self._documents, at_once=True)
        self._documents = []
        self._chunks = self._characters = 0

    def remove(self, docs: Sequence[str]) -> None:
        """Take documents out."""
        some: list[str] = []
        chunks = 0
        for doc in docs:
            if not self._lasts():
                return
            there = self._there(doc)
            if there > MOST_CHUNKS:
                self._index.replace_slowly((doc, (), "", None), MOST_CHUNKS, _REST)
                there = 0
            if some and (chunks + there > MOST_CHUNKS or len(some) == MOST_GONE):
                self._index.replace_all((), gone=some, at_once=True)
                time.sleep(_REST)
                some, chunks = [], 0
            some.append(doc)
            chunks += there
        if self._lasts():
            self._index.replace_all((), gone=some, at_once=True)

    def _there(self, doc: str) -> int:
        """How many chunks the index has of a document."""
        return self._index.count(exactly(doc))


STOPPED = "It was stopped; what is done is kept."
PROGRESS_S = 0.1
"""Seconds between two reports at least."""
_SLOW = 500_000
"""From this many bytes on, a file's name is reported before it is read, however recent the last report."""

log = logging.getLogger(__name__)


class IndexingPhase(Enum):
    LOOKING = auto()
    """The files are looked for."""
    READING = auto()
    ENDED = auto()


class FileOutcome(Enum):
    """What became of a file."""

    ADDED = auto()
    CHANGED = auto()
    UNCHANGED = auto()
    SKIPPED = auto()
    """It is not indexed, for a reason."""
    REMOVED = auto()
    """It was indexed, and is gone from the disk."""


class _Done(Struct):
    """How far a run is."""

    files: int = 0
    all_files: int = 0
    bytes: int = 0
    all_bytes: int = 0
    bytes_skipped: int = 0
    """Of `bytes`, those of files that had not changed."""


class _Contents(Struct):
    """What the index has of the collection by now."""

    documents: int = 0
    """With a stamp: also files that are not indexed, for a reason."""
    chunks: int = 0
    bytes: int = 0

    def count(self, old: Stamp | None, new: Stamp | None) -> None:
        """A document has another stamp than before; None: it has none."""
        for sign, stamp in ((-1, old), (1, new)):
            if stamp:
                self.chunks += sign * stamp.chunks
                self.bytes += sign * (0 if stamp.reason else stamp.size)


class IndexingRun:
    """Indexing a collection once.

    looking ──► reading ──► ended
       └───────────────────► ended    it is stopped, its folder is not there, or another kvchat holds the index
    """

    def __init__(
        self,
        index: Index,
        collection: Collection,
        options: IndexingOptions,
        readers: Readers,
        on_progress: Callable[[IndexingProgress], None],
        stopped: Callable[[], bool],
        rebuild: bool,
        lasts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._index, self._collection, self._options = index, collection, options
        self._readers, self._on_progress, self._stopped, self._rebuild = readers, on_progress, stopped, rebuild
        self._is_file = Path(collection.root).is_file()
        """Whether the user named this very file: then it is indexed whatever is in it."""
        self._batch = DocumentBatch(index, lasts)
        self._started = time.monotonic()
        self._reported_at = self._started - PROGRESS_S
        self._phase = IndexingPhase.LOOKING
        self._done, self._contents = _Done(), _Contents()
        self._outcomes = Counter[FileOutcome]()
        self._skipped: list[Skipped] = []

    def report(self) -> IndexingReport:
        """Do it all."""
        trouble: object = ""
        try:
            self._index_files()
        except (IndexBusyError, DocumentError) as error:
            trouble = error
        try:
            self._batch.flush()  # also what waits where it ended early
        except IndexBusyError as error:
            trouble = error
        self._phase = IndexingPhase.ENDED
        self._tell(force=True)
        return self.reported(trouble)

    def _index_files(self) -> None:
        """Raises IndexBusyError, and DocumentError where the run cannot reach the end, or is stopped."""
        known = self._index.docs(self._collection.scope, surely=True)
        self._contents.documents = len(known)
        for text in known.values():
            self._contents.count(None, stamp_of(text))
        root = Root(Path(self._collection.root), bool(known))
        todo = self._looked_for(known)
        root.check()
        self._forget(known)
        self._phase = IndexingPhase.READING
        self._tell(force=True)
        for found, old in todo:
            self._outcomes[self._brought_up_to_date(root, found, old)] += 1
            self._count_done(found.size)

    def reported(self, trouble: object) -> IndexingReport:
        """What was done so far; `trouble`: an error or a sentence."""
        return IndexingReport(
            self._collection.name,
            self._outcomes[FileOutcome.ADDED],
            self._outcomes[FileOutcome.CHANGED],
            self._outcomes[FileOutcome.UNCHANGED],
            self._outcomes[FileOutcome.REMOVED],
            self._contents.chunks,
            self._contents.bytes,
            time.monotonic() - self._started,
            tuple(sorted(self._skipped, key=lambda one: one.path)),
            str(trouble),
            isinstance(trouble, IndexBusyError),
        )

    def is_kept(self) -> bool:
        """Whether the index has all that was put into it: another kvchat may have rebuilt it."""
        return len(self._index.docs(self._collection.scope, surely=True)) == self._contents.documents

    # -- looking for work

    def _looked_for(self, known: dict[str, str]) -> list[tuple[FoundFile, Stamp | None]]:
        """The files to read. What is found is taken out of `known`."""
        todo: list[tuple[FoundFile, Stamp | None]] = []
        for item in scan(Path(self._collection.root), self._options):
            if self._stopped():
                raise DocumentError(STOPPED)
            doc = self._doc(item.path)
            self._contents.documents += doc not in known
            old = stamp_of(known.pop(doc, None))
            if isinstance(item, Skipped):
                self._outcomes[self._skip(item.path, Stamp(reason=reason_of(item.reason)), old)] += 1
                continue
            self._done.all_files += 1
            self._done.all_bytes += item.size
            if old and old.sha256 and old.is_of(item) and not self._rebuild:
                self._outcomes[self._as_it_was(item.path, item.size, old)] += 1
                self._count_done(item.size)
            else:
                todo.append((item, old))
            self._tell()
        return todo

    def _as_it_was(self, path: str, size: int, old: Stamp) -> FileOutcome:
        """A file has not changed, and its stamp still says all."""
        self._done.bytes_skipped += size
        if not old.reason:
            return FileOutcome.UNCHANGED
        self._skipped.append(Skipped(path, old.reason))
        return FileOutcome.SKIPPED

    def _forget(self, gone: dict[str, str]) -> None:
        """Take out what is no longer on the disk."""
        self._batch.remove(list(gone))
        self._contents.documents -= len(gone)
        for stamp in map(stamp_of, gone.values()):
            self._outcomes[FileOutcome.REMOVED] += not (stamp and stamp.reason)
            self._contents.count(stamp, None)

    # -- one file

    def _brought_up_to_date(self, root: Root, found: FoundFile, old: Stamp | None) -> FileOutcome:
        if self._stopped():
            raise DocumentError(STOPPED)
        self._tell(found.path, force=found.size >= _SLOW)
        try:
            file = loaded(root.folder + b"/" + found.path.encode(), self._options.largest)
        except VanishedError as error:
            root.check()
            self._skipped.append(Skipped(found.path, str(error)))
            self._batch.remove([self._doc(found.path)])
            self._contents.documents -= 1
            self._contents.count(old, None)
            return FileOutcome.SKIPPED
        except FileUnreadableError as error:
            root.check()
            return self._skip(found.path, Stamp(found.size, found.mtime_ns, reason=reason_of(str(error))), old)
        return self._take(found.path, file, old)

    def _take(self, path: str, file: LoadedFile, old: Stamp | None) -> FileOutcome:
        """Index what was loaded, unless the index has it."""
        sha256 = hashlib.sha256(file.data).hexdigest()
        if old and old.holds(sha256) and not self._rebuild and (renewed := self._renewed(path, file, old)):
            return renewed
        try:
            if not self._is_file and (reason := kept_out.why(file.data)):
                raise FileUnreadableError(reason)
            chunks = self._chunks_of(path.rpartition("/")[2], file.data)
        except FileUnreadableError as error:
            return self._skip(path, Stamp(file.size, file.mtime_ns, 0, sha256, reason_of(str(error))), old)
        self._put(path, chunks, Stamp(file.size, file.mtime_ns, len({chunk.key for chunk in chunks}), sha256), old)
        if old is None or old.reason:
            return FileOutcome.ADDED
        return FileOutcome.UNCHANGED if old.sha256 == sha256 else FileOutcome.CHANGED

    def _renewed(self, path: str, file: LoadedFile, old: Stamp) -> FileOutcome | None:
        """Note that a file was only touched; None where the index has lost some of it."""
        chunks = self._index.get(self._doc(path))
        if len(chunks) != old.chunks:
            return None
        self._put(path, chunks, replace(old, size=file.size, mtime_ns=file.mtime_ns), old)
        return self._as_it_was(path, file.size, old)

    def _chunks_of(self, name: str, data: bytes) -> list[Chunk]:
        """Raises UnreadableError, whatever a reader stumbles over."""
        from kvchat.documents.chunking import chunks

        try:
            return chunks(self._readers.read(name, data), name)
        except FileUnreadableError:
            raise
        except Exception as error:
            log.warning("a file could not be read: %s", type(error).__name__, exc_info=True)
            raise FileUnreadableError(f"could not be read ({type(error).__name__})") from None

    def _skip(self, path: str, stamp: Stamp, old: Stamp | None) -> FileOutcome:
        """Note why a file is not indexed, and take out what was indexed of it."""
        self._skipped.append(Skipped(path, stamp.reason))
        if old != stamp:
            self._put(path, (), stamp, old)
        return FileOutcome.SKIPPED

    def _put(self, path: str, chunks: Iterable[Chunk], stamp: Stamp, old: Stamp | None) -> None:
        self._batch.put(self._doc(path), list(chunks), str(stamp), stamp.mtime_ns / 1e9 if stamp.mtime_ns else None)
        self._contents.count(old, stamp)

    def _count_done(self, size: int) -> None:
        self._done.files += 1
        self._done.bytes += size

    def _doc(self, path: str) -> str:
        return doc_of(self._collection.name, path)

    def _tell(self, path: str = "", *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._reported_at >= PROGRESS_S:
            self._reported_at = now
            self._on_progress(
                IndexingProgress(
                    self._collection.name,
                    self._done.files,
                    self._done.all_files,
                    self._done.bytes,
                    self._done.all_bytes,
                    self._contents.chunks,
                    now - self._started,
                    path,
                    self._phase is IndexingPhase.LOOKING,
                    self._done.bytes_skipped,
                )
            )


ELSEWHERE = "It is being indexed by another kvchat."
READ_S = 120.0
"""Seconds for each file: a PDF of some thousand pages takes that long."""
UNWRITABLE = "The search index cannot be written; its folder is read-only or full."
FORGOTTEN = "The collection was forgotten meanwhile."
GONE = "Nothing of it is in the search index any more; make it anew with kvchat documents rebuild {}."
_REPLACED = "The search index was replaced meanwhile; index it once more."


def index_collection(
    index: Index,
    collection: Collection,
    options: IndexingOptions,
    *,
    on_progress: Callable[[IndexingProgress], None] = lambda progress: None,
    stopped: Callable[[], bool] = lambda: False,
    rebuild: bool = False,
) -> IndexingReport:
    """Bring the index of a collection up to date. `rebuild`: read every file, also unchanged ones; until then
    searches find what was there. `stopped` is asked between files. Raises nothing: what goes wrong is in the report."""
    from kvchat.documents.reading.sandbox import Readers

    path = index.path
    with alone(path, collection.name) as hold:
        if not hold:
            return IndexingReport(collection.name, trouble=ELSEWHERE, is_elsewhere=True)
        with suppress(IndexBusyError):  # the next run does it
            index.renew()
        for _ in range(2):
            with Readers(READ_S) as readers:
                run = IndexingRun(
                    index,
                    collection,
                    options,
                    readers,
                    on_progress,
                    lambda: stopped() or not hold.lasts,
                    rebuild,
                    lambda: hold.lasts,
                )
                report = run.report()
            if not hold.lasts:
                return run.reported(FORGOTTEN)
            if index.path != path:
                return run.reported(UNWRITABLE)
            try:
                if report.trouble or run.is_kept():
                    return report
            except IndexBusyError as error:
                return run.reported(error)
        return run.reported(_REPLACED)


def status_of(index: Index, collection: Collection) -> CollectionStatus:
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
    return CollectionStatus(collection, files, chunks, size, tuple(skipped), trouble)


def _has_files(root: Path) -> bool:
    try:
        return root.is_file() or any(root.iterdir())
    except OSError:
        return False


def is_stale(index: Index, collection: Collection, options: IndexingOptions) -> bool:
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

"""The folder of the memory's Markdown files: read when they changed, and changed a few pages at once; and its diary,
which is only added to.

A change applies to what is in the files when it is written, so that no edit is lost: a page is read again under the
lock, and once more when it was saved meanwhile. Pages are changed together or not at all: all are staged before the
first is renamed, and what a crash cuts off between two is completed. What cannot be read is a problem, never a page
without entries.
"""

from __future__ import annotations

import errno
import re
import stat
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from kvchat import paths
from kvchat.memory.entry import PROFILE
from kvchat.memory.pages import files
from kvchat.memory.pages.files import FoundPages, Stamp, Unusable, turn
from kvchat.memory.pages.files import UnusablePage as UnusablePage
from kvchat.memory.pages.markdown import PageProblem, encoded
from kvchat.memory.pages.page import MemoryPage
from kvchat.store.errors import StoreUnavailable
from kvchat.store.presence.locks import WriteLock

LOG = "log"
TRIES = 20
"""How often a page that is saved at the very moment is read again."""
FRESH_SECONDS = 1.0
SETTLE_SECONDS = 0.15
"""Editors that save by emptying or renaming a file show it without its lines for a moment: when some are gone and the
change is younger than the first of these, the folder is looked at again after the second."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class FolderError(Exception):
    """Why a page cannot be changed; a sentence for the user."""


class _Draft(Struct):
    """A file that is to be changed."""

    name: str
    path: Path
    stamp: Stamp | None
    before: bytes
    after: bytes
    staged: Path | None = None
    """Holds `after`, until it is renamed."""
    kept: Path | None = None
    """Holds `before` from then on: on a full disk it could not be written any more."""
    written: Stamp | None = None
    """The file's, once that is done."""

    def is_file_of(self, name: str, stamp: Stamp) -> bool:
        """Whether a name leads to this file too, on a disk that does not tell upper from lower case."""
        return self.stamp == stamp and _folded(self.name) == _folded(name)


_Edit = Callable[[bytes, float], bytes]
"""Makes the new content of a file, of the old one and its time."""


class Contents(Struct, frozen=True):
    """What is in the folder."""

    pages: Mapping[str, MemoryPage]
    """By name: `profile.md`, `topics/projects.md`."""
    problems: tuple[UnusablePage, ...]
    """What could not be read. Nothing can be said about entries there."""
    missing: bool
    """Whether the folder was there once and is not now."""


class Folder:
    """The memory's folder. Any thread may use it; `lock` is the file by which kvchats take turns."""

    def __init__(self, root: Path, lock: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._root = root.absolute()
        self._lock_path = lock
        self._made = lock.with_name(lock.name + ".folder")
        """Says which folder there was, over the runs of kvchat."""
        self._pause = pause
        self._lock: WriteLock | None = None
        self._mutex = threading.RLock()
        self._cache: dict[str, tuple[Stamp, MemoryPage | UnusablePage]] = {}
        self._ids: frozenset[str] = frozenset()
        self._was_there = False
        self._turns = 0

    def read(self) -> Contents:
        """All pages. Files that did not change since the last time are not opened."""
        with self._mutex:
            try:
                self._complete()
            except FolderError as error:
                return Contents({}, (UnusablePage("", 0, str(error)),), False)
            contents = self._look()
            ids = _ids(contents.pages.values())
            if self._ids - ids and self._just_changed():
                self._pause(SETTLE_SECONDS)
                contents = self._look()
                ids = _ids(contents.pages.values())
            self._ids = ids
            return contents

    def fingerprint(self) -> object:
        """Differs when a page was changed, came or went. Costs a stat per page."""
        try:
            there = files.found(self._root)
        except OSError as error:
            return str(error)
        return self._root.is_dir(), tuple(there.stamps.items()), tuple(there.problems)

    @contextmanager
    def changing(
        self, edits: Mapping[str, Callable[[MemoryPage], MemoryPage]]
    ) -> Iterator[Callable[[], Mapping[str, MemoryPage]]]:
        """Change pages, all or none, each by its edit, which gets it as it is and may be called again. A page that is
        not there is empty; what is equal is not written. What the block gets writes them, and returns them as they are
        then; they are put back when the block fails after that. Raises FolderError."""
        before, after = dict[str, MemoryPage](), dict[str, MemoryPage]()

        def editing(name: str, edit: Callable[[MemoryPage], MemoryPage]) -> _Edit:
            def edited(data: bytes, when: float) -> bytes:
                before[name] = MemoryPage.parse(name, _text(data), when)
                after[name] = edit(before[name])
                return data if after[name].text == before[name].text else after[name].text.encode()

            return edited

        for name in edits:
            self._check(name)
        with self._changing({name: editing(name, edit) for name, edit in edits.items()}) as write:

            def written() -> Mapping[str, MemoryPage]:
                write()
                self._ids -= _ids(before.values()) - _ids(after.values())
                return after

            yield written

    def add_to_log(self, day: str, id: str, lines: Sequence[str], heading: str) -> None:
        """Put a section into the diary of a day (`2026-11-22`), once for each id. Raises FolderError."""
        if not _DAY.fullmatch(day):
            raise FolderError(f"{day} is not a day, as 2026-11-22 is one.")

        def edit(data: bytes, when: float) -> bytes:
            return data if _has_section(data, id) else _with_section(data, day, id, lines, heading)

        with self._changing({f"{LOG}/{day}.md": edit}) as write:
            write()

    def close(self) -> None:
        """Let go of the lock's file."""
        with self._mutex:
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    # Reading

    def _look(self) -> Contents:
        try:
            there = files.found(self._root)
        except OSError as error:
            problem = UnusablePage("", 0, f"The folder {self._root} cannot be read: {paths.reason(error)}.")
            return Contents({}, (problem,), False)
        pages, problems = self._pages(there)
        if self._root.is_dir():
            self._is_there()
            return Contents(pages, tuple(problems), False)
        if self._root.exists() or self._root.is_symlink():
            why = f"{self._root} is not a folder, or a link to one that is not there. Put the memory's folder there."
            return Contents({}, (UnusablePage("", 0, why),), self._known())
        return Contents({}, (), self._known())

    def _pages(self, there: FoundPages) -> tuple[dict[str, MemoryPage], list[UnusablePage]]:
        cache = {}
        for name, stamp in there.stamps.items():
            kept = self._cache.get(name)
            if kept is None or kept[0] != stamp:
                with suppress(FileNotFoundError):
                    cache[name] = stamp, self._page(name, stamp[2] / 1e9)
            else:
                cache[name] = kept
        self._cache = cache
        pages = {name: page for name, (_, page) in cache.items() if isinstance(page, MemoryPage)}
        return pages, [*there.problems, *(page for _, page in cache.values() if isinstance(page, UnusablePage))]

    def _page(self, name: str, when: float) -> MemoryPage | UnusablePage:
        try:
            return MemoryPage.parse(name, _text(files.read(self._root / name)), when)
        except PageProblem as problem:
            return UnusablePage(name, problem.line, problem.sentence)
        except Unusable as unusable:
            return UnusablePage(name, 0, str(unusable))

    def _just_changed(self) -> bool:
        """Whether some page, or which pages there are, changed a moment ago."""
        now = time.time()
        times = [stamp[2] / 1e9 for stamp, _ in self._cache.values()]
        for name in {
            self._root,
            *((self._root / name).parent for name in self._cache),
            *(self._root / name for name in files.FOLDERS),
        }:
            with suppress(OSError):
                times.append(name.stat().st_mtime)
        return any(abs(now - then) < FRESH_SECONDS for then in times)

    # Writing

    @contextmanager
    def _changing(self, edits: Mapping[str, _Edit]) -> Iterator[Callable[[], None]]:
        """As `changing`, for any files of the folder. No other thread and no other kvchat changes files meanwhile."""
        drafts: list[_Draft] = []
        with self._mutex, ExitStack() as held:
            first = self._root / next(iter(edits), PROFILE)
            with _trouble(first):
                if not self._root.is_dir() and self._known():
                    raise FolderError(
                        f"The memory folder {self._root} is not there any more. Put it back, or make it "
                        "anew to begin with an empty memory."
                    )
                held.enter_context(self._locked())
                drafts += self._drafts(edits)
                if drafts:
                    paths.folder(self._root)
                    self._is_there()
                    held.enter_context(self._turn())
            try:
                self._stage(drafts)
                yield lambda: self._write(edits, drafts)
            except BaseException as error:
                # Interrupted when all was written, it may be stored: a line too many is found again, a missing one is
                # a deletion.
                if isinstance(error, Exception) or not all(draft.written for draft in drafts):
                    _put_back(drafts)
                raise
            finally:
                _drop(drafts)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        begins = self._lock is None
        if self._lock is None:
            try:
                paths.folder(self._lock_path.parent)
                self._lock = WriteLock(self._lock_path)
            except OSError as error:
                raise FolderError(
                    f"{self._lock_path}, by which kvchats take turns, cannot be opened: "
                    f"{paths.reason(error)}. Make it writable."
                ) from error
        with self._lock.held():
            self._complete()
            if begins and self._root.is_dir():
                with self._turn():
                    files.clean(self._root)
            yield

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """No kvchat on another store changes files meanwhile."""
        with nullcontext() if self._turns else turn(self._root):
            self._turns += 1
            try:
                yield
            finally:
                self._turns -= 1

    def _drafts(self, edits: Mapping[str, _Edit]) -> list[_Draft]:
        """What is to be written, as the files are now."""
        drafts: list[_Draft] = []
        for name, edit in edits.items():
            path = self._root / name
            with _trouble(path):
                self._no_links(path.parent)
                stamp, before = files.stamp(path), b""
                try:
                    before = files.read(path) if stamp is not None else b""
                except FileNotFoundError:
                    stamp = None
                after = edit(before, stamp[2] / 1e9 if stamp is not None else time.time())
                if after == before:
                    continue
                if stamp is not None and not path.lstat().st_mode & stat.S_IWUSR:
                    raise FolderError(f"{path} is read-only (chmod u+w makes it writable).")
                if len(after) > files.LARGEST:
                    raise FolderError(
                        f"{path} would have more than {files.LARGEST >> 20} MB. Move some of it to another page."
                    )
                if twin := next((one for one in drafts if stamp is not None and one.is_file_of(name, stamp)), None):
                    raise FolderError(
                        f"{twin.name} and {name} are one file here. Give it one of these names everywhere."
                    )
                drafts.append(_Draft(name, path, stamp, before, after))
        return drafts

    def _stage(self, drafts: Sequence[_Draft]) -> None:
        for draft in drafts:
            with _trouble(draft.path):
                paths.folder(draft.path.parent)
                draft.staged = files.stage(draft.path, draft.after)

    def _write(self, edits: Mapping[str, _Edit], drafts: list[_Draft]) -> None:
        """Rename what is staged; where a file was saved meanwhile, stage everything again from its new text."""
        for _ in range(TRIES):
            if self._rename(drafts):
                return
            _drop(drafts)
            drafts[:] = self._drafts(edits)
            self._stage(drafts)
        raise FolderError(f"{drafts[0].path} is being saved by another program all the time. Close it there.")

    def _rename(self, drafts: Sequence[_Draft]) -> bool:
        """Whether all files were still what they had been."""
        if not all(files.stamp(draft.path) == draft.stamp for draft in drafts):
            return False
        note = self._root / files.NOTE
        try:
            for draft in drafts:
                draft.kept = files.keep(draft.path) if draft.stamp is not None else None
            if len(drafts) > 1:
                with _trouble(note):
                    files.note_renames(
                        self._root,
                        [
                            files.Rename(draft.staged.name, draft.name, files.stamp(draft.path))
                            for draft in drafts
                            if draft.staged is not None
                        ],
                    )
            if not all(_is_same(files.stamp(draft.path), draft.stamp) for draft in drafts):
                return False
            for draft in drafts:
                if not _is_same(files.stamp(draft.path), draft.stamp):
                    _put_back(drafts)
                    return False
                assert draft.staged is not None
                with _trouble(draft.path):
                    draft.staged.replace(draft.path)
                draft.staged, draft.written = None, files.stamp(draft.path)
            for folder in {draft.path.parent for draft in drafts}:
                paths.sync_folder(folder)
            return True
        finally:
            if len(drafts) > 1:
                with suppress(OSError):
                    note.unlink()

    def _complete(self) -> None:
        """Rename what a kvchat that was killed had begun to rename. Raises FolderError."""
        note = self._root / files.NOTE
        if not note.exists():
            return
        with _trouble(note), self._turn():
            for rename in files.read_renames(self._root):
                with suppress(FolderError, ValueError):  # a note of somebody else's, with other names
                    self._check(rename.name)
                    path = self._root / rename.name
                    staged = path.with_name(rename.staged)
                    self._no_links(path.parent)
                    if staged.is_file() and _is_same(files.stamp(path), rename.stamp):
                        staged.replace(path)
                        paths.sync_folder(path.parent)
            note.unlink(missing_ok=True)

    def _no_links(self, folder: Path) -> None:
        """Raises FolderError where a link leads out of the memory's folder."""
        for place in (folder, *folder.parents):
            if place == self._root:
                return
            if place.is_symlink():
                raise FolderError(f"{place} is a link, and links are not followed. Put the folder itself there.")

    def _check(self, name: str) -> None:
        """Raises FolderError for a name that is no page's."""
        parts = name.split("/")
        is_page = parts[0] in files.FOLDERS and len(parts) > 1 and name.lower().endswith(files.ENDING)
        if not (name == PROFILE or is_page) or any(part.startswith(".") or not part for part in parts) or "\0" in name:
            raise FolderError(
                f"{name!r} is not a page. Pages are {PROFILE} and "
                f"{', '.join(f'{folder}/….md' for folder in files.FOLDERS)}."
            )
        if not files.is_portable(name) and files.stamp(self._root / name) is None:
            raise FolderError(f"{name!r} cannot be a file on every system. Choose another name, of letters and digits.")

    # Whether it was there

    def _is_there(self) -> None:
        if not self._was_there:
            self._was_there = True
            here = str(self._root).encode("utf-8", "surrogateescape")
            with suppress(OSError, paths.PathError):
                if not self._made.is_file() or self._made.read_bytes() != here:
                    paths.write_private(self._made, here)

    def _known(self) -> bool:
        if not self._was_there:
            with suppress(OSError):
                here = str(self._root).encode("utf-8", "surrogateescape")
                self._was_there = self._made.is_file() and self._made.read_bytes() == here
        return self._was_there


def _text(data: bytes) -> str:
    """The text of a page. Raises PageProblem."""
    if len(data) > files.LARGEST:
        raise PageProblem(0, f"It has more than {files.LARGEST >> 20} MB. Divide it.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PageProblem(line, "The page is not in UTF-8. Save it in that encoding.") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise PageProblem(line, "Here is a NUL character, which text does not have. Save the page as UTF-8 text.")
    return text


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _ids(pages: Iterable[MemoryPage]) -> frozenset[str]:
    return frozenset(line.entry.id for page in pages for line in page.entries)


def _is_same(one: Stamp | None, other: Stamp | None) -> bool:
    """Whether a file has not been saved; to give it a second name changes the last of its times."""
    return (one and one[:3]) == (other and other[:3])


def _put_back(drafts: Iterable[_Draft]) -> None:
    """Give the files that were written their old content, but for those that somebody has saved since. All or none: on
    a full disk without hard links a line would be nowhere."""
    with suppress(OSError):
        written = [draft for draft in drafts if draft.written and files.stamp(draft.path) == draft.written]
        for draft in written:
            if draft.stamp is not None and draft.kept is None:
                draft.kept = files.stage(draft.path, draft.before)
        for draft in written:
            with suppress(OSError):
                if draft.kept is None:
                    draft.path.unlink()
                else:
                    draft.kept.replace(draft.path)


def _drop(drafts: Iterable[_Draft]) -> None:
    for draft in drafts:
        for path in (draft.staged, draft.kept):
            if path is not None:
                with suppress(OSError):
                    path.unlink()
        draft.staged = draft.kept = None


@contextmanager
def _trouble(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file into a FolderError."""
    try:
        yield
    except (PageProblem, Unusable) as problem:
        where = f"{path}:{problem.line}" if isinstance(problem, PageProblem) and problem.line else f"{path}"
        raise FolderError(f"{where}: {problem} Until then it is left alone.") from problem
    except StoreUnavailable as error:
        raise FolderError(str(error)) from error
    except paths.PathError as error:
        raise FolderError(_not_made(path.parent, error)) from error
    except OSError as error:
        raise FolderError(_not_written(path, error)) from error


def _not_made(folder: Path, error: paths.PathError) -> str:
    if isinstance(error.__cause__, OSError):
        return f"The folder {folder} cannot be made: {paths.reason(error.__cause__)}."
    return f"{folder} is not a folder. Move it away, or choose another with memory.folder."


def _not_written(path: Path, error: OSError) -> str:
    advice = (
        "Make room on that disk."
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else ("Make it writable, or choose another folder with memory.folder.")
    )
    return f"{path} cannot be written: {paths.reason(error)}. {advice}"


# A page of the diary: one section for each extraction


_BEGINNING = "# {day}\n\nWhat kvchat noted on this day. Nothing is read from here: keep it, change it or delete it.\n"


def _has_section(page: bytes, id: str) -> bool:
    """Whether a page has the section of that id."""
    return _mark(id).encode() in page


def _with_section(page: bytes, day: str, id: str, lines: Sequence[str], heading: str) -> bytes:
    """The page with one more section."""
    end = "\r\n" if b"\r\n" in page else "\n"
    bullets = (f"- {_one_line(line.removeprefix('- '))}" for line in lines)
    section = [f"## {_one_line(heading)} {_mark(id)}", "", *bullets]
    start = page or _BEGINNING.format(day=day).encode()
    gap = end if start.endswith((b"\n", b"\r")) else end * 2
    return start + (gap + end.join(section) + end).encode()


def _one_line(text: str) -> str:
    return encoded(" ".join(text.split()) or "…")[0]


def _mark(id: str) -> str:
    return f"<!-- {quote(id, safe='-_.:')} -->"

"""The folder of the memory's Markdown files: read when they changed, and changed one page at a time; and its diary,
which is only added to.

A change applies to what is in the file when it is written, so that no edit is lost: a page is read again under the
lock, and once more when it was saved meanwhile. What cannot be read is a problem, never a page without entries.
"""

from __future__ import annotations

import contextlib
import errno
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
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


class PageFull(FolderError):  # noqa: N818
    """With the change, a page would have more than a page may have."""


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

    def read(self) -> Contents:
        """All pages. Files that did not change since the last time are not opened."""
        with self._mutex:
            contents = self._look()
            ids = _ids(contents)
            if self._ids - ids and self._just_changed():
                self._pause(SETTLE_SECONDS)
                contents = self._look()
                ids = _ids(contents)
            self._ids = ids
            return contents

    def fingerprint(self) -> object:
        """Differs when a page was changed, came or went. Costs a stat per page."""
        try:
            there = files.found(self._root)
        except OSError as error:
            return str(error)
        return self._root.is_dir(), tuple(there.stamps.items()), tuple(there.problems)

    def change(self, name: str, edit: Callable[[MemoryPage], MemoryPage]) -> MemoryPage:
        """Change a page by `edit`, which gets it as it is and may be called again; the page as it is then. One that is
        not there is empty. What is equal is not written. Raises FolderError."""
        self._check(name)
        before = after = MemoryPage.parse(name, "")

        def edited(data: bytes, when: float) -> bytes:
            nonlocal before, after
            before = MemoryPage.parse(name, _text(data), when)
            after = edit(before)
            return data if after.text == before.text else after.text.encode()

        with self._changing(name):
            self._rewrite(name, edited)
            self._ids -= {line.entry.id for line in before.entries} - {line.entry.id for line in after.entries}
        return after

    def add_to_log(self, day: str, id: str, lines: Sequence[str], heading: str) -> None:
        """Put a section into the diary of a day (`2026-11-22`), once for each id. Raises FolderError."""
        if not _DAY.fullmatch(day):
            raise FolderError(f"{day} is not a day, as 2026-11-22 is one.")
        name = f"{LOG}/{day}.md"
        with self._changing(name):
            self._rewrite(
                name,
                lambda data, when: data if _has_section(data, id) else _with_section(data, day, id, lines, heading),
            )

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
                with contextlib.suppress(FileNotFoundError):
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
            with contextlib.suppress(OSError):
                times.append(name.stat().st_mtime)
        return any(abs(now - then) < FRESH_SECONDS for then in times)

    # Writing

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """No other thread and no other kvchat changes files; what goes wrong is a FolderError."""
        path = self._root / name
        with self._mutex:
            try:
                if not self._root.is_dir() and self._known():
                    raise FolderError(
                        f"The memory folder {self._root} is not there any more. Put it back, or make it "
                        "anew to begin with an empty memory."
                    )
                with self._locked():
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
            if begins and self._root.is_dir():
                files.clean(self._root)
            yield

    def _rewrite(self, name: str, edit: Callable[[bytes, float], bytes]) -> None:
        """Replace a file by what `edit` makes of it, from its content and time, and again if it is saved meanwhile."""
        path = self._root / name
        self._no_links(path.parent)
        for _ in range(TRIES):
            stamp = files.stamp(path)
            try:
                before = files.read(path) if stamp is not None else b""
            except FileNotFoundError:
                continue
            after = edit(before, stamp[2] / 1e9 if stamp is not None else time.time())
            if after == before:
                return
            if stamp is not None and not path.lstat().st_mode & stat.S_IWUSR:
                raise FolderError(f"{path} is read-only (chmod u+w makes it writable).")
            if len(after) > files.LARGEST:
                raise PageFull(
                    f"{path} would have more than {files.LARGEST >> 20} MB. Move some of it to another page."
                )
            paths.folder(path.parent)
            self._is_there()
            with turn(self._root):
                if files.replace(path, after, partial(_is_still, path, stamp)):
                    return
        raise FolderError(f"{path} is being saved by another program all the time. Close it there.")

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
            with contextlib.suppress(OSError, paths.PathError):
                if not self._made.is_file() or self._made.read_bytes() != here:
                    paths.write_private(self._made, here)

    def _known(self) -> bool:
        if not self._was_there:
            with contextlib.suppress(OSError):
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


def _ids(contents: Contents) -> frozenset[str]:
    return frozenset(line.entry.id for page in contents.pages.values() for line in page.entries)


def _is_still(path: Path, stamp: Stamp | None) -> bool:
    return files.stamp(path) == stamp


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

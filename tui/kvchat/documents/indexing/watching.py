"""Watching: let the system report when something changes in a collection.

Watching is optional. Where it does not work (watchfiles is not installed, the system's limits are reached, the drive
does not support it) it ends or stays silent; the listener looks at the files now and then.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from kvchat.documents.scanning import is_left_out

SETTLED_S = 1.0
"""Seconds without a change in a collection after which it is named."""
LONGEST_WAIT_S = 30.0
"""Seconds after which it is named although it still changes."""
_STEP_MS = 250
"""How often the library looks whether to end: it holds up the end of the program for so long."""

log = logging.getLogger(__name__)


async def changes(roots: Mapping[str, Path]) -> AsyncIterator[str]:
    """The names of collections in which something was changed, each when it has come to rest. Ends at once where
    nothing can be watched. A root that is not there is not watched."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def report(name: str | None) -> None:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, name)
        except RuntimeError:
            pass  # the loop has ended

    threads = await asyncio.to_thread(_watching, roots, report)
    try:
        for thread in threads:
            thread.start()
        settling = _Settling(loop.time)
        left = len(threads)
        while left:
            try:
                async with asyncio.timeout(settling.seconds_left()):
                    name = await queue.get()
            except TimeoutError:
                for rested in settling.rested():
                    yield rested
                continue
            if name is None:
                left -= 1
            else:
                settling.changed(name)
    finally:
        for thread in threads:
            thread.stop.set()


class _Settling:
    """The collections that change at present."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, tuple[float, float]] = {}
        """When each was changed first and last."""

    def changed(self, name: str) -> None:
        now = self._clock()
        self._times[name] = self._times.get(name, (now, now))[0], now

    def seconds_left(self) -> float | None:
        """Until the next one is to be named; None: there is none."""
        return max(0.0, min(map(_due, self._times.values())) - self._clock()) if self._times else None

    def rested(self) -> list[str]:
        now = self._clock()
        found = [name for name, times in self._times.items() if _due(times) <= now]
        for name in found:
            del self._times[name]
        return found


def _due(times: tuple[float, float]) -> float:
    return min(times[1] + SETTLED_S, times[0] + LONGEST_WAIT_S)


class _Thread(threading.Thread):
    """Waits for what the system tells. No daemon: the library cannot bear to be cut off while the program ends."""

    def __init__(
        self,
        folders: list[str],
        recursive: bool,
        names_of: Callable[[str], list[str]],
        report: Callable[[str | None], None],
    ) -> None:
        super().__init__(name="kvchat-watching")
        self.stop = threading.Event()
        self._folders, self._recursive, self._names_of, self._report = folders, recursive, names_of, report

    def run(self) -> None:
        try:
            watch = importlib.import_module("watchfiles").watch
            for found in watch(
                *self._folders,
                watch_filter=None,
                debounce=2000,
                step=_STEP_MS,
                stop_event=self.stop,
                recursive=self._recursive,
                raise_interrupt=False,
                force_polling=False,
                ignore_permission_denied=True,
            ):
                for name in {name for _, path in found for name in self._names_of(path)}:
                    self._report(name)
        except BaseException as error:  # the library panics with exceptions of its own kind
            log.info("changes are not watched: %s", error)
        finally:
            self._report(None)


def _watching(roots: Mapping[str, Path], report: Callable[[str | None], None]) -> list[_Thread]:
    """The threads that watch: one for all folders, one for the folders of single files."""
    try:
        importlib.import_module("watchfiles")
    except Exception as error:  # a broken installation fails in ways of its own
        log.info("changes are not watched: %s", error)
        return []
    folders: dict[str, str] = {}
    files: dict[str, str] = {}
    for name, root in roots.items():
        real = os.path.realpath(root)
        if Path(real).is_dir():
            folders[name] = real
        elif Path(real).is_file():
            files[name] = real

    def in_folders(path: str) -> list[str]:
        return [name for name, root in folders.items() if _is_in(path, root)]

    def of_files(path: str) -> list[str]:
        return [name for name, root in files.items() if path == root]

    threads = []
    if folders:
        threads.append(_Thread(sorted(set(folders.values())), True, in_folders, report))
    if files:
        threads.append(_Thread(sorted({str(Path(root).parent) for root in files.values()}), False, of_files, report))
    return threads


def _is_in(path: str, root: str) -> bool:
    """Whether a changed path matters to the collection at `root`."""
    start = root.rstrip(os.sep) + os.sep
    return path.startswith(start) and not is_left_out(path[len(start) :].replace(os.sep, "/"))

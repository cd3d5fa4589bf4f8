"""Files to import, read in a process of their own: a hostile file costs at most itself.

Whatever a file does, what was found before it stays and the next one follows. However this is ended, no process is
left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvchat.apart.process import SECONDS, End, EndedError, Process
from kvchat.transfer.importing.files import FoundConversation, ImportProgress, Missed
from kvchat.transfer.importing.passing import Arriving, FrameKind, missed_of, read
from kvchat.transfer.importing.thread import ImportRefusal, NotTaken
from kvchat.values import said

MODULE = "kvchat.transfer.importing.import_child"
MEMORY = 768 << 20
_ENDS = {End.LATE: ImportRefusal.TOO_SLOW, End.MEMORY: ImportRefusal.MUCH_MEMORY, End.CRASHED: ImportRefusal.FAULTY}


class FilesApart:
    """As `files.Files`. `stop` may be called on any thread."""

    def __init__(self, paths: Sequence[Path], seconds: float = SECONDS) -> None:
        """`seconds`: without any progress, after which a file is left."""
        self.progress = ImportProgress()
        self.passed_over = 0
        self.is_stopped = False
        self._paths = [os.fsencode(path).hex() for path in paths]
        self._seconds = seconds
        self._process: Process | None = None

    def stop(self) -> None:
        """Come to the end at once."""
        self.is_stopped = True
        if self._process is not None:
            self._process.kill()

    def __iter__(self) -> Iterator[FoundConversation | Missed]:
        passed, passed_over = 0, 0
        while not self.is_stopped:
            try:
                yield from self._received(passed, passed_over)
                return
            except EndedError as error:
                if self.is_stopped:
                    return
                arguments = {"seconds": self._seconds} if error.end is End.LATE else {}
                yield Missed(self.progress.path, said(_ENDS[error.end], **arguments), whole=True)
                if not self.progress.number:  # it did not come to a file
                    return
                passed, passed_over = self.progress.number, self.passed_over

    def _received(self, passed: int, passed_over: int) -> Iterator[FoundConversation | Missed]:
        """What is in the files after the first `passed` ones. Raises EndedError."""
        process = self._process = Process(MODULE, self._seconds, MEMORY)
        question = [json.dumps({"paths": self._paths, "passed": passed}).encode()]
        arriving: Arriving | None = None
        try:
            while not self.is_stopped:
                answer, question = process.ask(*question), []
                try:
                    kind, value = read(answer)
                    if kind is FrameKind.OVER:
                        return
                    if kind is FrameKind.NO_MEMORY:
                        raise EndedError(End.MEMORY)
                    if kind is FrameKind.PROGRESS:
                        path, number, done, total, over = value
                        self.progress = ImportProgress(str(path), int(number), int(done), int(total))
                        self.passed_over = passed_over + int(over)
                    elif kind is FrameKind.MISSED:
                        yield missed_of(value)
                    else:
                        if kind is FrameKind.FOUND:
                            arriving = Arriving(value)
                        elif arriving is not None:
                            arriving.take(kind, value)
                        if arriving is not None and arriving.is_whole:
                            yield _found(arriving)
                            arriving = None
                except (ValueError, TypeError, KeyError, RecursionError, StopIteration) as error:
                    raise EndedError(End.CRASHED) from error
        finally:
            process.kill()


def _found(arriving: Arriving) -> FoundConversation | Missed:
    try:
        return arriving.found()
    except NotTaken as error:
        return Missed(arriving.file, error.why)

"""The process that reads one file after another for `sandbox.Readers`: what is wrong with a file ends this one at most.

The rule: it reads stdin and writes stdout, and does nothing else: no network, no other program. It ends with its
stdin, and by itself where a file takes much too long.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
from typing import BinaryIO, NoReturn

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading import formats, pipe_protocol
from kvchat.documents.reading.pixels import pixels_of, thumbnail_of

GRACE = 5.0
"""Seconds after which it ends by itself, beyond those its parent gives a file."""
_LARGE = 1 << 20
_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "os.fork",
    "urllib.",
    "webbrowser.",
)


def main() -> None:
    """Answer frames until stdin ends. The first one says how: `{"seconds": 30, "memory": 1073741824}`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which then closes stdin
    questions, answers = sys.stdin.buffer, _own_stdout()
    first = pipe_protocol.take(questions)
    if first is None:
        return
    limits = json.loads(first)
    _limit_memory(int(limits["memory"]))
    sys.addaudithook(_refuse)
    while (name := pipe_protocol.take(questions)) is not None and (data := pipe_protocol.take(questions)) is not None:
        faulthandler.dump_traceback_later(float(limits["seconds"]) + GRACE, exit=True)
        answer = _answer(json.loads(name), data)
        faulthandler.cancel_dump_traceback_later()
        pipe_protocol.put(answers, answer or pipe_protocol.refusal_of(pipe_protocol.TOO_MUCH))
        if not answer:
            return
        if len(data) > _LARGE:
            del data, answer
            gc.collect()  # while the parent works on: a PDF leaves many cycles


def _answer(name: str | list[int] | None, data: bytes) -> bytes:
    """The frame that answers a file; empty: there is too little memory. Without a name it is an image, with a width and
    a height in its place one to be made small."""
    try:
        if name is None:
            return pipe_protocol.answer_of_pixels(pixels_of(data))
        if isinstance(name, list):
            return pipe_protocol.answer_of_pixels(thumbnail_of(data, *name))
        answer = pipe_protocol.answer_of(formats.read(name, data))
        return answer if len(answer) <= pipe_protocol.LARGEST else pipe_protocol.refusal_of("has too much text")
    except UnreadableError as error:
        return pipe_protocol.refusal_of(str(error))
    except MemoryError:
        return b""
    except RecursionError:
        return pipe_protocol.refusal_of("is nested too deeply")
    except Exception as error:  # an error of this program: the other files are read all the same
        return pipe_protocol.refusal_of(f"cannot be read ({type(error).__name__})")


def _own_stdout() -> BinaryIO:
    """Stdout for the answers alone: what anything prints goes where stderr goes."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "wb")


def _limit_memory(most: int) -> None:
    """Let this process have no more than `most` bytes, where the system can do that."""
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass


def _refuse(event: str, arguments: object) -> None:
    if event.startswith(_FORBIDDEN):
        _stop(event)


def _stop(event: str) -> NoReturn:
    raise PermissionError(f"{event}: reading a file needs nothing of that")


if __name__ == "__main__":
    main()

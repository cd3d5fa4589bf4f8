"""The process that reads one file after another for `sandbox.Readers`."""

from __future__ import annotations

import gc
import json

from kvchat.apart import frames
from kvchat.apart.child import Parent
from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading import formats, pipe_protocol
from kvchat.documents.reading.pixels import pixels_of, thumbnail_of

_LARGE = 1 << 20


def main() -> None:
    """Answer frames until stdin ends."""
    parent = Parent()
    while (name := parent.take()) is not None and (data := parent.take()) is not None:
        answer = _answer(json.loads(name), data)
        parent.put(answer or pipe_protocol.refusal_of(pipe_protocol.TOO_MUCH))
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
        return answer if len(answer) <= frames.LARGEST else pipe_protocol.refusal_of("has too much text")
    except FileUnreadableError as error:
        return pipe_protocol.refusal_of(str(error))
    except MemoryError:
        return b""
    except RecursionError:
        return pipe_protocol.refusal_of("is nested too deeply")
    except Exception as error:  # an error of this program: the other files are read all the same
        return pipe_protocol.refusal_of(f"cannot be read ({type(error).__name__})")


if __name__ == "__main__":
    main()

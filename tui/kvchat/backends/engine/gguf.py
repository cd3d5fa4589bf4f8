"""The header of a GGUF model file: what it is, read from its first bytes.

A file is hostile until proven otherwise. At most `WINDOW` bytes are read, every count and length is
checked before it is used, and whatever is wrong is one sentence in a `GgufError`.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from kvchat.text.engine import EngineProblem
from kvchat.text.problems import ProblemError

MAGIC = b"GGUF"
WINDOW = 256 * 1024
"""Bytes read from a file. The facts of a model stand before its vocabulary, which is megabytes long."""
MAX_ENTRIES = 4096
MAX_KEY = 65_535
MAX_TEXT = 200
"""Characters kept of a name."""
MAX_STRINGS = 1024
"""A list of more strings than this is a vocabulary: reading ends there."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
}
_QUANTISATION = re.compile(
    r"[-_.](?:UD[-_])?([IT]?Q[1-8](?:_[A-Z0-9]+)*|BF16|F16|F32|FP16|MXFP4|NVFP4)(?:[-_.]MOE)?$", re.IGNORECASE
)
_WINDOWED = (
    "gemma2",
    "gemma3",
    "gemma4",
    "gpt-oss",
    "cohere2",
    "llama4",
    "exaone4",
    "olmo3",
    "olmo2",
    "smallthinker",
    "plamo3",
    "afmoe",
    "mimo2",
    "step35",
)
"""Architectures that llama.cpp runs with a sliding window."""
_STATES = ("ssm", "shortconv", "wkv", "kda")
"""Groups of facts that a model with recurrent layers has."""
_EMBEDDERS = ("bert", "t5encoder", "gemma-embedding")
_DRAFTS = ("eagle", "dflash", "assistant")
"""Architectures that guess ahead for another model and cannot run without it."""


class GgufError(ProblemError):
    """A file that is no usable GGUF."""


class GgufHeader(Struct, frozen=True):
    """What the header says. Empty or None: it does not say (or not within the window)."""

    version: int
    tensors: int
    architecture: str = ""
    kind: str = ""
    """`general.type`: `model`, `mmproj`, `adapter`, ..."""
    name: str = ""
    context_length: int | None = None
    """The trained context in tokens."""
    quantisation: str = ""
    pooling: int = 0
    """More than 0: the model makes embeddings."""
    sliding_window: int = 0
    """Tokens that most layers look back at; 0: all of them look back at everything."""
    recurrent: bool = False
    """Whether some layers keep a running state, which cannot go back."""
    token_bytes: int = 0
    """Bytes that one token takes in the cache where all layers are alike and keep it in 16 bits; 0: not known."""
    part: int = 0
    parts: int = 1
    complete: bool = True
    """Whether the whole header fitted into the window."""

    @property
    def no_chat(self) -> EngineProblem | None:
        """What this is, if it is no model to talk to."""
        if self.kind == "mmproj" or self.architecture == "clip":
            return EngineProblem.PROJECTOR
        if self.kind == "adapter":
            return EngineProblem.ADAPTER
        if self.pooling > 0 or any(part in self.architecture for part in _EMBEDDERS):
            return EngineProblem.EMBEDDER
        if any(part in self.architecture for part in _DRAFTS):
            return EngineProblem.DRAFT
        has_weights = self.tensors > 0 or self.parts > 1
        if self.kind not in ("", "model") or not has_weights or (self.complete and self.context_length is None):
            return EngineProblem.OTHER_KIND
        return None


class _WindowEndError(Exception):
    """The header goes on behind the window."""


class _GgufReader:
    """Little-endian values from the first bytes of a file of `size` bytes."""

    def __init__(self, data: bytes, size: int, path: Path) -> None:
        self.data, self.size, self.path, self.at = data, size, path, 0

    def damaged(self, problem: EngineProblem, **arguments: object) -> GgufError:
        return GgufError(problem, path=self.path, **arguments)

    def skip(self, length: int) -> int:
        """Move on by `length` bytes and return where they began."""
        begin, end = self.at, self.at + length
        if end > self.size:
            raise self.damaged(EngineProblem.SHORT, needed=end, size=self.size)
        if end > len(self.data):
            raise _WindowEndError
        self.at = end
        return begin

    def scalar(self, code: str) -> int | float | bool:
        begin = self.skip(struct.calcsize("<" + code))
        value: int | float | bool = struct.unpack_from("<" + code, self.data, begin)[0]
        return value

    def number(self, code: str) -> int:
        return int(self.scalar(code))

    def text(self, limit: int | None = None) -> str:
        length = self.number("Q")
        if limit is not None and length > limit:
            raise self.damaged(EngineProblem.LONG_NAME, length=length)
        begin = self.skip(length)
        return self.data[begin : begin + min(length, 4 * MAX_TEXT)].decode("utf-8", "replace")[:MAX_TEXT]

    def value(self, kind: int) -> object:
        """A value of a GGUF type; None for lists, which are skipped."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            self.array()
            return None
        if kind not in _SCALARS:
            raise self.damaged(EngineProblem.UNKNOWN_ENTRY, type=kind)
        return self.scalar(_SCALARS[kind])

    def array(self) -> None:
        kind, count = self.number("I"), self.number("Q")
        if kind in _SCALARS:
            self.skip(count * struct.calcsize("<" + _SCALARS[kind]))
        elif kind == _STRING:
            if count * 8 > self.size:
                raise self.damaged(EngineProblem.LONG_LIST, count=count, size=self.size)
            if count > MAX_STRINGS:
                raise _WindowEndError
            for _ in range(count):
                self.skip(self.number("Q"))
        else:
            raise self.damaged(EngineProblem.UNKNOWN_LIST, type=kind)


def read_header(path: Path) -> GgufHeader:
    """The header of the GGUF at `path`, in a few milliseconds. Raises GgufError."""
    return header_in(*_first_bytes(path), path)


def header_in(data: bytes, size: int, path: Path) -> GgufHeader:
    """The header in the first bytes of a file of `size` bytes, of which `path` is the name. Raises GgufError."""
    if data[:4] != MAGIC:
        raise GgufError(
            EngineProblem.OTHER_FORMAT if data else EngineProblem.EMPTY, path=path, beginning=repr(data[:8])[1:]
        )
    reader = _GgufReader(data, size, path)
    reader.at = 4
    try:
        version = reader.number("I")
        if version not in (2, 3):
            raise GgufError(EngineProblem.OTHER_VERSION, path=path, version=_version(version))
        tensors, count = reader.number("Q"), reader.number("Q")
    except _WindowEndError:
        raise reader.damaged(EngineProblem.CUT_HEADER) from None
    if count > MAX_ENTRIES:
        raise reader.damaged(EngineProblem.MANY_ENTRIES, count=count)
    values, complete = _entries(reader, count)
    return _header(path, version, tensors, values, complete)


def _first_bytes(path: Path) -> tuple[bytes, int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise GgufError(EngineProblem.NO_FILE, path=path)
            return file.read(WINDOW) or b"", info.st_size
    except FileNotFoundError:
        raise GgufError(EngineProblem.GONE, path=path) from None
    except IsADirectoryError:
        raise GgufError(EngineProblem.FOLDER, path=path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GgufError(EngineProblem.UNREADABLE, path=path, reason=reason) from None


def _version(version: int) -> str:
    return "big-endian" if version in (0x02000000, 0x03000000) else str(version)


def _entries(reader: _GgufReader, count: int) -> tuple[dict[str, object], bool]:
    """The entries as far as the window goes, and whether that is all of them."""
    values: dict[str, object] = {}
    try:
        for _ in range(count):
            key = reader.text(MAX_KEY)
            values[key] = reader.value(reader.number("I"))
    except _WindowEndError:
        return values, False
    return values, True


def _header(path: Path, version: int, tensors: int, values: Mapping[str, object], complete: bool) -> GgufHeader:
    def text(key: str) -> str:
        value = values.get(key)
        return " ".join(value.split()) if isinstance(value, str) else ""

    def number(key: str) -> int | None:
        value = values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    architecture = text("general.architecture")
    file_type = number("general.file_type")
    context = number(f"{architecture}.context_length")
    blocks, width, heads = (
        number(f"{architecture}.{key}") or 0 for key in ("block_count", "embedding_length", "attention.head_count")
    )
    shared, usual = f"{architecture}.attention.head_count_kv", width // heads if heads else 0
    key_values = number(shared) or 0 if shared in values else heads
    lengths = [number(f"{architecture}.attention.{part}_length") or usual for part in ("key", "value")]
    token_bytes = 2 * blocks * key_values * sum(lengths)
    return GgufHeader(
        version=version,
        tensors=tensors,
        architecture=architecture,
        kind=text("general.type"),
        name=text("general.name"),
        context_length=context if context and 0 < context < 2**31 else None,
        quantisation=quantisation_of(path.stem) or _FILE_TYPES.get(-1 if file_type is None else file_type % 1024, ""),
        pooling=number(f"{architecture}.pooling_type") or 0,
        sliding_window=(number(f"{architecture}.attention.sliding_window") or 0)
        if architecture.startswith(_WINDOWED)
        else 0,
        recurrent=any(key.startswith(tuple(f"{architecture}.{part}." for part in _STATES)) for key in values),
        token_bytes=token_bytes if 0 < token_bytes < 2**31 else 0,
        part=number("split.no") or 0,
        parts=number("split.count") or 1,
        complete=complete,
    )


def quantisation_of(stem: str) -> str:
    """The quantisation that a file's name ends with, such as `Q4_K_M`, or nothing."""
    found = _QUANTISATION.search(stem)
    return found[1].upper() if found else ""


def without_quantisation(stem: str) -> str:
    """A file's name without the quantisation at its end."""
    return _QUANTISATION.sub("", stem)

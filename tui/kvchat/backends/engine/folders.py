"""Where model files lie on this machine: the folders of other programs, walked within bounds.

Looking is cheap and harmless. Nothing is opened but Ollama's small manifests, a bounded number of
folder entries is looked at, and what cannot be read is passed over.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

MOST_ENTRIES = 5000
"""Entries looked at per source."""
DEPTH = 5
"""Levels below a source's folder. Hugging Face needs model/snapshots/revision/folder/file."""
MOST_MANIFEST = 64 * 1024
"""Bytes."""

_NO_MODELS = ("blobs", "refs")
"""Folders of a hub's cache whose files are reached by better names elsewhere."""
_MODEL_LAYER = "application/vnd.ollama.image.model"
_DOWNLOADS = re.compile(r'^XDG_DOWNLOAD_DIR="(?!\$HOME/?")([^"\n]+)"', re.MULTILINE)
"""A folder that is not the home itself."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class FoundModelFile(Struct, frozen=True):
    """A file that may be a model."""

    path: Path
    source: str
    name: str = ""
    """What its program calls it; empty: the file's name tells."""


def sources(env: Mapping[str, str], home: Path) -> list[tuple[str, Path]]:
    """The folders that hold GGUF files by name, each with its program, in the order they are listed."""

    def given(key: str, *below: str) -> list[Path]:
        value = env.get(key, "").strip()
        return [_expanded(value, home).joinpath(*below)] if value else []

    cache = (given("XDG_CACHE_HOME") or [home / ".cache"])[0]
    data = (given("XDG_DATA_HOME") or [home / ".local/share"])[0]
    config = (given("XDG_CONFIG_HOME") or [home / ".config"])[0]
    support = home / "Library/Application Support"
    hub = (
        given("HF_HUB_CACHE")
        or given("HUGGINGFACE_HUB_CACHE")
        or given("HF_HOME", "hub")
        or [cache / "huggingface/hub"]
    )
    folders = {
        "LM Studio": [home / ".lmstudio/models", cache / "lm-studio/models"],
        "Hugging Face": hub,
        "llama.cpp": [*given("LLAMA_CACHE"), cache / "llama.cpp", home / "Library/Caches/llama.cpp"],
        "Jan": [data / "Jan/data", support / "Jan/data"],
        "GPT4All": [data / "nomic.ai/GPT4All", support / "nomic.ai/GPT4All"],
        "models folder": [home / "models"],
        "downloads": list(dict.fromkeys([_downloads(config / "user-dirs.dirs", home), home / "Downloads"])),
    }
    return [(source, folder) for source, group in folders.items() for folder in group]


def _downloads(names: Path, home: Path) -> Path:
    """The folder of downloads as the desktop names it, in the user's language."""
    try:
        found = _DOWNLOADS.search(names.read_bytes()[:MOST_MANIFEST].decode(errors="surrogateescape"))
    except OSError:
        found = None
    return home / found[1].replace("$HOME/", "") if found else home / "Downloads"


def hub_cache(env: Mapping[str, str], home: Path) -> Path:
    """Where `llama-server -hf`, and whatever else uses Hugging Face's cache, keeps its models."""
    cache = env.get("LLAMA_CACHE", "").strip()
    return _expanded(cache, home) if cache else dict(sources(env, home))["Hugging Face"]


def ollama_folders(env: Mapping[str, str], home: Path, root: Path) -> list[Path]:
    """Where Ollama keeps its manifests and blobs: the user's own, and those of a service on this system."""
    value = env.get("OLLAMA_MODELS", "").strip()
    own = _expanded(value, home) if value else home / ".ollama/models"
    return [own, root / "usr/share/ollama/.ollama/models"]


def _expanded(value: str, home: Path) -> Path:
    return home / value[2:] if value.startswith("~/") else Path(value)


class Walk:
    """A search through several sources which goes into no folder twice."""

    def __init__(self) -> None:
        self._left = 0
        self._been: set[tuple[int, int]] = set()

    def gguf(self, folder: Path, source: str) -> Iterator[FoundModelFile]:
        """The files below `folder` that are named like a model."""
        for path in self._source(folder):
            if path.suffix.lower() == ".gguf":
                yield FoundModelFile(path, source)

    def ollama(self, folder: Path) -> Iterator[FoundModelFile]:
        """Ollama's models: a manifest at host/owner/model/tag names a blob."""
        manifests = folder / "manifests"
        for manifest in self._source(manifests):
            parts = manifest.relative_to(manifests).parts
            blob = _model_blob(manifest) if len(parts) >= 3 else ""
            if blob:
                yield FoundModelFile(folder / "blobs" / blob, "Ollama", _ollama_name(parts))

    def _source(self, folder: Path) -> Iterator[Path]:
        """The files of one source, with a budget of its own."""
        self._left = MOST_ENTRIES
        return self._files(folder, DEPTH)

    def _files(self, folder: Path, depth: int) -> Iterator[Path]:
        """The files below `folder` by name, links followed; a loop of links or an unreadable folder ends there."""
        files, folders = self._inside(folder)
        yield from files
        if depth > 1:
            for inner in folders:
                yield from self._files(inner, depth - 1)

    def _inside(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """The files and the folders in `folder`, sorted; nothing if it was seen before or cannot be read."""
        files: list[Path] = []
        folders: list[Path] = []
        try:
            info = folder.stat()
            if (info.st_dev, info.st_ino) in self._been:
                return [], []
            self._been.add((info.st_dev, info.st_ino))
            with os.scandir(folder) as entries:
                for entry in itertools.islice(entries, self._left):
                    self._left -= 1
                    self._sort_in(entry, files, folders)
        except (OSError, ValueError):
            return [], []
        return sorted(files), sorted(folders)

    @staticmethod
    def _sort_in(entry: os.DirEntry[str], files: list[Path], folders: list[Path]) -> None:
        with suppress(OSError):
            if entry.is_file():
                files.append(Path(entry.path))
            elif entry.is_dir() and not entry.name.startswith(".") and entry.name not in _NO_MODELS:
                folders.append(Path(entry.path))


def _model_blob(manifest: Path) -> str:
    """The name of the blob that holds a manifest's model, or nothing."""
    try:
        with manifest.open("rb") as file:
            content = json.loads(file.read(MOST_MANIFEST))
        digests = [layer["digest"] for layer in content["layers"] if layer["mediaType"] == _MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    digest = digests[0] if digests else None
    return digest.replace(":", "-") if isinstance(digest, str) and _DIGEST.fullmatch(digest) else ""


def _ollama_name(parts: tuple[str, ...]) -> str:
    """`llama3:8b`, `owner/model:tag`, or `host/owner/model:tag`, as Ollama shows it."""
    *where, model, tag = parts
    if where[:1] == ["registry.ollama.ai"]:
        where = where[1:]
    if where == ["library"]:
        where = []
    return "/".join([*where, model]) + f":{tag}"

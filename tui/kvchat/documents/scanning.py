"""Scanning: which files of a folder are to be indexed, and which are not and why.

The rule: looking opens no file but ignore files, follows no link, and says a reason for whatever a person could miss.
Files that are left out on purpose (ignored, hidden, made by tools) are not mentioned, and pictures, archives and the
like in one line.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.documents.collection import Skipped
from kvchat.documents.errors import DocumentError, UnreadableError
from kvchat.documents.ignoring import FILES, Ignoring, above
from kvchat.documents.loading import failure, kind_in_words, loaded, too_large
from kvchat.documents.options import Options
from kvchat.documents.roots import real_root
from kvchat.sanitize import one_line
from kvchat.text.format import counted

__all__ = ["Found", "Options", "is_left_out", "scan"]

TOOL_FOLDERS = frozenset({
    ".git", ".hg", ".svn", ".bzr", ".jj", "CVS", "node_modules", "bower_components", "__pycache__", "__pypackages__",
    ".venv", ".tox", ".nox", ".eggs", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis",
    ".ipynb_checkpoints", ".gradle", ".terraform", ".next", ".nuxt", ".svelte-kit", ".parcel-cache", ".stack-work",
    ".dart_tool", ".Trash", "$RECYCLE.BIN", "System Volume Information"})
"""Folders that tools make for themselves."""
OTHER_KINDS = frozenset(re.findall(r"\S+", """
.png .jpg .jpeg .gif .bmp .ico .icns .webp .tif .tiff .heic .avif .psd .xcf .mp3 .wav .flac .ogg .oga .opus .m4a .aac
.mp4 .m4v .mkv .avi .mov .webm .wmv .flv .zip .gz .tgz .bz2 .tbz .xz .txz .zst .lz4 .7z .rar .tar .jar .war .whl .egg
.deb .rpm .apk .dmg .iso .img .so .dylib .dll .exe .msi .o .obj .a .lib .pyc .pyo .pyd .class .wasm .rlib .rmeta
.node .ttf .otf .woff .woff2 .eot .db .db-journal .db-wal .db-shm .sqlite .sqlite3 .sqlite-journal .sqlite-wal
.sqlite-shm .gguf .safetensors .onnx .pth .npy .npz .parquet .feather .arrow .h5 .hdf5 .pkl .pickle .mo .swp .swo
.blend .stl .glb .fbx .qcow2 .vmdk .vdi .pdb .idb .ilk .pch .gch .dex
"""))
"""Endings of files without text to search: pictures, sound, archives, programs, databases, models."""
_SIGNS = ((b"pyvenv.cfg", b""), (b"CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"))
"""A folder with such a file, beginning so, is an environment or a cache."""
_SPECIAL = frozenset({*FILES, b".git", *(name for name, _ in _SIGNS)})
"""Names of a folder that say something of the others."""
_KINDS_NAMED = 6
NOT_UTF8 = "its name is not UTF-8"


@dataclass(frozen=True, slots=True)
class Found:
    """A file to index."""

    path: str
    """Below the root, with `/`."""
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class _Folder:
    path: bytes
    relative: str
    """Empty, or with `/` at the end."""
    ignoring: Ignoring


def is_left_out(path: str) -> bool:
    """Whether a file below the root is left out whatever the options say, by its name or a folder's."""
    *folders, name = path.split("/")
    return not TOOL_FOLDERS.isdisjoint(folders) or name in TOOL_FOLDERS or _ending(name) in OTHER_KINDS


def scan(root: Path, options: Options) -> Iterator[Found | Skipped]:
    """The files at or below `root`, in an order that depends on their names alone, and what is skipped; at last in one
    line what is of other kinds. Raises DocumentError where the root cannot be looked into."""
    real, info = real_root(root)
    if not stat.S_ISDIR(info.st_mode):
        name = os.fsencode(real.name)
        is_text = _shown(name) == name.decode("utf-8", "replace")
        yield _file(real.name, info, options) if is_text else Skipped(_shown(name), NOT_UTF8)
        return
    odd: set[str] = set()
    for item in _walk(root, real, info, options):
        if "\\" in item.path:  # a name that is not UTF-8 can be shown as another one is
            if item.path in odd:
                continue
            odd.add(item.path)
        yield item


def _walk(root: Path, real: Path, info: os.stat_result, options: Options) -> Iterator[Found | Skipped]:
    others: Counter[str] = Counter()
    seen = {(info.st_dev, info.st_ino)}
    todo = [_Folder(os.fsencode(real), "", above(real))]
    while todo:
        folder = todo.pop()
        try:
            entries = _entries(folder.path)
        except OSError as error:
            if not folder.relative:
                raise DocumentError(f"{one_line(str(root), 200)} {failure(error)}.") from None
            if not isinstance(error, FileNotFoundError):
                yield Skipped(folder.relative, failure(error))
            continue
        special = {entry.name for entry in entries if entry.name in _SPECIAL}
        if folder.relative and _is_made_by_tool(folder.path, special):
            continue
        below: list[_Folder] = []
        folder = replace(folder, ignoring=folder.ignoring.within(folder.path, folder.relative, special))
        while entries:
            yield from _looked_at(entries.pop(), folder, options, below, seen, others)
        todo += reversed(below)
    if others:
        yield Skipped("", _of_other_kinds(others))


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    """What is in a folder, from the last name to the first. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name, reverse=True)


def _looked_at(entry: os.DirEntry[bytes], folder: _Folder, options: Options, below: list[_Folder],
               seen: set[tuple[int, int]], others: Counter[str]) -> Iterator[Found | Skipped]:
    """What is to be said of one entry. Folders to go into are put in `below`, files of other kinds counted."""
    name = entry.name
    if name.startswith(b".") and not options.hidden:
        return
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Skipped(folder.relative + _shown(name), failure(error))
        return
    is_folder = stat.S_ISDIR(info.st_mode)
    path = folder.relative + name.decode("utf-8", "surrogateescape") + ("/" if is_folder else "")
    if (is_folder and os.fsdecode(name) in TOOL_FOLDERS) or name == b".git" or folder.ignoring.leaves_out(path):
        return
    if _shown(name) != (text := name.decode("utf-8", "replace")):
        yield Skipped(folder.relative + _shown(name) + ("/" if is_folder else ""), NOT_UTF8)
    elif not is_folder:
        if stat.S_ISREG(info.st_mode) and (ending := _ending(text)) in OTHER_KINDS:
            others[ending] += 1
        else:
            yield _file(path, info, options)
    elif info.st_ino and (info.st_dev, info.st_ino) in seen:
        yield Skipped(path, "is a folder that is there twice")
    else:
        seen.add((info.st_dev, info.st_ino))
        below.append(_Folder(folder.path + b"/" + name, path, folder.ignoring))


def _file(path: str, info: os.stat_result, options: Options) -> Found | Skipped:
    if not stat.S_ISREG(info.st_mode):
        return Skipped(path, kind_in_words(info.st_mode))
    if info.st_size > options.largest:
        return Skipped(path, too_large(options.largest))
    return Found(path, info.st_size, info.st_mtime_ns)


def _shown(name: bytes) -> str:
    """A name as text; bytes that are none as `\\xe9`."""
    return name.decode("utf-8", "backslashreplace")


def _ending(name: str) -> str:
    return "." + name.rpartition(".")[2].casefold() if "." in name[1:] else ""


def _is_made_by_tool(folder: bytes, names: Collection[bytes]) -> bool:
    for name, beginning in _SIGNS:
        if name in names:
            try:
                return loaded(folder + b"/" + name, 100_000).data.startswith(beginning)
            except UnreadableError:
                return False
    return False


def _of_other_kinds(others: Counter[str]) -> str:
    named = sorted(others.items(), key=lambda one: (-one[1], one[0]))[:_KINDS_NAMED]
    rest = others.total() - sum(count for _, count in named)
    kinds = ", ".join(f"{ending} {count:,}" for ending, count in named)
    return f"holds {counted(others.total(), 'file')} of other kinds: {kinds}{f' and {rest:,} more' if rest else ''}"

"""Scan a folder: which files are to be indexed, and which are not and why.

Scanning opens no file but ignore files, follows no link, and gives a reason for whatever the user could miss. Files
that are left out on purpose (ignored, hidden, made by tools) are not mentioned, and pictures, archives and the like in
one line.

Ignore files are followed as git does it. The last line that fits decides, a deeper folder's file before those above it,
and what is in a folder that is left out cannot be taken in again. `.ignore` comes after `.gitignore`, and
`.kvchatignore` after both. They never fail open: a folder whose ignore file cannot be read is left out, and a line that
cannot be read, or is a guess, is named.

A root that is missing, cannot be read or is suddenly empty is a drive that is not connected, until the user says
otherwise: nothing is concluded about its files.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kvchat.documents.collection import IndexingOptions, Skipped
from kvchat.documents.errors import DocumentError, FileUnreadableError
from kvchat.documents.kept_out import SECRET, is_secret_path
from kvchat.documents.loading import failure, kind_in_words, loaded, too_large
from kvchat.documents.reading.decoding import MARKS
from kvchat.paths import original_of
from kvchat.sanitize import one_line
from kvchat.text.format import counted

Pattern = tuple[bool, re.Pattern[str]]
"""Whether what fits is left out, and the expression that fits."""

FILES = (b".gitignore", b".ignore", b".kvchatignore")
_GIT, _EXCLUDE = b".git", b".git/info/exclude"
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_LARGEST = 1_000_000
_FOLDER_MARK = "ps_d"
"""The group of pathspec's expressions that holds the `/` after what a line names."""
_STARS = 3
"""A line with more of them could take minutes to compare with a name made for that; it is passed over."""
_FOLDERS_BELOW = re.compile(r"(?:^|(?<=[/!]))\*\*/$")
"""`a/**/` is every folder below `a`."""
_FOLDERS_BETWEEN = re.compile(r"(?:^|(?<=/))\*\*(?=/|$)")


class _Layer(Struct, frozen=True):
    """The lines of one folder."""

    patterns: Sequence[Pattern]
    """The last line first."""
    above: str
    """How the root of the tree is reached from that folder, with `/` at the end; empty: it is the root or below."""
    below: int
    """How much of a path is that folder."""

    def leaves_out(self, path: str) -> bool | None:
        """None: no line fits."""
        name = unicodedata.normalize("NFC", self.above + path[self.below :])
        return next((leaves_out for leaves_out, pattern in self.patterns if _fits(pattern, name)), None)


class Ignoring(Struct, frozen=True):
    """What applies in a folder."""

    layers: tuple[_Layer, ...] = ()
    """The deepest first."""
    problems: tuple[Skipped, ...] = ()
    """Ignore files of this folder, or of those above the root, that could not be read in whole."""
    is_closed: bool = False
    """Whether one of them could not be read at all, so that what it keeps out is unknown."""

    def within(self, folder: bytes, relative: str, names: Collection[bytes]) -> Ignoring:
        """What applies in the folder `relative` (empty, or with `/` at the end), in which there are these names."""
        rules = _Rules(folder, relative, names)
        layers = (_Layer(rules.patterns, "", len(relative)), *self.layers) if rules.patterns else self.layers
        return Ignoring(layers, tuple(rules.problems), rules.is_closed)

    def leaves_out(self, path: str) -> bool:
        """Whether a file, or with `/` at the end a folder, is left out; the folder that it is in is not."""
        said = (layer.leaves_out(path) for layer in self.layers)
        return next((left_out for left_out in said if left_out is not None), False)


def above(root: Path) -> Ignoring:
    """What the folders above `root` say, up to the top of the repository that it is in. Nothing where they leave out
    `root` itself: whoever names a folder wants it."""
    layers: list[_Layer] = []
    problems: list[Skipped] = []
    is_closed = False
    folder, way, back = root, "", ""
    while not os.path.lexists(folder / ".git"):
        if folder.parent == folder:
            return Ignoring()
        folder, way, back = folder.parent, f"{folder.name}/{way}", f"../{back}"
        names = [name for name in (*FILES, _GIT) if os.path.lexists(folder / os.fsdecode(name))]
        rules = _Rules(os.fsencode(folder), back, names)
        problems += rules.problems
        is_closed |= rules.is_closed
        if rules.patterns:
            layers.append(_Layer(rules.patterns, way, 0))
    return Ignoring() if any(map(_leaves_out_the_way, layers)) else Ignoring(tuple(layers), tuple(problems), is_closed)


def _leaves_out_the_way(layer: _Layer) -> bool:
    steps = layer.above.split("/")[:-1]
    ways = ("/".join(steps[:count]) + "/" for count in range(1, len(steps) + 1))
    return any(_Layer(layer.patterns, "", 0).leaves_out(way) for way in ways)


def _fits(pattern: re.Pattern[str], path: str) -> bool:
    """Whether a line means the file or folder itself, not one that it is in: of that it was decided before."""
    for found in pattern.finditer(path):
        if _FOLDER_MARK not in pattern.groupindex:
            return found.end() < len(path) or not path.endswith("/")  # `a/**` means what is in `a`, not `a`
        if found[_FOLDER_MARK] is None or found.end(_FOLDER_MARK) == len(path):
            return True
    return False


class _Rules:
    """What the ignore files of one folder say together."""

    def __init__(self, folder: bytes, relative: str, names: Collection[bytes]) -> None:
        """`relative`: the folder as the user reads it, empty or with `/` at the end."""
        self.patterns: list[Pattern] = []
        """The last line first."""
        self.problems: list[Skipped] = []
        self.is_closed = False
        files = [name for name in FILES if name in names]
        if _GIT in names and os.path.lexists(folder + b"/" + _EXCLUDE):
            files.insert(0, _EXCLUDE)
        for file in files:
            shown = relative + file.decode()
            try:
                self._add(loaded(os.path.realpath(folder + b"/" + file), _LARGEST).data, shown)
            except FileUnreadableError as error:
                self.problems.append(Skipped(shown, f"{error}; its folder is not indexed until it can be"))
                self.is_closed = True
        self.patterns.reverse()

    def _add(self, data: bytes, shown: str) -> None:
        found: dict[str, int] = {}
        for number, line in enumerate(_lines(data), start=1):
            text, odd = _text(line)
            if not text.strip() or text.startswith("#"):
                continue
            if _FOLDERS_BETWEEN.sub("", text).count("*") > _STARS:
                odd = f"has a line with more than {_STARS} *, which is passed over"
            for each in dict.fromkeys((text, line.decode("utf-8", "surrogateescape"))) if odd == _GUESSED else (text,):
                if odd in ("", _GUESSED) and (pattern := _compiled(unicodedata.normalize("NFC", each))):
                    self.patterns += reversed(pattern)
            if odd:
                found.setdefault(odd, number)
        self.problems += [Skipped(f"{shown}:{number}", reason) for reason, number in found.items()]


_GUESSED = "is not in UTF-8 here; it is read as Windows-1252"


def _lines(data: bytes) -> list[bytes]:
    """The lines of an ignore file, in UTF-8 if it says what it is in. A shell of Windows appends UTF-16 to any file:
    of that the zeros go."""
    mark, encoding = next(((mark, encoding) for mark, encoding in MARKS if data.startswith(mark)), (b"", ""))
    if encoding not in ("", "utf-8"):
        data = data.removeprefix(mark).decode(encoding, "replace").encode("utf-8", "replace")
    return re.split(rb"\r\n?|\n", data.removeprefix(mark).replace(b"\0", b""))


def _text(line: bytes) -> tuple[str, str]:
    """A line as text, and what is odd about it; empty: nothing."""
    odd = ""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text, odd = line.decode("cp1252", "replace"), _GUESSED
    return text, "cannot be read here; save it as UTF-8" if "\ufffd" in text or _CONTROL.search(text) else odd


def _compiled(line: str) -> list[Pattern]:
    """The pattern of a line; none where it is no valid one: git passes over it."""
    from pathspec import GitIgnoreSpec

    try:
        patterns = GitIgnoreSpec.from_lines([_FOLDERS_BELOW.sub("**/*/", line)]).patterns
        return [(one.include, one.regex) for one in patterns if one.include is not None and one.regex is not None]
    except (ValueError, re.error):
        return []


KEPT = "What is in the index of it is kept."


def real_root(root: Path) -> tuple[Path, os.stat_result]:
    """The folder or file that `root` leads to. Raises DocumentError with what is wrong with it."""
    try:
        real = root.resolve(strict=True)
        info = real.stat()
        if stat.S_ISDIR(info.st_mode):
            with os.scandir(real):
                pass
    except (FileNotFoundError, NotADirectoryError):
        raise DocumentError(f"{shown(root)} is not there.") from None
    except (OSError, RuntimeError, ValueError) as error:
        why = failure(error) if isinstance(error, OSError) else "cannot be read"
        raise DocumentError(f"{shown(root)} {why}.") from None
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise DocumentError(f"{shown(root)} {kind_in_words(info.st_mode)}.")
    return real, info


def shown(root: Path) -> str:
    """A root as a sentence may hold it."""
    return one_line(str(root), 200)


def trouble_of(root: Path, has_documents: bool) -> str:
    """What is wrong with a root, in sentences; empty: nothing. An empty folder of which something is in the index is
    where a drive is not connected."""
    try:
        Root(root, has_documents)
    except DocumentError as error:
        return str(error)
    return ""


class Root:
    """A root that is being scanned."""

    def __init__(self, root: Path, has_documents: bool) -> None:
        """`has_documents`: whether there is anything of it in the index. Raises DocumentError."""
        self._root, self._kept = root, f" {KEPT}" if has_documents else ""
        real, info = self._real()
        is_folder = stat.S_ISDIR(info.st_mode)
        if is_folder and has_documents and not _has_entries(real):
            raise DocumentError(f"{shown(root)} is empty. {KEPT} Connect its drive, or remove the collection.")
        self._identity = info.st_dev, info.st_ino
        self.folder = os.fsencode(real if is_folder else real.parent)
        """The folder that paths are below."""

    def check(self) -> None:
        """Raises DocumentError where it is no longer what it was: then a file that is missing may not be gone."""
        _, info = self._real()
        if (info.st_dev, info.st_ino) != self._identity:
            raise DocumentError(f"{shown(self._root)} was replaced while it was read.{self._kept}")

    def _real(self) -> tuple[Path, os.stat_result]:
        try:
            return real_root(self._root)
        except DocumentError as error:
            raise DocumentError(f"{error}{self._kept}") from None


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


TOOL_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".bzr",
        ".jj",
        "CVS",
        "node_modules",
        "bower_components",
        "__pycache__",
        "__pypackages__",
        ".venv",
        ".tox",
        ".nox",
        ".eggs",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".gradle",
        ".terraform",
        ".next",
        ".nuxt",
        ".svelte-kit",
        ".parcel-cache",
        ".stack-work",
        ".dart_tool",
        ".stversions",
        ".stfolder",
        ".dropbox.cache",
        ".Trash",
        "$RECYCLE.BIN",
        "System Volume Information",
    }
)
"""Folders that tools make for themselves."""
OTHER_KINDS = frozenset(
    re.findall(
        r"\S+",
        """
.png .jpg .jpeg .gif .bmp .ico .icns .webp .tif .tiff .heic .avif .psd .xcf .mp3 .wav .flac .ogg .oga .opus .m4a .aac
.mp4 .m4v .mkv .avi .mov .webm .wmv .flv .zip .gz .tgz .bz2 .tbz .xz .txz .zst .lz4 .7z .rar .tar .jar .war .whl .egg
.deb .rpm .apk .dmg .iso .img .so .dylib .dll .exe .msi .o .obj .a .lib .pyc .pyo .pyd .class .wasm .rlib .rmeta
.node .ttf .otf .woff .woff2 .eot .db .db-journal .db-wal .db-shm .sqlite .sqlite3 .sqlite-journal .sqlite-wal
.sqlite-shm .gguf .safetensors .onnx .pth .npy .npz .parquet .feather .arrow .h5 .hdf5 .pkl .pickle .mo .swp .swo
.blend .stl .glb .fbx .qcow2 .vmdk .vdi .pdb .idb .ilk .pch .gch .dex
""",
    )
)
"""Endings of files without text to search: pictures, sound, archives, programs, databases, models."""
_SIGNS = ((b"pyvenv.cfg", b""), (b"CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"))
"""A folder with such a file, beginning so, is an environment or a cache."""
_SPECIAL = frozenset({*FILES, b".git", *(name for name, _ in _SIGNS)})
"""Names of a folder that say something of the others."""
_KINDS_NAMED = 6
ANOTHER_VERSION = "is another version of {}, made by a program that copies files"
NOT_UTF8 = "its name is not UTF-8"


class FoundFile(Struct, frozen=True):
    """A file to index."""

    path: str
    """Below the root, with `/`."""
    size: int
    mtime_ns: int


class _Folder(Struct, frozen=True):
    path: bytes
    relative: str
    """Empty, or with `/` at the end."""
    ignoring: Ignoring


def is_left_out(path: str) -> bool:
    """Whether a file below the root is left out whatever the options say, by its name or a folder's."""
    *folders, name = path.split("/")
    return not TOOL_FOLDERS.isdisjoint(folders) or name in TOOL_FOLDERS or _ending(name) in OTHER_KINDS


def scan(root: Path, options: IndexingOptions) -> Iterator[FoundFile | Skipped]:
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


def _walk(root: Path, real: Path, info: os.stat_result, options: IndexingOptions) -> Iterator[FoundFile | Skipped]:
    others: Counter[str] = Counter()
    seen = {(info.st_dev, info.st_ino)}
    outer = above(real)
    yield from outer.problems
    todo = [_Folder(os.fsencode(real), "", outer)] if not outer.is_closed else []
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
        yield from folder.ignoring.problems
        if folder.ignoring.is_closed:
            continue
        names = {os.fsdecode(entry.name).lower() for entry in entries}
        while entries:
            entry = entries.pop()
            original = original_of(os.fsdecode(entry.name))
            for item in _looked_at(entry, folder, options, below, seen, others):
                is_copy = isinstance(item, FoundFile) and original.lower() in names
                yield Skipped(item.path, ANOTHER_VERSION.format(one_line(original, 100))) if is_copy else item
        todo += reversed(below)
    if others:
        yield Skipped("", _of_other_kinds(others))


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    """What is in a folder, from the last name to the first. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name, reverse=True)


def _looked_at(
    entry: os.DirEntry[bytes],
    folder: _Folder,
    options: IndexingOptions,
    below: list[_Folder],
    seen: set[tuple[int, int]],
    others: Counter[str],
) -> Iterator[FoundFile | Skipped]:
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
        elif is_secret_path(f"{os.fsdecode(folder.path)}/{text}"):
            yield Skipped(path, SECRET)
        else:
            yield _file(path, info, options)
    elif is_secret_path(f"{os.fsdecode(folder.path)}/{text}"):
        yield Skipped(path, SECRET)
    elif info.st_ino and (info.st_dev, info.st_ino) in seen:
        yield Skipped(path, "is a folder that is there twice")
    else:
        seen.add((info.st_dev, info.st_ino))
        below.append(_Folder(folder.path + b"/" + name, path, folder.ignoring))


def _file(path: str, info: os.stat_result, options: IndexingOptions) -> FoundFile | Skipped:
    if not stat.S_ISREG(info.st_mode):
        return Skipped(path, kind_in_words(info.st_mode))
    if info.st_size > options.largest:
        return Skipped(path, too_large(options.largest))
    return FoundFile(path, info.st_size, info.st_mtime_ns)


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
            except FileUnreadableError:
                return False
    return False


def _of_other_kinds(others: Counter[str]) -> str:
    named = sorted(others.items(), key=lambda one: (-one[1], one[0]))[:_KINDS_NAMED]
    rest = others.total() - sum(count for _, count in named)
    kinds = ", ".join(f"{ending} {count:,}" for ending, count in named)
    return f"holds {counted(others.total(), 'file')} of other kinds: {kinds}{f' and {rest:,} more' if rest else ''}"

"""Ignoring: what the ignore files of a folder tree leave out.

The rule: as git does it. The last line that fits decides, a deeper folder's file before those above it, and what is in
a folder that is left out cannot be taken in again. `.ignore` comes after `.gitignore`, and `.kvchatignore` after both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvchat.documents.errors import UnreadableError
from kvchat.documents.loading import loaded

Pattern = tuple[bool, re.Pattern[str]]
"""Whether what fits is left out, and the expression that fits."""

FILES = (b".gitignore", b".ignore", b".kvchatignore")
_GIT = b".git"
_LARGEST = 1_000_000
_FOLDER_MARK = "ps_d"
"""The group of pathspec's expressions that holds the `/` after what a line names."""
_STARS = 3
"""A line with more of them could take minutes to compare with a name made for that; it is passed over."""
_FOLDERS_BELOW = re.compile(r"(?:^|(?<=[/!]))\*\*/$")
"""`a/**/` is every folder below `a`."""
_FOLDERS_BETWEEN = re.compile(r"(?:^|(?<=/))\*\*(?=/|$)")


@dataclass(frozen=True, slots=True)
class _Layer:
    """The lines of one folder."""

    patterns: Sequence[Pattern]
    """The last line first."""
    above: str
    """How the root of the tree is reached from that folder, with `/` at the end; empty: it is the root or below."""
    below: int
    """How much of a path is that folder."""

    def leaves_out(self, path: str) -> bool | None:
        """None: no line fits."""
        name = self.above + path[self.below:]
        return next((leaves_out for leaves_out, pattern in self.patterns if _fits(pattern, name)), None)


@dataclass(frozen=True, slots=True)
class Ignoring:
    """What applies in a folder."""

    layers: tuple[_Layer, ...] = ()
    """The deepest first."""

    def within(self, folder: bytes, relative: str, names: Collection[bytes]) -> Ignoring:
        """What applies in the folder `relative` (empty, or with `/` at the end), in which there are these names."""
        patterns = _patterns(folder, names)
        return Ignoring((_Layer(patterns, "", len(relative)), *self.layers)) if patterns else self

    def leaves_out(self, path: str) -> bool:
        """Whether a file, or with `/` at the end a folder, is left out; the folder that it is in is not."""
        said = (layer.leaves_out(path) for layer in self.layers)
        return next((left_out for left_out in said if left_out is not None), False)


def above(root: Path) -> Ignoring:
    """What the folders above `root` say, up to the top of the repository that it is in. Nothing where they leave out
    `root` itself: whoever names a folder wants it."""
    layers: list[_Layer] = []
    folder, way = root, ""
    while not os.path.lexists(folder / ".git"):
        if folder.parent == folder:
            return Ignoring()
        folder, way = folder.parent, f"{folder.name}/{way}"
        if patterns := _patterns(os.fsencode(folder), [name for name in (*FILES, _GIT)
                                                       if os.path.lexists(folder / os.fsdecode(name))]):
            layers.append(_Layer(patterns, way, 0))
    return Ignoring() if any(map(_leaves_out_the_way, layers)) else Ignoring(tuple(layers))


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


def _patterns(folder: bytes, names: Collection[bytes]) -> Sequence[Pattern]:
    """What the ignore files of one folder say together, the last line first."""
    files = [name for name in FILES if name in names]
    if _GIT in names:
        files.insert(0, b".git/info/exclude")
    lines = [line for file in files for line in _read(folder + b"/" + file)]
    return [pattern for line in reversed(lines) for pattern in _compiled(line)]


def _read(path: bytes) -> Iterator[str]:
    """The lines of an ignore file; none where it cannot be read."""
    try:
        text = loaded(path, _LARGEST).data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    except UnreadableError:
        return
    for line in text.split("\n"):
        if line.strip() and not line.startswith("#") and _FOLDERS_BETWEEN.sub("", line).count("*") <= _STARS:
            yield line.removesuffix("\r")


def _compiled(line: str) -> list[Pattern]:
    """The pattern of a line; none where it is no valid one: git passes over it."""
    from pathspec import GitIgnoreSpec

    try:
        patterns = GitIgnoreSpec.from_lines([_FOLDERS_BELOW.sub("**/*/", line)]).patterns
        return [(one.include, one.regex) for one in patterns if one.include is not None and one.regex is not None]
    except (ValueError, re.error):
        return []

"""Find the characters of a text that are one to the reader: a family, a flag, a letter and its accents."""

from __future__ import annotations

from functools import lru_cache

from kvchat.patterns import compiled_later

_ALONE = compiled_later(
    "[ -~\u00a0-\u02ff\u0370-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u3001-\u3029\u3041-\u3096"
    "\u30a1-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60]*"
)
"""Characters that nothing joins, as most lines have no other ones."""


@lru_cache(64)
def clusters(line: str) -> tuple[tuple[int, int], ...]:
    """The grapheme clusters of a line (UAX 29) that are more than one code point, each from and up to where."""
    if _ALONE.fullmatch(line):
        return ()
    from wcwidth import iter_graphemes

    found, at = [], 0
    for cluster in iter_graphemes(line):
        if len(cluster) > 1:
            found.append((at, at + len(cluster)))
        at += len(cluster)
    return tuple(found)


def outside(line: str, at: int, *, forward: bool = False) -> int:
    """A place in a line at which it can be cut: `at`, or where the cluster begins, or ends, that it is within."""
    return next((end if forward else start for start, end in clusters(line) if start < at < end), at)

"""What the search index costs: building, searching and replacing at several sizes, with and without vectors.

    python tests/bench/index_bench.py [SIZES] [--vectors] [--no-fts] [--wall]

SIZES: numbers of chunks, `10000,100000` unless told. Chunks have about 1,000 characters, 100 to a document, in the
scope `docs/`; 10,000 short lines are in `memory/`. A word is the rarer the higher its number, as in real text; queries
are 10 words without the 100 commonest, which stand for stop words. Times are in milliseconds of the processor
(`--wall`: of the clock), median and 95 of 100; the last columns set the sizes against each other. Nothing is asserted.
"""

from __future__ import annotations

import bisect
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from kvchat.index import index_file, vectors
from kvchat.index.index import Chunk, Hit, Index

SIZES = [int(size) for size in next((a for a in sys.argv[1:] if a[0].isdigit()), "10000,100000").split(",")]
VECTORS = "--vectors" in sys.argv
now = time.perf_counter if "--wall" in sys.argv else time.thread_time
LENGTH = 384
QUERIES = 100
VOCABULARY = 50_000
_SUMS = list(itertools.accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))


def _spelled(number: int) -> str:
    """A word of its own for each number: syllables."""
    parts = []
    while number or not parts:
        number, rest = divmod(number, 75)
        parts.append("bdfgklmnprstvwz"[rest // 5] + "aeiou"[rest % 5])
    return "".join(parts) + "n"


WORDS = [_spelled(number) for number in range(VOCABULARY)]


def words(dice: random.Random, count: int, first: int = 0) -> list[str]:
    rarest, commonest = _SUMS[-1], _SUMS[first - 1] if first else 0.0
    return [WORDS[bisect.bisect(_SUMS, commonest + dice.random() * (rarest - commonest))] for _ in range(count)]


def query(dice: random.Random) -> str:
    return " ".join(words(dice, 10, 100))


def measured(index: Index, queries: list[str], **how: object) -> tuple[list[float], list[Hit]]:
    """Milliseconds of each query."""
    taken, hits = [], []
    for text in queries:
        began = now()
        hits = index.search(text, 8, **how)  # type: ignore[arg-type]
        taken.append((now() - began) * 1000)
    return taken, hits


def shown(taken: list[float]) -> tuple[float, float]:
    cuts = quantiles(taken, n=100)
    return cuts[49], cuts[94]


def one(size: int, folder: Path) -> dict[str, float]:
    dice = random.Random(7)
    path = folder / f"{size}.db"
    chunks = [Chunk(str(n), " ".join(words(dice, 4)), " ".join(words(dice, 160))) for n in range(size)]
    lines = [Chunk(f"m{n}", "", " ".join(words(dice, 12))) for n in range(10_000)]
    began = now()
    index = Index.open(path)
    for start in range(0, size, 100):
        index.replace(f"docs/d{start // 1000}/{start}.md", chunks[start : start + 100], "1")
    for start in range(0, len(lines), 100):
        index.replace(f"memory/topics/{start}.md", lines[start : start + 100], "1")
    rows = {"build s": now() - began, "MB": path.stat().st_size / 1e6}
    index.close()

    began = now()
    index = Index.open(path)
    index.search(query(dice))
    rows["open and first"] = (now() - began) * 1000

    queries = [query(dice) for _ in range(QUERIES)]
    for name, how in (
        ("all", {}),
        ("docs/", {"scope": "docs/"}),
        ("memory/", {"scope": "memory/"}),
        ("one folder", {"scope": "docs/d1/"}),
    ):
        rows[f"{name} p50"], rows[f"{name} p95"] = shown(measured(index, queries, **how)[0])
    taken = []
    for turn in range(40):
        edited = [Chunk("edited", "", f"turn {turn}"), *chunks[1:100]]
        began = now()
        index.replace("docs/d0/0.md", edited, str(turn))
        taken.append((now() - began) * 1000)
    rows["replace p50"], rows["replace p95"] = shown(taken)
    began = now()
    index.docs()
    rows["docs"] = (now() - began) * 1000
    began = now()
    index.digest()
    rows["digest"] = (now() - began) * 1000
    if VECTORS:
        rows |= with_vectors(index, dice, queries, path)
    index.close()
    return rows


def with_vectors(index: Index, dice: random.Random, queries: list[str], path: Path) -> dict[str, float]:
    began = now()
    some = [[dice.gauss(0, 1) for _ in range(LENGTH)] for _ in range(64)]
    while found := index.without_vector("m", 1000):
        index.put_vectors("m", {(doc, chunk.key): dice.choice(some) for doc, chunk in found})
    rows = {"vectors s": now() - began, "MB with vectors": path.stat().st_size / 1e6}
    vector = [dice.gauss(0, 1) for _ in range(LENGTH)]
    for scope in ("", "memory/"):
        began = now()
        index.search(queries[0], vector=vector, scope=scope)
        rows[f"numpy {scope or 'all'} first"] = (now() - began) * 1000
        taken, _ = measured(index, queries, vector=vector, scope=scope)
        rows[f"numpy {scope or 'all'} p50"], rows[f"numpy {scope or 'all'} p95"] = shown(taken)
    with_numpy, vectors.numpy = vectors.numpy, lambda: None
    taken, _ = measured(index, queries, vector=vector)
    rows["no numpy p50"], rows["no numpy p95"] = shown(taken)
    vectors.numpy = with_numpy
    return rows


def main() -> None:
    if "--no-fts" in sys.argv:
        index_file.has_fts = lambda connection: False
    with tempfile.TemporaryDirectory() as folder:
        columns = [one(size, Path(folder)) for size in SIZES]
    print(
        f"{'chunks':24}"
        + "".join(f"{size:>12,}" for size in SIZES)
        + "".join(f"{f'x{size / SIZES[0]:g}':>9}" for size in SIZES[1:])
    )
    for name in columns[0]:
        values = [column[name] for column in columns]
        print(
            f"{name:24}"
            + "".join(f"{value:12.2f}" for value in values)
            + "".join(f"{value / values[0]:9.1f}" for value in values[1:])
        )


if __name__ == "__main__":
    main()

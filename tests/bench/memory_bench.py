"""What the memory costs: search, sync and noting at 10,000 entries.

    python tests/bench/memory_bench.py [ENTRIES]

Nothing is asserted; a search is to take less than 20 ms at 10,000 entries, first use apart.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

sys.path[:0] = [str(Path(__file__).parents[1] / "memory"), str(Path(__file__).parents[1])]
from book_kit import Book  # noqa: E402

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
PAGES = 40
WORDS = Path(__file__).parents[2] / "docs" / "documents.md"


def vocabulary() -> list[str]:
    """Real words and made ones, in the order of how often they are used."""
    chance = random.Random(1)
    real = sorted({word.lower() for word in WORDS.read_text("utf-8").split() if word.isalpha() and len(word) > 2})
    made = ["".join(chance.choice("bdfgklmnprst") + chance.choice("aeiou") for _ in range(3)) for _ in range(4000)]
    chance.shuffle(real)
    return real + made


def sentence(chance: random.Random, words: list[str]) -> str:
    """A few words, as often used as Zipf says: the commonest stand in every tenth entry or so."""
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return " ".join(chance.choices(words, weights, k=chance.randint(5, 14)))


def timed(name: str, work: Callable[[int], object], times: int) -> None:
    """Milliseconds of one call, over so many: by the clock, and of the processor alone where the machine is busy."""
    took, busy = [], []
    for number in range(times):
        began, cpu = time.perf_counter(), time.process_time()
        work(number)
        took.append((time.perf_counter() - began) * 1000)
        busy.append((time.process_time() - cpu) * 1000)
    print(
        f"{name:42} p50 {_cut(took, 9):8.2f} ms   p95 {_cut(took, 18):8.2f} ms   CPU p50 {_cut(busy, 9):8.2f} ms   "
        f"p95 {_cut(busy, 18):8.2f} ms   ({times} times)"
    )


def _cut(values: list[float], twentieth: int) -> float:
    return quantiles(values, n=20)[twentieth] if len(values) > 1 else values[0]


def main() -> None:
    chance, words = random.Random(2), vocabulary()
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "notes" / "topics"
        folder.mkdir(parents=True)
        for page in range(PAGES):
            lines = (f"- {sentence(chance, words)} {page}.{number}" for number in range(COUNT // PAGES))
            (folder / f"topic-{page}.md").write_text("\n".join(lines) + "\n", "utf-8")
        book = Book(Path(base), clock=time.time)
        print(f"{COUNT} entries on {PAGES} pages")
        timed("first sync: files into state and index", lambda _: book.memories.sync(), 1)
        book.again()
        timed("start: first sync with nothing to do", lambda _: book.memories.sync(), 1)
        questions = [sentence(chance, words) + "?" for _ in range(300)]
        timed("search, the first", lambda n: book.memories.search(questions[n], 20), 1)
        timed("search, k=20", lambda n: book.memories.search(questions[n], 20), 300)
        timed("search, k=8", lambda n: book.memories.search(questions[n], 8), 300)
        timed("search for one word", lambda n: book.memories.search(words[n], 20), 300)
        timed("sync with nothing to do", lambda _: book.memories.sync(), 200)

        def by_hand(number: int) -> None:
            path = folder / f"topic-{number % PAGES}.md"
            path.write_text(path.read_text("utf-8").replace(" 7", " seven", 1) + f"- typed {number}\n", "utf-8")
            book.memories.sync()

        timed("sync after an edit by hand", by_hand, 10)
        timed("add", lambda n: book.memories.add(f"a new one {n} {sentence(chance, words)}"), 10)
        timed(
            "one extraction of 5 facts",
            lambda n: book.extract(*(f"{sentence(chance, words)} x{n}{part}" for part in range(5))),
            10,
        )
        timed("rebuild of the index", lambda _: book.memories.rebuild(), 3)
        print(f"{len(book.memories.entries())} entries, trouble: {book.memories.problems or 'none'}")
        book.close()


if __name__ == "__main__":
    main()

